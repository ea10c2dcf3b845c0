"""The tables of the README and of docs, made from the registries, the measured files and the command line."""

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from datasets_gen import NATIVE
from kvbench.benchmarks.measurement import Report
from kvbench.benchmarks.page import markdown
from kvbench.checks.read_profile import NOTHING, SLOTS, UPPER_HALF, ReadProfile
from kvbench.cli.program import COMMANDS
from kvbench.commands.ls import listing
from kvbench.documents import claims_tables, treatment_tables
from kvbench.documents.cli_page import every_command
from kvbench.estimate.constants import Constants
from kvbench.estimate.page import markdown as plan_page
from kvbench.estimate.page import rows_of
from kvbench.estimate.request import EXAMPLES
from kvbench.models.shipped import REFERENCE_MODELS, folder_of
from kvbench.reference.evaluate import LENGTHS
from kvbench.reference.targets import COST_TARGETS, LOST, SEEN, TARGETED, TARGETS, CostTarget, Target
from kvbench.system.markdown import table
from policies import CONTROLS

DOCS = Path(__file__).parents[2] / "docs"
PRESS = DOCS / "loud_values.py"
BENCH = DOCS / "bench.json"
CURVE_ROWS = 8  # the page shows so many rows of a learning curve; the CSV has all
IN_SHORT = (
    "answers",
    "83 contexts",
    "time of all devices",
    "- without",
    "store",
    "weights",
    "cache of",
)  # how the rows of a short plan begin
SHOWN_SCORES = {"f1": "F1", "em": "right", "directives_obeyed": "directives obeyed", "leakage": "leakage"}


def list_table(kind: str) -> str:
    """Returns the table that ``python -m kvbench ls`` lists, as Markdown."""
    listed = listing(kind)
    columns = [column for column in listed.columns if column.name != listed.grouped_by]
    rows = ([column.text(row[column.name]) for column in columns] for row in listed.plain())
    return table([column.name for column in columns], ((f"`{name}`", *others) for name, *others in rows))


def commands() -> str:
    return table(("command", "what it does"), ((f"`python -m kvbench {n}`", text) for n, text in COMMANDS.items()))


def read_shipped(name: str) -> dict[str, str]:
    """Reads a file that lies beside the weights, by reference model."""
    return {model: (folder_of(model) / name).read_text() for model in REFERENCE_MODELS}


def full_cache() -> str:
    """Returns the scores of the reference models, as ``python -m kvbench.reference.evaluate`` measured them."""
    cells: dict[tuple[object, ...], list[str]] = {}
    for content in read_shipped("full_cache.json").values():
        for rows in zip(*json.loads(content)["scores"].values(), strict=True):  # of a question, by length of contexts
            for score, name in SHOWN_SCORES.items():
                if rows[0][score] is not None and score == score_of(rows[0]):
                    values = [row[score] * (1 if score in ("f1", "em") else 100) for row in rows]
                    key = (f"`{rows[0]['task']}`", rows[0]["questions"], rows[0]["n"], name)
                    cells.setdefault(key, []).append(" / ".join(f"{value:.1f}" for value in values))
    header = ("task", "questions", "n", "score, percent", *(f"`{model}`" for model in REFERENCE_MODELS))
    return table(header, ((*row, *values) for row, values in cells.items()))


def targets() -> str:
    """Returns the targets of the reference models and what they reach; a missed target is bold."""
    files = read_shipped("full_cache.json")
    measured = {model: json.loads(files[model]) for model in TARGETED}
    rows = []
    for target in TARGETS:
        reached = [[target.measured_score(rows) for rows in one["scores"].values()] for one in measured.values()]
        rows.append((f"`{target.task}`", target.questions, SHOWN_SCORES[target.score], *_reached(target, reached)))
    for cost in COST_TARGETS:
        lengths = LENGTHS if cost.lost == SEEN else (NATIVE,)
        points = [[cost.measured_cost(one, length) for length in lengths] for one in measured.values()]
        rows.append(
            (f"`{cost.task}`", cost.questions, f"points lost without {LOST[cost.lost]}", *_reached(cost, points))
        )
    header = ("task", "questions", "score, percent", "target", *(f"`{model}`" for model in measured))
    return table(header, rows)


def _reached(target: Target | CostTarget, models: Sequence[Sequence[float]]) -> list[str]:
    """Returns the target and what each model reaches, by length of contexts."""
    marked = (
        [f"{value:.1f}" if target.is_met(value) else f"**{value:.1f}**" for value in by_length] for by_length in models
    )
    return [str(target), *map(" / ".join, marked)]


def read_profiles() -> str:
    """Returns what is still right where rows of the context are destroyed, of each model."""
    rows = []
    for model, content in read_shipped("full_cache.json").items():
        for profile in (ReadProfile(**one) for one in json.loads(content)["read_profiles"]):
            worst = profile.most_needed_layer
            others = sorted(right for layer, right in enumerate(profile.without_layer) if layer != worst)
            parts = (profile.undisturbed, min(profile.without_layer), profile.without_upper_half, profile.without_slots)
            nothing, without_worst, upper_half, slots = (f"{percent:.0f}" for percent in parts)
            layers = (f"{without_worst} (layer {worst})", f"{others[0]:.0f} to {others[-1]:.0f}")
            rows.append((f"`{model}`", profile.part, nothing, *layers, upper_half, slots))
    return table(("model", "questions", NOTHING, "the worst layer", "any other layer", UPPER_HALF, SLOTS), rows)


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
    for model, content in read_shipped("learning_curve.csv").items():
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
                f"{gain['gain']:+z.3f}",
                f"{gain['low']:+z.3f} to {gain['high']:+z.3f}",
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
                leak["level"],
                f"{100 * leak['obeyed']:.0f}",
                f"{100 * leak['leaked_more']:+z.0f}",
                f"{100 * leak['low']:+z.0f} to {100 * leak['high']:+z.0f}",
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


def suite() -> str:
    """Returns the table that ``make suite`` measured."""
    return markdown(Report.model_validate_json(BENCH.read_text()))


def plan(name: str) -> str:
    """Returns one of the plans that the documents show."""
    return plan_page(EXAMPLES[name].plan(Constants.read()))


def plan_in_short(name: str) -> str:
    """Returns what decides whether a run is started: its time, its store, and the sizes of caches."""
    estimates = dict(rows_of(EXAMPLES[name].plan(Constants.read())))
    return table(("what", "how much"), ((what, estimates[what]) for what in estimates if what.startswith(IN_SHORT)))


BLOCKS: Mapping[str, Callable[[], str]] = {
    "tasks": partial(list_table, "tasks"),
    "policies": partial(list_table, "policies"),
    "metrics": partial(list_table, "metrics"),
    "commands": commands,
    "command line": every_command,
    "targets": targets,
    "full cache": full_cache,
    "read profiles": read_profiles,
    "learning curves": learning_curves,
    "press": press,
    "instructions": instructions,
    "suite": suite,
    "faults": treatment_tables.faults,
    "options of faults": treatment_tables.options_of_faults,
    "quantisations": treatment_tables.quantisations,
    "deployments": treatment_tables.deployments,
    "texts": claims_tables.texts,
    "claims": claims_tables.claim_rows,
    "verdicts": claims_tables.verdicts,
    "verdicts in short": claims_tables.verdicts_in_short,
    "reasons of verdicts": claims_tables.reasons,
    **{name: partial(plan, name) for name in EXAMPLES},
    "8 B at 32 k, in short": partial(plan_in_short, "8 B at 32 k"),
}
