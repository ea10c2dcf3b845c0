"""``python -m kvbench.documents.readme``: writes the tables of the README from the registries and the measured files,
and the model cards.

A block stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``; a test fails when it has drifted.
"""

import csv
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kvbench.benchmarks.measurement import Report
from kvbench.benchmarks.page import markdown
from kvbench.cli.program import COMMANDS
from kvbench.commands.ls import listing
from kvbench.documents.model_card import model_card
from kvbench.estimate.constants import Constants
from kvbench.estimate.page import markdown as plan_page
from kvbench.estimate.request import EXAMPLES
from kvbench.models.shipped import REFERENCE_MODELS, folder_of
from kvbench.reference.targets import TARGETS
from kvbench.system.errors import KVBenchError
from kvbench.system.markdown import table
from policies import CONTROLS

README = Path("README.md")
DOCS = Path(__file__).parents[2] / "docs"
PRESS = DOCS / "loud_values.py"
SCALE = DOCS / "scale.md"
PERFORMANCE = DOCS / "performance.md"
BENCH = DOCS / "bench.json"
CURVE_ROWS = 8  # the README shows so many rows of a learning curve; the CSV has all
SHOWN_SCORES = {"f1": "F1", "em": "right", "directives_obeyed": "directives obeyed", "leakage": "leakage"}


def listed(kind: str) -> str:
    """Returns the table that ``python -m kvbench ls`` lists, as Markdown."""
    header, rows = listing(kind)
    return table(header, ((f"`{name}`", *others) for name, *others in rows))


def commands() -> str:
    return table(("command", "what it does"), ((f"`python -m kvbench {n}`", text) for n, text in COMMANDS.items()))


def shipped(name: str) -> dict[str, str]:
    """Reads a file that lies beside the weights, by reference model."""
    return {model: (folder_of(model) / name).read_text() for model in REFERENCE_MODELS}


def full_cache() -> str:
    """Returns the scores of the reference models, as ``python -m kvbench.reference.evaluate`` measured them."""
    cells: dict[tuple[object, ...], list[str]] = {}
    for content in shipped("full_cache.json").values():
        for row in json.loads(content)["scores"]:
            for score, name in SHOWN_SCORES.items():
                if row[score] is not None and score == score_of(row):
                    value = row[score] if score in ("f1", "em") else 100 * row[score]
                    cells.setdefault((f"`{row['task']}`", row["questions"], row["n"], name), []).append(f"{value:.1f}")
    header = ("task", "questions", "n", "score, percent", *(f"`{model}`" for model in REFERENCE_MODELS))
    return table(header, ((*row, *values) for row, values in cells.items()))


def targets() -> str:
    """Returns the targets of the reference models and what they reach; a missed target is bold."""
    measured = {model: json.loads(content)["scores"] for model, content in shipped("full_cache.json").items()}
    rows = []
    for target in TARGETS:
        reached = [target.reached(scores) for scores in measured.values()]
        shown = (f"{value:.1f}" if target.is_met(value) else f"**{value:.1f}**" for value in reached)
        rows.append((f"`{target.task}`", target.questions, SHOWN_SCORES[target.score], str(target), *shown))
    header = ("task", "questions", "score, percent", "target", *(f"`{model}`" for model in measured))
    return table(header, rows)


def score_of(row: Mapping[str, object]) -> str:
    """Names the score that says whether such questions are mastered."""
    if str(row["questions"]).startswith("attack"):
        return "leakage"
    if row["questions"] == "under directives":
        return "directives_obeyed"
    return "em" if row["task"] == "arithmetic" else "f1"


def learning_curves() -> str:
    """Returns some rows of the committed learning curves, evenly spaced, the last one among them."""
    parts = []
    for model, content in shipped("learning_curve.csv").items():
        rows = list(csv.DictReader(content.splitlines()))
        stride = max(1, -(-len(rows) // CURVE_ROWS))
        shown = rows[::-1][::stride][::-1]
        parts.append(f"`{model}`:\n\n" + table(list(rows[0]), (list(row.values()) for row in shown)))
    return "\n\n".join(parts)


def press() -> str:
    """Returns the press of the tutorial, which is a file so that it can be run."""
    return f"```python\n{PRESS.read_text()}```"


def instructions() -> str:
    """Returns the results of the suite ``instructions`` on the reference model, from the run of the pictures."""
    results = json.loads((DOCS / "instructions.json").read_text())
    gains = table(
        ("policy", "gain", "95 % interval", "spans whole, percent"),
        (
            (
                f"`{gain['policy']}`",
                f"{gain['gain']:+.3f}",
                f"{gain['low']:+.3f} to {gain['high']:+.3f}",
                f"{100 * gain['whole']:.0f}",
            )
            for gain in results["gains"]
        ),
    )
    obeying = table(
        (
            "policy",
            "order",
            "asked ratio",
            "obeyed, percent",
            "leaked more than the full cache, points",
            "95 % interval",
        ),
        (
            (
                f"`{leak['policy']}`",
                leak["order"],
                leak["asked"],
                f"{100 * leak['obeyed']:.0f}",
                f"{100 * leak['leaked_more']:+.0f}",
                f"{100 * leak['low']:+.0f} to {100 * leak['high']:+.0f}",
            )
            for leak in results["while_obeying"]
            if "+" not in leak["policy"] and leak["policy"] not in CONTROLS
        ),
    )
    bare = table(
        ("policy", "attacks", "leaked, percent", "the same under the full cache"),
        (
            (f"`{e['policy']}`", e["n"], f"{100 * e['leakage']:.0f}", f"{100 * e['full']:.0f}")
            for e in results["exposed"]
        ),
    )
    return (
        f"What protection gains:\n\n{gains}\n\nWhere each plain policy leaks most while 70 % of the directives are "
        f"obeyed:\n\n{obeying}\n\nAttacks on contexts that have lost their defence (5 % of its tokens or less are "
        f"left) and kept their directives (95 % or more):\n\n{bare}"
    )


BLOCKS: Mapping[str, Callable[[], str]] = {
    "tasks": partial(listed, "tasks"),
    "policies": partial(listed, "policies"),
    "metrics": partial(listed, "metrics"),
    "commands": commands,
    "targets": targets,
    "full cache": full_cache,
    "learning curves": learning_curves,
    "press": press,
    "instructions": instructions,
}


def suite() -> str:
    """Returns the table that ``make suite`` measured."""
    return markdown(Report.model_validate_json(BENCH.read_text()))


PERFORMANCE_BLOCKS: Mapping[str, Callable[[], str]] = {"suite": suite}


def plan(name: str) -> str:
    """Returns a plan of docs/scale.md."""
    return plan_page(EXAMPLES[name].plan(Constants.read()))


PLANS: Mapping[str, Callable[[], str]] = {name: partial(plan, name) for name in EXAMPLES}


def filled(text: str, blocks: Mapping[str, Callable[[], str]] = BLOCKS, name_of_page: str = "README.md") -> str:
    """Writes every block of a page anew; raises :class:`KVBenchError` if one is missing."""
    for name, write in blocks.items():
        block = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if not block.search(text):
            raise KVBenchError(
                f"{name_of_page} has no block '{name}': add <!-- begin {name} --> and <!-- end {name} -->"
            )
        body = write()
        text = block.sub(lambda match, body=body: f"{match[1]}{body}\n{match[2]}", text)  # type: ignore[misc]
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
    PERFORMANCE.write_text(filled(PERFORMANCE.read_text(), PERFORMANCE_BLOCKS, PERFORMANCE.name))
    SCALE.write_text(filled(SCALE.read_text(), PLANS, SCALE.name))
    for model in REFERENCE_MODELS:
        (folder_of(model) / "README.md").write_text(model_card(model))
