"""Records as a run would write them, without a run: what the boards are tested on."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.row import SummaryRow
from leaderboards.metrics import METRICS

RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# How fast a policy loses what the answer needs: the higher, the worse.
POLICIES = {
    "full": 0.0,
    "oracle": 0.05,
    "random": 1.0,
    "recency": 1.3,
    "random+ends": 0.95,
    "streaming_llm": 1.15,
    "snapkv": 0.42,
    "tova": 0.5,
    "h2o": 0.45,
    "knorm": 0.8,
    "expected_attention": 0.35,
    "adakv_snapkv": 0.36,
}
LAYERS = 5
UNANSWERED = ("status", "reason", "output_text")


# Every column of a record, its question and its context; metrics that are not named are blank.
RECORD: dict[str, Any] = {
    **dict.fromkeys(METRICS),
    "task": "base",
    "task_version": "1.0.0",
    "example_id": "base-0",
    "example_index": 0,
    "question_id": "0",
    "mode": "agnostic",
    "policy": "full",
    "level_kind": "ratio",
    "level": 0.0,
    "repeat": 0,
    "ratio": 0.0,
    "status": "ok",
    "reason": None,
    "context": "Ada lives in Oslo.",
    "token_ends": np.array([3, 9, 12, 18], dtype="<u4").tobytes(),
    "question": "Where does Ada live?",
    "golds": ["Oslo"],
    "every_gold": False,
    "answer_prefix": "",
    "target": "Oslo",
    "other_values": [],
    "answerable": True,
    "direction": "forward",
    "answer_type": "location",
    "question_type": "standard",
    "hops": 1,
    "answer_spans": [13, 17],
    "evidence_spans": [0, 18],
    "stated_values": ["Ada", "Oslo"],
    "abstentions": ["I don't know"],
    "answer_marker": "",
    "arm": "",
    "directives": [],
    "directive_families": [],
    "protected": "",
    "defence": "",
    "press_arguments": "{}",
    "answer_tokens": 1,
    "evidence_tokens": 6,
    "context_tokens": 150,
    "output_text": "Oslo",
    "f1": 100.0,
    "em": 100.0,
    "golds_found": 1.0,
    "abstained": False,
    "hallucinated": False,
    "masked": True,
    "corrupted": False,
    "due": False,
    "unended": False,
    "eviction_rate": 0.0,
    "ger": 0.0,
    "ger_by_layer": [0.0] * LAYERS,
    "slot_coverage": 1.0,
    "token_kept": bytes([255, 128, 0, 255]),
    "realised_ratio": 0.0,
    "kept_tokens": 150.0,
    "kv_bytes": 1000,
    "prefill_seconds": 0.01,
    "compression_seconds": 0.001,
    "decode_seconds": 0.02,
    "wave_halvings": 0,
}


def record(**changes: Any) -> dict[str, Any]:
    """One record of an answered question, every column with a value. ``budget``: its level, which
    else is its ratio."""
    budget = changes.pop("budget", None)
    whole = RECORD | ({"level": changes["ratio"]} if "ratio" in changes else {}) | changes
    whole |= {} if budget is None else {"level_kind": "budget", "level": float(budget)}
    judged = {name: value for name, value in _judged(whole).items() if name not in changes}
    return {"draw_id": whole["example_id"]} | whole | judged


def _judged(one: dict[str, Any]) -> dict[str, Any]:
    """What follows from the other scores of an answer. One with an F1 between the ends stands for
    several alike, of which that share is right."""
    if one["f1"] is None:
        return dict.fromkeys(("right", "answered"))
    right = one["f1"] / 100 if 0 < one["f1"] < 100 else one["f1"] == 100
    return {"right": right, "answered": one["hallucinated"] or bool(right and not one["abstained"])}


def failed(reason: str = "CUDA out of memory", **changes: Any) -> dict[str, Any]:
    """The record of a question that a policy could not treat."""
    return record(
        status="failed", reason=reason, **(dict.fromkeys((*METRICS, "output_text")) | changes)
    )


def failing(one: dict[str, Any], reason: str) -> dict[str, Any]:
    """What a record had been, had its policy failed."""
    return failed(
        reason,
        **{name: value for name, value in one.items() if name not in (*METRICS, *UNANSWERED)},
    )


def summary_row(policy: str, ratio: float = 0.5, **changes: Any) -> SummaryRow:
    """A row of a summary, blank but for what is given."""
    return SummaryRow(
        **{
            "task": "base",
            "mode": "agnostic",
            "policy": policy,
            **at_ratio(ratio),
            "n": 4,
            **changes,
        }
    )


def at_ratio(ratio: Any) -> dict[str, Any]:
    """The columns of a record or row that say at which ratio it is."""
    return {"level_kind": "ratio", "level": ratio, "ratio": ratio}


def by_budget(one: dict[str, Any], budgets: Mapping[float, float]) -> dict[str, Any]:
    """The record as if not a ratio had been asked for but the budget that ``budgets`` has for it,
    if it has one."""
    return record(**(one | {"budget": budgets.get(one["ratio"])}))


def frame(records: Sequence[dict[str, Any]]) -> DataFrame:
    return DataFrame(list(records))


def realistic_records(
    tasks: Sequence[str] = ("base", "hops"),
    policies: Sequence[str] = tuple(POLICIES),
    ratios: Sequence[float] = RATIOS,
    contexts: int = 12,
    questions: int = 4,
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda one: one,
) -> DataFrame:
    """A whole run with curves of a believable shape; the same arguments give the same records."""
    generator = np.random.default_rng(7)
    difficulty = {
        task: generator.normal(0, 1, (contexts, questions)) + number
        for number, task in enumerate(tasks)
    }
    records = []
    for task in tasks:
        for policy in policies:
            for ratio in [0.0] if policy == "full" else ratios:
                harm = POLICIES.get(policy, 0.6) * ratio
                for context in range(contexts):
                    for question in range(questions):
                        hard = float(difficulty[task][context, question])
                        chance = 1 / (1 + np.exp(9 * harm + 0.8 * hard - 3.6))
                        one = _answered(
                            generator, float(chance), harm, ratio, answerable=question != 3
                        )
                        identity = {
                            "task": task,
                            "policy": policy,
                            "ratio": ratio,
                            "example_index": context,
                        }
                        names = {"example_id": f"{task}-{context}", "question_id": str(question)}
                        records.append(change(record(**identity, **names, **one)))
    return frame(records)


def _answered(
    generator: np.random.Generator, chance: float, harm: float, ratio: float, answerable: bool
) -> dict[str, Any]:
    right = bool(generator.random() < chance)
    abstained = not right and bool(generator.random() < 0.25)
    hallucinated = not right and not abstained
    by_layer = [
        float(np.clip(ratio * harm * (0.6 + 0.15 * layer), 0, 1)) for layer in range(LAYERS)
    ]
    return {
        "answerable": answerable,
        "output_text": "Oslo" if right else "I don't know" if abstained else "Lima",
        "f1": 100.0 if right else 0.0,
        "em": 100.0 if right else 0.0,
        "abstained": abstained,
        "hallucinated": hallucinated,
        "hallucination_kind": ("confused" if generator.random() < 0.6 else "fabricated")
        if hallucinated
        else None,
        "eviction_rate": ratio**4,
        "ger": float(np.clip(ratio**2 * harm + generator.normal(0, 0.02), 0, 1))
        if answerable
        else None,
        "ger_by_layer": by_layer if answerable else None,
        "slot_coverage": float(np.clip(1 - harm, 0, 1)) if answerable else None,
        "realised_ratio": int(150 * ratio) / 150,
        "kept_tokens": float(150 - int(150 * ratio)),
        "kv_bytes": 460_800 - int(460_800 * ratio),
    }
