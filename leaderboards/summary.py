"""From records, one per question, to the rows of a board. Nothing is rounded and nothing incomplete is averaged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unicodedata import category

import numpy as np
from pandas import DataFrame, factorize, isna

from leaderboards.asked import Asked, asked_in
from leaderboards.bootstrap import RESAMPLES, FloatArray, percentile_interval, resampled_means, task_seed
from leaderboards.columns import Columns, groups
from leaderboards.errors import LeaderboardError
from leaderboards.ranking import marked
from leaderboards.row import ALL_TASKS, SummaryRow

REWRITES = "not applicable: the policy rewrites the cache"
NO_ANSWERABLE = "no answerable question"
NO_GOLDS = "no gold answers: see the directives"
NOT_RUN = "not run yet"
ONE_CONTEXT = "no interval from one context"

HIDDEN = ("Cc", "Cf")  # control and format characters, those for direction among them
CELL = ("task", "mode", "policy", "asked")
QUESTION = ("example_id", "question_id")
NUMBERS = (
    "f1",
    "em",
    "abstained",
    "hallucinated",
    "eviction_rate",
    "ger",
    "slot_coverage",
    "realised_ratio",
    "kept_tokens",
)
COSTS = ("kv_bytes", "compression_seconds")
OTHERS = ("draw_id", "status", "reason", "answerable", "golds", "hallucination_kind", "ger_by_layer")

# The field of a row, and the column of the records that it is the mean of.
OVER_ALL = {"realised_ratio": "realised_ratio", "kept_tokens": "kept_tokens"}
BY_GOLDS = {"f1": "f1", "em": "em", "abstention_rate": "abstained"}  # which tell what is right
OVER_QUESTIONS = {"hallucination_rate": "hallucinated"}  # and not over attacks, which ask for nothing of the text
OVER_SOME = ("directives_obeyed", "leakage")  # of the same name in row and records; most tasks have none
OVER_ANSWERABLE = {"ger": "ger", "slot_coverage": "slot_coverage"}
WITH_INTERVAL = ("f1", "hallucination_rate", "abstention_rate", "ger", "slot_coverage", *OVER_SOME)
# Of a mean over tasks; the layers are averaged on their own.
AVERAGED = (
    *OVER_ALL,
    *BY_GOLDS,
    *OVER_QUESTIONS,
    *OVER_ANSWERABLE,
    *COSTS,
    "confused_rate",
    "fabricated_rate",
    "eviction_rate",
)

Key = tuple[str, str, str, Asked]


@dataclass(frozen=True)
class PlannedCells:
    """What a run set out to do. ``contexts``: by task. ``policies``: what each was asked to reach. ``chances``: by
    task, F1 in percent of whoever answers without the text. ``covered``: the tasks of each policy that does not mean
    something on all."""

    mode: str
    contexts: Mapping[str, int]
    policies: Mapping[str, Sequence[Asked]]
    chances: Mapping[str, float] = field(default_factory=dict)
    covered: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def keys(self) -> list[Key]:
        return [
            (task, self.mode, policy, asked)
            for task in self.contexts
            for policy, levels in self.policies.items()
            if task in self.covered.get(policy, self.contexts)
            for asked in levels
        ]


@dataclass(frozen=True)
class _Cell:
    """A row, and the resampled means of the measures that have an interval, each of shape (resamples,)."""

    row: SummaryRow
    means: Mapping[str, FloatArray]


def summarise(
    records: DataFrame, planned: PlannedCells | None = None, seed: int = 0, resamples: int = RESAMPLES
) -> list[SummaryRow]:
    """One row per (task, mode, policy, ratio or budget), then the mean over tasks of each as task ``all``.

    In the order in which tasks, modes and policies first appear, ratios and budgets ascending. A cell with a failed or
    missing record is incomplete: its measures are None and ``reason`` says why. Of a run that was cut short only
    ``planned`` knows what is missing. The same records and seed give the same rows.
    """
    records = _checked(records)
    questions = {
        (str(task), str(mode)): len(group[list(QUESTION)].drop_duplicates())
        for (task, mode), group in records.groupby(["task", "mode"], sort=False, observed=True)
    }
    appeared = records[list(CELL)].drop_duplicates().itertuples(index=False)
    # Sums of floats depend on their order, and rows shall not: a run that was resumed holds its records in another.
    in_order_of_questions = records.sort_values(list(QUESTION), kind="stable")
    columns = Columns.of(in_order_of_questions)
    nothing = columns.at(np.arange(0))
    found: dict[Key, Columns] = {
        (str(task), str(mode), str(policy), asked): columns.at(places)
        for (task, mode, policy, asked), places in groups(in_order_of_questions, CELL)
    }
    in_order = [(str(task), str(mode), str(policy), asked) for task, mode, policy, asked in appeared]
    wanted = dict.fromkeys([*(planned.keys() if planned else ()), *in_order])
    contexts = planned.contexts if planned else {}
    cells = {
        key: _cell(key, found.get(key, nothing), questions.get(key[:2], 0), contexts.get(key[0]), seed, resamples)
        for key in _in_order(list(wanted))
    }
    cells |= _overall(cells)
    rows = _marked(cells)
    return _with_chance(rows, planned.chances) if planned and planned.chances else rows


def _with_chance(rows: Sequence[SummaryRow], chances: Mapping[str, float]) -> list[SummaryRow]:
    known = {**chances, ALL_TASKS: sum(chances.values()) / len(chances)}
    return [row.model_copy(update={"chance": known.get(row.task)}) for row in rows]


def _checked(records: DataFrame) -> DataFrame:
    """The records with what they were asked to reach, if a board can be made of them."""
    needed = ["task", "mode", "policy", "ratio", "budget", *QUESTION, *NUMBERS, *OVER_SOME, *COSTS, *OTHERS]
    missing = [name for name in needed if name not in records.columns]
    if missing:
        raise LeaderboardError(f"the records lack the columns {', '.join(missing)}: score the run again")
    numbers = dict.fromkeys((*NUMBERS, *OVER_SOME, *COSTS), np.float64)  # once, and not for each of a thousand cells
    records = records[needed].astype(numbers)
    records = records.assign(asked=asked_in(records), context=factorize(records["example_id"])[0])
    records = records.assign(draw=factorize(records["draw_id"], sort=True)[0], marked=records["golds"].map(len) > 0)
    twice = records.duplicated([*CELL, *QUESTION])
    if twice.any():
        first = records[twice].iloc[0]
        raise LeaderboardError(
            f"question {first['question_id']} of {first['example_id']} was answered twice by {first['policy']} "
            f"at {first['asked'].where}: keep one record of each"
        )
    if (records["task"] == ALL_TASKS).any():
        raise LeaderboardError(f"a task is named '{ALL_TASKS}', which is the mean over tasks: give it another name")
    return records


def _in_order(keys: Sequence[Key]) -> list[Key]:
    """Tasks, modes and policies as they first appear, ratios and budgets ascending."""
    tasks, modes, policies = (list(dict.fromkeys(key[part] for key in keys)) for part in range(3))
    return sorted(keys, key=lambda key: (tasks.index(key[0]), modes.index(key[1]), policies.index(key[2]), key[3]))


def _cell(key: Key, group: Columns, questions: int, contexts: int | None, seed: int, resamples: int) -> _Cell:
    task, mode, policy, asked = key
    answered = group.where(group["status"] == "ok")
    shared: dict[str, Any] = {
        "task": task,
        "mode": mode,
        "policy": policy,
        **_asked(asked, [float(ratio) for ratio in group["ratio"]]),
        "n": len(answered),
        "contexts": len(np.unique(answered["context"])),
    }
    gap = _incomplete(group, questions, contexts)
    if gap:
        return _Cell(SummaryRow(**shared, complete=False, reason=gap), {})
    measures, gaps = _measures(answered)
    means = _resampled(answered, task, measures, seed, resamples)
    if shared["contexts"] < 2:
        gaps.append(ONE_CONTEXT)
    row = SummaryRow(**shared, **measures, **_intervals(means), reason=_joined(gaps))
    return _Cell(row, means)


def _asked(asked: Asked, ratios: Sequence[float | None]) -> dict[str, Any]:
    """What was asked, for a row: of a budget, the mean of the ratios that it came to."""
    if asked.kind == "ratio":
        return {"ratio": asked.value}
    return {"ratio": _average(ratios), "budget": int(asked.value)}


def _incomplete(group: Columns, asked: int, contexts: int | None) -> str | None:
    """Why a cell may enter no mean; ``asked`` is the number of questions that other cells of the task answered."""
    if not len(group):
        return NOT_RUN
    gaps = []
    there = len(np.unique(group["context"]))
    if contexts is not None and there < contexts:
        gaps.append(f"{contexts - there} of {contexts} contexts are not run yet")
    failed = group.where(group["status"] != "ok")
    if len(failed):
        reasons = (visible(str(reason)) for reason in failed["reason"] if not isna(reason))
        first = next(reasons, "no reason was recorded")
        gaps.append(f"{len(failed)} of {asked} failed: {first}")
    if len(group) < asked:
        gaps.append(f"{asked - len(group)} of {asked} have no record")
    return _joined(gaps)


def _measures(answered: Columns) -> tuple[dict[str, Any], list[str]]:
    """The measures of a complete cell, and why those that are None are."""
    answerable = answered.where(answered["answerable"].astype(bool))
    gaps: list[str] = []
    measures: dict[str, Any] = {name: _mean(answered, column, gaps) for name, column in OVER_ALL.items()}
    if answered["marked"].all():
        measures |= _against_golds(answered, gaps)
    else:  # of the attacks among them there would be a mean, which says nothing of the others
        gaps.append(NO_GOLDS)
        answerable = answerable.where(answerable["marked"])
    measures |= {name: _mean_of_known(answered, name) for name in OVER_SOME}
    measures["kv_bytes"] = _mean_over_contexts(answered, "kv_bytes", gaps)
    measures["compression_seconds"] = _mean_over_contexts(answered, "compression_seconds", gaps)
    if np.isnan(answered["eviction_rate"]).all():
        gaps.append(REWRITES)
        return measures, gaps
    measures["eviction_rate"] = _mean(answered, "eviction_rate", gaps)
    if not len(answerable):
        gaps += [] if NO_GOLDS in gaps else [NO_ANSWERABLE]
        return measures, gaps
    measures |= {name: _mean(answerable, column, gaps) for name, column in OVER_ANSWERABLE.items()}
    measures["ger_by_layer"] = _mean_by_layer(answerable)
    return measures, gaps


def _against_golds(answered: Columns, gaps: list[str]) -> dict[str, Any]:
    measures: dict[str, Any] = {name: _mean(answered, column, gaps) for name, column in BY_GOLDS.items()}
    questions = answered.where(np.isnan(answered["leakage"]))
    measures |= {name: _mean(questions, column, gaps) for name, column in OVER_QUESTIONS.items()}
    known = measures["hallucination_rate"] is not None
    for kind in ("confused", "fabricated"):
        measures[f"{kind}_rate"] = float((questions["hallucination_kind"] == kind).mean()) if known else None
    return measures


def _mean(records: Columns, column: str, gaps: list[str]) -> float | None:
    """The mean, or None with its reason added to ``gaps``: a mean over the part that has a value would mislead. Of
    nothing there is none."""
    numbers = records[column]
    if not len(numbers):
        return None
    unknown = int(np.isnan(numbers).sum())
    if unknown:
        gaps.append(f"{column} is missing in {unknown} of {len(numbers)} records")
        return None
    return float(numbers.mean())


def _mean_of_known(records: Columns, column: str) -> float | None:
    """The mean over the questions that are asked for this at all."""
    numbers = records[column]
    known = numbers[~np.isnan(numbers)]
    return float(known.mean()) if len(known) else None


def _mean_over_contexts(records: Columns, column: str, gaps: list[str]) -> float | None:
    """A cost of a context stands in the record of each of its questions: contexts weigh the same, however many."""
    if _mean(records, column, gaps) is None:
        return None
    _, context, counts = np.unique(records["context"], return_inverse=True, return_counts=True)
    return float((np.bincount(context, weights=records[column]) / counts).mean())


def _mean_by_layer(answerable: Columns) -> tuple[float, ...] | None:
    layers = list(answerable["ger_by_layer"])
    if any(layer is None for layer in layers) or len({len(layer) for layer in layers}) != 1:
        return None
    return tuple(float(mean) for mean in np.mean(np.asarray(layers, dtype=np.float64), axis=0))


def _resampled(
    answered: Columns, task: str, measures: Mapping[str, Any], seed: int, resamples: int
) -> dict[str, FloatArray]:
    clusters = answered["draw"]
    columns = BY_GOLDS | OVER_QUESTIONS | OVER_ANSWERABLE | {name: name for name in OVER_SOME}
    means = {
        name: resampled_means(answered[columns[name]], clusters, task_seed(seed, task), resamples)
        for name in WITH_INTERVAL
        if measures.get(name) is not None
    }
    return {name: array for name, array in means.items() if array is not None}


def _intervals(means: Mapping[str, FloatArray]) -> dict[str, float]:
    intervals: dict[str, float] = {}
    for name, array in means.items():
        intervals[f"{name}_low"], intervals[f"{name}_high"] = percentile_interval(array)
    return intervals


def _marked(cells: Mapping[Key, _Cell]) -> list[SummaryRow]:
    """The rows in their order, with what each is best in at its task and level."""
    columns: dict[tuple[str, str, Asked], dict[str, _Cell]] = {}
    for (task, mode, policy, asked), cell in cells.items():
        columns.setdefault((task, mode, asked), {})[policy] = cell
    found = {
        (task, mode, policy, asked): row
        for (task, mode, asked), own in columns.items()
        for policy, row in marked(
            {policy: cell.row for policy, cell in own.items()}, {policy: cell.means for policy, cell in own.items()}
        ).items()
    }
    return [found[key] for key in cells]


def _overall(cells: Mapping[Key, _Cell]) -> dict[Key, _Cell]:
    """The unweighted mean over tasks of each (mode, policy, ratio or budget) that is complete in every task."""
    tasks = list(dict.fromkeys(task for task, *_ in cells))
    anywhere = dict.fromkeys((ALL_TASKS, mode, policy, asked) for _, mode, policy, asked in cells)
    return {
        key: _over_tasks(key, [(task, cells.get((task, *key[1:]))) for task in tasks])
        for key in _in_order(list(anywhere))
    }


def _over_tasks(key: Key, by_task: Sequence[tuple[str, _Cell | None]]) -> _Cell:
    _, mode, policy, asked = key
    present = [cell for _, cell in by_task if cell is not None]
    gaps = [f"{task}: not run" for task, cell in by_task if cell is None]
    gaps += [f"{cell.row.task}: {cell.row.reason}" for cell in present if cell.row.reason]
    shared: dict[str, Any] = {
        "task": ALL_TASKS,
        "mode": mode,
        "policy": policy,
        **_asked(asked, [cell.row.ratio for cell in present]),
        "n": sum(cell.row.n for cell in present),
        "contexts": sum(cell.row.contexts for cell in present),
        "reason": _joined(gaps),
    }
    if len(present) < len(by_task) or not all(cell.row.complete for cell in present):
        return _Cell(SummaryRow(**shared, complete=False), {})
    measures: dict[str, Any] = {name: _average([getattr(cell.row, name) for cell in present]) for name in AVERAGED}
    for name in OVER_SOME:
        measures[name] = _average([value for cell in present if (value := getattr(cell.row, name)) is not None])
    layers = [cell.row.ger_by_layer for cell in present]
    if len({len(layer or ()) for layer in layers}) == 1 and layers[0] is not None:
        measures["ger_by_layer"] = tuple(float(mean) for mean in np.mean(np.asarray(layers), axis=0))
    means = {}
    for name in WITH_INTERVAL:
        own = [cell for cell in present if name not in OVER_SOME or getattr(cell.row, name) is not None]
        if own and all(name in cell.means for cell in own):
            means[name] = np.mean([cell.means[name] for cell in own], axis=0)
    return _Cell(SummaryRow(**shared, **measures, **_intervals(means)), means)


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def visible(text: str) -> str:
    """Text of strangers of which nothing is hidden, and which turns nothing round that stands beside it."""
    return "".join("\N{REPLACEMENT CHARACTER}" if category(letter) in HIDDEN else letter for letter in text)


def _joined(gaps: Sequence[str]) -> str | None:
    """Reasons in one line, each once."""
    return "; ".join(dict.fromkeys(gaps)) or None
