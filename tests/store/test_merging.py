"""Several runs on one site: what stands on one board, what never does, and what two runs hold
both."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kvbench.store.merging import group_runs
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine, ToyRuns


@pytest.fixture
def run_small(runs: ToyRuns) -> Callable[..., Store]:
    """Runs one context of a task, under the full cache and knorm where nothing else is asked
    for."""
    return lambda name, policies=("full", "knorm"), *chosen, **options: runs(
        name, policies, *chosen, **{"contexts": 1, **options}
    )


def groups(*stores: Store) -> list[tuple[list[str], str]]:
    return [
        ([store.folder.name for store in one.stores], one.setting) for one in group_runs(stores)
    ]


def test_other_policies_levels_and_tasks_of_one_setting_stand_on_one_board(
    run_small: Callable[..., Store],
) -> None:
    first = run_small("first")
    second = run_small("second", ("full", "snapkv"), (0.5, 0.9))
    third = run_small("third", ("full", "knorm"), (0.9,), ("base", "hops"))
    (group,) = group_runs([first, second, third])
    assert group.setting == ""
    assert {policy.name: policy.levels for policy in group.identity.policies} == {
        "full": {"ratio": (0.0,)},
        "knorm": {"ratio": (0.5, 0.9)},
        "snapkv": {"ratio": (0.5, 0.9)},
    }
    records = group.records()
    cells = records.groupby(["task", "policy", "ratio"]).size()
    assert set(cells.index) == {
        *(
            ("base", "full", 0.0),
            ("base", "knorm", 0.5),
            ("base", "snapkv", 0.5),
            ("base", "snapkv", 0.9),
        ),
        *(("base", "knorm", 0.9), ("hops", "full", 0.0), ("hops", "knorm", 0.9)),
    }
    assert set(cells["base"]) == {6}, "what several hold is there once"


def test_what_may_not_be_compared_stands_on_boards_of_its_own_which_say_why(
    run_small: Callable[..., Store],
) -> None:
    plain = run_small("plain")
    assert groups(plain, run_small("aware", mode="aware")) == [(["plain"], ""), (["aware"], "")]
    assert groups(plain, run_small("seeded", seed=1)) == [
        (["plain"], "plain"),
        (["seeded"], "seeded"),
    ]
    more = run_small("more", contexts=2)
    kept = run_small("kept", ratios=(), budgets=(16,))
    assert groups(plain, kept) == [(["plain"], "plain"), (["kept"], "kept")], (
        "no curve has ratios and budgets"
    )
    assert groups(plain, more) == [(["plain"], "plain"), (["more"], "more")], (
        "other questions, told by the folder"
    )


def test_two_runs_that_hold_a_cell_differently_are_an_error(
    run_small: Callable[..., Store],
) -> None:
    first, second = run_small("first"), run_small("second")
    (path,) = [path for path in second.record_files() if path.stem == "knorm"]
    changed, *others = second.read_rows(RECORDS, path)
    second.write_rows(
        RECORDS, path, [changed.model_copy(update={"output_text": "forged"}), *others]
    )
    (group,) = group_runs([first, second])
    with pytest.raises(KVBenchError, match="both hold knorm at ratio") as raised:
        group.records()
    assert " 0.5 of base and differ" in str(raised.value)
    assert f"{changed.question_id} of {changed.question_id.rpartition('/')[0]}" in str(raised.value)
    assert str(raised.value).endswith("leave one of them out")


def test_a_site_of_several_runs(
    run_small: Callable[..., Store], tmp_path: Path, cli: CommandLine
) -> None:
    names = ("agnostic", "aware", "more")
    controls = ("full", "random", "recency")
    run_small("agnostic", (*controls, "knorm"), tasks=("base", "hops"))
    run_small("aware", (*controls, "knorm"), tasks=("base", "hops"), mode="aware")
    run_small("more", (*controls, "snapkv"), tasks=("base", "hops"))
    site = tmp_path / "site"
    assert cli("site", *(tmp_path / name for name in names), "--site", site) == 0
    assert cli.err.split()[-2:] == ["page:", str(site / "index.html")]
    page = (site / "index.html").read_text()
    titles = [
        f"{task}, {mode}"
        for mode in ("agnostic", "aware")
        for task in ("All tasks", "base (short QA)", "hops (multi-hop)")
    ]
    boards = re.findall(r'<section class="board".*?</section>', page, re.DOTALL)
    assert [re.findall(r"<h3[^>]*>([^<]+)</h3>", board) for board in boards] == [
        [title] for title in titles
    ]
    assert ["<span>snapkv</span>" in board for board in boards] == [True] * 3 + [False] * 3
    assert all("<span>knorm</span>" in board for board in boards)
    assert {path.name for path in site.iterdir()} == {
        *(
            "index.html",
            "task-base.html",
            "task-hops.html",
            "examples-base.html",
            "examples-hops.html",
        ),
        *("examples-base.2.html", "examples-hops.2.html", "method.html", "all-runs.html", "data"),
    }
    task = (site / "task-base.html").read_text()
    assert re.findall(r'href="(examples-[^#"]+)#', task).count("examples-base.2.html") > 0
    method = (site / "method.html").read_text()
    assert all(f"<h3>{name}</h3>" in method for name in names)
