"""Compares two policies on the same questions: the difference, its interval, whether it is more than chance, and in
which ways they answer; and finds the worst answers beside the full cache.

Questions about one context are not independent, so contexts are what is drawn: a cell's difference is tested by the
means of random subsets of its contexts, which is exact also for few of them. The levels of a task are one family,
corrected by Holm's method, and the interval that is shown is that of the corrected test: it leaves out 0 where the
verdict says so.

The draws of a random policy are averaged question by question before anything is subtracted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, MultiIndex, Series

from leaderboards.aggregate.comparison.duel import (
    CELL,
    COMPARED,
    QUESTION,
    AnswerTable,
    Compared,
    Contest,
    Duel,
    MeanDifference,
    answer_tables,
    sound_cells,
)
from leaderboards.errors import LeaderboardError
from leaderboards.statistics.bootstrap import DIGITS, FloatArray, task_seed
from leaderboards.statistics.significance import Tails, correct_p, spread_of, step_down_levels, subsets, two_sided_p
from policies.declaration.levels import Level
from policies.declaration.names import FULL

SIDES = ("_one", "_other")
JUDGED = ("right", "f1", "directives_obeyed", "leakage", "hallucinated")  # what answers are worse or better by
KINDS = ("right", "abstained", "confused", "fabricated", "empty")


@dataclass(frozen=True)
class AnswerKind:
    """How often two policies give answers of one kind."""

    policy: str
    other: str
    kind: str
    answers: int  # to questions that both answered
    rate: float
    other_rate: float


def duels(records: DataFrame, policy: str, others: Sequence[str], seed: int = 0) -> list[Duel]:
    """Compares the policy with each of the others, at every task and level that both have in full; each p is corrected
    over the levels of the task."""
    pairs = [(policy, other) for other in others]
    tables = answer_tables(records[records["policy"].isin((policy, *others))])
    met = list(_duels_of_pairs(tables, pairs, seed))
    duels_of_others = [duel for other in others for duel in met if duel.other == other]
    if not duels_of_others:
        raise LeaderboardError(f"{policy} and {', '.join(others)} have no cell in common that is complete")
    return duels_of_others


@dataclass(frozen=True)
class _Sample:
    """A difference before anything is corrected."""

    mean: float
    tails: Tails
    p: float
    contexts: int
    spread: float


@dataclass(frozen=True)
class _Cell:
    """Two policies at one level of a task, before anything is corrected."""

    level: Level
    questions: int
    contexts: int
    only_one: int
    only_other: int
    samples: Mapping[str, _Sample]  # by column, of the measures that some question has a value of
    sides: Mapping[str, tuple[float, float]]  # what either has of these measures, in their units


def _duels_of_pairs(tables: Sequence[AnswerTable], pairs: Sequence[tuple[str, str]], seed: int) -> Iterator[Duel]:
    """Compares the pairs that answered some of the same questions, task by task."""
    for task, levels in groupby(tables, lambda table: table.task):
        # As of the rows: a mark and a verdict shall not differ by chance.
        by_level = [_cells(table, pairs, task_seed(seed, task)) for table in levels]
        for pair in pairs:
            yield from _duels_of_task(pair, task, [cells[pair] for cells in by_level if pair in cells])


def _duels_of_task(pair: tuple[str, str], task: str, cells: Sequence[_Cell]) -> Iterator[Duel]:
    contests: list[dict[str, Contest]] = [{} for _ in cells]
    for measure in COMPARED.values():
        having = [place for place, cell in enumerate(cells) if measure.name in cell.samples]
        for place, contest in zip(having, _contests(measure, [cells[place] for place in having]), strict=True):
            contests[place][measure.name] = contest
    for cell, cell_duels in zip(cells, contests, strict=True):
        one, other, counts = *pair, (cell.questions, cell.contexts, len(cells))
        yield Duel(one, other, task, cell.level, *counts, cell_duels, cell.only_one, cell.only_other)


def _cells(table: AnswerTable, pairs: Sequence[tuple[str, str]], seed: int) -> dict[tuple[str, str], _Cell]:
    """Makes a cell of each pair that has a value of some measure."""
    places = {name: place for place, name in enumerate(table.policies)}
    known = [pair for pair in pairs if set(pair) <= set(places)]
    one, other = (np.array([places[pair[side]] for pair in known], dtype=np.intp) for side in (0, 1))
    samples: list[dict[str, _Sample]] = [{} for _ in known]
    sides: list[dict[str, tuple[float, float]]] = [{} for _ in known]
    for name, measure in COMPARED.items():
        values = table.values[measure.column]
        there = ~np.isnan(values[one] - values[other])
        for mask, rows in _rows_by_mask(there):
            draws, heights = table.draws[mask], _heights(table, measure, mask)
            if measure.over:
                shared = values[:, mask], table.values[measure.over][:, mask]
                of_cell = _of_shares(*shared, (one[rows], other[rows]), draws, seed)
            else:
                of_cell = _of_contexts((values[one[rows]] - values[other[rows]])[:, mask], draws, seed)
            for place, sample in zip(rows, of_cell, strict=True):
                if sample is not None:
                    samples[place][name] = sample
                    sides[place][name] = heights[one[place]], heights[other[place]]
    common, right = table.there[one] & table.there[other], table.first_right
    counts = (common, common & right[one] & ~right[other], common & right[other] & ~right[one])
    questions, only_one, only_other = (each.sum(axis=1).tolist() for each in counts)
    contexts = (common @ _members(table.contexts) > 0).sum(axis=1).tolist()
    cells = map(_Cell, [table.level] * len(known), questions, contexts, only_one, only_other, samples, sides)
    return {pair: cell for pair, cell in zip(known, cells, strict=True) if cell.samples}


def _heights(table: AnswerTable, measure: Compared, mask: NDArray[np.bool_]) -> list[float]:
    """Returns what each policy has of some questions, in the unit of the measure."""
    values = table.values[measure.column][:, mask].sum(axis=1)
    over = table.values[measure.over][:, mask].sum(axis=1) if measure.over else mask.sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        heights: list[float] = np.round(measure.factor * values / over, DIGITS).tolist()
    return heights


def _rows_by_mask(there: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.bool_], list[int]]]:
    """Yields each mask that is not empty with the rows that have it, of some masks, shape (rows, questions)."""
    rows: dict[bytes, list[int]] = {}
    for place, mask in enumerate(there):
        rows.setdefault(mask.tobytes(), []).append(place)
    yield from ((there[alike[0]], alike) for alike in rows.values() if there[alike[0]].any())


def _members(places: NDArray[np.intp]) -> FloatArray:
    """Returns 1 where a question belongs to a cluster and 0 elsewhere, shape (questions, clusters). ``places``: the
    number of the cluster of each question."""
    members: FloatArray = (places[:, None] == np.arange(places.max() + 1)).astype(np.float64)
    return members


def _of_contexts(values: FloatArray, draws: NDArray[np.intp], seed: int) -> list[_Sample | None]:
    """Tests differences before they are corrected. ``values``: differences question by question, shape (rows,
    questions); ``draws``: the context of each question."""
    clusters, places = np.unique(draws, return_inverse=True)
    of_cluster = _members(places)
    sums, counts = values @ of_cluster, of_cluster.sum(axis=0)
    held = subsets(len(clusters), seed)
    means = np.round(sums @ held.T / (counts @ held.T), DIGITS)
    parts = values.mean(axis=1), Tails.of(means), two_sided_p(means), np.round(spread_of(sums, counts), DIGITS)
    return [
        _Sample(float(mean), tails, float(p), len(clusters), float(spread))
        for mean, tails, p, spread in zip(*parts, strict=True)
    ]


def _of_shares(
    values: FloatArray,
    over: FloatArray,
    pairs: tuple[NDArray[np.intp], NDArray[np.intp]],
    draws: NDArray[np.intp],
    seed: int,
) -> list[_Sample | None]:
    """Returns the differences of two shares, such as wrong answers over answers given; None where one is over nothing.

    ``values``, ``over``: what is counted and what it is over, of each policy, shape (policies, questions). The
    share of each subset of contexts is taken anew; subsets in which one of the two is over nothing count for either
    side, so that contexts without an answer are no evidence.
    """
    clusters, places = np.unique(draws, return_inverse=True)
    of_cluster = _members(places)
    held = subsets(len(clusters), seed).T
    sums, counts = values @ of_cluster, over @ of_cluster
    with np.errstate(invalid="ignore", divide="ignore"):
        share = sums.sum(axis=1) / counts.sum(axis=1)
        of_subsets = (sums @ held) / (counts @ held)
        # To first order a share moves with a context by what is wrong there beyond the share of what is answered there.
        moves = (sums - share[:, None] * counts) / counts.mean(axis=1, keepdims=True)
    one, other = pairs
    means = np.round(of_subsets[one] - of_subsets[other], DIGITS)
    unknown = np.isnan(means)
    low, high = (np.where(unknown, end, means) for end in (-np.inf, np.inf)) if unknown.any() else (means, None)
    spread = np.std(moves[one] - moves[other], axis=1, ddof=1) if len(clusters) > 1 else np.zeros(len(one))
    contexts = ((counts[one] > 0) & (counts[other] > 0)).sum(axis=1)
    parts = share[one] - share[other], Tails.of(low, high), two_sided_p(low, high), contexts, np.round(spread, DIGITS)
    return [
        None if np.isnan(mean) else _Sample(float(mean), tails, float(p), int(count), float(detail))
        for mean, tails, p, count, detail in zip(*parts, strict=True)
    ]


def _contests(measure: Compared, cells: Sequence[_Cell]) -> Iterator[Contest]:
    """Corrects over the cells, which are the levels of a task."""
    samples = [cell.samples[measure.name] for cell in cells]
    p = correct_p({place: sample.p for place, sample in enumerate(samples)}, "the levels of a task").p
    levels = step_down_levels(np.array([sample.p for sample in samples])).tolist()
    for place, (cell, sample, alpha) in enumerate(zip(cells, samples, levels, strict=True)):
        interval = sample.tails.interval(alpha)
        low, high = interval if interval and np.isfinite(interval).all() else (None, None)
        difference = MeanDifference(sample.mean, low, high)
        sides = cell.sides[measure.name]
        yield Contest(measure, difference, alpha, p[place], sample.contexts, sample.spread, sides)


def worst_first(records: DataFrame) -> DataFrame:
    """Orders answers by what they lose against the full cache, most first.

    That is whether they are right; directives obeyed, where there is no gold; and of attacks, what is kept secret.
    Among equals hallucinations come first, then the lowest scores, then the lowest F1.

    ``records`` hold the full cache too, with the columns of :data:`JUDGED`.
    """
    numbers = records[list(JUDGED)].astype(np.float64)
    score = numbers["right"].fillna(numbers["directives_obeyed"]).fillna(0)
    score = score.where(numbers["leakage"].isna(), -numbers["leakage"])
    judged = records[["policy", "f1", *QUESTION]].assign(score=score, lied=records["hallucinated"].eq(True))
    whole = judged[judged["policy"] == FULL].drop_duplicates(QUESTION).set_index(QUESTION)["score"]
    before = whole.reindex(MultiIndex.from_frame(judged[QUESTION])).fillna(0).to_numpy()
    ordered = judged.assign(loss=before - judged["score"]).sort_values(
        ["loss", "lied", "score", "f1"], ascending=[False, False, True, True], kind="stable"
    )
    return records.loc[ordered.index]


def answer_kinds(records: DataFrame, policy: str, others: Sequence[str]) -> list[AnswerKind]:
    """Counts the kinds of answers of a policy and of each of the others, over all tasks and levels that both have
    without a failed answer. Of a random policy its first draw counts; attacks, which ask for no answer, do not."""
    kinds = []
    for other in others:
        sound = sound_cells(records[records["policy"].isin((policy, other)) & records["leakage"].isna()])
        sound = sound[sound["repeat"] == 0]
        one, two = (sound[sound["policy"] == name] for name in (policy, other))
        pairs = one.merge(two, on=[*CELL, *QUESTION], suffixes=SIDES)
        if not pairs.empty:
            answers = [_kinds(pairs, side) for side in SIDES]
            rates = [[float((of_side == kind).mean()) for of_side in answers] for kind in KINDS]
            kinds += [AnswerKind(policy, other, kind, len(pairs), *of) for kind, of in zip(KINDS, rates, strict=True)]
    return kinds


def _kinds(pairs: DataFrame, side: str) -> Series:
    """Returns the kind of each answer, one of :data:`KINDS`."""
    kinds = pairs[f"hallucination_kind{side}"].fillna(KINDS[-1]).astype(object)
    kinds[pairs[f"abstained{side}"].astype(bool)] = "abstained"
    kinds[pairs[f"right{side}"].to_numpy(dtype=np.float64, na_value=np.nan) > 0] = "right"
    return kinds
