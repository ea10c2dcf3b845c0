"""Tables of what was observed of a model of two layers and two heads, small enough to count by
hand."""

from typing import Any

import numpy as np
from pandas import DataFrame

from leaderboards.routing.reach import EPSILONS
from leaderboards.studies.declaration import StudyInput
from tests.support.records.synthetic_records import frame, record

QUESTIONS = 12  # two about each context
LEVELS = {"full": (0.0,), "snapkv": (0.5, 0.9), "knorm": (0.5, 0.9)}
TYPES = ("person", "location")


def cells() -> list[dict[str, Any]]:
    names = [
        (policy, level, number)
        for policy in LEVELS
        for level in LEVELS[policy]
        for number in range(QUESTIONS)
    ]
    return [
        {
            "task": "base",
            "question_id": f"{number:02}",
            "policy": policy,
            "level_kind": "ratio",
            "level": level,
        }
        | {"repeat": 0}
        for policy, level, number in names
    ]


def base_cell(question: int, policy: str) -> dict[str, Any]:
    """The cell of an answer: of the full cache, or of a policy at ratio 0.5."""
    return {
        "task": "base",
        "question_id": str(question),
        "policy": policy,
        "level_kind": "ratio",
        "level": 0.0 if policy == "full" else 0.5,
    }


def is_kept(cell: dict[str, Any]) -> bool:
    """The full cache has every answer but one, snapkv loses every other at 0.5 and all at 0.9,
    knorm all."""
    number, level = int(cell["question_id"]), cell["level"]
    return bool(
        {"full": number != 1, "snapkv": level < 0.9 and number % 2 == 0, "knorm": False}[
            cell["policy"]
        ]
    )


def records() -> DataFrame:
    rows = []
    for cell in cells():
        number, right = int(cell["question_id"]), is_kept(cell)
        said = {
            "right": right,
            "answered": right or cell["policy"] == "snapkv",
            "hallucination_kind": None,
        }
        said |= {
            "f1": 100.0 * right,
            "ratio": cell["level"],
            "golds": [("Ada" if number % 2 else "Oslo")],
        }
        place = {
            "draw_id": f"context {number // 2}",
            "example_id": f"context {number // 2}",
            "answer_tokens": 2,
        }
        rows.append(
            record(**cell, **said, **place, answer_type=TYPES[number % 2], context_tokens=40)
        )
    return frame(rows)


def routes() -> DataFrame:
    """With the full cache all is reached by 0.8, with snapkv what is right, and the gold of knorm
    is gone; its question 2 is reached all the same."""
    rows = []
    for cell in cells():
        kept, number = is_kept(cell), int(cell["question_id"])
        relayed = cell["policy"] == "knorm" and number == 2
        width = 0.8 if kept or cell["policy"] == "full" else 0.6 if relayed else 0.0
        of_gold = {"answer_alive": cell["policy"] != "knorm", "answer_width": width}
        of_all = {"evidence_alive": True, "evidence_width": 0.8, "said_width": None}
        chance = [0.5 if epsilon < 0.3 else 0.1 for epsilon in EPSILONS]
        rows.append({**cell, "unobserved": None, **of_gold, **of_all, "chance": chance})
    return DataFrame(rows)


def attention() -> DataFrame:
    """Head 1 of layer 1 reads the gold where it is kept. In layer 0 both heads look at one token,
    in layer 1 not."""
    rows = []
    for cell in cells():
        kept = is_kept(cell) or cell["policy"] == "full"
        for step in (0, 1):
            for layer in (0, 1):
                reads = [False, bool(layer and kept)]
                share = [0.05, 0.6 if reads[1] else 0.01]
                spans = {
                    "answer": share,
                    "subject": [0.1, 0.1],
                    "bridge": [0.0, 0.0],
                    "fact": [0.2, 0.7],
                }
                top = [3, 3] if layer == 0 else [3, 7]
                alike = {
                    "kept": 1 - cell["level"],
                    "jaccard": 0.25 * (1 + layer),
                    "kappa": None if not layer else 0.5,
                }
                row = {
                    "step": step,
                    "layer": layer,
                    "top": top,
                    "top_weight": [0.5, 0.6],
                    "retrieves": reads,
                }
                rows.append({**cell, **row, **spans, "distractor": [0.1, 0.0], **alike})
    return DataFrame(rows)


def states() -> DataFrame:
    """Behind the last layer a state holds the type of the answer, and of what is kept its first
    letter; before the first it holds nothing. The two go together, as there are two of each. Values
    hold them in both layers, where knorm keeps nothing."""
    generator = np.random.default_rng(0)
    rows = []
    for cell in cells():
        known = is_kept(cell) or cell["policy"] == "full"
        for layer in (0, 1, 2):
            state = generator.normal(size=4) * 0.1
            state[0] += 3.0 * (int(cell["question_id"]) % 2) * (layer == 2 and known)
            values = generator.normal(size=4) * 0.1
            values[1] += 3.0 * (int(cell["question_id"]) % 2)
            values *= cell["policy"] != "knorm"
            rows.append({**cell, "layer": layer, "state": state.astype("<f2").tobytes()})
            rows[-1]["values"] = values.astype("<f2").tobytes() if layer < 2 else None
    return DataFrame(rows)


def routing_input() -> StudyInput:
    tables = {"routes": routes(), "attention": attention(), "states": states()}
    return StudyInput("toy", records(), [{"status": "complete"}], tables)
