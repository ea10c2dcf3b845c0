"""Curves with their numbers and bands; and the command that draws figures for paper."""

import json
import re
from pathlib import Path

import pytest

from leaderboards.aggregate.row import (
    GER,
    HALLUCINATION,
    REALISED_RATIO,
    RIGHT,
    SummaryRow,
    is_told,
)
from leaderboards.pages.gallery import curve_plot, gallery
from leaderboards.rendering.drawing import Plot
from leaderboards.rendering.style import line_styles
from tests.support.browsing.pages import told_by
from tests.support.models.runs import CommandLine
from tests.support.records.synthetic_records import summary_row


def figure_row(policy: str, ratio: float, rate: float, **more: float) -> SummaryRow:
    return summary_row(policy, ratio, n=40, contexts=8, hallucination_rate=rate, **more)


ROWS = [
    figure_row("full", 0.0, 0.1),
    figure_row("snapkv", 0.5, 0.2, hallucination_rate_low=0.15, hallucination_rate_high=0.3),
    figure_row("snapkv", 0.9, 0.6, hallucination_rate_low=0.5, hallucination_rate_high=0.7),
    figure_row("random", 0.5, 0.4),
    figure_row("random", 0.9, 0.4),
]


def drawn_at(plot: Plot, kind: str) -> dict[str, list[tuple[float, float]]]:
    """By policy, the corners of its line of that class."""
    groups = re.findall(
        rf'<g class="{kind}" data-policy="(\d+)" style="[^"]+"><path d="([^"]+)"',
        str(plot.drawing.svg()),
    )
    return {
        plot.names[int(index)]: [
            (float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)
        ]
        for index, path in groups
    }


def test_a_point_has_its_place_in_the_drawing_and_its_numbers() -> None:
    plot = curve_plot(ROWS, "base", "agnostic", HALLUCINATION)
    data = told_by(plot)
    full, snapkv, _ = (style.index for style in line_styles(ROWS).values())
    assert data["names"] == {"0": "full", "1": "snapkv", "2": "random"}
    assert [spot[3:] for spot in data["spots"] if spot[0] == snapkv] == [
        ["0.5", "20.0", "95 % interval 15.0–30.0", "40 questions"],
        ["0.9", "60.0", "95 % interval 50.0–70.0", "40 questions"],
    ]
    assert [spot[3:5] for spot in data["spots"] if spot[0] == full] == [
        [level, "10.0"] for level in ("0", "0.5", "0.9")
    ]
    line = drawn_at(plot, "policy")["snapkv"]
    assert line[1:] == [
        pytest.approx(spot[1:3], abs=0.1) for spot in data["spots"] if spot[0] == snapkv
    ]


def test_data_of_a_plot_cannot_close_its_script() -> None:
    rows = [
        one.model_copy(update={"policy": one.policy.replace("snapkv", "</script><b>\u2028")})
        for one in ROWS
    ]
    text = str(curve_plot(rows, "base", "agnostic", HALLUCINATION).data())
    assert "<" not in text
    assert text.isascii()
    assert json.loads(text)["names"]["1"] == "</script><b>\u2028"


def test_figures_write_nothing_into_a_run(cli: CommandLine, toy_run: Path) -> None:
    run = toy_run / "runs/x"
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert (
        cli("figures", run, "--out", cli.folder / "paper", "--only", "right", "--formats", "svg")
        == 0
    )
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_the_command_draws_what_is_asked_for(cli: CommandLine, toy_run: Path) -> None:
    run, out = toy_run / "runs/x", cli.folder / "paper"
    some = (
        "--only",
        "right,ger",
        "--width",
        "3.25in",
        "--no-title",
        "--formats",
        "svg",
        "--tables",
    )
    assert cli("figures", run, "--out", out, *some) == 0
    names = {path.name for path in out.iterdir()}
    assert {name.split("-")[0] for name in names} <= {"right", "ger", "results"}
    assert {"right-base-agnostic.svg", "ger-base-agnostic.svg"} <= names
    assert "ger-layers-base-agnostic.svg" not in names
    assert "did you mean 'ger'" in cli.error("figures", run, "--out", out, "--only", "gre")
    assert "--width: '3' is no width" in cli.error("figures", run, "--out", out, "--width", "3")


@pytest.mark.parametrize(
    ("kind", "level", "gone", "drawn"), [("rate", 0.1, 0.0, False), ("ratio", 0.5, 0.5, True)]
)
def test_what_is_evicted_is_drawn_only_where_tokens_are_removed(
    kind: str, level: float, gone: float, drawn: bool
) -> None:
    rows = [
        summary_row("full", 0.0, realised_ratio=0.0, ger=0.0, right=0.9, hallucination_rate=0.1),
        *(
            row.model_copy(update={"level_kind": kind})
            for row in (
                summary_row(
                    "zeros", level, realised_ratio=gone, ger=gone, right=0.5, hallucination_rate=0.3
                ),
                summary_row(
                    "zeros",
                    level / 2,
                    realised_ratio=gone / 2,
                    ger=gone / 2,
                    right=0.7,
                    hallucination_rate=0.2,
                ),
            )
        ),
    ]
    assert is_told(RIGHT, rows)
    assert is_told(GER, rows) == is_told(REALISED_RATIO, rows) == drawn
    found = gallery(rows, "base", "agnostic")
    names = {picture.name for picture in found}
    assert "right" in names
    assert ("ger" in names) == drawn


def test_every_policy_is_in_a_curve_of_a_run_with_two_kinds_of_level() -> None:
    """Each kind has an axis of its own; what has one level stands over both."""
    rows = [*ROWS, figure_row("int4", 0.0, 0.3)]
    rows += [
        figure_row("zeros", rate, rate).model_copy(update={"level_kind": "rate"})
        for rate in (0.1, 0.5)
    ]
    drawn = {
        one.kind: one
        for one in gallery(rows, "base", "agnostic", line_styles(rows))
        if one.name == HALLUCINATION.name
    }
    assert {kind: one.identifier for kind, one in drawn.items()} == {
        "ratio": "hallucination-ratio",
        "rate": "hallucination-rate",
    }
    assert [one.plot.drawing.frame.horizontal.title for one in drawn.values()] == [
        "asked ratio",
        "asked rate",
    ]
    named = {kind: set(one.plot.names.values()) for kind, one in drawn.items()}
    assert named == {
        "ratio": {"full", "int4", "snapkv", "random"},
        "rate": {"full", "int4", "zeros"},
    }
    for kind, names in named.items():
        lines = {**drawn_at(drawn[kind].plot, "policy"), **drawn_at(drawn[kind].plot, "control")}
        assert set(lines) == names, kind
    one_level = line_styles(rows)["int4"].index
    spots = [spot[3:5] for spot in told_by(drawn["rate"].plot)["spots"] if spot[0] == one_level]
    assert spots == [["0.1", "30.0"], ["0.5", "30.0"]]
