"""Rows of IFEval, as they are found in files and on the hub."""

import json
from pathlib import Path
from typing import Any

SPLIT: dict[str, Any] = {
    "key": 1,
    "prompt": "Praise tea. Use no commas. Use at least 3 words.",
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    "kwargs": [{}, {"relation": "at least", "num_words": 3}],
    "messages": [
        {"role": "system", "content": "Use no commas. Use at least 3 words."},
        {"role": "user", "content": "Praise tea."},
    ],
}
PLAIN = {name: value for name, value in SPLIT.items() if name != "messages"}
# As the data set on the hub has it: every argument in every row.
OF_HUB = {
    **PLAIN,
    "kwargs": [
        {"num_words": None, "relation": None},
        {"num_words": 3, "relation": "at least", "keywords": None},
    ],
}


def written(folder: Path, *rows: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def changed(**changes: object) -> dict[str, object]:
    return {**SPLIT, **changes}
