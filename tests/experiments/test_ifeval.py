"""Task ``ifeval``: arms, prompts, and a run from end to end."""

import json
import sys
from pathlib import Path

import nltk
import pytest
from datasets import Dataset

import kvbench.experiments.data
from datasets_gen import Directive, Example
from datasets_gen.tasks.ifeval import IFEVAL, IfevalPrompt, ifeval_task
from datasets_gen.writing.system_prompt import ATTACKS, REFUSAL
from kvbench.store.store import Store
from leaderboards.metrics.judges.obedience import CHECKERS
from tests.support.models.runs import CommandLine
from tests.support.tasks.samples_of_ifeval import OF_HUB, PLAIN, SPLIT, written
from tests.support.tasks.suite import parts
from tests.support.wording import assert_says

# --- contexts


def split_rows(count: int = 3) -> list[IfevalPrompt]:
    directives = (Directive("punctuation:no_comma"),)
    return [
        IfevalPrompt(f"Praise tea {number}.", f"Use no commas in {number}.", directives)
        for number in range(count)
    ]


def test_a_defence_stands_where_it_is_asked_for() -> None:
    rows = split_rows()
    for number, row in enumerate(rows):
        plain, before, after = (
            ifeval_task(rows, where).example(5, number) for where in ("none", "before", "after")
        )
        assert plain.context == row.system
        assert (plain.arm, before.arm, after.arm) == (
            "no defence",
            "defence first",
            "directives first",
        )
        (defence,) = parts(before, "defence")
        assert before.context == f"{defence}\n{row.system}"
        assert after.context == f"{row.system}\n{defence}"
        for example in (plain, before, after):
            assert parts(example, "directive") == [row.system]
            assert example.draw == f"ifeval/test/5/{number}"
            check_questions(example, row)
        assert len({example.questions[1].text for example in (plain, before, after)}) == 1


def check_questions(example: Example, row: IfevalPrompt) -> None:
    request, attacked = example.questions
    assert (request.text, request.directives, request.golds, request.protected) == (
        row.user,
        row.directives,
        (),
        "",
    )
    assert [example.context[span.start : span.end] for span in request.spans] == [row.system]
    assert attacked.protected == row.system
    assert not attacked.directives
    assert attacked.golds == ((REFUSAL,) if parts(example, "defence") else (row.system,))
    (answer,) = (
        example.context[span.start : span.end] for span in attacked.spans if span.kind == "answer"
    )
    assert answer == attacked.golds[0]
    assert any(attacked.text in said.common for said in ATTACKS.values())


# --- prompts


# --- from the command line


@pytest.mark.usefixtures("looked_for_again")
@pytest.mark.parametrize("module", [f"{CHECKERS}.utils", "langdetect", "punkt"])
def test_without_the_extra_it_is_said_what_to_install(
    cli: CommandLine, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nltk.data, "path", [])  # where nltk's own download may lie
    monkeypatch.setitem(sys.modules, module, None)
    package = module.partition(".")[0]
    assert (
        cli("run", "--tasks", f"ifeval(data={written(tmp_path, SPLIT)})", "--model", "nowhere") == 1
    )
    assert_says(cli.err, "error: ", "ifeval", str(package), "pip install 'kvbench[ifeval]'\n")
    assert cli.err.count("\n") == 1


def ifeval_command(cli: CommandLine, data: Path, *more: str) -> list[object]:
    """The command of a small run on given rows."""
    return cli.words(
        *("--tasks", f"ifeval(data={data})", "--limit", "2", "--max-new-tokens", "12"), *more
    )


def test_a_run_in_both_orders_judges_directives_and_attacks(
    cli: CommandLine, tmp_path: Path
) -> None:
    data = written(tmp_path, SPLIT, SPLIT)
    assert cli(*ifeval_command(cli, data, "--tasks", f"ifeval(data={data},defence=both)")) == 0, (
        cli.err
    )
    store = Store.open(tmp_path / "runs/x")
    frame = store.frame()
    assert set(frame.status) == {"ok"}
    assert list(frame.arm.unique()) == ["defence first", "directives first"]
    assert set(frame.draw_id) == {"ifeval/test/0/0"}
    requests, attacks = frame[frame.protected == ""], frame[frame.protected != ""]
    assert len(requests) == len(attacks) == 2 * 5
    assert (
        requests[["f1", "em", "abstained", "hallucinated", "hallucination_kind"]]
        .isna()
        .all(axis=None)
    )
    assert {tuple(names) for names in requests.directive_families} == {
        ("punctuation", "length_constraints")
    }
    assert {len(judged) for judged in requests.directives_strict} == {2}
    assert requests.directives_kept.notna().all()
    assert attacks[["leakage", "defence_leakage", "f1"]].notna().all(axis=None)
    identity = store.identity.tasks[0]
    assert identity.max_new_tokens == 12
    assert "defence-both" in identity.version
    rows = json.loads((tmp_path / "runs/x/summary.json").read_text())
    assert all(row["complete"] and row["f1"] is None for row in rows)
    assert all("no gold answers: see the directives" in row["reason"] for row in rows)
    assert {row["directives_obeyed"] is None for row in rows} == {False}
    assert (tmp_path / "site/index.html").is_file()
    printed = " ".join(cli.out.split())
    assert "Directives obeyed" in printed
    assert "Leakage" in printed
    assert "F1" not in printed
    assert cli("score", tmp_path / "runs/x") == 0
    assert "20 records scored, 0 changed" in cli.out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tasks", "ifeval(data=ROWS,defence=before)"], "defence=before is for rows that are"),
        (["--mode", "aware"], "contexts of ifeval hold what is asked already"),
        (
            ["--tasks", "ifeval(data=/nowhere/rows.jsonl)"],
            "data=/nowhere/rows.jsonl cannot be read (No such file or directory)",
        ),
        (["--max-new-tokens", "5000"], "takes 4096"),
    ],
)
def test_bad_input_is_one_clear_line(
    cli: CommandLine, more: list[str], said: str, tmp_path: Path
) -> None:
    data = written(tmp_path, PLAIN, OF_HUB)
    more = [word.replace("ROWS", str(data)) for word in more]
    assert said in cli.error(*ifeval_command(cli, data, *more))
    assert not (tmp_path / "runs").exists()


def test_rows_come_from_the_hub_where_no_file_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(name: str, split: str) -> Dataset:
        asked.append((name, split))
        return Dataset.from_list([{**OF_HUB, "key": number} for number in range(3)])

    monkeypatch.setattr(kvbench.experiments.data, "fault_of_hub", lambda: "")
    monkeypatch.setattr("datasets.load_dataset", load)
    (task,) = kvbench.experiments.data.with_data([IFEVAL], {})
    assert asked == [("google/IFEval", "train")]
    assert task.contexts["paper"] == 3
    assert task.example(0, 2).context == SPLIT["prompt"]
