"""Contexts of a chosen length, from the command line."""

from pathlib import Path

import pytest
from datasets import Dataset

from datasets_gen import RULER, TASKS, USUAL
from kvbench.cli.program import main
from kvbench.execution.execute import check_first_contexts
from kvbench.experiments.build_grid import build_grid
from kvbench.models.load import load_model
from kvbench.prompts.context_length import (
    count_context_tokens,
    lengthen,
    notes_on_length,
    tokens_of_run,
)
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine
from tests.support.models.toy import toy_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    toy_tokenizer().save_pretrained(folder)
    return folder


def test_every_task_gets_the_length_and_its_version_tells_it() -> None:
    tasks = lengthen(list(TASKS.values()), 2400, 0.25, len)
    assert [task.name for task in tasks] == list(TASKS)
    for task in tasks:
        assert 0.98 * 2400 <= len(task.example(0, 0).context) <= 2400
    others = lengthen(list(TASKS.values()), 2400, 0.75, len)
    for three in zip(TASKS.values(), tasks, others, strict=True):
        assert len({task.full_version for task in three}) == 3


def test_export_writes_contexts_of_the_length_that_is_asked_for(
    tokenizer: Path, tmp_path: Path
) -> None:
    asked = ["--context-tokens", "700", "--tokenizer", str(tokenizer)]
    assert (
        main(
            [
                "export",
                "--task",
                "long_context(depth=1)",
                "--limit",
                "2",
                "--out",
                str(tmp_path),
                *asked,
            ]
        )
        == 0
    )
    rows = Dataset.from_parquet(
        str(tmp_path / "data" / "test.parquet"), cache_dir=str(tmp_path / "cache")
    )
    lengths = {
        len(toy_tokenizer().encode(row["context"], add_special_tokens=False)) for row in rows
    }
    assert all(0.98 * 700 <= length <= 700 for length in lengths)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["long_context(depth=0.5)"], "depth needs a length"),
        (
            ["long_context(depth=2)", "--context-tokens", "900"],
            "from 0, the beginning, to 1, the end, not 2",
        ),
        (["long_context", "--context-tokens", "200000"], "131072 at most"),
        (
            ["long_context", "--context-tokens", "10", "--tokenizer", "{toy}"],
            "10 tokens are too few",
        ),
        (
            ["long_context", "--context-tokens", "900", "--tokenizer", "{nothing}"],
            "no tokenizer.json of",
        ),
    ],
)
def test_bad_lengths_are_one_clear_line(
    cli: CommandLine, arguments: list[str], said: str, tokenizer: Path, tmp_path: Path
) -> None:
    filled = [argument.format(toy=tokenizer, nothing=tmp_path) for argument in arguments]
    assert said in cli.error("show", *filled)


def test_contexts_of_a_run_have_768_tokens_unless_a_suite_or_a_text_has_its_own_length() -> None:
    assert tokens_of_run(None, None, None) == tokens_of_run(None, None, "base,hops") == USUAL
    assert {count_context_tokens(task, USUAL) for task in TASKS.values()} == {768}
    assert {count_context_tokens(task, USUAL) for task in RULER.values()} == {4096}
    assert tokens_of_run("native", None, None) is None
    assert {count_context_tokens(task, None) for task in TASKS.values()} == {None}
    assert {count_context_tokens(task, None) for task in RULER.values()} == {4096}, (
        "their own length is one in tokens"
    )
    assert {count_context_tokens(task, 900) for task in (*TASKS.values(), *RULER.values())} == {900}
    assert tokens_of_run("900", "faults", "base") == 900
    for suite, tasks in (("faults", None), (None, "base, ifeval"), (None, "prose")):
        assert tokens_of_run(None, suite, tasks) is None


def test_a_usual_length_stays_within_the_places_of_a_model() -> None:
    """Of 4,096 places 128 are for the answer and 256 for question and template; 3,712 is a multiple
    of 128."""
    needle = RULER["niah_single_2"]
    assert needle.max_new_tokens == 128
    assert [
        count_context_tokens(needle, USUAL, places) for places in (8192, 4480, 4479, 4096, None)
    ] == [*(4096, 4096, 3968, 3712, 4096)]
    assert count_context_tokens(needle, None, 4096) == 3712
    assert count_context_tokens(needle, 4096, 4096) == 4096, (
        "what was asked for is not changed in silence"
    )
    assert count_context_tokens(TASKS["base"], USUAL, 4096) == 768
    (line,) = notes_on_length([needle, TASKS["base"]], USUAL, 4096, "reference")
    assert line.startswith(
        "niah_single_2: contexts have 3,712 tokens and not the usual 4,096, as reference takes "
        "4,096"
    )
    assert (
        notes_on_length([needle], 900, 4096, "reference")
        == notes_on_length([needle], USUAL, 8192, "x")
        == []
    )


def test_every_ruler_task_fits_the_default_model_at_its_default_length() -> None:
    model = load_model("reference")
    grid = build_grid(Job(tasks="ruler", context_tokens=USUAL, limit=1), model.count_tokens)
    assert len(grid.tasks) == len(RULER)
    check_first_contexts(model, grid)
    assert {task.variant.partition("-")[0] for task, _ in grid.tasks} <= {
        "3712",
        "3584",
        "3648",
        "3840",
    }


def test_usual_and_own_lengths_are_counted_by_the_model() -> None:
    base, vt = lengthen([TASKS["base"], RULER["vt"]], "usual", None, len, "a/model")
    assert (base.variant, vt.variant) == (
        "768-tokens-of-model-scattered",
        "4096-tokens-of-model-scattered",
    )
    base, vt = lengthen([TASKS["base"], RULER["vt"]], None, None, len, "a/model")
    assert (base, vt.variant) == (TASKS["base"], "4096-tokens-of-model-scattered")
    with pytest.raises(KVBenchError, match="depth needs a length"):
        lengthen([TASKS["base"]], None, 0.5, len)
