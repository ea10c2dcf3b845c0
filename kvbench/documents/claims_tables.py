"""The tables of claims: what is claimed, from the registry, and the verdicts on the shipped models, as ``make claims``
measured them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvbench.models.shipped import SHIPPED
from kvbench.system.markdown import items
from leaderboards.claims.registry import claims

MEASURED = Path(__file__).parents[2] / "docs" / "claims"  # the register of each model, as the command wrote it
NOT_MEASURED = "–"
IN_SHORT = "reference"  # the model of the verdicts that the README counts
IN_PART = "in part"  # what is said of a claim whose parts have several verdicts
COUNTED = {"holds": "hold", "does not hold": "do not hold", IN_PART: "hold in part", "undecided": "are undecided"}
SIGNS = {"holds": "✓", "does not hold": "✕", "undecided": "?", IN_PART: "±"}


def texts() -> str:
    """Lists the texts, by the letters with which their claims begin."""
    known = dict.fromkeys(one.text for one in claims().values())
    return items((text.letter, f"{text.title}; {text.models}") for text in known)


def verdicts_in_short() -> str:
    """Counts the verdicts on all claims on the default model, in a sentence."""
    verdicts = list(_verdicts(IN_SHORT).values())
    counts = ", ".join(f"{verdicts.count(verdict)} {words}" for verdict, words in COUNTED.items())
    return f"Of {len(verdicts)} claims on `{IN_SHORT}`: {counts}."


def verdicts() -> str:
    """Returns the names of the models, and an item for each claim: the verdict on each, and what the text says."""
    by_model = {model: _verdicts(model) for model in examined()}
    lines = items(
        (f"{name} {' '.join(SIGNS.get(of.get(name, ''), NOT_MEASURED) for of in by_model.values())}", claim.words)
        for name, claim in claims().items()
    )
    return f"On {', '.join(f'`{model}`' for model in by_model)}:\n\n{lines}"


def reasons() -> str:
    """Returns the first sentence of the reason of each claim that does not hold on one of the models."""
    against = {row["claim"] for model in examined() for row in _rows(model) if row["claim_verdict"] == "does not hold"}
    return items((name, first_sentence(claim.because)) for name, claim in claims().items() if name in against)


def first_sentence(text: str) -> str:
    return text.split(". ", 1)[0].removesuffix(".") + "."


def examined() -> list[str]:
    """Lists the shipped models on which claims were put to the test."""
    return [model for model in SHIPPED if (MEASURED / f"{model}.json").is_file()]


def _rows(model: str) -> Sequence[Mapping[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((MEASURED / f"{model}.json").read_text(encoding="utf-8"))["claims"]
    return rows


def _verdicts(model: str) -> dict[str, str]:
    """Returns the verdict on each claim; one whose parts have several holds in part."""
    kinds: dict[str, set[str]] = {}
    for row in _rows(model):
        kinds.setdefault(row["claim"], set()).add(row["claim_verdict"])
    return {claim: of_parts.pop() if len(of_parts) == 1 else IN_PART for claim, of_parts in kinds.items()}
