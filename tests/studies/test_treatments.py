"""The study of treatments says what is true of records whose truth is known."""

from collections.abc import Mapping

import pytest
from pandas import DataFrame, concat

from leaderboards.rendering.templating import Listing
from leaderboards.studies.declaration import StudyInput, StudySection, build_study
from leaderboards.studies.treatments.content import policies_in
from leaderboards.studies.treatments.damage import damages
from leaderboards.studies.treatments.study import STUDY
from leaderboards.studies.treatments.tasks import MeasuredTask, measured_tasks
from leaderboards.studies.treatments.types import (
    TypesCell,
    measure_types,
    types_section,
    types_sheet,
)
from tests.support.records.damaged_records import Right, treated_records
from tests.support.wording import assert_says

RATES = (0.0, 0.1, 0.2)
BIASED, WIDE = "multiplicative_uniform(low=0,high=2)", "multiplicative_uniform(low=-1.5,high=1.5)"
ALL, HALF, NOTHING = "100", "50", "0"


def sections(given: StudyInput) -> dict[str, StudySection]:
    assert STUDY.takes(given)
    page, content = build_study(STUDY, given)
    parts = {part.identifier: part for part in content.parts}
    assert all(f'id="{identifier}"' in page for identifier in parts)
    return parts


def means_of(listing: Listing) -> tuple[tuple[str, ...], ...]:
    """The rows without intervals, which have width where all contexts agree."""
    return tuple(tuple(cell.partition(" [")[0] for cell in row) for row in listing.rows)


def rows_by_treatment(listing: Listing) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in listing.rows}


def of_faults(treatments: Mapping[str, Right]) -> StudyInput:
    return StudyInput("toy", treated_records(treatments, RATES, repeats=2))


@pytest.fixture(scope="module")
def faults() -> dict[str, StudySection]:
    """Zeros cost all from 0.1 on, stale rows nothing; of the layers only Q1 matters."""
    return sections(
        of_faults(
            {
                "zeros": lambda rate, question: rate == 0,
                "stale": lambda rate, question: True,
                "gaussian": lambda rate, question: rate < 0.2 or question > 0,
                "gaussian(layers=Q1)": lambda rate, question: rate < 0.2,
                "gaussian(layers=Q2)": lambda rate, question: True,
            }
        )
    )


def test_what_costs_all_is_last_and_what_costs_nothing_first(
    faults: dict[str, StudySection],
) -> None:
    (table,) = faults["kept"].listings
    (every,) = faults["kept"].details
    assert table.columns == ("treatment", "0", "0.1", "0.2")
    assert means_of(table) == (
        ("stale", ALL, ALL, ALL),
        ("gaussian(layers=Q2)", ALL, ALL, ALL),
        ("gaussian", ALL, ALL, "75"),
        ("zeros", ALL, NOTHING, NOTHING),
        ("gaussian(layers=Q1)", ALL, ALL, NOTHING),
    )
    assert ("zeros", "0.2", NOTHING, "0", "100", "0") in means_of(every)


def test_bits_and_rows_are_compared_by_the_share_of_numbers_changed() -> None:
    """At a rate of 0.1, 1 - 0.9^32 = 97 % of numbers have a bit that flips: what both lose there,
    rows lose sooner."""
    at_once = {
        "zeros": lambda rate, question: rate == 0,
        "bitflip": lambda rate, question: rate == 0,
    }
    part = sections(of_faults(at_once))["kept"]
    cells = rows_by_treatment(part.listings[0])
    lost, share = cells["bitflip"][1].split("], ")
    assert (lost.startswith("0 [0 to "), share) == (True, "96.6 % of numbers")
    assert 15 < float(lost.split()[-1]) < 60, "no context shows that nothing is ever kept"
    assert "share of numbers changed" in part.pictures[0].drawing.svg()
    (one,) = damages(["bitflip(bits=0-7)"])
    assert one.changed(0.01, "float32") == pytest.approx(1 - 0.99**8)


@pytest.fixture(scope="module")
def errors() -> dict[str, StudySection]:
    """A bias costs all, uniform errors a quarter, normal ones a half, all of it by the keys; int4
    nothing."""
    records = treated_records(
        {
            "multiplicative_uniform": lambda rate, question: rate == 0 or question > 0,
            BIASED: lambda rate, question: rate == 0,
            WIDE: lambda rate, question: rate == 0 or question > 0,
            "multiplicative_normal": lambda rate, question: rate == 0 or question > 1,
            "multiplicative_normal(tensor=K)": lambda rate, question: rate == 0 or question > 1,
            "multiplicative_normal(tensor=V)": lambda rate, question: True,
        },
        (0.0, 1.0),
    )
    bits = treated_records({"int4": lambda ratio, question: True}, (0.0,), kind="ratio")
    records = concat([records, bits]).drop_duplicates(["policy", "level", "repeat", "question_id"])
    return sections(StudyInput("toy", records))


def test_errors_of_one_rate_have_a_row_each_and_no_areas(errors: dict[str, StudySection]) -> None:
    (table,) = errors["kept"].listings
    assert (BIASED, "1", NOTHING, "0", "100", "0") in means_of(table)
    assert ("int4", "0", ALL, "100", "0", "0") in means_of(table)
    assert ("multiplicative_normal(tensor=K)", "1", HALF, "50", "50", "0") in means_of(table)


def test_treatments_of_the_full_cache_are_told_from_others() -> None:
    names = ["full", "gaussian(std=2,layers=Q1)", "snapkv", "bias", "knorm+int4", "int4(tensor=K)"]
    assert [one.policy for one in damages(names)] == [
        "gaussian(std=2,layers=Q1)",
        "bias",
        "int4(tensor=K)",
    ]


def of_low_control(records: DataFrame) -> DataFrame:
    """The same as if the full cache had one question of four right; what is right elsewhere is
    among them. At level x the right answer is 2 x nats a token less likely."""
    first = records["question_id"].str.endswith("/0")
    return records.assign(
        right=records["right"].astype(bool) & first, delta_nll=2.0 * records["level"]
    )


def test_where_the_model_cannot_do_the_task_all_is_shown_and_the_likelihood_leads() -> None:
    """Zeros lose at 0.2 what the full cache has right, and stale rows nothing."""
    rules = {"zeros": lambda rate, question: rate < 0.2, "stale": lambda rate, question: True}
    given = StudyInput("toy", of_low_control(treated_records(rules, RATES)))
    parts = sections(given)
    assert list(parts) == ["rise", "kept"]
    itself = "the model itself has 25 % right, below 50"
    (rises,), (kept,) = parts["rise"].listings, parts["kept"].listings
    assert_says(rises.title, "NLL by rate", "base", "no verdicts", "nats a token")
    rows = ("0.00", "0.20", "0.40")
    assert means_of(rises) == (("zeros", *rows), ("stale", *rows)), (
        "as they were named, and not by harm"
    )
    assert means_of(kept) == (("zeros", ALL, ALL, NOTHING), ("stale", ALL, ALL, ALL))
    assert_says(kept.title, "Share kept by rate", "base", "no verdicts", "percent")
    assert len(parts["rise"].pictures) == len(parts["kept"].pictures) == 1
    (every,) = parts["kept"].details
    assert every.columns[:4] == ("treatment", "level", "NLL rise, nats", "share kept, percent")
    assert ("zeros", "0.2", "0.40", NOTHING) in {row[:4] for row in means_of(every)}
    text, content = build_study(STUDY, given)
    assert_says(text, itself, "verdicts are withheld")
    (sheet,) = content.sheets
    (cell,) = [
        dict(zip(sheet.columns, row, strict=True))
        for row in sheet.rows
        if row[1:3] == ("zeros", 0.2)
    ]
    assert (cell["share_kept"], cell["delta_nll"], cell["not_mastered"]) == (
        0.0,
        pytest.approx(0.4),
        itself,
    )


def test_where_the_full_cache_has_nothing_no_share_of_it_is_kept() -> None:
    records = treated_records({"zeros": lambda rate, question: True}, RATES).assign(
        right=False, delta_nll=0.5
    )
    parts = sections(StudyInput("toy", records))
    assert rows_by_treatment(parts["kept"].listings[0])["zeros"] == ("–", "–", "–")
    assert {
        text.partition(" [")[0] for text in rows_by_treatment(parts["rise"].listings[0])["zeros"]
    } == {"0.50"}


def test_a_task_that_was_not_asked_of_the_full_cache_says_so() -> None:
    records = treated_records({"zeros": lambda rate, question: True}, RATES)
    beside = records[records["policy"] != "full"].assign(task="hops")
    text, content = build_study(STUDY, StudyInput("toy", concat([records, beside])))
    assert "full has no answer of hops" in text
    assert {row[0] for sheet in content.sheets for row in sheet.rows} == {"base"}


def records_at_bytes() -> DataFrame:
    """int4 keeps all in 30 %, snapkv three of four answers in 50 % and one in 25 %, both together
    all in 26 %; whole pages cost snapkv one answer more."""
    at_ratios = treated_records(
        {
            "snapkv": lambda ratio, question: question < (3 if ratio < 0.6 else 1),
            "snapkv+pages16": lambda ratio, question: question < (2 if ratio < 0.6 else 1),
        },
        (0.5, 0.75),
        kind="ratio",
    )
    both = treated_records({"snapkv+int4": lambda ratio, question: True}, (0.2,), kind="ratio")
    alone = treated_records({"int4": lambda ratio, question: True}, (0.0,), kind="ratio")
    records = concat([at_ratios, both, alone]).drop_duplicates(["policy", "level", "question_id"])
    held = {"full": 1.0, "int4": 0.3, "snapkv+int4": 0.26}
    records["kv_bytes"] = [
        round(1000 * held.get(policy, 1 - level))
        for policy, level in zip(records["policy"], records["level"], strict=True)
    ]
    return records


@pytest.fixture(scope="module")
def at_bytes() -> dict[str, StudySection]:
    return sections(StudyInput("toy", records_at_bytes()))


def test_the_front_leaves_out_what_others_exceed_in_fewer_bytes(
    at_bytes: dict[str, StudySection],
) -> None:
    (table,) = at_bytes["front"].listings
    assert means_of(table) == (
        ("snapkv at 0.75", "eviction", "25.0", "25"),
        ("snapkv+int4 at 0.2", "both", "26.0", ALL),
    )


def test_where_the_model_cannot_do_the_task_every_point_is_listed_and_no_front(
    at_bytes: dict[str, StudySection],
) -> None:
    given = StudyInput("toy", of_low_control(records_at_bytes()))
    part = sections(given)["front"]
    (table,) = part.listings
    assert table.columns == ("policy", "way", "bytes, percent", "NLL rise, nats", "score, percent")
    assert means_of(table) == (
        ("snapkv at 0.75", "eviction", "25.0", "1.50", "25"),
        ("snapkv+int4 at 0.2", "both", "26.0", "0.40", "25"),
        ("int4", "quantisation", "30.0", "0.00", "25"),
        ("snapkv at 0.5", "eviction", "50.0", "1.00", "25"),
    )
    rise, score = part.pictures
    assert_says(rise.note, "right answer’s NLL", "nats a token")
    (judged,) = at_bytes["front"].pictures
    assert judged.note == score.note == "Right, percent"
    assert judged.drawing.svg().count("<path") > score.drawing.svg().count("<path"), (
        "the lines of fronts"
    )
    sheet = build_study(STUDY, given)[1].sheets[-1]
    assert {row[sheet.columns.index("on_front")] for row in sheet.rows} == {None}


FRESH = "unit=value,phase=every_step,persistence=transient"
IN_BANDS = {
    f"gaussian(layers=Q3,{FRESH})": lambda rate, question: True,
    f"gaussian(layers=Q4,{FRESH})": lambda rate, question: (
        question > 0 if rate < 0.2 else question > 2
    ),
    f"gaussian(layers=H2,{FRESH})": lambda rate, question: False,
    f"gaussian({FRESH})": lambda rate, question: rate < 0.2 and question < 2,
    "gaussian": lambda rate, question: True,
}


def cells_of(given: StudyInput, name: str) -> list[dict[str, object]]:
    (sheet,) = [sheet for sheet in build_study(STUDY, given)[1].sheets if sheet.name == name]
    return [dict(zip(sheet.columns, row, strict=True)) for row in sheet.rows]


def test_the_map_of_bands_has_what_each_band_keeps_and_the_same_as_download() -> None:
    """Nothing is lost in Q3, one question of four and then three in Q4, all in H2; in all layers
    two and then all."""
    given = StudyInput("toy", treated_records(IN_BANDS, RATES))
    (drawn,) = sections(given)["bands"].maps
    texts = {
        band: tuple(tile and (tile.text, tile.heat) for tile in tiles) for band, tiles in drawn.rows
    }
    assert drawn.title == f"base: gaussian({FRESH})"
    assert drawn.columns == ("0.1", "0.2"), "without the rate at which nothing is damaged"
    assert texts == {
        "Q3": (("100", 1.0), ("100", 1.0)),
        "Q4": (("75", 0.75), ("25", 0.25)),
        "H2": (("0", 0.0), ("0", 0.0)),
        "all layers": (("50", 0.5), ("0", 0.0)),
    }
    rows = cells_of(given, "treatments-bands")
    kept = {
        (row["band"], row["level"]): (row["share_kept"], row["score"], row["full_cache"])
        for row in rows
    }
    assert len(kept) == len(rows) == 8
    assert kept["Q4", 0.2] == (0.25, 0.25, 1.0)
    assert 'style="--heat:0.75"><b>75</b>' in build_study(STUDY, given)[0]


def test_the_map_leaves_blank_what_a_band_was_not_run_at() -> None:
    records = treated_records(IN_BANDS, RATES)
    not_run = (records["policy"] == f"gaussian(layers=Q3,{FRESH})") & (records["level"] == 0.2)
    (drawn,) = sections(StudyInput("toy", records[~not_run]))["bands"].maps
    assert [tile is None for tile in dict(drawn.rows)["Q3"]] == [False, True]


def test_what_is_replaced_at_every_pass_has_a_section_of_its_own() -> None:
    parts = sections(StudyInput("toy", treated_records(IN_BANDS, RATES)))
    fresh, once = parts["kept-fresh"], parts["kept"]
    assert "before every pass" in fresh.title
    assert once.title == "Damaged once, after the context is read"
    assert {row[0] for row in fresh.listings[0].rows} == {*IN_BANDS} - {"gaussian"}
    assert {row[0] for row in once.listings[0].rows} == {"gaussian"}


def of_two_models(**other: object) -> StudyInput:
    """Zeros leave the large model three of four answers, and the small one, which has two of four
    itself, one of these; at 0.2 neither keeps any."""
    large = treated_records(
        {"zeros": lambda rate, question: rate < 0.2 and question < 3}, (0.1, 0.2)
    )
    small = treated_records(
        {"zeros": lambda rate, question: rate < 0.2 and question < 1}, (0.1, 0.2)
    )
    right = small["right"].astype(bool) & small["question_id"].str.endswith(("/0", "/1"))
    beside = StudyInput("small", small.assign(**{"right": right, **other}), number=2)
    return StudyInput("large", large, beside=[beside])


def test_two_models_stand_beside_one_another_with_their_paired_difference() -> None:
    given = of_two_models()
    part = sections(given)["beside-1"]
    assert part.title == "Beside small"
    (difference,), (both,) = part.listings, part.details
    (row,) = difference.rows
    assert (difference.columns, row[0]) == (("treatment", "0.1", "0.2"), "zeros")
    assert row[1].startswith("+25 ["), "75 % of its answers against 50 %"
    assert row[2].startswith("0 ["), "neither keeps any"
    assert means_of(both) == (
        ("zeros", "0.1", "75", "25", "75", "50"),
        ("zeros", "0.2", "0", "0", "0", "0"),
    )
    (picture,) = part.pictures
    assert [style.policy for style in part.styles] == ["large", "small"]
    assert picture.drawing.svg().count('class="policy"') == 2, "a line for each model"
    first, _ = cells_of(given, "treatments-beside")
    assert (first["share_kept"], first["other_share_kept"], first["difference"]) == (
        0.75,
        0.5,
        pytest.approx(25),
    )
    assert (first["score"], first["other_score"], first["other_full_cache"]) == (0.75, 0.25, 0.5)
    assert first["other_model"] == "small"


def test_contexts_are_resampled_for_both_models_together() -> None:
    """Each context has its own share, the same in both models: their difference is 0 in every
    resample."""
    rules = {"zeros": lambda rate, question: question > 0}
    records = treated_records(rules, (0.1, 0.2))
    lost = (records["policy"] == "zeros") & (records["example_id"].astype(int) < 4)
    records = records.assign(right=records["right"].astype(bool) & ~lost)
    given = StudyInput("large", records, beside=[StudyInput("small", records, number=2)])
    assert rows_by_treatment(sections(given)["beside-1"].listings[0])["zeros"] == (
        "0 [0, 0]",
        "0 [0, 0]",
    )


def test_other_questions_are_not_set_beside_one_another() -> None:
    """The same names with another text, as of a tokenizer that makes contexts of another length."""
    parts = sections(of_two_models(context="Ben lives in Rome."))
    assert not any(name.startswith("beside") for name in parts)


def test_two_models_stand_beside_one_another_on_one_page_alone() -> None:
    given = of_two_models()
    (other,) = given.beside
    assert "beside-1" not in sections(
        StudyInput(other.model, other.records, beside=[given], number=2)
    )


def test_types_of_keys_and_values_are_a_table() -> None:
    """Keys in four bits lose all, values in four bits nothing."""
    formats: dict[str, Right] = {
        "q8_0": lambda rate, question: True,
        "q4_0": lambda rate, question: False,
        "q8_0(values=q4_0)": lambda rate, question: True,
        "q4_0(tensor=K)": lambda rate, question: False,
        "q4_0(layers=2-)": lambda rate, question: True,
    }
    records = treated_records(formats, (0.0,))
    held = {"full": 100.0, "q8_0": 50.0, "q4_0": 25.0, "q8_0(values=q4_0)": 37.5}
    records["kv_bytes"] = records["policy"].map(held).fillna(60.0)
    rows = []
    for context in range(3):
        where = {"task": records["task"].iloc[0], "question_id": f"{context}/0"}
        rows.append(where | {"policy": "q4_0", "kl": 1.0 + context})
    whole = StudyInput("toy", records, tables={"reconstruction": DataFrame(rows)})
    section = types_section(*_types(whole))[0]
    right, divergence, stored = section.listings
    assert right.columns[1:] == ("exact", "q8_0", "q4_0"), "those that hold most bytes first"
    assert means_of(right) == (
        ("exact", ALL, "–", "–"),
        ("q8_0", "–", ALL, ALL),
        ("q4_0", NOTHING, "–", NOTHING),
    )
    assert divergence.rows[2] == ("q4_0", "–", "–", "2")
    assert stored.rows[1] == ("q8_0", "–", "50.0", "37.5")
    sheet = types_sheet(_types(whole)[1])
    pairs = {row[1]: row[2:4] for row in sheet.rows}
    assert sheet.columns[:4] == ("task", "policy", "keys", "values")
    assert pairs["q4_0(tensor=K)"] == ("q4_0", "exact")


def _types(given: StudyInput) -> tuple[list[MeasuredTask], dict[str, list[TypesCell]]]:
    tasks, _ = measured_tasks(given.records)
    policies = policies_in(given.records)
    return tasks, measure_types(tasks, policies, given.tables.get("reconstruction"))


def test_without_two_types_there_is_no_table() -> None:
    same = treated_records({"q8_0": lambda rate, question: True}, (0.0,))
    assert types_section(*_types(StudyInput("toy", same))) == []
