"""Figures for paper: what is drawn is the numbers of pages, in the look of pages, and the same
files each time."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_hex
from matplotlib.image import imread
from pandas import DataFrame

from leaderboards.aggregate.row import GER, RIGHT
from leaderboards.aggregate.summary import summarise
from leaderboards.boards.profiles import Profiles
from leaderboards.errors import LeaderboardError
from leaderboards.pages.gallery import curve_plot
from leaderboards.paper.painting import PAINTERS
from leaderboards.paper.pictures import Box, Distribution, Panel, PaperFigure, Printable
from leaderboards.paper.printing import DOTS, USUAL, Paper, draw, save
from leaderboards.paper.run_figures import (
    differences_by_context,
    figures_of_run,
    figures_of_study,
    outcome_boxes,
)
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import Axis, Band, Dots, Frame, PolicyLine, Region
from leaderboards.rendering.style import SERIES_COLOURS, line_styles, named_styles, policy_styles
from leaderboards.rendering.templating import HeatMap, Tile
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.instructions.study import STUDY as INSTRUCTIONS
from leaderboards.studies.routing.study import STUDY as ROUTING
from leaderboards.studies.treatments.study import STUDY as TREATMENTS
from policies.declaration.levels import Level
from tests.support.records.damaged_records import treated_records
from tests.support.records.routing_tables import routing_input
from tests.support.records.study_records import small_study
from tests.support.records.synthetic_records import frame, realistic_records, record, summary_row

STYLES = policy_styles(["full", "snapkv", "knorm"])
FULL_CACHE, SNAPKV, KNORM = STYLES.values()
FRAME = Frame(Axis.up_to("ratio", 1.0), Axis.from_values("right", [0.0, 100.0]))
LINE = PolicyLine(SNAPKV, ((0.0, 90.0), (0.5, 60.0), (0.9, 30.0)))
DRAWING = Drawing(
    FRAME, (LINE, PolicyLine(FULL_CACHE, ((0.0, 90.0), (0.9, 90.0)))), "title", "salt"
)
MAP = HeatMap(
    "map",
    "layer",
    ("0.5", "0.9"),
    (("0", (Tile("25", "", 0.25), None)), ("1", (Tile("0", "", 0.0),) * 2)),
)
SPREAD = Distribution(
    "ratio", "points", (Box("0.5", SNAPKV, (-50.0, 0.0, 0.0)), Box("0.5", KNORM, (-75.0, -25.0)))
)
PICTURES: tuple[Printable, ...] = (DRAWING, MAP, SPREAD)


def of(picture: Printable) -> PaperFigure:
    return PaperFigure.of("name", "stem", "A heading", picture)


def sheet_of(figure: PaperFigure, paper: Paper = USUAL) -> Any:
    """Draws a figure, of whose marks matplotlib's types know too little."""
    return draw(figure, paper)


def axes_of(picture: Printable) -> Any:
    return sheet_of(of(picture)).axes[0]


def places_of(axes: Any) -> dict[str, list[tuple[float, float]]]:
    """By colour, the places of each line that has any."""
    lines = [line for line in axes.lines if len(line.get_xdata()) > 1]
    return {
        line.get_color(): list(zip(line.get_xdata(), line.get_ydata(), strict=True))
        for line in lines
    }


def legend_of(sheet: Any) -> list[str]:
    return [text.get_text() for legend in sheet.legends for text in legend.get_texts()]


def test_every_kind_of_picture_is_drawn(tmp_path: Path) -> None:
    assert set(PAINTERS) == set(get_args(Printable)) == set(map(type, PICTURES))
    for picture in PICTURES:
        save(of(picture), tmp_path, ["png"])
        colours = imread(tmp_path / "stem.png")[..., :3]
        assert np.ptp(colours, axis=2).max() > 0.3, "something has a colour"


def test_a_curve_has_the_places_and_the_look_of_the_page() -> None:
    axes = axes_of(DRAWING)
    assert places_of(axes) == {
        SNAPKV.colours[0]: list(LINE.places),
        FULL_CACHE.colours[0]: [(0.0, 90.0), (0.9, 90.0)],
    }
    drawn = {line.get_color(): line for line in axes.lines if len(line.get_xdata())}
    assert drawn[SNAPKV.colours[0]].get_marker() == SNAPKV.marker
    assert drawn[FULL_CACHE.colours[0]].get_linestyle() == "--"
    assert drawn[FULL_CACHE.colours[0]].get_linewidth() == FULL_CACHE.width
    assert drawn[FULL_CACHE.colours[0]].get_zorder() < drawn[SNAPKV.colours[0]].get_zorder(), (
        "methods lie above"
    )
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("ratio", "right")
    assert axes.get_xlim() == (FRAME.horizontal.first, FRAME.horizontal.last)


def test_a_line_in_pieces_keeps_its_gap_and_has_one_entry_in_the_legend() -> None:
    pieces = (
        PolicyLine(SNAPKV, ((0.0, 1.0), (0.1, 2.0))),
        PolicyLine(SNAPKV, ((0.9, 5.0), (0.8, 6.0))),
    )
    sheet = sheet_of(of(Drawing(FRAME, pieces, "title", "salt")))
    lines = [line for line in sheet.axes[0].lines if len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in lines] == [[0.0, 0.1], [0.9, 0.8]], (
        "in their order, not sorted"
    )
    assert legend_of(sheet) == ["snapkv"]


def test_intervals_dots_and_regions_are_where_the_page_has_them() -> None:
    band = Band.between(SNAPKV, (0.0, 0.5), (40.0, 50.0), (60.0, 70.0))
    dots = Dots(KNORM, ((0.2, 30.0), (0.4, 20.0)))
    sheet = sheet_of(
        of(Drawing(FRAME, (Region((0.5, 50.0), (1.0, 100.0)), band, LINE, dots), "title", "salt"))
    )
    axes = sheet.axes[0]
    assert [tuple(corner) for corner in axes.patches[0].get_xy()[:-1]] == list(band.outline)
    region, points = axes.collections
    assert region.get_datalim(axes.transData).extents.tolist() == [0.5, 50.0, 1.0, 100.0]
    assert [tuple(place) for place in points.get_offsets()] == list(dots.places)
    assert to_hex(points.get_facecolor()[0]) == KNORM.colours[0]
    assert legend_of(sheet) == ["snapkv", "knorm"]


def test_a_layer_of_a_stack_is_in_the_legend() -> None:
    layers = (
        Band.between(SNAPKV, (0, 1), (0, 0), (40, 60)),
        Band.between(KNORM, (0, 1), (40, 60), (100, 100)),
    )
    assert legend_of(sheet_of(of(Drawing(FRAME, layers, "title", "salt")))) == ["snapkv", "knorm"]


def test_a_map_has_the_heat_of_its_tiles_and_a_dash_where_nothing_was_run() -> None:
    sheet = sheet_of(of(MAP))
    axes, bar = sheet.axes
    heats = axes.collections[0].get_array()
    assert heats.filled(-1).reshape(2, 2).tolist() == [[0.25, -1], [0, 0]]
    assert [text.get_text() for text in axes.texts] == ["25", "–", "0", "0"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["0", "1"]
    assert axes.collections[0].get_clim() == (0, 1), "maps of one figure share their scale"
    assert to_hex(axes.collections[0].get_cmap()(1.0)) == SERIES_COLOURS[0][0]
    assert bar.get_ylim() == (0, 1)
    crowded = HeatMap(
        "map", "layer", tuple(map(str, range(40))), (("0", (Tile("25", "", 0.25),) * 40),)
    )
    assert not axes_of(crowded).texts, "numbers that would not fit are left out"


def test_a_box_has_the_median_and_the_halves_of_its_values() -> None:
    values = (-80.0, -40.0, -20.0, -10.0, 0.0)
    axes = axes_of(Distribution("ratio", "points", (Box("0.5", SNAPKV, values),)))
    (median,) = [
        line for line in axes.lines if len(line.get_xdata()) and line.get_color() == "black"
    ]
    assert set(median.get_ydata()) == {-20.0}
    heights = [
        path.vertices[:, 1]
        for boxes in axes.collections
        for path in boxes.get_paths()
        if len(path) == 5
    ]
    widest = max(heights, key=np.ptp)
    assert widest.min() <= -40.0 < -10.0 <= widest.max(), "the quartiles by hand"


def test_numbers_at_an_axis_do_not_run_into_one_another() -> None:
    names = [f"0.{number}00" for number in range(1, 10)]
    axis = Axis("ratio", tuple(float(name) for name in names), 0.0, 1.0)
    across = Drawing(Frame(axis, FRAME.vertical), (LINE,), "title", "salt")
    tiles = HeatMap("map", "layer", tuple(names), (("0", (Tile("", "", 0.5),) * 9),))
    boxes = Distribution("ratio", "points", tuple(Box(name, SNAPKV, (0.0, 1.0)) for name in names))
    for picture in (across, tiles, boxes):
        figure = PaperFigure("name", "stem", "A heading", (Panel("one", picture),) * 4, columns=4)
        axes = sheet_of(figure).axes[0]
        extents = [text.get_window_extent() for text in axes.get_xticklabels()]
        assert len(extents) > 1
        assert all(left.x1 < right.x0 for left, right in pairwise(extents)), type(picture)


RIGHTS = {"full": (1, 1, 1, 0), "snapkv": (1, 0, 0, 0)}  # of two contexts with two questions each


def small_records() -> DataFrame:
    rows = []
    for policy, rights in RIGHTS.items():
        for number, right in enumerate(rights):
            cell = {
                "policy": policy,
                "ratio": 0.0 if policy == "full" else 0.5,
                "realised_ratio": 0.5,
            }
            place = {"task": "base", "example_id": f"{number // 2}", "question_id": f"{number}"}
            gone = 0.0 if right else 0.75
            kept = {
                "ger": gone,
                "ger_by_layer": [gone, 1.0],
                "hallucinated": not right and number < 3,
            }
            rows.append(record(**cell, **place, **kept, f1=100.0 * right, em=100.0 * right))
    return frame(rows)


def test_the_differences_of_contexts_by_hand() -> None:
    """With snapkv the first context loses one of two answers, and the second its only one."""
    rows = summarise(small_records())
    profile = Profiles.of(small_records(), rows).profile("agnostic", "base", "snapkv")
    assert differences_by_context(profile, 1) == (-50.0, -50.0)
    (figure,) = (
        one for one in figures_of_run(rows, small_records(), ()) if one.name == "differences"
    )
    (panel,) = figure.panels
    assert isinstance(panel.picture, Distribution)
    assert [(box.place, box.style.policy, box.values) for box in panel.picture.boxes] == [
        ("0.5", "snapkv", (-50.0, -50.0))
    ]


def test_ger_of_right_wrong_and_silent_answers_by_hand() -> None:
    answers = with_levels(small_records())
    boxes = outcome_boxes(answers[answers["policy"] == "snapkv"])
    assert [(box.place, box.style.policy, box.values) for box in boxes] == [
        ("0.5", "right", (0.0,)),
        ("0.5", "wrong", (0.75, 0.75)),
        ("0.5", "silent", (0.75,)),
    ]


def test_the_map_of_layers_has_ger_within_each() -> None:
    """Three of four answers of snapkv have 0.75 in the first layer, and all have 1 in the
    second."""
    rows = summarise(small_records())
    (figure,) = (
        one
        for one in figures_of_run(rows, small_records(), ())
        if one.stem == "ger-layers-base-agnostic"
    )
    assert [panel.title for panel in figure.panels] == ["snapkv"]
    heats = sheet_of(figure).axes[0].collections[0].get_array()
    assert heats.ravel().tolist() == pytest.approx([0.75 * 3 / 4, 1.0])
    (panel,) = figure.panels
    assert isinstance(panel.picture, HeatMap)
    assert panel.picture.columns == (str(Level("ratio", 0.5)),), "as in tables"


@pytest.fixture(scope="module")
def figures() -> list[PaperFigure]:
    records = realistic_records(
        contexts=4, policies=("full", "random", "snapkv", "knorm"), ratios=(0.3, 0.6, 0.9)
    )
    return list(figures_of_run(summarise(records), records, ()))


def test_a_run_has_a_figure_of_each_kind_and_every_file_a_name_of_its_own(
    figures: list[PaperFigure],
) -> None:
    names = {figure.name for figure in figures}
    assert {
        "right",
        "ger",
        "tradeoff",
        "tasks",
        "ger-layers",
        "ger-outcome",
        "differences",
    } <= names
    stems = [figure.stem for figure in figures]
    assert len(stems) == len(set(stems))
    assert {
        "right-base-agnostic",
        "right-all-agnostic",
        "tradeoff-all-agnostic",
        "tasks-all-agnostic",
    } <= {*stems}


def test_small_multiples_are_tasks_by_measures_with_the_curves_of_each(
    figures: list[PaperFigure],
) -> None:
    (grid,) = (figure for figure in figures if figure.name == "tasks")
    assert [panel.title.split(",")[0] for panel in grid.panels] == [
        f"{task}: {title}"
        for task in ("base", "hops")
        for title in (RIGHT.title, "Wrong of answered", GER.title)
    ]
    (curve,) = (figure for figure in figures if figure.stem == "right-hops-agnostic")
    sheet = sheet_of(grid)
    assert places_of(sheet.axes[3]) == places_of(sheet_of(curve).axes[0])
    assert len(set(legend_of(sheet))) == len(legend_of(sheet)) == 4, "one legend for all panels"
    columns = {round(axes.get_position().x0, 2) for axes in sheet.axes}
    assert len(columns) == 3
    narrow = sheet_of(grid, Paper.parse("column"))
    assert len({round(axes.get_position().x0, 1) for axes in narrow.axes}) == 1, (
        "no task stands in two columns"
    )


def test_a_curve_of_a_run_is_its_rows() -> None:
    rows = [
        summary_row("full", 0.0, right=0.9),
        *(summary_row("snapkv", at, right=1 - at) for at in (0.25, 0.75)),
    ]
    drawing = curve_plot(rows, "base", "agnostic", RIGHT).drawing
    colour = line_styles(rows)["snapkv"].colours[0]
    assert places_of(axes_of(drawing))[colour] == [(0.0, 90.0), (0.25, 75.0), (0.75, 25.0)]


def _costs_in_second(band: str) -> Callable[[float, int], bool]:
    return lambda rate, question: band == "Q1" or question > 0


BANDS = {f"zeros(layers={band})": _costs_in_second(band) for band in ("Q1", "Q2")}
OF_STUDIES = {
    ROUTING: routing_input(),
    TREATMENTS: StudyInput("toy", treated_records(BANDS, (0.1, 0.3))),
    INSTRUCTIONS: StudyInput("toy", small_study()),
}


@pytest.mark.parametrize("study", OF_STUDIES, ids=lambda study: study.name)
def test_a_study_prints_the_pictures_and_maps_of_its_page(study: Study) -> None:
    content = study.find(OF_STUDIES[study])
    titles = []
    for part in content.parts:
        titles += [picture.title for picture in part.pictures]
        titles += [heat_map.title for heat_map in part.maps]
    printed = list(figures_of_study(study, content))
    assert len({figure.stem for figure in printed}) == len(printed) == len(titles) > 0
    for figure, title in zip(printed, titles, strict=True):
        assert figure.heading.endswith(title)
        assert sheet_of(figure).axes[0].get_ylabel(), "the note of a picture stands at its axis"


def test_the_map_of_bands_is_that_of_the_page() -> None:
    """Damage in Q1 costs nothing, and in Q2 one answer in four."""
    content = TREATMENTS.find(OF_STUDIES[TREATMENTS])
    (figure,) = (
        one
        for one in figures_of_study(TREATMENTS, content)
        if isinstance(one.panels[0].picture, HeatMap)
    )
    axes = sheet_of(figure).axes[0]
    assert axes.collections[0].get_array().reshape(2, 2).tolist() == [[1.0, 1.0], [0.75, 0.75]]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["Q1", "Q2"]
    assert [text.get_text() for text in axes.texts] == ["100", "100", "75", "75"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("asked rate", "layers")


def test_the_map_of_heads_shows_the_head_that_reads_the_answer() -> None:
    """With the full cache head 1 of layer 1 reads every answer, and no other head any."""
    content = ROUTING.find(routing_input())
    (heads,) = (
        one
        for one in figures_of_study(ROUTING, content)
        if isinstance(one.panels[0].picture, HeatMap)
    )
    heats = sheet_of(heads).axes[0].collections[0].get_array()
    assert heats.reshape(2, 2).tolist() == [[0, 0], [0, 1]]
    (sheet,) = (one for one in content.sheets if one.name == "routing-heads")
    rows = [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows]
    kept = [
        row["reads"]
        for row in rows
        if (row["policy"], row["level"], row["layer"]) == ("snapkv", 0.5, 1)
    ]
    assert kept == [0.0, 0.5], "snapkv keeps every other gold at 0.5"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: type(picture).__name__)
def test_a_file_is_the_same_each_time_and_in_whatever_company(
    picture: Printable, tmp_path: Path
) -> None:
    suffixes = ("svg", "png", "pdf")
    together = PaperFigure(
        "name", "stem", "A heading", (Panel("one", picture), Panel("two", picture)), columns=2
    )
    for figure in (of(picture), together):
        save(figure, tmp_path, suffixes)
        first = {suffix: (tmp_path / f"stem.{suffix}").read_bytes() for suffix in suffixes}
        for suffix in suffixes:
            save(figure, tmp_path, [suffix])
            assert (tmp_path / f"stem.{suffix}").read_bytes() == first[suffix], suffix
    assert first["pdf"].startswith(b"%PDF")
    assert b"/FontFile2" in first["pdf"], "its fonts lie in it, as TrueType"


def test_a_figure_is_as_wide_as_its_paper_and_its_legend_no_wider(tmp_path: Path) -> None:
    names = [f"a policy with a long name {number}" for number in range(7)]
    lines = tuple(PolicyLine(style, LINE.places) for style in named_styles(names).values())
    figure = of(Drawing(FRAME, lines, "title", "salt"))
    for width, inches in {"column": 3.3, "page": 6.8, "82mm": 82 / 25.4}.items():
        paper = Paper.parse(width)
        sheet = sheet_of(figure, paper)
        (legend,) = sheet.legends
        assert legend.get_window_extent().width <= sheet.bbox.width
        assert legend_of(sheet) == names
        save(figure, tmp_path, ["png"], paper)
        assert imread(tmp_path / "stem.png").shape[1] == int(inches * DOTS)
    for text in ("3", "0.1in", "wide"):
        with pytest.raises(LeaderboardError, match="give column, page, or one such as"):
            Paper.parse(text)


def test_a_heading_is_left_out_where_the_paper_has_a_caption(tmp_path: Path) -> None:
    for headed in (True, False):
        save(of(DRAWING), tmp_path, ["svg"], Paper(3.3, headed))
        assert ("A heading" in (tmp_path / "stem.svg").read_text()) == headed


def test_figures_leave_no_trace_in_the_settings_of_a_notebook(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    save(of(DRAWING), tmp_path, ["png"])
    assert dict(matplotlib.rcParams) == before
    assert pyplot.get_fignums() == []
