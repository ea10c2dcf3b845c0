"""Records of runs with treatments whose truth is known: each answer is right or wrong by a rule."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pandas import DataFrame

from tests.support.records.synthetic_records import record

CONTEXTS, QUESTIONS = 8, 4
Right = Callable[[float, int], bool]  # of a level and a question


def treated_records(
    treatments: Mapping[str, Right],
    levels: Sequence[float],
    kind: str = "rate",
    repeats: int = 1,
    **more: Any,
) -> DataFrame:
    """Returns records in which the full cache is right on every question, and each treatment where
    its rule says so."""
    rows = []
    for context in range(CONTEXTS):
        for question in range(QUESTIONS):
            where = {"example_id": f"{context}", "question_id": f"{context}/{question}", **more}
            rows.append(_record(where, "full", "ratio", 0.0, 0, True))
            rows += [
                _record(where, policy, kind, level, repeat, right(level, question))
                for policy, right in treatments.items()
                for level in levels
                for repeat in range(repeats)
            ]
    return DataFrame(rows)


def _record(
    where: dict[str, Any], policy: str, kind: str, level: float, repeat: int, right: bool
) -> dict[str, Any]:
    own = {"policy": policy, "level_kind": kind, "level": level, "ratio": 0.0, "repeat": repeat}
    scores = {
        "f1": 100.0 if right else 0.0,
        "right": right,
        "masked": right,
        "corrupted": not right,
        "due": False,
    }
    return record(**where, **own, directives_obeyed=None, **scores)
