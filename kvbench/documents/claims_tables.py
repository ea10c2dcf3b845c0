"""The tables of claims: what is claimed, from the registry, and the verdicts on the reference models, as ``make
claims`` measured them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvbench.models.shipped import REFERENCE_MODELS
from kvbench.system.markdown import table
from leaderboards.claims.declaration import Text
from leaderboards.claims.registry import claims
from leaderboards.claims.verdict import VERDICTS, number_text

MEASURED = Path(__file__).parents[2] / "docs" / "claims"  # the register of each model, as the command wrote it
NOT_MEASURED = "–"
IN_PART = "in part"  # what is said of a claim whose parts have several verdicts


def claim_rows() -> str:
    """Returns every claim with its statistic and its threshold."""
    rows = (
        (
            one.identifier,
            one.words,
            f"{one.statistic}: {one.side} {one.threshold:g}",
            one.reported + (f". {one.remark}" if one.remark else ""),
        )
        for one in claims().values()
    )
    return table(("claim", "what the text says", "statistic and threshold", "what the text reports"), rows)


def texts() -> str:
    """Lists the texts, by the letters with which their claims begin."""
    return table(("text", "title", "models"), ((text.letter, text.title, text.models) for text in _texts()))


def _texts() -> Iterable[Text]:
    return dict.fromkeys(one.text for one in claims().values())


def verdicts_in_short() -> str:
    """Returns a row for each text: which of its claims hold on each model, and which do not."""
    rows = (
        (f"{text.letter}: {text.title}", *(_in_short(model, text.letter) for model in examined())) for text in _texts()
    )
    return table(("text", *(f"`{model}`" for model in examined())), rows)


def verdicts() -> str:
    """Returns a row for each statistic: value, interval, contexts and verdict on each model."""
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for model in examined():
        for row in (row for rows in _rows_by_claim(model).values() for row in rows):
            threshold = f"{row['side']} {row['threshold']:g}"
            cells.setdefault((row["claim"], row["claim_part"], threshold), {})[model] = _measurement(row)
    order = {identifier: place for place, identifier in enumerate(claims())}
    rows = (
        (*key, *(of_model.get(model, NOT_MEASURED) for model in examined()))
        for key, of_model in sorted(cells.items(), key=lambda item: order.get(item[0][0], len(order)))
    )
    return table(("claim", "of what", "threshold", *(f"`{model}`" for model in examined())), rows)


def reasons() -> str:
    """Returns a paragraph for each claim that does not hold on one of the models and whose reason was measured."""
    why = {row["claim"]: row["because"] for model in examined() for row in _rows(model) if row["because"]}
    return "\n\n".join(f"**{identifier}.** {why[identifier]}" for identifier in claims() if identifier in why)


def examined() -> list[str]:
    """Lists the shipped models on which claims were put to the test."""
    return [model for model in REFERENCE_MODELS if (MEASURED / f"{model}.json").is_file()]


def _rows(model: str) -> Sequence[Mapping[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((MEASURED / f"{model}.json").read_text(encoding="utf-8"))["claims"]
    return rows


def _rows_by_claim(model: str) -> dict[str, list[Mapping[str, Any]]]:
    by_claim: dict[str, list[Mapping[str, Any]]] = {}
    for row in _rows(model):
        by_claim.setdefault(row["claim"], []).append(row)
    return by_claim


def _in_short(model: str, letter: str) -> str:
    """Lists the claims of a text by their verdicts; one whose parts have several is of mixed ones."""
    by_verdict: dict[str, list[str]] = {}
    for identifier, rows in _rows_by_claim(model).items():
        if identifier.startswith(letter):
            kinds = {row["claim_verdict"] for row in rows}
            by_verdict.setdefault(kinds.pop() if len(kinds) == 1 else IN_PART, []).append(identifier)
    parts = (f"**{kind}** {', '.join(by_verdict[kind])}" for kind in (*VERDICTS, IN_PART) if kind in by_verdict)
    return "; ".join(parts) or NOT_MEASURED


def _measurement(row: Mapping[str, Any]) -> str:
    if row["measured"] is None:
        return f"{row['claim_verdict']}: {row['why']}"
    mean, low, high = (row[name] for name in ("measured", "measured_low", "measured_high"))
    interval = "" if low is None else f" [{number_text(low)} to {number_text(high)}]"
    return f"**{row['claim_verdict']}** {number_text(mean)}{interval}, n = {row['measured_n']}"
