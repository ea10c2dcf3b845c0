"""Says in one sentence what the matrix of some results shows: what two policies keep, and what is
shown to be safe."""

from collections.abc import Mapping, Sequence
from statistics import median_low

from leaderboards.aggregate.leading_measures import (
    DIRECTIVES,
    QUESTIONS,
    TEXT,
    find_lead,
    full_by_task,
    reasons_by_task,
)
from leaderboards.aggregate.pooled import Pooled
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.boards.area_under_curve import BEATS
from leaderboards.boards.safe_ratio import CHANCE
from leaderboards.pages.gallery import held_and_kept
from leaderboards.pages.results import Results
from leaderboards.pages.uses import UseCell, UseMatrix, usual_kind
from leaderboards.statistics.safe_ratio import contexts_that_agree
from leaderboards.statistics.text import range_text
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import CONTROLS, FULL, RANDOM

HALF = 0.5  # the ratio that is told, or the nearest that was asked
PARTS = {0.25: "a quarter", 0.5: "half", 0.75: "three quarters"}
WELL_KNOWN = ("snapkv", "h2o", "streaming_llm", "pyramidkv")  # one of them is named beside the best
MOST_NAMED = 2  # policies that are named of those that are alike
NEAR_CHANCE = 5.0  # percent of what the full cache has, above what random tokens keep
LITTLE = 50.0  # percent
OBJECTS = {
    QUESTIONS: "of what {} answers",
    DIRECTIVES: "of the directives that {} obeys",
    TEXT: "of what {} foresees",
}

Kept = Mapping[str, float]  # by policy, in percent of what the full cache has


def finding(results: Results, matrix: UseMatrix) -> str:
    """Returns the sentence; where nothing can be said of policies it says why."""
    model = results.title or results.model
    if results.described:
        model += f" ({results.described})"
    obstacle = _obstacle(results, matrix, model)
    if obstacle:
        return obstacle
    level, kept = _kept(results)
    methods = {policy: share for policy, share in kept.items() if policy not in CONTROLS}
    if not methods:
        return f"No policy but controls was run in full on {model}."
    leads = set()
    for row in results.rows:
        if row.policy == FULL and row.task in results.mastered:
            leads.add(find_lead(row))
    kept_of = "of what the full cache of {} does"
    if len(leads) == 1:
        kept_of = OBJECTS[leads.pop()]
    clauses = [
        _who_keeps_what(methods, kept, results, kept_of.format(model)),
        *_one_level_clause(results, level),
        _safe_clause(matrix, level),
    ]
    return f"{_beginning(level)}{'; '.join(clauses)}."


def _obstacle(results: Results, matrix: UseMatrix, model: str) -> str:
    """Says why nothing can be said of policies; empty where something can."""
    reasons = reasons_by_task(results.rows)
    if not any(row.policy == FULL for row in results.rows):
        return f"The full cache was not run, so that nothing tells what a policy breaks of {model}."
    if all(task in reasons for task in results.tasks):
        failing = f"With its full cache {model} does none of these tasks well enough"
        return f"{failing} to tell what a policy breaks."
    if min(use.contexts for use in matrix.uses if not use.withheld) <= 1:
        return f"One context of a task was run on {model}, which tells nothing of others."
    if not full_by_task(results.rows):
        below = "; whether it leaks stands below" if results.attacks else ""
        return f"No question here has a right answer that a policy could lose, on {model}{below}."
    return ""


def _kept(results: Results) -> tuple[Level, Kept]:
    """Chooses a level, and returns what policies keep there, over the tasks that the model
    masters."""
    kind = usual_kind(results).name
    cells, levels = {}, set()
    for row in results.rows:
        cells[row.task, row.policy, row.at] = row
        is_compared = row.policy not in CONTROLS and row.task != ALL_TASKS
        if is_compared and row.at.kind == kind and row.at != UNTREATED:
            levels.add(row.at)
    level = _nearest(sorted(levels)) if levels else UNTREATED
    shares = {}
    for policy in dict.fromkeys(row.policy for row in results.rows if row.policy != FULL):
        point = held_and_kept(cells, results.mastered, policy, level)
        if point is not None:
            _, shares[policy] = point
    return level, shares


def _nearest(levels: Sequence[Level]) -> Level:
    """Returns the level nearest to a half of the cache; of faults and bits, of which none is usual,
    the middle one."""
    if levels[0].fixed_share is not None:
        # Of two levels that are equally near, the lower.
        return min(levels, key=lambda level: (abs(level.value - HALF), level.value))
    return median_low(levels)


def _beginning(level: Level) -> str:
    if level == UNTREATED:
        return "On these tasks "
    if level.fixed_share is None:
        return f"At {level.where} "
    part = PARTS.get(level.value, f"{100 * level.value:g} %")
    return f"With {part} of the KV cache removed "


def _who_keeps_what(methods: Kept, kept: Kept, results: Results, of_what: str) -> str:
    """Says what the best policies keep, and what one keeps that readers know, or else the worst."""
    in_order = sorted(methods, key=lambda policy: -methods[policy])
    highest = _percent(methods[in_order[0]])
    best, others = [], []
    for policy in in_order:
        # As they are written: a reader cannot tell apart what rounds to the same number.
        if _percent(methods[policy]) == highest:
            best.append(policy)
        else:
            others.append(policy)
    names = _names(best)
    if len(best) == len(methods) > 1:
        names = f"all {len(best)} policies"
    verb = "keeps" if len(best) == 1 else "keep"
    # What is said beside random tokens holds of all that are named, or stands nowhere.
    marks = {_beside_random(policy, kept, results) for policy in best}
    mark = marks.pop() if len(marks) == 1 else ""
    clause = f"{names} {verb} {highest} {of_what}{mark}"
    if not others:
        return clause
    other = next((policy for policy in WELL_KNOWN if policy in others), others[-1])
    if mark:
        clause += ","
    return f"{clause} and {other} {_percent(methods[other])}{_beside_random(other, kept, results)}"


def _one_level_clause(results: Results, level: Level) -> list[str]:
    """Says what the best of the policies without levels keeps, as int4, beside those with
    levels."""
    if level == UNTREATED:
        return []
    cells: dict[tuple[str, str, Level], SummaryRow] = {}
    names, has_levels = set(), set()
    for row in results.rows:
        cells[row.task, row.policy, row.at] = row
        names.add(row.policy)
        if row.at != UNTREATED:
            has_levels.add(row.policy)
    points = {}
    for policy in sorted(names - has_levels - {FULL, *CONTROLS}):
        point = held_and_kept(cells, results.mastered, policy, UNTREATED)
        if point:
            points[policy] = point
    if not points:
        return []
    best = max(points, key=lambda policy: points[policy][1])
    held, share = points[best]
    return [f"{best}, which holds {_percent(held)} of the bytes, keeps {_percent(share)}"]


def _names(policies: Sequence[str]) -> str:
    if len(policies) <= MOST_NAMED:
        return " and ".join(policies)
    return f"{policies[0]} and {len(policies) - 1} others"


def _percent(share: float) -> str:
    return f"{share:.0f} %"


def _beside_random(policy: str, kept: Kept, results: Results) -> str:
    """Says where the board's test does not show a policy to beat random tokens; nothing where there
    is no test."""
    standings = results.standings[results.mode, results.shown[0]]
    standing = next(standing for standing in standings if standing.policy == policy)
    beats_random = next(measure for measure in BEATS if measure.name == f"beats_{RANDOM}")
    line = standing[beats_random]
    if not isinstance(line, Pooled) or line.verdict == "better":
        return ""
    if line.verdict == "worse":
        return ", worse than random tokens"
    near = RANDOM in kept and kept[policy] <= kept[RANDOM] + NEAR_CHANCE
    if near and kept[policy] < LITTLE:
        return ", as little as chance"
    return ", not shown to beat random tokens"


def _safe_clause(matrix: UseMatrix, level: Level) -> str:
    """Says which policies are shown to be safe at the level, and for which uses."""
    safe: dict[str, list[str]] = {}
    for line in matrix.methods:
        for use, cell in zip(matrix.uses, line.cells, strict=True):
            if _is_safe(cell, level):
                safe.setdefault(line.name, []).append(use.name)
    # The contexts of each use with verdicts.
    counts = [use.contexts for use in matrix.uses if not use.withheld]
    where = "" if level == UNTREATED else " there"
    if not safe and max(counts) < contexts_that_agree(matrix.tolerance / 100):
        return f"{range_text(min(counts), max(counts))} contexts are too few to show any use safe"
    if not safe:
        return f"no use is shown safe{where}"
    if len(safe) > MOST_NAMED:
        share = f"{len(safe)} of {len(matrix.methods)} policies"
        return f"{share} are shown safe{where} for some use"
    words = []
    for policy, names in safe.items():
        is_every = len(names) == len(counts) > 1
        words.append(f"{policy} for {'every use' if is_every else ', '.join(names)}")
    return f"shown safe{where}: {' and '.join(words)}"


def _is_safe(cell: UseCell, level: Level) -> bool:
    if cell.verdict != "safe" or CHANCE in cell.notes:
        return False
    is_of_this_kind = cell.level == f"to {cell.sort:g}"  # another kind is named
    return not cell.level or (is_of_this_kind and (cell.sort or 0) >= level.value)
