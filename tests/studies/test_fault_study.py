"""The page on faults says what is true of records whose truth is known."""

import pytest

from leaderboards.rendering.listing import Listing
from leaderboards.studies.declaration import StudyInput, StudySection, build_study
from leaderboards.studies.faults.study import STUDY
from leaderboards.studies.treatments.damage import damages
from tests.support.records.damaged_records import treated_records

RATES = (0.0, 0.1, 0.2)


def listings(part: StudySection) -> dict[str, Listing]:
    return {listing.title: listing for listing in (*part.listings, *part.details)}


@pytest.fixture(scope="module")
def page() -> tuple[str, dict[str, StudySection]]:
    """Zeros cost all from 0.1 on, stale rows nothing; of the layers only Q1 matters, of the tokens only evidence."""
    records = treated_records(
        {
            "zeros": lambda rate, question: rate == 0,
            "stale": lambda rate, question: True,
            "gaussian": lambda rate, question: rate < 0.2 or question > 0,
            "gaussian(layers=Q1)": lambda rate, question: rate < 0.2,
            "gaussian(layers=Q2)": lambda rate, question: True,
            "zeros(tokens=evidence)": lambda rate, question: rate == 0,
            "zeros(tokens=random)": lambda rate, question: True,
            "zeros(tensor=K)": lambda rate, question: question > 0 or rate == 0,
            "zeros(tensor=V)": lambda rate, question: True,
        },
        RATES,
        repeats=2,
    )
    text, content = build_study(STUDY, StudyInput("toy", records))
    return text, {part.identifier: part for part in content.parts}


def test_what_costs_all_is_last_and_what_costs_nothing_first(page: tuple[str, dict[str, StudySection]]) -> None:
    part = page[1]["kinds"]
    assert "where as many numbers are changed, zeros hurts most and stale least" in str(part.text)
    table, order = listings(part).values()
    assert table.columns == ("fault", "area over numbers changed", "half lost from", "rate 0", "rate 0.1", "rate 0.2")
    assert {row[0]: row[2:] for row in table.rows} == {
        "stale": ("–", *("100 [100 to 100]",) * 3),
        "gaussian": ("–", *("100 [100 to 100]",) * 2, "75 [75 to 75]"),
        "zeros": ("10", "100 [100 to 100]", "0 [0 to 0]", "0 [0 to 0]"),
    }
    areas = [row[1] for row in table.rows]
    assert areas == ["100 [100 to 100]", "94 [94 to 94]", "25 [25 to 25]"]  # (1 + 1) / 2 and (1 + 0.75) / 2, halved
    assert order.rows[0] == ("stale above gaussian", "+6 [+6 to +6]", "yes")


def test_the_band_that_matters_is_named(page: tuple[str, dict[str, StudySection]]) -> None:
    assert "gaussian at rate 0.2 on base: Q1 matters most (keeps 0 %) and Q2 least (100 %), +100" in str(
        page[1]["bands"].text
    )
    (table,) = listings(page[1]["bands"]).values()
    assert [row[-1] for row in table.rows] == ["0 [0 to 0]", "100 [100 to 100]"]


def test_what_aims_at_evidence_is_set_against_as_many_random_tokens(page: tuple[str, dict[str, StudySection]]) -> None:
    (table,) = page[1]["aims"].listings
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["evidence"] == ("100 [100 to 100]", "0 [0 to 0]", "0 [0 to 0]", "-100 [-100 to -100]")
    assert rows["as many at random"][-1] == "–"
    assert (
        "zeros at rate 0.2 on base: 0 % is kept where it hits the evidence, 100 % where it hits as many random tokens, "
        "-100 [-100 to -100] points."
    ) in str(page[1]["aims"].text)
    assert set(rows) == {"evidence", "as many at random", "all tokens"}


def test_keys_are_set_against_values(page: tuple[str, dict[str, StudySection]]) -> None:
    (table,) = page[1]["tensors"].listings
    assert table.rows[-1] == ("K − V", "-25 [-25 to -25]", "-25 [-25 to -25]")
    assert (
        "zeros at rate 0.2 on base: 75 % is kept where it hits keys alone, 100 % where it hits values alone, "
        "-25 [-25 to -25] points."
    ) in str(page[1]["tensors"].text)


def test_all_parts_stand_on_the_page_with_figures_of_text_f(page: tuple[str, dict[str, StudySection]]) -> None:
    assert list(page[1]) == ["kinds", "bands", "aims", "tensors", "outcomes", "published"]
    for identifier in page[1]:
        assert f'id="{identifier}"' in page[0]
    (table,) = page[1]["published"].listings
    assert table.rows[0][3:] == ("2 (0.02 of 0.87)", "0 (0.00 of 0.66)")
    assert ("rows of another prompt, 30 %", "not run", "–", "57 (0.50 of 0.87)", "11 (0.07 of 0.66)") in table.rows


def test_a_model_that_cannot_do_the_task_has_a_page_that_says_so() -> None:
    records = treated_records({"zeros": lambda rate, question: True}, RATES)
    records["right"] = 0.1
    text, content = build_study(STUDY, StudyInput("toy", records))
    assert not content.parts
    assert "the full cache reaches 0.1 of right, not 0.5" in text


def test_one_context_has_no_interval() -> None:
    records = treated_records({"zeros": lambda rate, question: rate == 0}, RATES)
    records = records[records["example_id"] == "0"]
    (table, _) = listings(next(iter(STUDY.find(StudyInput("toy", records)).parts))).values()
    assert table.rows[0][1] == "25"


def test_it_takes_runs_with_rates_alone() -> None:
    by_ratio = treated_records({"knorm": lambda ratio, question: True}, (0.1, 0.5), kind="ratio")
    one_rate = treated_records({"zeros": lambda rate, question: True}, (0.1,))
    several = treated_records({"zeros": lambda rate, question: True}, RATES)
    assert [STUDY.takes(StudyInput("toy", one)) for one in (by_ratio, one_rate, several)] == [False, False, True]


def test_names_tell_where_a_fault_hits() -> None:
    one, other = damages(["full", "gaussian(std=2,layers=Q1)", "snapkv", "bias", "knorm+int4"])
    assert (one.fault, one.layers) == ("gaussian(std=2)", "Q1")
    assert set(one.restricted) == {"layers"}
    assert other.fault == "bias"
    assert not other.restricted


def test_bits_and_rows_are_compared_by_the_share_of_numbers_changed() -> None:
    """At a rate of 0.1, 1 - 0.9^32 = 97 % of numbers have a bit that flips: what both lose there, rows lose sooner."""
    at_once = {"zeros": lambda rate, question: rate == 0, "bitflip": lambda rate, question: rate == 0}
    content = STUDY.find(StudyInput("toy", treated_records(at_once, RATES)))
    part = next(part for part in content.parts if part.identifier == "kinds")
    table = listings(part)["Share kept, base, percent"]
    assert [row[0] for row in table.rows] == ["bitflip", "zeros"], "the least harmful first"
    cells = {row[0]: row[2:] for row in table.rows}
    assert cells["bitflip"][0] == "96.6"
    assert cells["bitflip"][2] == "0 [0 to 0], 96.6 % of numbers"
    assert cells["zeros"][0] == "10"
    assert "far more numbers than of rows" in str(part.text)
    (drawing,) = part.pictures
    assert "share of numbers changed" in str(drawing.drawing)
    (one,) = damages(["bitflip(bits=0-7)"])
    assert one.changed(0.01, "float32") == pytest.approx(1 - 0.99**8)
