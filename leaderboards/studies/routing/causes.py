"""Computes what rows cause: what comes back when they are put back into a compressed branch, what is lost without.

Everything is computed from the tables of interventions and of records. All shares are ratios of sums over answers, so
that an answer that lost little weighs little; contexts are resampled. Random rows stand beside the rows of a span, as
many of them: what both do is no effect of the span.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from leaderboards.boards.cliff import slopes, steepest
from leaderboards.boards.profiles import FLAT
from leaderboards.statistics.bootstrap import Estimate, resampled_means
from leaderboards.studies.routing.classes import CELL, CONTEXT, QUESTION, contexts_of
from policies.declaration.levels import Level
from policies.declaration.names import FULL

TABLE = "interventions"  # of a store (kvbench.store.interventions)
TARGETS = ("answer", "subject", "bridge", "evidence")
ALL = -1  # layers, or heads
LEAST = {"gold_nll": 0.5, "f1": 5.0}  # of an answer on average, in nats and in points
TIMES = 10  # how much more the answer's rows have to cost than as many random ones


@dataclass(frozen=True)
class Repair:
    """Says what the rows of a span bring back of what a policy has lost at a level, as shares of that.

    1: all of it, as with the full cache; 0: nothing. ``random``: what as many random rows bring back, ``alone``: what
    the rows bring back beyond that, both over the answers that have as many other rows; None where none has, and where
    no random rows were tried. ``nats``: the share of the lost likelihood of the right answer.
    """

    policy: str
    level: Level
    target: str
    answers: int  # that are lost and whose question has such a span
    f1: Estimate
    nats: Estimate | None
    random: Estimate | None
    alone: Estimate | None


@dataclass(frozen=True)
class Removal:
    """Says what is lost of a task without the rows of a span, by what the full cache has right.

    ``nats`` and ``f1``: by how much the right answer becomes less likely, and what F1 falls by, in points;
    ``random_nats`` and ``random_f1`` without as many random rows. ``excess``: ``nats`` less :data:`TIMES` times
    ``random_nats``; None where no question has as many other rows.
    """

    task: str
    target: str
    answers: int
    rows: float  # the mean, over all layers and heads
    nats: Estimate
    f1: Estimate
    random_nats: Estimate | None
    random_f1: Estimate | None
    excess: Estimate | None


@dataclass(frozen=True)
class SlotMap:
    """Maps what rows do in one place alone, as a share of what they could do everywhere.

    ``values``: shape (layers, 1 + heads), of all heads of a layer first. Put back: the share of the loss that comes
    back. Taken away: the share of what they cost when they are taken away everywhere.
    """

    action: str
    target: str
    random: bool
    values: NDArray[np.float64]
    answers: int


def with_outcomes(table: DataFrame, records: DataFrame) -> DataFrame:
    """Joins interventions with what the same answer was without (``_before``) and with the full cache (``_full``);
    draws of random rows are averaged. ``context``: what is resampled. Those without a likelihood have no value there.
    """
    table = table.assign(random=table["draw"] > 0)
    by = [*CELL, "action", "target", "random", "layer", "head"]
    drawn = table.groupby(by, sort=False, observed=True)[["rows", "f1", "gold_nll"]].mean().reset_index()
    before = records[[*CELL, "f1", "gold_nll", "draw_id"]]
    full = records[records["policy"] == FULL][[*QUESTION, "f1", "gold_nll"]]
    full = full.rename(columns={"f1": "f1_full", "gold_nll": "gold_nll_full"})
    joined = drawn.merge(before, on=CELL, suffixes=("", "_before"), validate="many_to_one")
    joined[CONTEXT] = contexts_of(joined)
    return joined.merge(full, on=QUESTION, validate="many_to_one")


def cliff_levels(records: DataFrame) -> dict[str, Level]:
    """Returns by policy the level behind its cliff: behind the step of the realised ratio over which the share of
    lost answers rises fastest, among questions with evidence that the full cache has right. Policies that lose none
    are left out, and so are levels that remove no tokens."""
    full = records[(records["policy"] == FULL) & (records["right"] == 1) & (records["evidence_tokens"] > 0)]
    asked = records.merge(full[QUESTION], on=QUESTION, validate="many_to_one")
    asked = asked[asked["ratio"].notna() & (asked["realised_ratio"] > FLAT)]
    cliffs = {}
    for policy, of_policy in asked.assign(lost=1.0 - asked["right"].astype(float)).groupby("policy", observed=True):
        levels = of_policy.groupby(["level_kind", "level"], observed=True)[["realised_ratio", "lost"]].mean()
        levels = levels.sort_values("realised_ratio")
        levels = levels[np.diff(levels["realised_ratio"], prepend=0.0) > FLAT]
        ratios, lost = (np.array([0.0, *levels[name]]) for name in ("realised_ratio", "lost"))
        _, rises = slopes(ratios, lost[None])
        if levels.size and rises.max() > FLAT:
            kind, value = levels.index[int(steepest(rises)[0])]
            cliffs[str(policy)] = Level(str(kind), float(value))
    return cliffs


def repairs(outcomes: DataFrame, levels: Mapping[str, Level]) -> list[Repair]:
    """Returns for every policy what the rows of each span repair at its level, over all tasks."""
    everywhere = _everywhere(outcomes, "restore")
    found = []
    for policy, level in levels.items():
        of_policy = everywhere[
            (everywhere["policy"] == policy)
            & (everywhere["level_kind"] == level.kind)
            & (everywhere["level"] == level.value)
        ]
        for target in TARGETS:
            own, pairs = _paired(of_policy, target)
            if not own.empty:
                found.append(_repair(policy, level, target, own, pairs))
    return found


def removals(outcomes: DataFrame) -> list[Removal]:
    """Returns for every task what the full cache loses without the rows of each span."""
    everywhere = _everywhere(outcomes, "remove")
    found = []
    for task, of_task in everywhere.groupby("task", observed=True, sort=False):
        for target in TARGETS:
            own, pairs = _paired(of_task, target)
            own, pairs = (rows[rows["gold_nll"].notna()] for rows in (own, pairs))
            if not own.empty:
                found.append(_removal(str(task), target, own, pairs))
    return found


def slot_maps(outcomes: DataFrame, measure: str = "gold_nll") -> list[SlotMap]:
    """Returns the maps of all spans, of rows put back and taken away. ``measure``: ``gold_nll`` or ``f1``. Spans are
    left out whose rows cost less than :data:`LEAST` everywhere: shares of that are noise."""
    before, full = f"{measure}_before", f"{measure}_full"
    in_places = outcomes[outcomes["layer"] != ALL]
    maps = []
    for (action, target, random), group in in_places.groupby(["action", "target", "random"], sort=False, observed=True):
        known = group[group[[measure, before, full]].notna().all(axis=1)]
        if known.empty:
            continue
        of_answers = known.drop_duplicates(CELL)[CELL]
        if action == "restore":
            whole = known.drop_duplicates(CELL)
            total = float((whole[full] - whole[before]).sum())
        else:
            everywhere = _everywhere(outcomes, "remove")
            whole = everywhere[(everywhere["target"] == target) & ~everywhere["random"]].merge(of_answers, on=CELL)
            total = float((whole[measure] - whole[before]).sum())
        if abs(total) < LEAST[measure] * len(of_answers):
            continue
        sums = (known[measure] - known[before]).groupby([known["layer"], known["head"]]).sum().unstack("head")
        values = sums.sort_index().sort_index(axis=1).to_numpy(dtype=np.float64) / total
        maps.append(SlotMap(str(action), str(target), bool(random), values, len(of_answers)))
    return maps


def _everywhere(outcomes: DataFrame, action: str) -> DataFrame:
    return outcomes[(outcomes["action"] == action) & (outcomes["layer"] == ALL)]


def _paired(rows: DataFrame, target: str) -> tuple[DataFrame, DataFrame]:
    """Returns the rows of a span, and those of them that have as many random rows, with what these do (``_random``).
    Where a span is most of its context, too few other rows are left to compare with."""
    of_target = rows[rows["target"] == target]
    own = of_target[~of_target["random"]]
    random = of_target[of_target["random"]][[*CELL, "rows", "f1", "gold_nll"]]
    pairs = own.merge(random, on=CELL, suffixes=("", "_random"), validate="one_to_one")
    return own, pairs[pairs["rows_random"] == pairs["rows"]]


def _repair(policy: str, level: Level, target: str, own: DataFrame, pairs: DataFrame) -> Repair:
    known = own[own[["gold_nll", "gold_nll_before", "gold_nll_full"]].notna().all(axis=1)]
    loss = pairs["f1_full"] - pairs["f1_before"]
    f1 = _share(own["f1"] - own["f1_before"], own["f1_full"] - own["f1_before"], own[CONTEXT])
    assert f1 is not None
    return Repair(
        policy,
        level,
        target,
        len(own),
        f1,
        _share(
            known["gold_nll_before"] - known["gold_nll"],
            known["gold_nll_before"] - known["gold_nll_full"],
            known[CONTEXT],
        ),
        _share(pairs["f1_random"] - pairs["f1_before"], loss, pairs[CONTEXT]),
        _share(pairs["f1"] - pairs["f1_random"], loss, pairs[CONTEXT]),
    )


def _removal(task: str, target: str, own: DataFrame, pairs: DataFrame) -> Removal:
    nats, f1 = _mean(own["gold_nll"] - own["gold_nll_before"], own), _mean(own["f1_before"] - own["f1"], own)
    assert nats is not None
    assert f1 is not None
    random = pairs["gold_nll_random"] - pairs["gold_nll_before"]
    return Removal(
        task,
        target,
        len(own),
        float(own["rows"].mean()),
        nats,
        f1,
        _mean(random, pairs),
        _mean(pairs["f1_before"] - pairs["f1_random"], pairs),
        _mean(pairs["gold_nll"] - pairs["gold_nll_before"] - TIMES * random, pairs),
    )


def _mean(values: DataFrame, rows: DataFrame) -> Estimate | None:
    return _share(values, values * 0 + 1, rows[CONTEXT])


def _share(parts: DataFrame, wholes: DataFrame, contexts: DataFrame) -> Estimate | None:
    """Divides the sum of the parts by that of the wholes, and resamples contexts; None where there is no whole."""
    part, whole = (one.to_numpy(dtype=np.float64) for one in (parts, wholes))
    if not len(whole) or whole.sum() <= FLAT:
        return None
    drawn = resampled_means(part, contexts.to_numpy(dtype=str), 0, weights=whole)
    return Estimate.of(float(part.sum() / whole.sum()), drawn, len(part))
