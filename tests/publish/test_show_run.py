"""The worst answers of a run in the terminal: which they are, what is said of them, and what is in colour."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from datasets_gen import TASKS
from kvbench.experiments.grid import Grid, Setting
from kvbench.models.load import LoadedModel
from kvbench.publish.worst_answers import (
    EVICTED,
    LONG,
    PARTLY,
    STYLES,
    SURVIVED,
    chosen_level,
    fate_of,
    render_answers,
    verdict,
    worst_answers,
)
from kvbench.store.store import Store
from kvbench.store.tables import CONTEXTS, RECORDS, Record
from kvbench.system.console import printable
from policies import POLICIES, Level, at_ratios
from tests.support.models.runs import CommandLine, execute


@pytest.fixture(scope="module")
def run(llama: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = [POLICIES[name] for name in ("full", "knorm")]
    grid = Grid([(TASKS[name], 1) for name in ("base", "long_context")], Setting(chosen, at_ratios((0.5, 0.9))))
    folder = tmp_path_factory.mktemp("runs") / "run"
    execute(llama, grid, folder, "a test")
    return folder


def edited(run: Path, tmp_path: Path, scores: Sequence[tuple[float, bool]], **more: object) -> Store:
    """A copy in which the first answers of knorm on base at 0.9 have these scores, and all others are right."""
    source, store = Store.open(run), Store(tmp_path / "copy", Store.open(run).run)
    left = list(scores)
    shutil.copytree(run, store.folder)
    for path, answers in source.read_files():
        changed = []
        for record in (answer.record for answer in answers):
            score = (
                left.pop(0)
                if (record.policy, record.task, record.ratio) == ("knorm", "base", 0.9) and left
                else (100.0, False)
            )
            values = {"f1": score[0], "hallucinated": score[1], "hallucination_kind": "confused" if score[1] else None}
            changed.append(record.model_copy(update={**values, **more}))
        store.write_rows(RECORDS, store.folder / path.relative_to(run), changed)
    return store


def without_brackets(text: str) -> str:
    """A text as it was before its spans were marked."""
    return re.sub(rf"\[(?:{'|'.join(STYLES)}) |\]", "", text)


def plain(store: Store, count: int) -> str:
    answers, _ = worst_answers(store, "knorm", Level("ratio", 0.9), count)
    console = Console(width=100, force_terminal=False)
    with console.capture() as captured:
        console.print(render_answers(answers))
    return captured.get()


def test_among_answers_that_are_no_more_right_hallucinations_come_first_then_the_lowest_f1(
    run: Path, tmp_path: Path
) -> None:
    store = edited(run, tmp_path, [(50.0, False), (0.0, False), (20.0, True), (0.0, True)])
    answers, failed = worst_answers(store, "knorm", Level("ratio", 0.9), 4)
    assert [int(answer.record.question_id.rpartition("/")[2]) for answer in answers] == [3, 2, 1, 0]
    assert {(answer.record.policy, answer.record.ratio) for answer in answers} == {("knorm", 0.9)}
    assert all(answer.full and answer.full.policy == "full" for answer in answers)
    assert all(answer.full and answer.full.question_id == answer.record.question_id for answer in answers)
    assert failed == 0


def test_each_is_told_with_both_outputs_and_what_was_left(run: Path, tmp_path: Path) -> None:
    store = edited(run, tmp_path, [(0.0, True)], em=0.0, abstained=False)
    (answer,), _ = worst_answers(store, "knorm", Level("ratio", 0.9), 1)
    text = " ".join(plain(store, 1).split())
    assert answer.question.question in text
    assert answer.question.golds[0] in text
    assert "full cache" in text
    assert "knorm at ratio 0.9" in text
    assert "hallucinated, confused" in text
    assert "GER" in text
    assert "slot coverage" in text
    assert f"of {answer.question.context_tokens} tokens" in text


def test_the_answer_is_coloured_by_what_survived(run: Path) -> None:
    store = Store.open(run)
    answers, _ = worst_answers(store, "knorm", Level("ratio", 0.9), 100)
    stated = [answer for answer in answers if answer.record.ger is not None]
    assert stated
    for answer in stated:
        assert fate_of(answer.record) == {0.0: SURVIVED, 1.0: EVICTED}.get(answer.record.ger or 0.0, PARTLY)
    console = Console(width=100, force_terminal=True, color_system="truecolor")
    with console.capture() as captured:
        console.print(render_answers(stated[:1]))
    assert fate_of(stated[0].record)[0] in captured.get()
    assert "\x1b[1;" in captured.get()


def test_a_long_context_is_shown_around_its_evidence(run: Path) -> None:
    store = Store.open(run)
    answers, _ = worst_answers(store, "knorm", Level("ratio", 0.9), 100)
    found = next(a for a in answers if a.record.task == "long_context" and a.record.ger is not None)
    assert len(found.context.context) > LONG
    console = Console(width=100)
    with console.capture() as captured:
        console.print(render_answers([found]))
    text = " ".join(captured.get().split())
    assert len(text) < len(found.context.context)
    assert found.generated is not None
    for span in found.generated.spans:
        assert found.context.context[span.start : span.end] in without_brackets(text)
    assert "[answer " in text


def test_what_strangers_wrote_is_never_obeyed_by_the_terminal(run: Path, tmp_path: Path) -> None:
    store = edited(run, tmp_path, [(0.0, True)], output_text="[bold]\x1b[2J\x1b]0;title\x07[/nothing]")
    text = plain(store, 3)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]·[2J" in text
    assert len(printable("a\x1bb\n")) == 4


def test_an_example_that_cannot_be_made_again_has_the_spans_that_are_stored(run: Path, tmp_path: Path) -> None:
    store = edited(run, tmp_path, [(0.0, True)])
    for path in store.files(CONTEXTS):
        rows = [row.model_copy(update={"task_version": "0.0.1"}) for row in store.read_rows(CONTEXTS, path)]
        store.write_rows(CONTEXTS, path, rows)
    shown = " ".join(plain(store, 1).split())
    assert "all of its evidence is shown as fact" in shown
    assert "[fact " in shown
    assert "[answer " in shown


def test_failed_answers_are_counted_and_not_shown(run: Path, tmp_path: Path) -> None:
    store = edited(run, tmp_path, [], status="failed", reason="it broke", output_text=None, output_token_ids=None)
    answers, failed = worst_answers(store, "knorm", Level("ratio", 0.9), 5)
    assert answers == []
    assert failed == sum(len(TASKS[name].example(0, 0).questions) for name in ("base", "long_context"))


def test_verdicts_are_words(run: Path) -> None:
    record = next(iter(Store.open(run).read_files()))[1][0].record

    def of(**changes: object) -> str:
        blank = dict.fromkeys(("f1", "right", "answered", "hallucinated", "abstained", "directives_obeyed", "leakage"))
        return verdict(Record.model_copy(record, update={**blank, **changes}))

    assert of(f1=100.0, right=True) == "right"
    assert of(f1=0.0, right=False, abstained=True) == "abstained"
    assert of(f1=0.0, right=False, answered=False) == "empty"
    assert of(f1=60.0, right=True, output_text="nearly") == "right"
    assert (
        of(f1=0.0, right=False, answered=True, hallucinated=True, hallucination_kind="confused")
        == "hallucinated, confused"
    )
    assert of(directives_obeyed=0.5, leakage=0.25) == "50 % of its directives obeyed; leaked 25 %"
    assert of() == "not judged"


def test_the_full_cache_has_one_level_that_need_not_be_named(run: Path) -> None:
    assert chosen_level(Store.open(run).identity, "full", []) == Level("ratio", 0.0)


def test_the_command_prints_as_many_as_are_asked_for(cli: CommandLine, run: Path) -> None:
    assert cli("show", run, "--policy", "knorm", "--ratio", "0.9", "--worst", "3") == 0
    assert [line.split()[0] for line in cli.out.splitlines() if "/test/" in line] == ["1.", "2.", "3."]


def test_of_a_run_alone_the_first_method_is_shown_at_the_level_of_the_board(cli: CommandLine, run: Path) -> None:
    assert cli("show", run) == 0
    alone = cli.out
    assert "the worst answers of knorm at ratio 0.5; others: --policy, of full, knorm" in " ".join(alone.split())
    assert cli("show", run, "--policy", "knorm", "--ratio", "0.5") == 0
    assert cli.out == alone


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--policy", "knrm"], "unknown policy 'knrm': did you mean 'knorm'?"),
        (["--policy", "knorm", "--ratio", "0.7"], "knorm was not run at ratio 0.7"),
        (["--policy", "knorm", "--budget", "64"], "knorm was not run at budget 64"),
        (["--policy", "knorm", "--ratio", "0.5", "--budget", "64"], "choose a level"),
        (["--policy", "knorm", "--ratio", "0.9", "--worst", "0"], "--worst is 1 or more"),
        (["--policy", "knorm", "--index", "3"], "--index is for tasks"),
    ],
)
def test_what_cannot_be_shown_is_one_clear_line(cli: CommandLine, run: Path, more: list[str], message: str) -> None:
    assert message in cli.error("show", run, *more)


def test_options_of_runs_are_refused_for_tasks_and_folders_without_one(cli: CommandLine, tmp_path: Path) -> None:
    assert "--worst is for runs, and base is no run" in cli.error("show", "base", "--worst", "3")
    assert "holds no run" in cli.error("show", tmp_path)


@pytest.mark.parametrize("tokens", ["300", "native"])
def test_every_task_is_shown_with_its_own_spans_at_any_length(cli: CommandLine, tokens: str) -> None:
    options = ("--tasks", ",".join(TASKS), "--ratios", "0.9", "--max-new-tokens", "1")
    store = cli.run("--context-tokens", tokens, *options)
    answers, _ = worst_answers(store, "knorm", Level("ratio", 0.9), 1000)
    assert {answer.record.task for answer in answers} == set(TASKS)
    assert all(answer.generated is not None for answer in answers)
