"""A committed run of the reference model, and what it adds up to, as literal numbers.

They were computed without kvbench, from ``records.parquet`` alone: means by a pandas ``groupby``;
intervals by loops over the three contexts and one more, with the quantiles of ``scipy.stats.beta``;
areas by ``numpy.trapezoid``, and Holm's correction by hand."""

from pathlib import Path

import pandas as pd
import pytest

from kvbench.publish.site import summary_rows
from kvbench.store.merging import RunGroup
from kvbench.store.store import Store
from kvbench.store.tables import SCHEMA_VERSION
from leaderboards.aggregate.duels import duels
from leaderboards.aggregate.row import SummaryRow
from leaderboards.boards.area_under_curve import AREA
from leaderboards.boards.board import Standing, all_standings
from leaderboards.boards.rank import RANK
from leaderboards.boards.safe_ratio import SAFE_RATIO
from leaderboards.statistics.bootstrap import Blank
from tests.support.records.small_store import AGAIN, small_store
from tests.support.wording import assert_says


@pytest.fixture(scope="module")
def rows_by_cell(
    small_run: Store, small_records: pd.DataFrame
) -> dict[tuple[str, str, float], SummaryRow]:
    rows = summary_rows(small_records, RunGroup((small_run,)))
    return {(row.task, row.policy, row.ratio or 0.0): row for row in rows}


@pytest.fixture(scope="module")
def board(
    small_records: pd.DataFrame, rows_by_cell: dict[tuple[str, str, float], SummaryRow]
) -> dict[tuple[str, str], Standing]:
    found = all_standings(small_records, list(rows_by_cell.values()))
    return {(task, one.policy): one for (_, task), own in found.items() for one in own}


def test_it_holds_what_was_run(small_records: pd.DataFrame) -> None:
    assert len(small_records) == 726
    assert set(small_records["status"]) == {"ok"}
    counts = small_records.groupby("task")[["question_id", "example_id"]].nunique()
    assert counts.to_dict("index") == {
        "base": {"question_id": 18, "example_id": 3},
        "hops": {"question_id": 48, "example_id": 3},
    }


# Task, policy, ratio: right, F1, exact match, hallucination rate, abstention rate, GER, slot
# coverage, eviction rate, realised ratio, bytes.
MEANS = [
    ("base", "full", 0.0, 16 / 18, 88.8888888889, 88.8888888889, 2 / 18, 1 / 18, 0.0, 1.0, 0.0, 0.0, 780288.0),
    ("base", "snapkv", 0.5, 8 / 18, 48.1481481481, 44.4444444444, 2 / 18, 9 / 18, 0.0, 0.3709077381, 0.0,
     0.5011185682, 389120.0),
    ("base", "random", 0.5, 16 / 18, 88.8888888889, 88.8888888889, 2 / 18, 1 / 18, 0.0, 0.5099619709, 0.0,
     0.5011185682, 389120.0),
    ("base", "knorm", 0.9, 2 / 18, 11.1111111111, 11.1111111111, 0.0, 1.0, 0.46875, 0.0685763889, 0.3813131313,
     0.9055578274, 73728.0),
    ("hops", "full", 0.0, 42 / 48, 87.5, 87.5, 6 / 48, 6 / 48, 0.0, 1.0, 0.0, 0.0, 589824.0),
    ("hops", "snapkv", 0.5, 20 / 48, 42.7083333333, 41.6666666667, 15 / 48, 19 / 48, 0.0, 0.5314403909, 0.0,
     0.5035992105, 292864.0),
    ("hops", "recency", 0.9, 8 / 48, 18.75, 16.6666666667, 27 / 48, 18 / 48, 0.85, 0.0852101140, 0.8966363386,
     0.9063658901, 55296.0),
    ("hops", "oracle", 0.9, 42 / 48, 87.5, 87.5, 3 / 48, 9 / 48, 0.0, 0.6568522460, 0.8997357780,
     0.9063658901, 55296.0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("task", "policy", "ratio", "expected"),
    [(task, policy, ratio, expected) for task, policy, ratio, *expected in MEANS],
)
def test_means(
    rows_by_cell: dict[tuple[str, str, float], SummaryRow],
    task: str,
    policy: str,
    ratio: float,
    expected: list[float],
) -> None:
    row = rows_by_cell[task, policy, ratio]
    found = [
        *(
            row.right,
            row.f1,
            row.em,
            row.hallucination_rate,
            row.abstention_rate,
            row.ger,
            row.slot_coverage,
        ),
        *(row.eviction_rate, row.realised_ratio, row.kv_bytes),
    ]
    assert found == pytest.approx(expected, abs=1e-9)
    assert (row.n, row.contexts) == ((18, 3) if task == "base" else (48, 3))


@pytest.mark.parametrize(
    ("task", "policy", "ratio", "right", "f1", "hallucination"),
    [
        (
            "base",
            "full",
            0.0,
            (0.2950344024, 0.9949801841),
            (29.5034402418, 99.4980184134),
            (0.0050198159, 0.7049655976),
        ),
        (
            "base",
            "snapkv",
            0.5,
            (0.1446266638, 0.8044256021),
            (13.9807400308, 84.3317178867),
            (0.0287959934, 0.6791693992),
        ),
        (
            "base",
            "snapkv",
            0.9,
            (0.0339631718, 0.6953150984),
            (3.3963171797, 69.5315098422),
            (0.0, 0.7075982262),
        ),
        (
            "hops",
            "full",
            0.0,
            (0.3196446031, 0.9678325058),
            (31.9644603115, 96.7832505798),
            (0.0321674942, 0.6803553969),
        ),
        (
            "hops",
            "snapkv",
            0.5,
            (0.1576862943, 0.7673315323),
            (16.8056024449, 76.6699692671),
            (0.0894172813, 0.7437657294),
        ),
        (
            "hops",
            "knorm",
            0.5,
            (0.0958479078, 0.6847247195),
            (11.7962729972, 68.7951286433),
            (0.0843623345, 0.673927014),
        ),
    ],
)
def test_intervals(
    rows_by_cell: dict[tuple[str, str, float], SummaryRow],
    task: str,
    policy: str,
    ratio: float,
    right: tuple[float, float],
    f1: tuple[float, float],
    hallucination: tuple[float, float],
) -> None:
    row = rows_by_cell[task, policy, ratio]
    assert (row.right_low, row.right_high) == pytest.approx(right)
    assert (row.f1_low, row.f1_high) == pytest.approx(f1)
    assert (row.hallucination_rate_low, row.hallucination_rate_high) == pytest.approx(hallucination)


def test_the_mean_over_tasks(rows_by_cell: dict[tuple[str, str, float], SummaryRow]) -> None:
    """The distances of the ends of both tasks from their means are joined as the sides of a right
    angle, and halved."""
    full, snapkv = rows_by_cell["all", "full", 0.0], rows_by_cell["all", "snapkv", 0.5]
    assert (full.right, snapkv.right) == pytest.approx((0.881944444444, 0.430555555556))
    assert (full.right_low, full.right_high) == pytest.approx((0.475409462, 0.952430679))
    assert (snapkv.right_low, snapkv.right_high) == pytest.approx((0.2324636988, 0.6818284559))
    assert (full.f1, snapkv.f1) == pytest.approx((88.1944444444, 45.4282407407))
    assert (full.f1_low, full.f1_high) == pytest.approx((47.5409461955, 95.2430679022))
    assert (snapkv.f1_low, snapkv.f1_high) == pytest.approx((23.9901715358, 70.2407548935))


def test_areas_and_ranks(board: dict[tuple[str, str], Standing]) -> None:
    areas = {
        ("base", "snapkv"): 50.5387612096,
        ("base", "knorm"): 38.1870419864,
        ("base", "random"): 77.7234158801,
        ("hops", "snapkv"): 50.2337119442,
        ("hops", "knorm"): 39.4700389066,
        ("hops", "recency"): 56.1367055733,
    }
    for key, expected in areas.items():
        area = board[key][AREA]
        assert not isinstance(area, Blank)
        assert area.height.mean == pytest.approx(expected, abs=1e-9), key
        assert area.span == pytest.approx(
            0.9055578274 if key[0] == "base" else 0.9063658901, abs=1e-9
        )
    for task in ("base", "hops", "all"):
        snapkv, knorm = (board[task, policy][RANK] for policy in ("snapkv", "knorm"))
        assert isinstance(snapkv, Blank)
        assert snapkv.short.endswith("of 64"), "its window is narrow"
        assert not isinstance(knorm, Blank)
        assert knorm.rank == 1
        assert isinstance(board[task, "random"][RANK], Blank)


def test_safe_ratio(board: dict[tuple[str, str], Standing]) -> None:
    """Three contexts show nothing: neither random tokens, which lose nothing at 0.5 on base, nor
    SnapKV, which loses 72 points at 0.9."""
    safe = {key: one[SAFE_RATIO] for key, one in board.items()}
    expected = {
        ("base", "snapkv"): 0.0,
        ("base", "random"): 0.0,
        ("hops", "random"): 0.0,
        ("hops", "snapkv"): 0.0,
    }
    for key, ratio in expected.items():
        found = safe[key]
        assert not isinstance(found, Blank)
        assert found.ratio == ratio, key
    judged = safe["base", "snapkv"]
    assert not isinstance(judged, Blank)
    differences = [loss.difference for loss in judged.levels]
    assert [one.mean for one in differences] == pytest.approx([-44.4444444444, -72.2222222222])
    assert [one.low for one in differences] == pytest.approx([-74.993289507, -92.041051344])
    assert [one.high for one in differences] == pytest.approx([24.773510286, 28.367933788])
    unchanged = safe["base", "random"]
    assert not isinstance(unchanged, Blank)
    assert unchanged.levels[0].difference.mean == 0
    assert unchanged.levels[0].difference.low == pytest.approx(-70.759822618), "1 - 0.025 ** (1/3)"
    assert (unchanged.outcome, unchanged.more) == ("open", 69)


def test_right_against_wrong(small_records: pd.DataFrame) -> None:
    found = {
        (duel.task, duel.level.value): duel for duel in duels(small_records, "snapkv", ["knorm"])
    }
    told = {
        key: (duel.lead.p, duel.lead.difference.mean, duel.verdict) for key, duel in found.items()
    }
    expected = {  # of 3 contexts, whose least p is 2 / 2 ** 3, times 2 levels
        ("base", 0.5): (1.0, 400 / 18),
        ("base", 0.9): (1.0, 100 / 18),
        ("hops", 0.5): (1.0, 900 / 48),
        ("hops", 0.9): (1.0, 300 / 48),
    }
    assert told.keys() == expected.keys()
    for key, (p, mean) in expected.items():
        assert told[key][:2] == pytest.approx((p, mean)), key
        assert told[key][2] == "not distinguished", "of so few contexts nothing can be told"


def test_the_site_of_it_shows_and_gives_out_these_numbers(small_site: Path) -> None:
    cells = pd.read_csv(small_site / "data/cells.csv", float_precision="round_trip")
    cell = cells.set_index(["task", "policy", "ratio"]).loc[("base", "snapkv", 0.5)]
    assert cell[["f1", "f1_low", "f1_high", "n"]].tolist() == pytest.approx(
        [48.1481481481, 13.9807400308, 84.3317178867, 18]
    )
    assert cell[["right", "right_low", "right_high"]].tolist() == pytest.approx(
        [8 / 18, 0.1446266638, 0.8044256021]
    )
    assert len(pd.read_parquet(small_site / "data/records.parquet")) == 726
    method = (small_site / "method.html").read_text()
    options = ("--tasks base,hops", "--policies snapkv,knorm", "--limit 3", "--seed 0")
    assert_says(method, *options, "--mode agnostic", "--context-tokens native", "--ratios 0.5,0.9")


def test_another_schema_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.support.records.small_store.SCHEMA_VERSION", SCHEMA_VERSION + 1)
    with pytest.raises(pytest.fail.Exception, match="make small-store"):
        small_store(tmp_path / "small")
    assert "compute the numbers" in AGAIN
