"""Several runs on one site: what stands on one board, what never does, and what two runs hold both."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from datasets_gen import TASKS
from kvbench.cli.program import main
from kvbench.experiments.grid import Grid
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel
from kvbench.prompts.mode import Mode
from kvbench.run.execute import execute
from kvbench.store.merging import group_runs
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS
from kvbench.system.errors import KVBenchError
from policies import POLICIES, Level, at_ratios, points_of


def run(
    model: LoadedModel,
    folder: Path,
    policies: Sequence[str] = ("full", "knorm"),
    ratios: Sequence[float] = (0.5,),
    tasks: Sequence[str] = ("base",),
    contexts: int = 1,
    seed: int = 0,
    mode: Mode = "agnostic",
    budgets: Sequence[int] = (),
) -> Store:
    from_suite = [(TASKS[name], contexts) for name in tasks]
    points = (*at_ratios(ratios), *points_of(Level("budget", float(budget)) for budget in budgets))
    setting = Setting([POLICIES[name] for name in policies], points, seed, mode)
    return execute(model, Grid(from_suite, setting), folder, "a test")


def groups(*stores: Store) -> list[tuple[list[str], str]]:
    return [([store.folder.name for store in one.stores], one.setting) for one in group_runs(stores)]


def test_other_policies_levels_and_tasks_of_one_setting_stand_on_one_board(llama: LoadedModel, tmp_path: Path) -> None:
    first = run(llama, tmp_path / "first")
    second = run(llama, tmp_path / "second", ("full", "snapkv"), (0.5, 0.9))
    third = run(llama, tmp_path / "third", ("full", "knorm"), (0.9,), ("base", "hops"))
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
        *(("base", "full", 0.0), ("base", "knorm", 0.5), ("base", "snapkv", 0.5), ("base", "snapkv", 0.9)),
        *(("base", "knorm", 0.9), ("hops", "full", 0.0), ("hops", "knorm", 0.9)),
    }
    assert set(cells["base"]) == {6}, "what several hold is there once"


def test_what_may_not_be_compared_stands_on_boards_of_its_own_which_say_why(llama: LoadedModel, tmp_path: Path) -> None:
    plain = run(llama, tmp_path / "plain")
    assert groups(plain, run(llama, tmp_path / "aware", mode="aware")) == [(["plain"], ""), (["aware"], "")]
    assert groups(plain, run(llama, tmp_path / "seeded", seed=1)) == [(["plain"], "seed 0"), (["seeded"], "seed 1")]
    more = run(llama, tmp_path / "more", contexts=2)
    kept = run(llama, tmp_path / "kept", ratios=(), budgets=(16,))
    assert groups(plain, kept) == [(["plain"], "plain"), (["kept"], "kept")], "no curve has ratios and budgets"
    assert groups(plain, more) == [(["plain"], "plain"), (["more"], "more")], "other questions, told by the folder"


def test_two_runs_that_hold_a_cell_differently_are_an_error(llama: LoadedModel, tmp_path: Path) -> None:
    first, second = run(llama, tmp_path / "first"), run(llama, tmp_path / "second")
    (path,) = [path for path in second.record_files() if path.stem == "knorm"]
    changed, *others = second.read_rows(RECORDS, path)
    second.write_rows(RECORDS, path, [changed.model_copy(update={"output_text": "forged"}), *others])
    (group,) = group_runs([first, second])
    with pytest.raises(KVBenchError, match="both hold knorm at ratio") as raised:
        group.records()
    assert " 0.5 of base and differ" in str(raised.value)
    assert f"{changed.question_id} of {changed.question_id.rpartition('/')[0]}" in str(raised.value)
    assert str(raised.value).endswith("leave one of them out")


def test_a_site_of_several_runs(llama: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("agnostic", "aware", "more")
    controls = ("full", "random", "recency")
    run(llama, tmp_path / "agnostic", (*controls, "knorm"), tasks=("base", "hops"))
    run(llama, tmp_path / "aware", (*controls, "knorm"), tasks=("base", "hops"), mode="aware")
    run(llama, tmp_path / "more", (*controls, "snapkv"), tasks=("base", "hops"))
    site = tmp_path / "site"
    assert main(["site", *(str(tmp_path / name) for name in names), "--out", str(site)]) == 0
    assert capsys.readouterr().err.split()[-2:] == ["page:", str(site / "index.html")]
    page = (site / "index.html").read_text()
    titles = [
        "All tasks, agnostic",
        "base, agnostic",
        "hops, agnostic",
        "All tasks, aware",
        "base, aware",
        "hops, aware",
    ]
    boards = re.findall(r'<section class="board".*?</section>', page, re.DOTALL)
    assert [re.findall(r"<h3[^>]*>([^<]+)</h3>", board) for board in boards] == [[title] for title in titles]
    assert ["<span>snapkv</span>" in board for board in boards] == [True] * 3 + [False] * 3
    assert all("<span>knorm</span>" in board for board in boards)
    assert {path.name for path in site.iterdir()} == {
        *("index.html", "task-base.html", "task-hops.html", "examples-base.html", "examples-hops.html"),
        *("examples-base.2.html", "examples-hops.2.html", "method.html", "data"),
    }
    task = (site / "task-base.html").read_text()
    assert re.findall(r'href="(examples-[^#"]+)#', task).count("examples-base.2.html") > 0
    method = (site / "method.html").read_text()
    assert all(str(tmp_path / name) in method for name in names)


def test_a_run_named_twice_is_refused(llama: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(llama, tmp_path / "x")
    assert main(["site", str(tmp_path / "x"), str(tmp_path / "x/"), "--out", str(tmp_path / "site")]) == 1
    assert "is named twice" in capsys.readouterr().err
