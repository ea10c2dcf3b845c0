"""``python -m kvbench.readme``: writes the tables of the README from the registries and the measured files.

A block stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``; a test fails when it has drifted.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path

from kvbench.cli import COMMANDS
from kvbench.commands.ls import listing
from kvbench.errors import KVBenchError

README = Path("README.md")
CURVE_ROWS = 12  # the README shows so many rows of the learning curve; the CSV has all


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def listed(kind: str) -> str:
    """What ``python -m kvbench ls`` lists."""
    header, rows = listing(kind)
    return table(header, ((f"`{name}`", *others) for name, *others in rows))


def commands() -> str:
    return table(("command", "what it does"), ((f"`python -m kvbench {n}`", text) for n, text in COMMANDS.items()))


def full_cache() -> str:
    """Scores of the reference model, as ``python -m kvbench.reference.evaluate`` measured them."""
    measured = json.loads(files("kvbench.reference").joinpath("full_cache.json").read_text())
    rows = [(row["questions"], row["n"], f"{row['f1']:.1f}", f"{row['em']:.1f}") for row in measured["scores"]]
    return table(("questions", "n", "F1", "exact match"), rows)


def learning_curve() -> str:
    """Some rows of the committed learning curve, evenly spaced, the last one among them."""
    content = files("kvbench.reference").joinpath("learning_curve.csv").read_text()
    rows = list(csv.DictReader(content.splitlines()))
    stride = max(1, -(-len(rows) // CURVE_ROWS))
    shown = rows[::-1][::stride][::-1]
    return table(list(rows[0]), (list(row.values()) for row in shown))


BLOCKS: Mapping[str, Callable[[], str]] = {
    "tasks": partial(listed, "tasks"),
    "policies": partial(listed, "policies"),
    "metrics": partial(listed, "metrics"),
    "commands": commands,
    "full cache": full_cache,
    "learning curve": learning_curve,
}


def filled(text: str) -> str:
    """The README with every block written anew; :class:`KVBenchError` if one is missing."""
    for name, write in BLOCKS.items():
        block = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if not block.search(text):
            raise KVBenchError(f"README.md has no block '{name}': add <!-- begin {name} --> and <!-- end {name} -->")
        body = write()
        text = block.sub(lambda match, body=body: f"{match[1]}{body}\n{match[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
