"""Examples of tasks and the worst answers of a run in the terminal: which they are, and what is
marked in them."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from datasets_gen import RULER, TASKS, Task
from kvbench.commands.show import STYLES, render_answers
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.publish.worst_answers import worst_answers
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS
from policies import POLICIES, Level, at_ratios
from tests.support.models.runs import CommandLine, execute

SHOWN = [*TASKS.values(), RULER["niah_multivalue"], RULER["fwe"]]


@pytest.fixture(scope="module")
def shown_run(llama: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = [POLICIES[name] for name in ("full", "knorm")]
    grid = Grid(
        [(TASKS[name], 1) for name in ("base", "long_context")],
        chosen,
        at_ratios((0.5, 0.9)),
    )
    folder = tmp_path_factory.mktemp("runs") / "run"
    execute(llama, grid, folder, "a test")
    return folder


def edited(
    run: Path, tmp_path: Path, scores: Sequence[tuple[float, bool]], **more: object
) -> Store:
    """A copy in which the first answers of knorm on base at 0.9 have these scores, and all others
    are right."""
    source, store = Store.open(run), Store(tmp_path / "copy", Store.open(run).run)
    left = list(scores)
    shutil.copytree(run, store.folder)
    for path, answers in source.read_files():
        changed = []
        for record in (answer.record for answer in answers):
            is_edited = (record.policy, record.task, record.ratio) == (
                "knorm",
                "base",
                0.9,
            ) and left
            f1, hallucinated = left.pop(0) if is_edited else (100.0, False)
            kind = "confused" if hallucinated else None
            values = {"f1": f1, "hallucinated": hallucinated, "hallucination_kind": kind}
            changed.append(record.model_copy(update={**values, **more}))
        store.write_rows(RECORDS, store.folder / path.relative_to(run), changed)
    return store


def without_brackets(text: str) -> str:
    """A text as it was before its spans were marked."""
    return re.sub(rf"\[(?:{'|'.join(STYLES)})(?:, \d+% kept:)? |\]", "", text)


def shown(store: Store, count: int, task: str = "") -> str:
    answers, _ = worst_answers(store, "knorm", Level("ratio", 0.9), 100)
    console = Console(width=100, force_terminal=False)
    with console.capture() as captured:
        console.print(
            render_answers([answer for answer in answers if task in answer.record.task][:count])
        )
    return captured.get()


def test_hallucinations_come_first_then_the_lowest_f1(shown_run: Path, tmp_path: Path) -> None:
    store = edited(shown_run, tmp_path, [(50.0, False), (0.0, False), (20.0, True), (0.0, True)])
    answers, failed = worst_answers(store, "knorm", Level("ratio", 0.9), 4)
    assert [int(answer.record.question_id.rpartition("/")[2]) for answer in answers] == [3, 2, 1, 0]
    assert {(answer.record.policy, answer.record.ratio) for answer in answers} == {("knorm", 0.9)}
    assert all(
        answer.full and answer.full.question_id == answer.record.question_id for answer in answers
    )
    assert failed == 0
    text = " ".join(shown(store, 1).split())
    question = answers[0].question
    for part in (
        question.question,
        question.golds[0],
        "knorm at ratio 0.9",
        "hallucinated, confused",
        "slot coverage",
    ):
        assert part in text
    assert f"of {question.context_tokens} tokens" in text


def test_each_span_has_the_share_of_it_that_the_cache_kept(shown_run: Path) -> None:
    answers, _ = worst_answers(Store.open(shown_run), "knorm", Level("ratio", 0.9), 100)
    answer = next(
        one for one in answers if one.context.task == "base" and one.question.answer_spans
    )
    start, end = answer.question.answer_spans[:2]
    ends = np.frombuffer(answer.context.token_ends, dtype="<u4").tolist()
    starts = [0, *ends[:-1]]
    kept = [
        share / 255
        for share, first, behind in zip(answer.record.token_kept or b"", starts, ends, strict=True)
        if first < end and behind > start
    ]
    console = Console(width=10_000, force_terminal=False)
    with console.capture() as captured:
        console.print(render_answers([answer]))
    gold = answer.context.context[start:end]
    assert f"[answer, {sum(kept) / len(kept):.0%} kept: {gold}]" in captured.get()


def test_a_long_context_is_shown_around_its_evidence(shown_run: Path) -> None:
    answers, _ = worst_answers(Store.open(shown_run), "knorm", Level("ratio", 0.9), 100)
    found = next(answer for answer in answers if answer.record.task == "long_context")
    text = " ".join(shown(Store.open(shown_run), 1, "long_context").split())
    assert len(text) < len(found.context.context)
    assert found.is_generated
    for span in found.spans:
        assert span.kind == "distractor" or found.context.context[
            span.start : span.end
        ] in without_brackets(text)


def test_what_strangers_wrote_is_never_obeyed_by_the_terminal(
    shown_run: Path, tmp_path: Path
) -> None:
    store = edited(
        shown_run, tmp_path, [(0.0, True)], output_text="[bold]\x1b[2J\x1b]0;title\x07[/nothing]"
    )
    text = shown(store, 3)
    assert not {"\x1b", "\x07"} & {*text}
    assert "[bold]·[2J" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN", "--policy", "knrm"], "unknown policy 'knrm': did you mean 'knorm'?"),
        (["RUN", "--policy", "knorm", "--ratio", "0.7"], "knorm was not run at ratio 0.7"),
        (["RUN", "--policy", "knorm", "--budget", "64"], "knorm was not run at budget 64"),
        (["RUN", "--policy", "knorm", "--ratio", "0.9", "--worst", "0"], "--worst is 1 or more"),
        (["RUN", "--policy", "knorm", "--index", "3"], "--index is for tasks"),
        (["base", "--worst", "3"], "--worst is for runs, and base is no run"),
        (["EMPTY"], "holds no run"),
    ],
)
def test_what_cannot_be_shown_is_one_clear_line(
    cli: CommandLine, shown_run: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    places = {"RUN": str(shown_run), "EMPTY": str(tmp_path)}
    assert message in cli.error("show", *(places.get(word, word) for word in words))


@pytest.mark.parametrize("tokens", [pytest.param("300", marks=pytest.mark.slow), "native"])
def test_every_task_is_shown_with_its_own_spans_at_any_length(
    cli: CommandLine, tokens: str
) -> None:
    options = ("--tasks", ",".join(TASKS), "--ratios", "0.9", "--max-new-tokens", "1")
    store = cli.run("--context-tokens", tokens, *options)
    answers, _ = worst_answers(store, "knorm", Level("ratio", 0.9), 1000)
    assert {answer.record.task for answer in answers} == set(TASKS)
    assert all(answer.is_generated for answer in answers)


@pytest.mark.parametrize("task", SHOWN, ids=lambda task: task.name)
def test_an_example_is_shown_with_its_spans_and_questions(cli: CommandLine, task: Task) -> None:
    assert cli("show", task.name, "--index", "3") == 0
    text = " ".join(cli.out.split())
    example = task.example(0, 3)
    kinds = {span.kind for question in example.questions for span in question.spans} | {
        s.kind for s in example.spans
    }
    assert all(f"[{kind} " in text for kind in kinds)
    assert example.context[:60] in without_brackets(text)
    assert cli("show", task.name, "--index", "3", "--phrasings", "held-out") == 0
    assert task.example(0, 3, held_out=True).context[:60] in without_brackets(
        " ".join(cli.out.split())
    )
