"""The study of routes: is the evidence still there, can it be reached, is it used; and what do its
rows cause?

Causes: what comes back when rows are put back into a compressed branch, what is lost without. All
shares are ratios of sums over answers, so that an answer that lost little weighs little; contexts
are resampled. Random rows stand beside the rows of a span, as many of them: what both do is no
effect of the span."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from pandas import DataFrame, Series

from leaderboards.aggregate.lost_answers import LostAnswers, lost_answers
from leaderboards.downloads.sheets import Sheet
from leaderboards.statistics.bootstrap import FLAT, Estimate
from leaderboards.studies.cliff.sweeps import slopes, steepest
from leaderboards.studies.declaration import StudyContent, StudyInput, StudySection
from leaderboards.studies.lost_answers import lost_section
from leaderboards.studies.parts import estimate_mean, list_rows, listing_of_fields
from leaderboards.studies.routing import heads, probes, routes
from leaderboards.studies.routing.routes import CELL, CONTEXT, QUESTION, context_names
from policies.declaration.levels import Level
from policies.declaration.names import CONTROLS, FULL

TABLE = "interventions"  # of a store (kvbench.studies.routing)
TARGETS = ("answer", "subject", "bridge", "evidence")


@dataclass(frozen=True)
class Repair:
    """Says what the rows of a span bring back of what a policy has lost at a level, as shares of
    that: 1 is all of it, as with the full cache. What is compared with random rows is None where no
    answer has as many other rows."""

    policy: str
    level: Level
    target: str
    answers: int  # that are lost and whose question has such a span
    f1: Estimate
    nats: Estimate | None  # of the likelihood of the right answer
    random: Estimate | None  # what as many random rows bring back
    alone: Estimate | None  # what the rows bring back beyond that


@dataclass(frozen=True)
class Removal:
    """Says what is lost of a task without the rows of a span, by what the full cache has right."""

    task: str
    target: str
    answers: int
    rows: float  # the mean, over all layers and heads
    nats: Estimate  # by how much the right answer becomes less likely
    f1: Estimate  # what F1 falls by, in points
    random_nats: Estimate | None  # without as many random rows
    random_f1: Estimate | None


def with_outcomes(table: DataFrame, records: DataFrame) -> DataFrame:
    """Joins interventions, mean over draws of random rows, with what the same answer was without
    (``_before``) and with the full cache (``_full``). ``context``: what is resampled. Those without
    a likelihood have no value there."""
    # Draw 0 is the rows of the span itself.
    table = table.assign(random=table["draw"] > 0)
    by = [*CELL, "action", "target", "random"]
    # A row for each answer, action and span, and whether its rows are random: draws are averaged.
    drawn = (
        table.groupby(by, sort=False, observed=True)[["rows", "f1", "gold_nll"]]
        .mean()
        .reset_index()
    )
    before = records[[*CELL, "f1", "gold_nll", "draw_id"]]
    full = records[records["policy"] == FULL][[*QUESTION, "f1", "gold_nll"]]
    full = full.rename(columns={"f1": "f1_full", "gold_nll": "gold_nll_full"})
    joined = drawn.merge(before, on=CELL, suffixes=("", "_before"), validate="many_to_one")
    joined[CONTEXT] = context_names(joined)
    return joined.merge(full, on=QUESTION, validate="many_to_one")


def cliff_levels(records: DataFrame) -> dict[str, Level]:
    """Returns by policy the level behind its cliff: behind the step of the realised ratio over
    which the share of lost answers rises fastest, among questions with evidence that the full cache
    has right. Policies that lose none are left out, and so are levels that remove no tokens."""
    has_evidence = records["evidence_tokens"] > 0
    full = records[(records["policy"] == FULL) & (records["right"] == 1) & has_evidence]
    answers = records.merge(full[QUESTION], on=QUESTION, validate="many_to_one")
    answers = answers[answers["ratio"].notna() & (answers["realised_ratio"] > FLAT)]
    answers = answers.assign(lost=1.0 - answers["right"].astype(float))
    cliffs = {}
    for policy, of_policy in answers.groupby("policy", observed=True):
        cells = of_policy.groupby(["level_kind", "level"], observed=True)
        levels = cells[["realised_ratio", "lost"]].mean().sort_values("realised_ratio")
        # A level that removes no more than the one before it makes a step without width, which has
        # no slope.
        steps = np.diff(levels["realised_ratio"], prepend=0.0)
        levels = levels[steps > FLAT]
        ratios = np.array([0.0, *levels["realised_ratio"]])
        lost = np.array([0.0, *levels["lost"]])
        _, rises = slopes(ratios, lost[None])
        if levels.size and rises.max() > FLAT:
            kind, value = levels.index[int(steepest(rises)[0])]
            cliffs[str(policy)] = Level(str(kind), float(value))
    return cliffs


def repairs(outcomes: DataFrame, levels: Mapping[str, Level]) -> list[Repair]:
    """Returns for every policy what the rows of each span repair at its level, over all tasks."""
    restored = outcomes[outcomes["action"] == "restore"]
    results = []
    for policy, level in levels.items():
        of_policy = restored[restored["policy"] == policy]
        is_level = (of_policy["level_kind"] == level.kind) & (of_policy["level"] == level.value)
        at_level = of_policy[is_level]
        for target in TARGETS:
            rows, pairs = _paired(at_level, target)
            if not rows.empty:
                results.append(_repair(policy, level, target, rows, pairs))
    return results


def removals(outcomes: DataFrame) -> list[Removal]:
    """Returns for every task what the full cache loses without the rows of each span."""
    removed = outcomes[outcomes["action"] == "remove"]
    results = []
    for task, of_task in removed.groupby("task", observed=True, sort=False):
        for target in TARGETS:
            rows, pairs = _paired(of_task, target)
            # Where a likelihood is no number, nothing tells by how much it fell.
            rows = rows[rows["gold_nll"].notna()]
            pairs = pairs[pairs["gold_nll"].notna()]
            if not rows.empty:
                results.append(_removal(str(task), target, rows, pairs))
    return results


def _paired(outcomes: DataFrame, target: str) -> tuple[DataFrame, DataFrame]:
    """Returns the rows of a span, and those of them that have as many random rows, with what these
    do (``_random``). Where a span is most of its context, too few other rows are left to compare
    with."""
    of_target = outcomes[outcomes["target"] == target]
    rows = of_target[~of_target["random"]]
    random = of_target[of_target["random"]][[*CELL, "rows", "f1", "gold_nll"]]
    pairs = rows.merge(random, on=CELL, suffixes=("", "_random"), validate="one_to_one")
    return rows, pairs[pairs["rows_random"] == pairs["rows"]]


def _repair(policy: str, level: Level, target: str, rows: DataFrame, pairs: DataFrame) -> Repair:
    has_likelihood = rows[["gold_nll", "gold_nll_before", "gold_nll_full"]].notna().all(axis=1)
    likely = rows[has_likelihood]
    nats_back = likely["gold_nll_before"] - likely["gold_nll"]
    nats_lost = likely["gold_nll_before"] - likely["gold_nll_full"]
    f1_back = rows["f1"] - rows["f1_before"]
    f1_lost = rows["f1_full"] - rows["f1_before"]
    lost = pairs["f1_full"] - pairs["f1_before"]
    return Repair(
        policy,
        level,
        target,
        answers=len(rows),
        f1=estimate_mean(f1_back, rows[CONTEXT], f1_lost),
        nats=_share(likely, nats_back, nats_lost),
        random=_share(pairs, pairs["f1_random"] - pairs["f1_before"], lost),
        alone=_share(pairs, pairs["f1"] - pairs["f1_random"], lost),
    )


def _share(rows: DataFrame, gain: Series, lost: Series) -> Estimate | None:
    """Divides the sum of what comes back by that of what was lost, and resamples contexts; None
    where nothing was."""
    if rows.empty or not lost.sum() > FLAT:
        return None
    return estimate_mean(gain, rows[CONTEXT], lost)


def _removal(task: str, target: str, rows: DataFrame, pairs: DataFrame) -> Removal:
    random_nats, random_f1 = None, None
    if len(pairs):
        nats_lost = pairs["gold_nll_random"] - pairs["gold_nll_before"]
        f1_lost = pairs["f1_before"] - pairs["f1_random"]
        random_nats = estimate_mean(nats_lost, pairs[CONTEXT])
        random_f1 = estimate_mean(f1_lost, pairs[CONTEXT])
    return Removal(
        task,
        target,
        len(rows),
        float(rows["rows"].mean()),
        nats=estimate_mean(rows["gold_nll"] - rows["gold_nll_before"], rows[CONTEXT]),
        f1=estimate_mean(rows["f1_before"] - rows["f1"], rows[CONTEXT]),
        random_nats=random_nats,
        random_f1=random_f1,
    )


ESTIMATES = dict.fromkeys(("nats", "random", "alone", "random_nats", "random_f1"), Estimate)


def build_causes(study_input: StudyInput) -> StudyContent:
    """Shows what comes back when rows are put back, and what is lost without them."""
    outcomes = with_outcomes(study_input.tables[TABLE], study_input.records)
    repaired = repairs(outcomes, cliff_levels(study_input.records))
    removed = removals(outcomes)
    of_evidence = [repair for repair in repaired if repair.target == "evidence"]
    parts = []
    if of_evidence:
        parts.append(_explained(of_evidence, repaired))
    if removed:
        parts.append(_removals(removed))
    repair_rows = [*map(vars, repaired)]
    removal_rows = [*map(vars, removed)]
    title = "What rows repair at the cliff"
    sheets = [
        Sheet.of("routing-repairs", title, repair_rows, kinds=ESTIMATES),
        Sheet.of("routing-removals", "What is lost without rows", removal_rows, kinds=ESTIMATES),
    ]
    return StudyContent(parts, sheets=sheets)


def _explained(of_evidence: Sequence[Repair], repaired: Sequence[Repair]) -> StudySection:
    """Lists policies by what their evidence alone explains, the most first, beside what each span
    brings back."""
    of_spans = {(repair.policy, repair.target): repair.f1 for repair in repaired}
    rows = []
    for repair in sorted(of_evidence, key=_explains, reverse=True):
        row = dict(vars(repair))
        for target in TARGETS:
            row[target] = of_spans.get((repair.policy, target))
        rows.append(row)
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "policy": itemgetter("policy"),
        "at its cliff": lambda row: row["level"].where,
        "lost answers": itemgetter("answers"),
        "evidence alone": itemgetter("alone"),
        **{target: itemgetter(target) for target in TARGETS},
        "as many random rows": itemgetter("random"),
    }
    text = (
        "Each policy at its cliff: rows that it evicted are put back, and the question is asked "
        "again. The difference between evidence and as many random rows is what the evidence rows "
        "alone explain of the loss."
    )
    listing = list_rows("Share of the lost F1 that comes back, percent", rows, columns)
    return StudySection("causes", "What was evicted that was needed", text, listings=(listing,))


def _explains(repair: Repair) -> float:
    """Returns what orders policies: what is not known stands last."""
    return -1.0 if repair.alone is None else repair.alone.mean


def _removals(removed: Sequence[Removal]) -> StudySection:
    text = (
        "What the full cache loses without the rows of a span, over questions that it has right, "
        "and without as many random rows."
    )
    forms = {
        "rows": ".0f",
        "nats": "z.2f",
        "f1": "z.1f",
        "random_nats": "z.3f",
        "random_f1": "z.1f",
    }
    listing = listing_of_fields("Removal", removed, forms)
    return StudySection("removal", "What is lost without the rows", text, listings=(listing,))


FINDERS: Mapping[str, Callable[[StudyInput], StudyContent]] = {
    routes.TABLE: routes.build_content,
    heads.TABLE: heads.build_content,
    probes.TABLE: probes.build_content,
    TABLE: build_causes,
}


def build_content(study_input: StudyInput) -> StudyContent:
    """Shows what became of lost answers, then what each table of the run tells."""
    parts: list[StudySection] = []
    lost = lost_section(what_was_lost(study_input))
    if lost is not None:
        parts.append(lost)
    contents = [find(study_input) for table, find in FINDERS.items() if has(study_input, table)]
    sheets = []
    for content in contents:
        parts += content.parts
        sheets += [sheet for sheet in content.sheets if sheet.rows]
    return StudyContent(parts, list(contents[0].facts), sheets)


def what_was_lost(study_input: StudyInput) -> list[LostAnswers]:
    """Counts what became of lost answers, with routes and with rows put back as far as the run has
    them; controls are last."""
    unreachable, repaired = None, None
    if has(study_input, routes.TABLE):
        unreachable = routes.find_unreachable(study_input)
    if has(study_input, TABLE):
        table = study_input.tables[TABLE]
        of_evidence = table[(table["action"] == "restore") & (table["target"] == "evidence")]
        # Draws above 0 are random rows.
        tried = of_evidence[of_evidence["draw"] == 0]
        repaired = tried.set_index(CELL)["right"].eq(True)
    policies = lost_answers(study_input.records, unreachable, repaired)
    return sorted(policies, key=lambda lost: lost.policy in CONTROLS)


def has(study_input: StudyInput, table: str) -> bool:
    """Tells whether a table has rows of the full cache, with which everything is compared."""
    return table in study_input.tables and FULL in set(study_input.tables[table]["policy"])
