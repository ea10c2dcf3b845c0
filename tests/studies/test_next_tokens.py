"""The study of next tokens: what is averaged over which tokens, and what its page tells."""

from dataclasses import replace

import numpy as np
import pytest
from pandas import DataFrame

from kvbench.store.observed import bounds
from leaderboards.aggregate.summary import summarise
from leaderboards.studies.declaration import StudyInput, build_study
from leaderboards.studies.registry import studies_of
from leaderboards.studies.treatments.next_tokens import STUDY, TABLE, parts_of
from tests.support.records.synthetic_records import frame, record

# Right tokens and nats a token of two texts, the second of which is shorter, in parts of 1, 1, 2 and up to 4 tokens.
TEXTS = {"a": [(1, 1.0), (0, 2.0), (2, 0.5), (3, 1.0)], "b": [(0, 4.0), (1, 1.0), (1, 1.0), (1, 3.0)]}
UNJUDGED = dict.fromkeys(("f1", "em", "abstained", "hallucinated", "masked", "corrupted", "due", "unended"))
LENGTHS = {"a": 8, "b": 5}


def given(loss: int = 0) -> StudyInput:
    """The full cache and snapkv; ``loss``: right tokens of each last part that snapkv loses."""
    rows, records = [], []
    for policy, level in (("full", 0.0), ("snapkv", 0.5)):
        for text, parts in TEXTS.items():
            cell = {"task": "prose", "question_id": text, "policy": policy, "level_kind": "ratio", "level": level}
            for (start, end), (right, nats) in zip(bounds(LENGTHS[text]), parts, strict=True):
                right -= loss if policy == "snapkv" and start == 4 else 0
                part = {"first_token": start, "tokens": end - start, "accuracy": right / (end - start), "nats": nats}
                rows.append({**cell, "repeat": 0, **part})
            of_text = {"next_token_accuracy": 0.5, "gold_nll": 1.0 if text == "a" else 3.0}
            records.append(record(**cell, example_id=text, draw_id=text, **UNJUDGED, **of_text))
    return StudyInput("toy", frame(records), [{"status": "complete"}], {TABLE: DataFrame(rows)})


def test_the_parts_double_and_the_last_one_ends_with_the_text() -> None:
    assert list(bounds(8)) == [(0, 1), (1, 2), (2, 4), (4, 8)]
    assert list(bounds(5))[-1] == (4, 5)
    assert list(bounds(0)) == []


def test_every_token_weighs_the_same_however_long_its_text() -> None:
    one = given(loss=1)
    parts = {(part.policy, part.first_token): part for part in parts_of(one.tables[TABLE], one.records)}
    last, lost = parts["full", 4], parts["snapkv", 4]
    assert (last.tokens, last.accuracy.mean, lost.accuracy.mean) == pytest.approx((5, 4 / 5, 2 / 5))
    assert last.nats is not None
    assert last.nats.mean == pytest.approx((4 * 1.0 + 1 * 3.0) / 5)
    assert (last.accuracy.low, last.accuracy.high) == pytest.approx((3 / 4, 1.0))


def test_a_part_without_a_number_has_no_nats_and_stays_in_the_accuracy() -> None:
    one = given()
    table = one.tables[TABLE]
    table.loc[(table["first_token"] == 1) & (table["policy"] == "snapkv"), "nats"] = np.nan
    table.loc[(table["first_token"] == 2) & (table["question_id"] == "b"), "nats"] = np.nan
    parts = {(part.policy, part.first_token): part for part in parts_of(table, one.records)}
    assert parts["snapkv", 1].nats is None
    assert parts["snapkv", 1].accuracy.mean == pytest.approx(1 / 2)
    nats = parts["full", 2].nats
    assert nats is not None
    assert (nats.mean, nats.n) == (0.5, 2)
    page, _ = build_study(STUDY, one)
    assert "–" in page


def test_its_page_has_a_picture_for_each_level_and_a_column_for_each_part() -> None:
    assert STUDY.takes(given())
    page, content = build_study(STUDY, given())
    (part,) = content.parts
    assert [picture.title for picture in part.pictures] == ["at ratio 0.5"]
    assert part.listings[0].columns == ("policy", "level", "token 1", "token 2", "tokens 3-4", "tokens 5-8")
    assert [row[:2] for row in part.listings[0].rows] == [("full", "0"), ("snapkv", "0.5")]
    assert dict(content.facts) == {"Full cache, prose": "69.2 % of 13 tokens right"}
    assert "Tells nothing" not in page


def test_a_run_without_the_table_has_no_such_page() -> None:
    assert not STUDY.takes(StudyInput("toy", given().records, [{"status": "complete"}]))


@pytest.mark.parametrize(("statuses", "names"), [(["complete"], ["next-tokens"]), (["complete", "started"], [])])
def test_a_study_takes_complete_runs_alone(statuses: list[str], names: list[str]) -> None:
    runs = [{"status": status, "identity": {"scope": "context"}} for status in statuses]
    assert [study.name for study in studies_of(replace(given(), runs=runs))] == names


def test_perplexity_is_that_of_the_mean_nats_and_no_mean_of_perplexities() -> None:
    rows = [row for row in summarise(given().records, resamples=200) if row.task == "prose"]
    assert [row.perplexity for row in rows] == [pytest.approx(np.exp(2.0))] * 2
    assert rows[0].perplexity_low == pytest.approx(np.exp(1.0))
    assert rows[0].perplexity_high == pytest.approx(np.exp(3.0))
    assert rows[0].next_token_accuracy == 0.5
    (question,) = [row for row in summarise(frame([record(gold_nll=1.0)]), resamples=20) if row.task == "base"]
    assert (question.perplexity, question.next_token_accuracy) == (None, None)
