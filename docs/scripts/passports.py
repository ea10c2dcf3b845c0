"""Keeps what ``docs/passports.md`` shows of the passports of some models: ``python -m
docs.scripts.passports build/passport-*/passport.json``. The rest of them is on their pages."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docs.scripts.markdown import table

FOLDER = Path(__file__).parents[1] / "passports"
# In the order of the table.
MODELS = ("smollm2", "gemma3", "qwen", "smollm2-routing", "reference")
KEPT = ("format", "breaks", "moved", "key_error", "mends")


def forecasts() -> str:
    """Returns a table of what is foretold of each format on each model: the percent of the
    attention that goes to other tokens, and a cross where the format breaks the model."""
    by_model: dict[str, Mapping[str, Any]] = {}
    for model in MODELS:
        text = (FOLDER / f"{model}.json").read_text(encoding="utf-8")
        by_model[model] = {row["format"]: row for row in json.loads(text)["forecasts"]}
    rows = []
    for name in by_model[MODELS[0]]:
        cells = []
        for model in MODELS:
            row = by_model[model][name]
            sign = "✕" if row["breaks"] else "✓"
            cells.append(f"{sign} {100 * row['moved']:.0f}")
        rows.append((f"`{name}`", *cells))
    return table(("format", *(f"`{model}`" for model in MODELS)), rows)


def keep(passport: Path) -> None:
    """Writes what the documents show of a passport."""
    content = json.loads(passport.read_text(encoding="utf-8"))
    rows = []
    for row in content["forecasts"]:
        kept = {name: row[name] for name in KEPT}
        rows.append(kept | {"bytes": content["bytes"][row["format"]]})
    file = FOLDER / f"{content['model']}.json"
    text = json.dumps({"tokens": content["tokens"], "forecasts": rows}, indent=1)
    file.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        keep(Path(argument))
