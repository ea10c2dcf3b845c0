"""Keeps what ``docs/passports.md`` shows of the passports of some models: ``python -m
docs.scripts.passports build/passport-*/passport.json``. The rest of them is on their pages."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.scripts.markdown import table
from kvbench.passport.trial import MOST_LOST

FOLDER = Path(__file__).parents[1] / "passports"
# In the order of the table.
MODELS = ("smollm2", "gemma3", "qwen", "smollm2-routing", "reference")
KEPT = ("format", "breaks", "moved", "key_error", "mends")
OF_OUTCOMES = ("right", "full", "perplexity", "questions")
# A forecast that needs no look at the model.
FOUR_BITS = ("q4_1", "q4_0", "int4", "int4(k_axis=token)", "int3", "int2", "int2(k_axis=token)")


def _read_rows() -> dict[str, dict[str, Mapping[str, Any]]]:
    """Returns the rows of formats of each model, by format."""
    by_model: dict[str, dict[str, Mapping[str, Any]]] = {}
    for model in MODELS:
        text = (FOLDER / f"{model}.json").read_text(encoding="utf-8")
        by_model[model] = {row["format"]: row for row in json.loads(text)["forecasts"]}
    return by_model


def _sign(breaks: bool) -> str:
    return "✕" if breaks else "✓"


def forecasts() -> str:
    """Returns a table of what is foretold of each format on each model: the percent of the
    attention that goes to other tokens, and a cross where the format breaks the model."""
    by_model = _read_rows()
    rows = []
    for name in by_model[MODELS[0]]:
        cells = []
        for model in MODELS:
            row = by_model[model][name]
            cells.append(f"{_sign(row['breaks'])} {100 * row['moved']:.0f}")
        rows.append((f"`{name}`", *cells))
    return table(("format", *(f"`{model}`" for model in MODELS)), rows)


def outcomes() -> str:
    """Returns a table of what became of each format on the models that were tested: the points of
    right answers that are lost, a cross where that is more than a format may lose, and a mark where
    the forecast was wrong."""
    by_model = _read_rows()
    tested = [model for model in MODELS if _outcomes(by_model[model])]
    rows = []
    for name in by_model[MODELS[0]]:
        cells = []
        for model in tested:
            row = by_model[model][name]
            outcome = row["outcome"]
            wrong = "" if outcome["broke"] == row["breaks"] else ", foretold otherwise"
            cells.append(f"{_sign(outcome['broke'])} {outcome['lost']:.0f}{wrong}")
        rows.append((f"`{name}`", *cells))
    return table(("format", *(f"`{model}`" for model in tested)), rows)


def forecast_scores() -> str:
    """Returns a table of how many forecasts came true, beside two that need no look at the
    model."""
    by_model = _read_rows()
    counts: list[list[int]] = []
    rows: list[tuple[object, ...]] = []
    for model in MODELS:
        of_model = _outcomes(by_model[model])
        if of_model:
            counts.append(_count(of_model))
            rows.append((f"`{model}`", *_texts(counts[-1])))
    rows.append(("all", *_texts([sum(column) for column in zip(*counts, strict=True)])))
    header = (
        "model",
        "came true",
        "breaks foretold",
        "false alarms",
        "“all hold” came true",
        "“4 bits and less break” came true",
    )
    return table(header, rows)


def _outcomes(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {name: row for name, row in rows.items() if "outcome" in row}


def _count(rows: Mapping[str, Mapping[str, Any]]) -> list[int]:
    """Counts formats, forecasts that came true, breaks, those foretold, false alarms, and what two
    simple forecasts have right."""
    true = breaks = foretold = alarms = all_hold = four_bits = 0
    for name, row in rows.items():
        broke, said = row["outcome"]["broke"], row["breaks"]
        true += broke == said
        breaks += broke
        foretold += broke and said
        alarms += said and not broke
        all_hold += not broke
        four_bits += broke == (name in FOUR_BITS)
    return [len(rows), true, breaks, foretold, alarms, all_hold, four_bits]


def _texts(counts: Sequence[int]) -> tuple[str, ...]:
    formats, true, breaks, foretold, alarms, all_hold, four_bits = counts
    return (
        f"{true} of {formats}",
        f"{foretold} of {breaks}",
        f"{alarms} of {formats - breaks}",
        f"{all_hold}",
        f"{four_bits}",
    )


def keep(passport: Path) -> None:
    """Writes what the documents show of a passport."""
    content = json.loads(passport.read_text(encoding="utf-8"))
    rows = []
    for row in content["forecasts"]:
        kept = {name: row[name] for name in KEPT}
        outcome = content["outcomes"].get(row["format"])
        if outcome:
            lost = outcome["lost"]["mean"]
            of_test = {name: outcome[name] for name in OF_OUTCOMES}
            kept["outcome"] = of_test | {"lost": lost, "broke": lost > MOST_LOST}
        rows.append(kept | {"bytes": content["bytes"][row["format"]]})
    file = FOLDER / f"{content['model']}.json"
    text = json.dumps({"tokens": content["tokens"], "forecasts": rows}, indent=1)
    file.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        keep(Path(argument))
