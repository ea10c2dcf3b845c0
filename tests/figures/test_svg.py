"""Drawings of a page: their marks look and lie as matplotlib draws them in print, at a fraction of
the time."""

import re
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from leaderboards.rendering.drawing import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Drawing,
    pixel_place,
)
from leaderboards.rendering.frames import Axis, Band, Dots, Frame, PolicyLine
from leaderboards.rendering.style import named_styles
from policies.declaration.levels import BUDGET

STYLES = list(named_styles(["one", "<two>"]).values())
FRAME = Frame(Axis.up_to("across & on", 1.0), Axis.from_values("up", [-20.0, 80.0]))


@pytest.mark.parametrize(
    "across", [Axis.up_to("ratio", 0.9), Axis("tokens", (16.0, 64.0, 256.0), 15.5, 264.0, BUDGET)]
)
def test_a_place_is_where_matplotlib_has_it(across: Axis) -> None:
    frame = Frame(across, Axis.from_values("up", [-20.0, 80.0]))
    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72)
    left, right, top, bottom = LEFT / WIDTH, RIGHT / WIDTH, TOP / HEIGHT, BOTTOM / HEIGHT
    axes = figure.add_axes((left, 1 - bottom, right - left, bottom - top))
    if across.doubling:
        axes.set_xscale("log", base=2)
    axes.set_xlim(across.first, across.last)
    axes.set_ylim(frame.vertical.first, frame.vertical.last)
    for place in [(across.ticks[0], -20.0), (across.ticks[1], 33.3), (across.ticks[-1], 80.0)]:
        x, y = axes.transData.transform(place)
        assert pixel_place(frame, place) == pytest.approx((x, HEIGHT - y), abs=1e-6)


def test_every_kind_of_mark_is_drawn_in_its_order_and_is_found_by_its_policy() -> None:
    method, other = STYLES
    marks = (
        PolicyLine(method, ((0.0, 0.0), (1.0, 80.0))),
        Dots(other, ((0.2, 5.0), (0.3, 6.0), (0.4, 7.0))),
        Band.between(method, (0.0, 1.0), (-10.0, 60.0), (10.0, 80.0)),
    )
    drawing = Drawing(FRAME, marks, "A <title>", "salt")
    root = ElementTree.fromstring(drawing.svg())
    groups = [
        (one.get("class"), one.get("data-policy")) for one in root.iter() if one.get("data-policy")
    ]
    assert groups == [("band", "0"), ("policy", "0"), ("policy", "1")]
    (dots,) = [
        one[0]
        for one in root.iter()
        if one.get("class") == "policy" and one.get("data-policy") == "1"
    ]
    assert (dots.get("d") or "").count("M") == 3
    beside = Drawing(FRAME, marks, "A <title>", "other salt").svg()
    ids = [re.findall(r' id="([^"]+)"', svg) for svg in (drawing.svg(), beside)]
    assert len(ids[0]) == len(ids[1]) == 1, "the marker of the line"
    assert not {*ids[0]} & {*ids[1]}, "drawings of a page cannot take each other's parts"
    assert f"marker:url(#{ids[0][0]})" in drawing.svg()
    texts = [one.text for one in root.iter() if one.tag.endswith("}text")]
    assert texts == [
        "0",
        "0.2",
        "0.4",
        "0.6",
        "0.8",
        "1",
        "across & on",
        "-20",
        "0",
        "20",
        "40",
        "60",
        "80",
    ]
