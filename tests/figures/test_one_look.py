"""A policy looks the same on all pages, an axis fits what is drawn, and a section begins with what
leads."""

from collections.abc import Sequence

import pytest

from leaderboards.aggregate.row import RIGHT, WRONG_OF_ANSWERED, SummaryRow
from leaderboards.aggregate.summary import summarise
from leaderboards.pages.gallery import curve_plot, gallery
from leaderboards.rendering.style import LineStyle, policy_styles
from leaderboards.studies.parts import full_last
from tests.support.browsing.pages import Elements, build_pages, results_of
from tests.support.records.synthetic_records import realistic_records, summary_row

NAMES = (
    "snapkv",
    "keydiff",
    "lagkv",
    "int8",
    "snapkv+int4",
    "q8_0",
    "zeros(tokens=evidence)",
    "mine.py:Press",
)


def look(style: LineStyle) -> tuple[object, ...]:
    return style.variable, style.marker, style.dashes


@pytest.mark.parametrize(
    "beside", [(), ("full", "streaming_llm"), NAMES[::-1], tuple(f"x{n}.py:Y" for n in range(3))]
)
def test_a_policy_has_one_look_whatever_else_is_run(beside: Sequence[str]) -> None:
    alone = {name: look(policy_styles([name])[name]) for name in NAMES}
    beside_others = policy_styles((*beside, *NAMES))
    assert {name: look(beside_others[name]) for name in NAMES} == alone
    of_study = full_last(["full", *NAMES])
    assert {name: look(of_study[name]) for name in NAMES} == alone
    assert len({look(style) for style in beside_others.values()}) == len(beside_others)


def test_what_is_made_of_a_policy_has_its_colour_and_what_somebody_brings_has_none_of_them() -> (
    None
):
    styles = policy_styles(NAMES)
    assert styles["snapkv+int4"].variable == styles["snapkv"].variable
    mine = policy_styles(["mine.py:Press"])["mine.py:Press"]
    assert mine.variable not in {
        style.variable for name, style in styles.items() if name != "mine.py:Press"
    }


def _rows(right: float) -> list[SummaryRow]:
    full = summary_row("full", ratio=0.0, right=right, wrong_of_answered=0.02)
    return [full, summary_row("snapkv", right=right / 2, wrong_of_answered=0.13)]


@pytest.mark.parametrize(
    ("right", "last"), [(0.13, 15), (0.2, 20), (0.96, 100), (1.0, 100), (0.0, 100)]
)
def test_an_axis_of_percent_ends_where_its_curves_do_and_begins_at_0(
    right: float, last: float
) -> None:
    vertical = curve_plot(_rows(right), "base", "agnostic", RIGHT).drawing.frame.vertical
    assert (vertical.first, vertical.ticks[-1]) == (0, last)
    wrong = curve_plot(_rows(right), "base", "agnostic", WRONG_OF_ANSWERED).drawing.frame.vertical
    assert wrong.ticks[-1] == 15


def test_right_and_wrong_answers_come_first_and_the_rest_is_folded_behind_the_tables() -> None:
    records = realistic_records(
        tasks=["base"], policies=("full", "snapkv", "random"), ratios=(0.1, 0.5, 0.9)
    )
    first = [one.name for one in gallery(summarise(records), "base", "agnostic") if one.leads]
    assert first == ["right", "wrong-of-answered"]
    page = build_pages([results_of(records)])["index.html"]
    figures = [
        one["id"]
        for tag, one in Elements(page).found
        if tag == "figure" and "section-1" in (one["id"] or "")
    ]
    assert len(figures) > 4
    table, fold = page.index('class="measures"'), page.index('<details class="more further">')
    before = [name for name in figures if page.index(f'id="{name}"') < table]
    assert before == ["section-1-right-figure", "section-1-wrong-of-answered-figure"]
    assert all(page.index(f'id="{name}"') > fold > table for name in figures if name not in before)
