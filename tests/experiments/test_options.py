"""What the command line accepts, and what it says about the rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvpress.utils import compute_n_kept

from datasets_gen import RULER, TASKS
from kvbench.experiments.options import at_levels, notes_on_levels, parse_points
from kvbench.experiments.suites import find_tasks
from kvbench.system.errors import KVBenchError
from policies import POLICIES, Level, Point, at_ratios, list_points
from policies.declaration.levels import RATIO
from tests.support.models.runs import CommandLine
from tests.support.wording import assert_says

CONTROL = [POLICIES["random"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.5", (0.5,)),
        ("0.9,0.1,0.9", (0.1, 0.9)),
        ("0.1:0.9:0.1", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)),
        ("0:0.5:0.25,0.99", (0.0, 0.25, 0.5, 0.99)),
        ("0.1:0.95:0.4", (0.1, 0.5, 0.9)),
    ],
)
def test_ratios_are_read_in_decimals(text: str, expected: tuple[float, ...]) -> None:
    assert RATIO.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "1",
        "1.0",
        "-0.1",
        "1.5",
        "nan",
        "inf",
        "half",
        "",
        "0.1:0.9",
        "0.9:0.1:0.1",
        "0.1:0.9:0",
        "0.1,,0.2",
    ],
)
def test_other_ratios_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(KVBenchError) as refusal:
        parse_points({"ratio": text}, CONTROL)
    assert "--ratios" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_budgets_are_counts_of_tokens() -> None:
    assert parse_points({"budget": "128, 64,128"}, CONTROL) == list_points(
        [Level("budget", 64), Level("budget", 128)]
    )
    assert parse_points({}, CONTROL) == at_ratios((0.1, 0.3, 0.5, 0.7, 0.9))
    assert parse_points({}, CONTROL, comparing=True) == at_ratios((0.3, 0.5, 0.7, 0.9))


def test_repeats_are_draws_at_each_level() -> None:
    half = Level("ratio", 0.5)
    assert parse_points({"ratio": "0.5"}, CONTROL, 3) == (
        Point(half, 0),
        Point(half, 1),
        Point(half, 2),
    )
    for repeats in (0, -1, 1001):
        with pytest.raises(
            KVBenchError, match=f"--repeats is 1 or more and at most 1000, not {repeats}$"
        ):
            parse_points({}, CONTROL, repeats)


@pytest.mark.parametrize(
    "text", ["", "0", "-4", "64.5", "64,,128", "many", "64:256", "99999999999", "٣x"]
)
def test_other_budgets_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(
        KVBenchError, match=r"--budgets .* is no count of tokens: give such as 64,128,256$"
    ):
        parse_points({"budget": text}, CONTROL)


@given(st.integers(1, 200_000), st.integers(1, 200_000))
def test_a_budget_is_a_ratio_at_which_kvpress_keeps_just_that(budget: int, length: int) -> None:
    assert compute_n_kept(length, Level("budget", budget).share(length)) == min(budget, length)


def test_the_name_of_a_family_stands_for_its_tasks_and_mixes_with_names() -> None:
    def chosen(names: str | None) -> list[str]:
        return [task.name for task in find_tasks(None, names)]

    assert chosen("ruler") == list(RULER)
    assert chosen("vt, base,ruler") == ["vt", "base", *(name for name in RULER if name != "vt")]
    assert chosen(None) == list(TASKS), "they take part where they are named"
    with pytest.raises(KVBenchError, match="did you mean 'ruler'"):
        chosen("rulers")


def test_the_highest_level_is_what_a_task_has_by_itself() -> None:
    """Named or not, it is the same run."""
    task = TASKS["base"]
    assert at_levels([task], str(task.top_level)) == [task]
    assert at_levels([task], "99") == [task]
    assert at_levels([task], str(task.top_level - 1)) != [task]


def test_a_level_that_tasks_do_not_have_is_said() -> None:
    without, base = RULER["niah_single_2"], TASKS["base"]
    with pytest.raises(
        KVBenchError, match=r"--difficulty 3: no task of this run \(niah_single_2\) has levels"
    ):
        at_levels([without], "3")
    notes = notes_on_levels([without, base], "9")
    without_levels, highest = notes
    assert_says(without_levels, "--difficulty 9", "without levels", "niah_single_2")
    assert_says(highest, "--difficulty 9", "highest level", "base (5)")
    assert (
        notes_on_levels([base], "3")
        == notes_on_levels([without], None)
        == notes_on_levels([without], "auto")
        == []
    )
    assert [task.level for task in at_levels([without, base], "3")] == ["", "3 of 5"]


def test_a_run_says_which_tasks_have_no_such_level(cli: CommandLine) -> None:
    cli.run("--tasks", "base,niah_single_2", "--difficulty", "3", "--context-tokens", "300")
    assert_says(cli.err, "--difficulty 3", "niah_single_2\n")
