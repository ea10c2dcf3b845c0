"""Turns records, one per question, into the rows of a board. It rounds nothing and averages nothing
incomplete."""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from unicodedata import category

import numpy as np
from pandas import DataFrame, factorize, isna

from leaderboards.aggregate.attacks import SCORES, enters_means
from leaderboards.aggregate.by_context import ByContext, by_context, interval_columns
from leaderboards.aggregate.leading_measures import (
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
from leaderboards.statistics.context_sums import sum_values_present
from policies.declaration.levels import Level, Point
from policies.declaration.names import FULL

REWRITES = "not applicable: the policy rewrites the cache"
# Of the full cache, which rewrites nothing, and of bytes and times that no answer has.
UNSEEN = "not measured: the cache cannot be seen, only what is answered from it"
NO_ANSWERABLE = "no answerable question"
NO_TWIN = "the full cache was not run on every question"
NO_GOLDS = "no gold answers: see the directives"
NOT_RUN = "not run yet"
ONE_CONTEXT = "no interval from one context"

HIDDEN = ("Cc", "Cf")  # control and format characters, those for direction among them
CELL = ("task", "mode", "policy", "level")
QUESTION = ("example_id", "question_id")
LEVEL = ("level_kind", "level", "repeat", "ratio")
# What a board needs beside the columns that measures read; leakage tells which questions are
# attacks.
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
_READ: dict[str, None] = {}
for _measure in MEASURES.values():
    _READ |= dict.fromkeys(_measure.reads)
READ = tuple(_READ)
# All that a summary reads of the records.
COLUMNS = tuple(dict.fromkeys((*LEVEL, "task", "mode", "policy", *QUESTION, *OTHERS, *READ)))
NUMBERS = tuple(
    name for name in READ if name in METRICS and METRICS[name].type in (float, int, bool)
)

# By what they are taken over, the measures that are one number; others are one for each layer.
MEASURES_OVER: dict[Over, list[Measure]] = {over: [] for over in Over}
for _measure in MEASURES.values():
    if not _measure.by_layer:
        MEASURES_OVER[_measure.over].append(_measure)


Key = tuple[str, str, str, Level]


@dataclass(frozen=True)
class SummaryCell:
    """A row, and by column of it the values by context of the measures that have an interval, one
    for each task that it is of."""

    row: SummaryRow
    by_context: Mapping[str, Sequence[ByContext]]


class _Sample(NamedTuple):
    """The answers of a cell that some measures are taken over."""

    answers: Columns
    # Of each of MEASURES_OVER, NaN where an answer has none, shape (measures, answers).
    numbers: FloatArray


Samples = Mapping[Over, _Sample | str]


@dataclass(frozen=True)
class PlannedCells:
    """Holds the cells that a run is planned to have, so that a summary can say what is missing."""

    mode: str
    contexts: Mapping[str, int]  # by task
    policies: Mapping[str, Sequence[Point]]  # the levels and draws of each
    # By task, percent right of a guess without the text.
    chances: Mapping[str, float] = field(default_factory=dict)
    # The tasks of policies that do not run on all.
    covered: Mapping[str, Sequence[str]] = field(default_factory=dict)
    every_task: bool = False  # whether tasks that the model cannot do enter the mean over tasks too

    def keys(self) -> list[Key]:
        """Lists the cells, task by task."""
        keys: dict[Key, None] = {}
        for task in self.contexts:
            for policy, points in self.policies.items():
                if task not in self.covered.get(policy, self.contexts):
                    continue
                for point in points:
                    keys[task, self.mode, policy, point.level] = None
        return list(keys)

    def repeats(self, policy: str) -> int:
        """Counts the draws of a policy at each level."""
        points = self.policies.get(policy, ())
        return 1 + max((point.repeat for point in points), default=0)


def summarise(
    records: DataFrame,
    planned: PlannedCells | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[SummaryRow]:
    """Makes one row per (task, mode, policy, level), then the mean over tasks of each as task
    ``all``.

    Rows come in the order in which tasks, modes and policies first appear, levels ascending. A
    complete cell has as many draws of each question, so that a mean over its answers is the mean
    over questions of their means, in every resample too. A cell with a failed or missing record is
    incomplete: its measures are None and ``reason`` says why. Of a run that was cut short only
    ``planned`` knows what is missing. A task that the model cannot do with the full cache ranks
    nobody and enters no mean over tasks, unless the plan asks for it or the model can do none. The
    same records and seed give the same rows.

    Raises :class:`LeaderboardError` where the records lack a column, answer a question twice, or
    name a task ``all``."""
    silence = {}
    if {"directives", "abstentions"} <= set(records.columns):
        silence = obeyed_by_silence(records)
    records = _check(records)
    # Sums of floats depend on their order, and rows shall not: a run that was resumed holds its
    # records in another.
    in_order_of_questions = records.sort_values(list(QUESTION), kind="stable")
    columns = Columns.of(with_full(in_order_of_questions))
    # Once for all records: a cell picks its columns from these arrays.
    numbers = {}
    for over, measures in MEASURES_OVER.items():
        of_measures = []
        for measure in measures:
            of_measures.append(_numbers(columns, measure))
        numbers[over] = np.stack(of_measures)
    by_key: dict[Key, Columns] = {}
    for key, places in groups(in_order_of_questions, CELL):
        by_key[_key(key)] = columns.at(places)
    nothing = columns.at(np.arange(0))
    # The plan first, so that cells which no record has yet stand in their order, with the reason
    # why.
    keys: dict[Key, None] = {}
    if planned:
        keys |= dict.fromkeys(planned.keys())
    appeared = records[list(CELL)].drop_duplicates()
    keys |= dict.fromkeys(map(_key, appeared.itertuples(index=False)))
    questions = _count_questions(records)
    cells = {}
    for key in in_order(list(keys)):
        expected = _Complete(questions.get(key[:2], 0))
        if planned:
            contexts = planned.contexts.get(key[0])
            expected = _Complete(expected.questions, contexts, planned.repeats(key[2]))
        # A cell without a record is made of nothing, and says that it was not run.
        cells[key] = _cell(key, by_key.get(key, nothing), numbers, expected, seed, resamples)
    chances = planned.chances if planned else {}
    every_task = planned is not None and planned.every_task
    # In this order: the mean over tasks leaves out what the model cannot do, and leaders are marked
    # in that mean too.
    cells = _judge_cells(cells, chances, silence)
    cells |= _over_tasks(cells, every_task)
    return _mark_leaders(cells, every_task)


def _key(values: tuple[Any, ...]) -> Key:
    task, mode, policy, level = values
    return str(task), str(mode), str(policy), level


def _count_questions(records: DataFrame) -> dict[tuple[str, ...], int]:
    """Counts the questions of each task and mode that any cell answered."""
    counts: dict[tuple[str, ...], int] = {}
    for (task, mode), group in records.groupby(["task", "mode"], sort=False, observed=True):
        distinct = group[list(QUESTION)].drop_duplicates()
        counts[str(task), str(mode)] = len(distinct)
    return counts


def _judge_cells(
    cells: Mapping[Key, SummaryCell],
    chances: Mapping[str, float],
    silence: Mapping[tuple[str, str], float],
) -> dict[Key, SummaryCell]:
    """Says of each cell what chance and silence reach in its task, and why the model cannot do it,
    if so."""
    full = {}
    for (task, mode, policy, _), cell in cells.items():
        if policy == FULL:
            full[task, mode] = cell.row
    judged: dict[Key, SummaryCell] = {}
    for key, cell in cells.items():
        board = key[:2]
        chance, obeyed = chances.get(board[0]), silence.get(board)
        update = {
            "chance": chance,
            "obeyed_by_silence": obeyed,
            "not_mastered": not_mastered(full.get(board), chance, obeyed),
        }
        judged[key] = replace(cell, row=cell.row.model_copy(update=update))
    return judged


def _check(records: DataFrame) -> DataFrame:
    """Returns the records with their levels, and with columns of numbers for questions, contexts
    and draws.

    Raises :class:`LeaderboardError` if no board can be made of them."""
    missing = [name for name in COLUMNS if name not in records.columns]
    if missing:
        raise LeaderboardError(
            f"the records lack the columns {', '.join(missing)}: score the run again"
        )
    # Columns become numbers once, and not for each of a thousand cells.
    numbers = dict.fromkeys(("ratio", *NUMBERS), np.float64)
    records = with_levels(records[list(COLUMNS)].astype(numbers))
    enters = enters_means(records)  # no mean is over attacks of two kinds
    scores = {name: records[name].where(enters) for name in SCORES}
    questions = records.groupby(list(QUESTION), sort=False, observed=True)
    records = records.assign(
        context=factorize(records["example_id"])[0],
        question=questions.ngroup(),
        draw=factorize(records["draw_id"], sort=True)[0],
        marked=records["golds"].map(len) > 0,
        attacked=records["leakage"].notna(),
        **scores,
    )
    twice = records.duplicated([*CELL, *QUESTION, "repeat"])
    if twice.any():
        first = records[twice].iloc[0]
        question = f"question {first['question_id']} of {first['example_id']}"
        cell = f"{first['policy']} at {first['level'].where}"
        raise LeaderboardError(f"{question} was answered twice by {cell}: keep one record of each")
    if (records["task"] == ALL_TASKS).any():
        raise LeaderboardError(
            f"a task is named '{ALL_TASKS}', which is the mean over tasks: give it another name"
        )
    return records


class _Complete(NamedTuple):
    """Counts the answers that a cell has once it is complete."""

    questions: int  # that other cells of the task answered
    contexts: int | None = None  # as planned; None where there is no plan
    repeats: int | None = None


def _cell(
    key: Key,
    group: Columns,
    numbers: Mapping[Over, FloatArray],
    expected: _Complete,
    seed: int,
    resamples: int,
) -> SummaryCell:
    # Without a plan a draw that is missing everywhere cannot be seen.
    repeats = expected.repeats or int(group["repeat"].max(initial=0)) + 1
    answered = group.where(group["status"] == "ok")
    contexts = len(np.unique(answered["context"]))
    ratios: list[float | None] = []
    for ratio in group["ratio"]:
        ratios.append(None if isna(ratio) else float(ratio))
    shared: dict[str, Any] = {
        **_place_columns(key, ratios),
        "repeats": repeats,
        "n": len(np.unique(answered["question"])),
        "contexts": contexts,
        "fewest_contexts": _fewest_contexts(answered),
    }
    # Before any measure: of an incomplete cell a mean would be over other questions than its
    # neighbours'.
    gap = _incomplete(group, expected, repeats)
    if gap:
        return SummaryCell(SummaryRow(**shared, complete=False, reason=gap), {})
    samples: dict[Over, _Sample | str] = {}
    for over in Over:
        answers = _answers_over(answered, over)
        if isinstance(answers, str):
            samples[over] = answers
        else:
            samples[over] = _Sample(answers, numbers[over][:, answers.places])
    measures, gaps = _measures(samples)
    values = _by_context(samples, measures, task_seed(seed, key[0]), resamples)
    if contexts < 2:
        gaps.append(ONE_CONTEXT)
    stated = samples[Over.STATEMENTS]
    if isinstance(stated, _Sample):
        measures["answers_given"] = int(np.nansum(stated.answers["answered"]))
    columns = {**shared, **measures, **interval_columns(values)}
    return SummaryCell(SummaryRow(**columns, reason=join_reasons(gaps)), values)


def _fewest_contexts(answered: Columns) -> int:
    """Counts the contexts of the leading measure with the fewest; without directives all
    contexts."""
    contexts = answered["context"]
    counts = []
    for measure in DIRECTIVES.measures:
        has_value = ~np.isnan(_numbers(answered, measure))
        if has_value.any():
            counts.append(len(np.unique(contexts[has_value])))
    return min(counts, default=len(np.unique(contexts)))


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
        first = "no reason was recorded"
        for reason in failed["reason"]:
            if not isna(reason):
                first = visible(str(reason))
                break
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
        for measure in MEASURES.values():
            if measure.over is not over or not measure.by_layer:
                continue
            layers = list(sample.answers[measure.reads[0]])
            if over is Over.CONCERNED:
                layers = [layer for layer in layers if isinstance(layer, Sized)]
            measures[measure.field] = _mean_by_layer(layers)
    return measures, gaps


def _answers_over(cell: Columns, over: Over) -> Columns | str:
    """Returns the questions that some measures are taken over, or why there are none."""
    marked = cell["marked"]
    if over is Over.GOLDS and marked.all():
        return cell
    if over in (Over.GOLDS, Over.STATEMENTS):
        statements = cell.where(marked & ~cell["attacked"])
        return statements if len(statements) else NO_GOLDS
    if over not in (Over.CACHE, Over.ANSWERABLE):
        return cell
    # What rewrites rows has no keep mask, and so no eviction rate of any question.
    if np.isnan(cell["eviction_rate"]).all():
        return UNSEEN if _is_unseen(cell) else REWRITES
    if over is Over.CACHE:
        return cell
    answerable = cell.where(cell["answerable"].astype(bool) & marked)
    if len(answerable):
        return answerable
    return NO_ANSWERABLE if marked.all() else NO_GOLDS


def _is_unseen(cell: Columns) -> bool:
    """Tells whether nothing is known of the cache of some answers: the full cache rewrites no row,
    and would have an eviction rate of 0."""
    is_full = bool((cell["policy"] == FULL).all())
    return is_full and bool(np.isnan(cell["eviction_rate"]).all())


def _value(
    sample: Columns, measure: Measure, numbers: FloatArray, has_twins: bool, gaps: list[str]
) -> float | None:
    """Computes a measure, or None with its reason added to ``gaps``: a mean over the part that has
    a value would mislead, unless it is taken over just that part. Of nothing there is none.
    ``has_twins``: whether the full cache was run on every question."""
    has_value = ~np.isnan(numbers)
    column = measure.reads[0]
    if measure.paired and not has_twins:
        # What concerns none of these questions needs no reason for being blank.
        if measure.over is not Over.CONCERNED or not np.isnan(sample[column]).all():
            gaps.append(NO_TWIN)
        return None
    if measure.over is Over.CONCERNED:
        sample, numbers = sample.where(has_value), numbers[has_value]
    elif not has_value.all():
        missing = len(has_value) - int(has_value.sum())
        if missing == len(has_value) and _is_unseen(sample):
            gaps.append(UNSEEN)
            return None
        gaps.append(f"{column} is missing in {missing} of {len(has_value)} records")
        return None
    if not len(numbers):
        return None
    if measure.weights is not None:
        total = float(measure.weights(sample).sum())
        if total:
            return float(numbers.sum()) / total
        if measure.undefined:
            gaps.append(measure.undefined)
        return None
    if measure.over is Over.CONTEXTS:
        # What is a property of a context counts once for it, however many questions are about it.
        by_context = sum_values_present(numbers, sample["context"])
        means = by_context.sums / by_context.counts
        return float(means.mean())
    mean = numbers.sum() / len(numbers)
    if measure.of_mean is not None:
        mean = measure.of_mean(mean)
    return float(mean)


def _numbers(sample: Columns, measure: Measure) -> FloatArray:
    """Returns the number of each question, shape (questions,), NaN where it has none."""
    if measure.values is not None:
        return measure.values(sample)
    numbers: FloatArray = sample[measure.reads[0]]
    return numbers


def _mean_by_layer(layers: Sequence[Any]) -> tuple[float, ...] | None:
    """Averages values by layer; None unless all have as many layers."""
    counts = set()
    for layer in layers:
        if not isinstance(layer, Sized):
            return None
        counts.add(len(layer))
    if len(counts) != 1:
        return None
    means = np.mean(np.asarray(layers, dtype=np.float64), axis=0)
    return tuple(means.tolist())


def _by_context(
    samples: Samples, measures: Mapping[str, Any], seed: int, resamples: int
) -> dict[str, Sequence[ByContext]]:
    """Sums up by context each measure that has an interval, by column of the row."""
    values: dict[str, Sequence[ByContext]] = {}
    for over, sample in samples.items():
        if isinstance(sample, str):
            continue
        for measure, numbers in zip(MEASURES_OVER[over], sample.numbers, strict=True):
            if not measure.has_interval or measures[measure.field] is None:
                continue
            weights = None
            if measure.weights is not None:
                weights = measure.weights(sample.answers)
            draws = sample.answers["draw"]
            means = by_context(measure, numbers, draws, weights, seed, resamples)
            if means.contexts > 1:
                values[measure.field] = (means,)
    return values


def _mark_leaders(cells: Mapping[Key, SummaryCell], every_task: bool) -> list[SummaryRow]:
    """Marks who is best in each column; nobody where the model cannot do the task, unless
    ``every_task`` counts."""
    columns: dict[tuple[str, str, Level], dict[str, SummaryCell]] = {}
    for (task, mode, policy, level), cell in cells.items():
        columns.setdefault((task, mode, level), {})[policy] = cell
    marked: dict[Key, SummaryRow] = {}
    for (task, mode, level), column in columns.items():
        rows = {}
        values = {}
        is_judged = True
        for policy, cell in column.items():
            rows[policy] = cell.row
            values[policy] = cell.by_context
            if cell.row.not_mastered:
                is_judged = False
        if not (every_task or is_judged):
            # Nobody is ranked without values; the rows pass through as they are.
            values = {}
        for policy, row in mark_leaders(rows, values).items():
            marked[task, mode, policy, level] = row
    return [marked[key] for key in cells]


def visible(text: str) -> str:
    """Replaces control characters in texts of strangers, which would hide or turn round what stands
    beside them."""
    hidden = {letter for letter in text if category(letter) in HIDDEN}
    for letter in hidden:
        text = text.replace(letter, "\N{REPLACEMENT CHARACTER}")
    return text


def _over_tasks(cells: Mapping[Key, SummaryCell], every_task: bool) -> dict[Key, SummaryCell]:
    """Computes the unweighted mean over tasks of each (mode, policy, level) that is complete in
    every task that counts: those that the model can do. Where it can do none it is the mean over
    all, which says so."""
    counted: dict[str, _CountedTasks] = {}
    anywhere: dict[Key, None] = {}
    for _, mode, policy, level in cells:
        if mode not in counted:
            counted[mode] = _counted_tasks(cells, mode, every_task)
        anywhere[ALL_TASKS, mode, policy, level] = None
    means = {}
    for key in in_order(list(anywhere)):
        of_mode = counted[key[1]]
        by_task = {}
        for task in of_mode.tasks:
            by_task[task] = cells.get((task, *key[1:]))
        means[key] = _mean_over_tasks(key, by_task, of_mode)
    return means


@dataclass(frozen=True)
class _CountedTasks:
    """Holds the tasks that enter the mean over tasks of a mode."""

    tasks: Sequence[str]
    chance: float | None  # the mean over those with right answers; None where nobody guesses any
    not_mastered: str | None  # why the mean ranks nobody


def _counted_tasks(cells: Mapping[Key, SummaryCell], mode: str, every_task: bool) -> _CountedTasks:
    tasks: dict[str, None] = {}
    rows = []
    last_rows = {}
    excluded = set()
    for (task, of_mode, *_), cell in cells.items():
        # Of any mode: a task that this mode did not run leaves its mean blank.
        tasks[task] = None
        if of_mode != mode:
            continue
        rows.append(cell.row)
        last_rows[task] = cell.row
        if cell.row.not_mastered and not every_task:
            excluded.add(task)
    # Where the model can do none the mean is over all, and says so.
    counted = [task for task in tasks if task not in excluded] or list(tasks)
    # A task of needles, which nobody guesses, counts in the mean as any other; one without right
    # answers does not.
    chances = []
    for task, row in last_rows.items():
        # An incomplete row has no measures, which does not say that its task has no right answers.
        has_right_answers = RIGHT.value(row) is not None or not row.complete
        if has_right_answers and task in counted:
            chances.append(row.chance or 0.0)
    chance = _average(chances) if any(chances) else None
    reason = None if every_task else none_mastered(rows)
    return _CountedTasks(counted, chance, reason)


def _mean_over_tasks(
    key: Key, by_task: Mapping[str, SummaryCell | None], counted: _CountedTasks
) -> SummaryCell:
    present = []
    rows = []
    not_run = []
    reasons = []
    for task, cell in by_task.items():
        if cell is None:
            not_run.append(f"{task}: not run")
            continue
        present.append(cell)
        rows.append(cell.row)
        if cell.row.reason:
            reasons.append(f"{task}: {cell.row.reason}")
    shared: dict[str, Any] = {
        **_place_columns(key, [row.ratio for row in rows]),
        "repeats": max((row.repeats for row in rows), default=1),
        "n": sum(row.n for row in rows),
        "contexts": sum(row.contexts for row in rows),
        "fewest_contexts": min((row.fewest_contexts for row in rows), default=0),
        "mean_of": tuple(by_task),
        "not_mastered": counted.not_mastered,
        "chance": counted.chance,
        "reason": join_reasons([*not_run, *reasons]),
    }
    is_whole = all(row.complete for row in rows)
    if not present or not_run or not is_whole:
        return SummaryCell(SummaryRow(**shared, complete=False), {})
    measures, by_context = _mean_measures(present)
    answers_given = [row.answers_given for row in rows if row.answers_given is not None]
    measures["answers_given"] = min(answers_given, default=None)
    columns = {**shared, **measures, **interval_columns(by_context)}
    return SummaryCell(SummaryRow(**columns), by_context)


def _mean_measures(
    cells: Sequence[SummaryCell],
) -> tuple[dict[str, Any], dict[str, Sequence[ByContext]]]:
    """Averages each measure over complete cells of several tasks, and joins their values by
    context; both by column of the row."""
    means: dict[str, Any] = {}
    by_context: dict[str, Sequence[ByContext]] = {}
    for name, measure in MEASURES.items():
        values = []
        parts: list[ByContext] = []
        every_task_has_parts = True
        for cell in cells:
            value = getattr(cell.row, name)
            if value is None and measure.over is Over.CONCERNED:
                # A task without directives is no reason to say nothing of the others.
                continue
            values.append(value)
            of_task = cell.by_context.get(name, ())
            parts += of_task
            if not of_task:
                every_task_has_parts = False
        means[name] = _mean_by_layer(values) if measure.by_layer else _average(values)
        if parts and every_task_has_parts:
            by_context[name] = parts
    return means, by_context


def _average(values: Sequence[float | None]) -> float | None:
    """Returns the mean; None of nothing, and where a value is missing."""
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        return None
    return sum(numbers) / len(numbers)


def in_order(keys: Sequence[Key]) -> list[Key]:
    """Sorts keys: tasks, modes and policies as they first appear, levels ascending."""
    tasks: dict[str, int] = {}
    modes: dict[str, int] = {}
    policies: dict[str, int] = {}
    for task, mode, policy, _ in keys:
        tasks.setdefault(task, len(tasks))
        modes.setdefault(mode, len(modes))
        policies.setdefault(policy, len(policies))

    def place(key: Key) -> tuple[int, int, int, Level]:
        task, mode, policy, level = key
        return tasks[task], modes[mode], policies[policy], level

    return sorted(keys, key=place)


def _place_columns(key: Key, ratios: Sequence[float | None]) -> dict[str, Any]:
    """Returns the columns of a row that say where it stands. ``ratios``: the shares to remove of
    its contexts."""
    task, mode, policy, level = key
    ratio = level.fixed_share
    if ratio is None:
        ratio = _average(ratios)
    return {
        "task": task,
        "mode": mode,
        "policy": policy,
        "level_kind": level.kind,
        "level": level.value,
        "ratio": ratio,
    }


def join_reasons(gaps: Sequence[str]) -> str | None:
    """Joins reasons, each once; None of none."""
    return "; ".join(dict.fromkeys(gaps)) or None
