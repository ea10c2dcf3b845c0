"""Turns records, one per question, into the rows of a board. It rounds nothing and averages nothing incomplete."""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from unicodedata import category

import numpy as np
from pandas import DataFrame, factorize, isna

from leaderboards.aggregate.attacks import SCORES, enters_means
from leaderboards.aggregate.by_context import ByContext, by_context, intervals_of
from leaderboards.aggregate.lead import (
    DIRECTIVES,
    mark_leaders,
    none_mastered,
    not_mastered,
    obeyed_by_silence,
)
from leaderboards.aggregate.row import ALL_TASKS, RIGHT, SummaryRow
from leaderboards.errors import LeaderboardError
from leaderboards.metrics import MEASURES, METRICS, Measure, Over
from leaderboards.statistics.bootstrap import RESAMPLES, FloatArray, task_seed
from leaderboards.statistics.columns import FULL_PLACE, Columns, groups, with_full, with_levels
from policies.declaration.levels import Level, Point
from policies.declaration.names import FULL

REWRITES = "not applicable: the policy rewrites the cache"
NO_ANSWERABLE = "no answerable question"
NO_TWIN = "the full cache was not run on every question"
NO_GOLDS = "no gold answers: see the directives"
NOT_RUN = "not run yet"
ONE_CONTEXT = "no interval from one context"

HIDDEN = ("Cc", "Cf")  # control and format characters, those for direction among them
CELL = ("task", "mode", "policy", "level")
QUESTION = ("example_id", "question_id")
LEVEL = ("level_kind", "level", "repeat", "ratio")
# What a board needs beside the columns that measures read; leakage tells which questions are attacks.
OTHERS = (
    "draw_id",
    "status",
    "reason",
    "answerable",
    "golds",
    "eviction_rate",
    "leakage",
    "whole_prompt",
)
READ = tuple(dict.fromkeys(column for measure in MEASURES.values() for column in measure.reads))
# All that a summary reads of the records.
COLUMNS = tuple(dict.fromkeys((*LEVEL, "task", "mode", "policy", *QUESTION, *OTHERS, *READ)))
NUMBERS = tuple(
    name for name in READ if name in METRICS and METRICS[name].type in (float, int, bool)
)

# By what they are taken over, the measures that are one number; others are one for each layer.
MEASURES_OVER = {
    over: [one for one in MEASURES.values() if one.over is over and not one.by_layer]
    for over in Over
}


Key = tuple[str, str, str, Level]


@dataclass(frozen=True)
class SummaryCell:
    """A row, and by column of it the values by context of the measures that have an interval, one for each task that
    it is of."""

    row: SummaryRow
    by_context: Mapping[str, Sequence[ByContext]]


class _Sample(NamedTuple):
    """The answers of a cell that some measures are taken over."""

    answers: Columns
    numbers: FloatArray  # of each of MEASURES_OVER, NaN where an answer has none, shape (measures, answers)


Samples = Mapping[Over, _Sample | str]


@dataclass(frozen=True)
class PlannedCells:
    mode: str
    contexts: Mapping[str, int]  # by task
    policies: Mapping[str, Sequence[Point]]  # the levels and draws of each
    chances: Mapping[str, float] = field(
        default_factory=dict
    )  # by task, percent right of a guess without the text
    covered: Mapping[str, Sequence[str]] = field(
        default_factory=dict
    )  # the tasks of policies that do not run on all
    every_task: bool = False  # whether tasks that the model cannot do enter the mean over tasks too

    def keys(self) -> list[Key]:
        return [
            (task, self.mode, policy, level)
            for task in self.contexts
            for policy, points in self.policies.items()
            if task in self.covered.get(policy, self.contexts)
            for level in dict.fromkeys(point.level for point in points)
        ]

    def repeats(self, policy: str) -> int:  # draws at each level
        return 1 + max((point.repeat for point in self.policies.get(policy, ())), default=0)


def summarise(
    records: DataFrame,
    planned: PlannedCells | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[SummaryRow]:
    """Makes one row per (task, mode, policy, level), then the mean over tasks of each as task ``all``.

    In the order in which tasks, modes and policies first appear, levels ascending. A complete cell has as many draws of
    each question, so that a mean over its answers is the mean over questions of their means, in every resample too. A
    cell with a failed or missing record is incomplete: its measures are None and ``reason`` says why. Of a run that was
    cut short only ``planned`` knows what is missing. A task that the model cannot do with the full cache ranks nobody
    and enters no mean over tasks, unless the plan asks for it or the model can do none. The same records and seed give
    the same rows.
    """
    silence = (
        obeyed_by_silence(records) if {"directives", "abstentions"} <= set(records.columns) else {}
    )
    records = _check(records)
    questions = {
        (str(task), str(mode)): len(group[list(QUESTION)].drop_duplicates())
        for (task, mode), group in records.groupby(["task", "mode"], sort=False, observed=True)
    }
    appeared = records[list(CELL)].drop_duplicates().itertuples(index=False)
    # Sums of floats depend on their order, and rows shall not: a run that was resumed holds its records in another.
    in_order_of_questions = records.sort_values(list(QUESTION), kind="stable")
    columns = Columns.of(with_full(in_order_of_questions))
    numbers = {
        over: np.stack([_numbers(columns, one) for one in MEASURES_OVER[over]]) for over in Over
    }
    nothing = columns.at(np.arange(0))
    columns_by_key: dict[Key, Columns] = {
        (str(task), str(mode), str(policy), level): columns.at(places)
        for (task, mode, policy, level), places in groups(in_order_of_questions, CELL)
    }
    in_records = [
        (str(task), str(mode), str(policy), level) for task, mode, policy, level in appeared
    ]
    keys = dict.fromkeys([*(planned.keys() if planned else ()), *in_records])
    cells = {}
    for key in in_order(list(keys)):
        expected = _Complete(
            questions.get(key[:2], 0),
            planned.contexts.get(key[0]) if planned else None,
            planned.repeats(key[2]) if planned else None,
        )
        cells[key] = _cell(
            key, columns_by_key.get(key, nothing), numbers, expected, seed, resamples
        )
    cells = _judge_cells(cells, planned.chances if planned else {}, silence)
    every_task = planned is not None and planned.every_task
    cells |= _over_tasks(cells, every_task)
    return _mark_leaders(cells, every_task)


def _judge_cells(
    cells: Mapping[Key, SummaryCell],
    chances: Mapping[str, float],
    silence: Mapping[tuple[str, str], float],
) -> dict[Key, SummaryCell]:
    """Says of each cell what chance and silence reach in its task, and why the model cannot do it, if so."""
    wholes = {key[:2]: cell.row for key, cell in cells.items() if key[2] == FULL}
    judged = {
        board: {
            "chance": chances.get(board[0]),
            "obeyed_by_silence": silence.get(board),
            "not_mastered": not_mastered(
                wholes.get(board), chances.get(board[0]), silence.get(board)
            ),
        }
        for board in {key[:2] for key in cells}
    }
    return {
        key: replace(cell, row=cell.row.model_copy(update=judged[key[:2]]))
        for key, cell in cells.items()
    }


def _check(records: DataFrame) -> DataFrame:
    """Returns the records with their levels; raises if no board can be made of them."""
    missing = [name for name in COLUMNS if name not in records.columns]
    if missing:
        raise LeaderboardError(
            f"the records lack the columns {', '.join(missing)}: score the run again"
        )
    numbers = dict.fromkeys(
        ("ratio", *NUMBERS), np.float64
    )  # once, and not for each of a thousand cells
    records = records[list(COLUMNS)].astype(numbers)
    records = with_levels(records).assign(context=factorize(records["example_id"])[0])
    records = records.assign(
        question=records.groupby(list(QUESTION), sort=False, observed=True).ngroup()
    )
    records = records.assign(
        draw=factorize(records["draw_id"], sort=True)[0], marked=records["golds"].map(len) > 0
    )
    enters = enters_means(records)  # no mean is over attacks of two kinds
    records = records.assign(
        attacked=records["leakage"].notna(),
        **{name: records[name].where(enters) for name in SCORES},
    )
    twice = records.duplicated([*CELL, *QUESTION, "repeat"])
    if twice.any():
        first = records[twice].iloc[0]
        raise LeaderboardError(
            f"question {first['question_id']} of {first['example_id']} was answered twice by {first['policy']} "
            f"at {first['level'].where}: keep one record of each"
        )
    if (records["task"] == ALL_TASKS).any():
        raise LeaderboardError(
            f"a task is named '{ALL_TASKS}', which is the mean over tasks: give it another name"
        )
    return records


class _Complete(NamedTuple):
    """Counts the answers that a cell has once it is complete."""

    questions: int  # that other cells of the task answered
    contexts: int | None  # as planned; None where there is no plan
    repeats: int | None


def _cell(
    key: Key,
    group: Columns,
    numbers: Mapping[Over, FloatArray],
    expected: _Complete,
    seed: int,
    resamples: int,
) -> SummaryCell:
    repeats = expected.repeats or int(group["repeat"].max(initial=0)) + 1
    answered = group.where(group["status"] == "ok")
    shared: dict[str, Any] = {
        **_place_of(key, [None if isna(ratio) else float(ratio) for ratio in group["ratio"]]),
        "repeats": repeats,
        "n": len(np.unique(answered["question"])),
        "contexts": len(np.unique(answered["context"])),
        "fewest_contexts": _fewest_contexts(answered),
    }
    gap = _incomplete(group, expected, repeats)
    if gap:
        return SummaryCell(SummaryRow(**shared, complete=False, reason=gap), {})
    samples = {
        over: answers
        if isinstance(answers, str)
        else _Sample(answers, numbers[over][:, answers.places])
        for over, answers in ((over, _answers_over(answered, over)) for over in Over)
    }
    measures, gaps = _measures(samples)
    values = _by_context(samples, measures, task_seed(seed, key[0]), resamples)
    if shared["contexts"] < 2:
        gaps.append(ONE_CONTEXT)
    stated = samples[Over.STATEMENTS]
    given = int(np.nansum(stated.answers["answered"])) if isinstance(stated, _Sample) else None
    row = SummaryRow(
        **shared, **measures, **intervals_of(values), answers_given=given, reason=join_reasons(gaps)
    )
    return SummaryCell(row, values)


def _fewest_contexts(answered: Columns) -> int:
    """Counts the contexts of the leading measure with the fewest; without directives all contexts."""
    known = [~np.isnan(_numbers(answered, measure)) for measure in DIRECTIVES.measures]
    contexts = [len(np.unique(answered["context"][there])) for there in known if there.any()]
    return min(contexts, default=len(np.unique(answered["context"])))


def _incomplete(group: Columns, expected: _Complete, repeats: int) -> str | None:
    """Says why a cell may enter no mean."""
    if not len(group):
        return NOT_RUN
    gaps = []
    expected_answers = expected.questions * repeats
    there = len(np.unique(group["context"]))
    if expected.contexts is not None and there < expected.contexts:
        gaps.append(f"{expected.contexts - there} of {expected.contexts} contexts are not run yet")
    failed = group.where(group["status"] != "ok")
    if len(failed):
        reasons = (visible(str(reason)) for reason in failed["reason"] if not isna(reason))
        first = next(reasons, "no reason was recorded")
        gaps.append(f"{len(failed)} of {expected_answers} answers failed: {first}")
    if len(group) < expected_answers:
        gaps.append(f"{expected_answers - len(group)} of {expected_answers} answers have no record")
    return join_reasons(gaps)


def _measures(samples: Samples) -> tuple[dict[str, Any], list[str]]:
    """Computes the measures of a complete cell, by column of the row, and why some are None."""
    gaps: list[str] = []
    measures: dict[str, Any] = {}
    for over, sample in samples.items():
        if isinstance(sample, str):
            gaps.append(sample)
            continue
        has_twins = bool((sample.answers[FULL_PLACE] >= 0).all())
        for measure, numbers in zip(MEASURES_OVER[over], sample.numbers, strict=True):
            measures[measure.field] = _value(sample.answers, measure, numbers, has_twins, gaps)
        by_layer = (one for one in MEASURES.values() if one.over is over and one.by_layer)
        for measure in by_layer:
            layers = list(sample.answers[measure.reads[0]])
            if over is Over.CONCERNED:
                layers = [layer for layer in layers if isinstance(layer, Sized)]
            measures[measure.field] = _mean_by_layer(layers)
    return measures, gaps


def _answers_over(cell: Columns, over: Over) -> Columns | str:
    """Returns the questions that some measures are taken over, or why there are none."""
    if over in (Over.GOLDS, Over.STATEMENTS):
        is_attack = cell["attacked"]
        if over is Over.GOLDS and cell["marked"].all():
            return cell
        facts = cell.where(cell["marked"] & ~is_attack)
        return facts if len(facts) else NO_GOLDS
    if over in (Over.CACHE, Over.ANSWERABLE):
        if np.isnan(cell["eviction_rate"]).all():
            return REWRITES
        if over is Over.ANSWERABLE:
            answerable = cell.where(cell["answerable"].astype(bool) & cell["marked"])
            return (
                answerable
                if len(answerable)
                else NO_ANSWERABLE
                if cell["marked"].all()
                else NO_GOLDS
            )
    return cell


def _value(
    sample: Columns, measure: Measure, numbers: FloatArray, has_twins: bool, gaps: list[str]
) -> float | None:
    """Computes a measure, or None with its reason added to ``gaps``: a mean over the part that has a value would
    mislead, unless it is taken over just that part. Of nothing there is none. ``has_twins``: whether the full cache
    was run on every question."""
    known = ~np.isnan(numbers)
    if measure.paired and not has_twins:
        if measure.over is not Over.CONCERNED or not np.isnan(sample[measure.reads[0]]).all():
            gaps.append(NO_TWIN)
        return None
    if measure.over is Over.CONCERNED:
        sample, numbers = sample.where(known), numbers[known]
    elif not known.all():
        column = measure.reads[0]
        gaps.append(
            f"{column} is missing in {len(known) - int(known.sum())} of {len(known)} records"
        )
        return None
    if not len(numbers):
        return None
    if measure.weights is not None:
        total = float(measure.weights(sample).sum())
        if not total and measure.undefined:
            gaps.append(measure.undefined)
        return float(numbers.sum()) / total if total else None
    if measure.over is Over.CONTEXTS:
        _, context, counts = np.unique(sample["context"], return_inverse=True, return_counts=True)
        return float((np.bincount(context, weights=numbers) / counts).mean())
    mean = numbers.sum() / len(numbers)
    return float(mean if measure.of_mean is None else measure.of_mean(mean))


def _numbers(sample: Columns, measure: Measure) -> FloatArray:
    """Returns the number of each question, NaN where it has none."""
    numbers: FloatArray = (
        sample[measure.reads[0]] if measure.values is None else measure.values(sample)
    )
    return numbers


def _mean_by_layer(layers: Sequence[Any]) -> tuple[float, ...] | None:
    """Averages values by layer; None unless all have as many layers."""
    if (
        not all(isinstance(layer, Sized) for layer in layers)
        or len({len(layer) for layer in layers}) != 1
    ):
        return None
    return tuple(float(mean) for mean in np.mean(np.asarray(layers, dtype=np.float64), axis=0))


def _by_context(
    samples: Samples, measures: Mapping[str, Any], seed: int, resamples: int
) -> dict[str, Sequence[ByContext]]:
    """Sums up by context each measure that has an interval, by column of the row."""
    values: dict[str, Sequence[ByContext]] = {}
    for over, sample in samples.items():
        if isinstance(sample, str):
            continue
        for measure, numbers in zip(MEASURES_OVER[over], sample.numbers, strict=True):
            if measure.has_interval and measures[measure.field] is not None:
                weights = None if measure.weights is None else measure.weights(sample.answers)
                one = by_context(measure, numbers, sample.answers["draw"], weights, seed, resamples)
                if one.contexts > 1:
                    values[measure.field] = (one,)
    return values


def _mark_leaders(cells: Mapping[Key, SummaryCell], every_task: bool) -> list[SummaryRow]:
    """Marks who is best in each column; nobody where the model cannot do the task, unless ``every_task`` counts."""
    columns: dict[tuple[str, str, Level], dict[str, SummaryCell]] = {}
    for (task, mode, policy, level), cell in cells.items():
        columns.setdefault((task, mode, level), {})[policy] = cell
    marked: dict[Key, SummaryRow] = {}
    for (task, mode, level), column in columns.items():
        rows = {policy: cell.row for policy, cell in column.items()}
        ranked = every_task or not any(row.not_mastered for row in rows.values())
        values = {policy: cell.by_context for policy, cell in column.items() if ranked}
        marked |= {
            (task, mode, policy, level): row for policy, row in mark_leaders(rows, values).items()
        }
    return [marked[key] for key in cells]


def visible(text: str) -> str:
    """Replaces control characters in texts of strangers, which would hide or turn round what stands beside them."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if category(letter) in HIDDEN else letter for letter in text
    )


def _over_tasks(cells: Mapping[Key, SummaryCell], every_task: bool) -> dict[Key, SummaryCell]:
    """Computes the unweighted mean over tasks of each (mode, policy, level) that is complete in every task that
    counts: those that the model can do. Where it can do none it is the mean over all, which says so."""
    tasks = dict.fromkeys(task for task, *_ in cells)
    modes = dict.fromkeys(mode for _, mode, *_ in cells)
    excluded = {key[:2] for key, cell in cells.items() if cell.row.not_mastered and not every_task}
    counted = {
        mode: [task for task in tasks if (task, mode) not in excluded] or list(tasks)
        for mode in modes
    }
    by_mode = {mode: [cell.row for key, cell in cells.items() if key[1] == mode] for mode in modes}
    reasons = {
        mode: None if every_task else none_mastered(of_mode) for mode, of_mode in by_mode.items()
    }
    # A task of needles, which nobody guesses, counts in the mean as any other; one without right answers does not.
    rows = {(mode, task): cell.row for (task, mode, *_), cell in cells.items()}
    answered = {
        place: row
        for place, row in rows.items()
        if RIGHT.value(row) is not None or not row.complete
    }
    chances = {
        mode: [
            row.chance or 0.0
            for (of_mode, task), row in answered.items()
            if of_mode == mode and task in tasks
        ]
        for mode, tasks in counted.items()
    }
    anywhere = dict.fromkeys((ALL_TASKS, mode, policy, level) for _, mode, policy, level in cells)
    means = {}
    for key in in_order(list(anywhere)):
        by_task = [(task, cells.get((task, *key[1:]))) for task in counted[key[1]]]
        means[key] = _mean_over_tasks(key, by_task, chances[key[1]], reasons[key[1]])
    return means


def _mean_over_tasks(
    key: Key,
    by_task: Sequence[tuple[str, SummaryCell | None]],
    chances: Sequence[float],
    unmastered: str | None,
) -> SummaryCell:
    present = [cell for _, cell in by_task if cell is not None]
    gaps = [f"{task}: not run" for task, cell in by_task if cell is None]
    gaps += [f"{cell.row.task}: {cell.row.reason}" for cell in present if cell.row.reason]
    shared: dict[str, Any] = {
        **_place_of(key, [cell.row.ratio for cell in present]),
        "repeats": max((cell.row.repeats for cell in present), default=1),
        "n": sum(cell.row.n for cell in present),
        "contexts": sum(cell.row.contexts for cell in present),
        "fewest_contexts": min((cell.row.fewest_contexts for cell in present), default=0),
        "mean_of": tuple(task for task, _ in by_task),
        "not_mastered": unmastered,
        "chance": _average(chances) if any(chances) else None,
        "reason": join_reasons(gaps),
    }
    if not present or len(present) < len(by_task) or not all(cell.row.complete for cell in present):
        return SummaryCell(SummaryRow(**shared, complete=False), {})
    measures: dict[str, Any] = {}
    parts: dict[str, Sequence[ByContext]] = {}
    for name, measure in MEASURES.items():
        # A task without directives is no reason to say nothing of the others.
        counted = [
            c
            for c in present
            if measure.over is not Over.CONCERNED or getattr(c.row, name) is not None
        ]
        values = [getattr(cell.row, name) for cell in counted]
        measures[name] = _mean_by_layer(values) if measure.by_layer else _average(values)
        if counted and all(name in cell.by_context for cell in counted):
            parts[name] = [one for cell in counted for one in cell.by_context[name]]
    given = [cell.row.answers_given for cell in present if cell.row.answers_given is not None]
    columns = {**shared, **measures, **intervals_of(parts)}
    return SummaryCell(SummaryRow(**columns, answers_given=min(given, default=None)), parts)


def _average(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def in_order(keys: Sequence[Key]) -> list[Key]:
    """Sorts keys: tasks, modes and policies as they first appear, levels ascending."""
    tasks, modes, policies = (list(dict.fromkeys(key[part] for key in keys)) for part in range(3))
    return sorted(
        keys,
        key=lambda key: (tasks.index(key[0]), modes.index(key[1]), policies.index(key[2]), key[3]),
    )


def _place_of(key: Key, ratios: Sequence[float | None]) -> dict[str, Any]:
    """Returns the columns of a row that say what it is of. ``ratios``: the shares to remove of its contexts."""
    task, mode, policy, level = key
    ratio = _average(ratios) if level.fixed_share is None else level.fixed_share
    place = {
        "task": task,
        "mode": mode,
        "policy": policy,
        "level_kind": level.kind,
        "level": level.value,
    }
    return {**place, "ratio": ratio}


def join_reasons(gaps: Sequence[str]) -> str | None:
    return "; ".join(dict.fromkeys(gaps)) or None
