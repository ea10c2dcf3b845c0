"""Every family of policies, with several kinds of level at once, on tasks of every kind: nothing
fails, warns or is left out.

A fault of a combination shows nowhere else: each part has tests of its own, and a run of both
fails."""

import html
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from kvbench.cli.program import main
from kvbench.store.store import Store
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.aggregate.summary import summarise
from leaderboards.metrics import CURVES, Measure
from leaderboards.pages.front import FRONT
from leaderboards.pages.gallery import GalleryPlot, gallery
from leaderboards.pages.results import task_page
from leaderboards.rendering.frames import PolicyLine
from policies.declaration.levels import UNTREATED, kinds_apart
from policies.declaration.names import FULL

PRESS = """
from dataclasses import dataclass
from kvpress import ScorerPress

@dataclass
class LargeValues(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return values.norm(dim=-1)
"""
OWN = (
    {
        "context": "The blue house stands in Oslo. The red house stands in Rome.",
        "question": "Where does the red one stand?",
        "answers": ["Rome"],
    },
    {
        "context": "Anna has a cat. Ben has a dog. Cleo has two birds.",
        "question": "Who has a dog?",
        "answers": ["Ben"],
    },
)
# A policy of each family, as a user names it.
EVICTING = "snapkv,adakv_snapkv,think,kvzip,kvcompose_unstructured,per_layer_knorm,decoding_knorm,cam_knorm"
PLUG_IN = "press.py:LargeValues"
PROTECTING = "knorm+fair,snapkv+whitelist"
ONE_LEVEL, COMPOSED = "int4,q4_0", "snapkv+int4"
FAULTS = "zeros,gaussian(phase=every_step),bitflip"
# By name, the options of a run. Together they have every family, two kinds of level or three, one
# level of each or two.
RUNS: Mapping[str, Sequence[str]] = {
    "one": (
        *("--tasks", "base,instructions,own.jsonl,prose"),
        *(
            "--policies",
            f"{EVICTING},{PLUG_IN},{PROTECTING},{ONE_LEVEL},{COMPOSED},{FAULTS},mantissa",
        ),
        *("--ratios", "0.4", "--rates", "0.01", "--bits", "4"),
    ),
    "two": (
        *("--tasks", "niah_single_1", "--context-tokens", "300"),
        *("--policies", f"{EVICTING},{PLUG_IN},{ONE_LEVEL},{COMPOSED},{FAULTS}"),
        *("--ratios", "0.4,0.9", "--rates", "0,0.01"),
    ),
    "budgets": (
        *(
            "--tasks",
            "base,own.jsonl",
            "--policies",
            f"snapkv,adakv_snapkv,kvzip,decoding_knorm,int4,{COMPOSED},zeros",
        ),
        *("--budgets", "16,32", "--rates", "0.01,0.1"),
    ),
    "defaults": (
        "--tasks",
        "base",
        "--policies",
        "snapkv,kvzip,int4,zeros,mantissa,press.py:LargeValues",
    ),
}

TOY_IS_WEAK = "warning: own: the model itself has 0 % right, below 50"


@dataclass(frozen=True)
class Ran:
    """A run that has ended: what it said, what it stored, and where its pages lie."""

    status: int
    said: str
    store: Store
    site: Path

    @cached_property
    def rows(self) -> list[SummaryRow]:
        return summarise(self.store.frame())


@pytest.fixture(scope="module")
def matrix(toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Ran]:
    """All runs, of the toy model, each with its page."""
    folder = tmp_path_factory.mktemp("matrix")
    (folder / "press.py").write_text(PRESS)
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, OWN)))
    matrix = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, options in RUNS.items():
            words = ["run", "--model", str(toy_folder), "--limit", "2", "--max-new-tokens", "4"]
            words += ["--name", name, "--out", "runs", "--site", f"site/{name}", *options]
            said = io.StringIO()
            with redirect_stdout(said), redirect_stderr(said):
                status = main(words)
            store = Store.open(folder / "runs" / name)
            matrix[name] = Ran(status, said.getvalue(), store, folder / "site" / name)
    return matrix


every_run = pytest.mark.parametrize("name", RUNS)


@every_run
def test_nothing_fails_and_nothing_warns(matrix: Mapping[str, Ran], name: str) -> None:
    """But for the toy, which can do no task: where the questions are a user's own, that is an
    honest warning."""
    ran = matrix[name]
    assert ran.status == 0, ran.said
    said = [line for line in ran.said.splitlines() if TOY_IS_WEAK not in line]
    assert [line for line in said if "warning" in line.lower() or "error" in line.lower()] == []
    records = ran.store.frame()
    assert set(records["status"]) == {"ok"}
    assert set(records.loc[records["policy"] == FULL, "task"]) == {
        one.name for one in ran.store.identity.tasks
    }


def drawn_in(picture: GalleryPlot) -> set[str]:
    """The policies that have a line in a figure."""
    return {
        mark.style.policy for mark in picture.plot.drawing.marks if isinstance(mark, PolicyLine)
    }


def policies_with(measure: Measure, rows: Sequence[SummaryRow], kind: str) -> set[str]:
    """The policies that have a value of a measure at a level of this kind, or at their only one. At
    rate 0 stands the full cache for all of them."""
    several = {row.policy for row in rows if row.at != UNTREATED}
    return {
        row.policy
        for row in rows
        if measure.value(row) is not None
        if (row.level_kind == kind and row.at.amount != 0) or row.policy not in several
    }


@every_run
def test_every_policy_is_in_every_curve_that_it_can_stand_in(
    matrix: Mapping[str, Ran], name: str
) -> None:
    ran, compared = matrix[name], 0
    for task in {row.task for row in ran.rows}:
        rows = [row for row in ran.rows if row.task == task]
        kinds = kinds_apart(row.at for row in rows)
        pictures = gallery(ran.rows, task, "agnostic")
        assert {one.kind for one in pictures} == set(kinds)
        for measure in CURVES:
            for picture in (one for one in pictures if one.name == measure.name):
                assert drawn_in(picture) == policies_with(measure, rows, picture.kind), (
                    task,
                    picture.identifier,
                )
                compared += 1
        if task != ALL_TASKS:  # there a policy is blank that does not cover all tasks
            assert set().union(*map(drawn_in, pictures)) == {row.policy for row in rows}, task
    assert compared > 10


@every_run
def test_pages_have_every_policy_and_every_curve(matrix: Mapping[str, Ran], name: str) -> None:
    ran = matrix[name]
    has_pages = len(ran.store.identity.tasks) > 1
    for task in {row.task for row in ran.rows}:
        path = ran.site / (task_page(task) if has_pages and task != ALL_TASKS else FRONT)
        page = html.unescape(path.read_text(encoding="utf-8"))
        figures = [
            one.identifier
            for one in gallery(ran.rows, task, "agnostic")
            if task != ALL_TASKS or one.leads
        ]
        assert figures
        for identifier in figures:
            assert page.count(f"-{identifier}-figure") == 1, (task, identifier)
        for policy in {row.policy for row in ran.rows if row.task == task}:
            assert policy in page, (task, policy)


def test_print_has_a_figure_for_each_kind_of_level(
    matrix: Mapping[str, Ran], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "figures",
        matrix["defaults"].store.folder,
        "--out",
        tmp_path,
        "--only",
        "delta-nll",
        "--formats",
        "svg",
    ]
    assert main([*map(str, words)]) == 0, capsys.readouterr().err
    kinds = ("ratio", "rate", "bits")
    assert {path.name for path in tmp_path.iterdir()} >= {
        f"delta-nll-{kind}-base-agnostic.svg" for kind in kinds
    }
