"""Answers some cells of a run again, which finds what no number of a record shows: exchanged policies, and answers of
one policy under the name of another."""

import math
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from kvbench.checks.findings import Finding, finding_of, note, unchecked
from kvbench.checks.submission.reading import Submission, place_of
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.experiments.identify import device_name, package_versions
from kvbench.experiments.setting import Setting
from kvbench.store.record import Record
from policies import Point
from policies.composition import built_in

Cell = tuple[str, int, str, Point]  # task, context, policy, level and draw
SAME_ANYWHERE = ("ended", "press_arguments", "realised_ratio", "kept_tokens", "kv_bytes", "output_token_ids")
FEW = 0.1  # of the answers: on another machine rounding parts a few of two close tokens
CLOSE = 1e-6


def replay(submission: Submission, count: int) -> Iterator[Finding]:
    """Answers so many cells again, drawn at random so that nobody knows which, and compares each with its records."""
    cells: dict[Cell, list[Record]] = defaultdict(list)
    for answer in submission.answers:
        record = answer.record
        if record.task in submission.tasks and record.status == "ok" and built_in(record.policy):
            cells[record.task, answer.question.example_index, record.policy, record.point].append(record)
    if foreign := {answer.record.policy for answer in submission.answers if not built_in(answer.record.policy)}:
        yield unchecked("replay", f"no answer of {', '.join(sorted(foreign))} was given again: its code is not run")
    if submission.tokenizer is None or not cells:
        yield unchecked(
            "replay", "no answer was given again: the model of the run, its tasks or its policies are not here"
        )
        return
    chosen = random.SystemRandom().sample(sorted(cells), min(count, len(cells)))
    faults = [fault for cell in chosen for fault in _differences(submission, cell, cells[cell])]
    answers = sum(len(cells[cell]) for cell in chosen)
    identity = submission.identity
    here = (device_name(submission.model.device), package_versions(), True)
    is_elsewhere = here != (identity.device, identity.packages, submission.of_this_code)
    if faults and is_elsewhere and len(faults) < FEW * answers:
        yield note("replay", f"{len(faults)} of {answers} answers differ, as rounding does elsewhere: {faults[0]}")
        return
    yield finding_of("replay", f"{len(chosen)} cells, {answers} answers given again as they are stored", faults)


def _differences(submission: Submission, cell: Cell, stored: Sequence[Record]) -> Iterator[str]:
    """Names every stored record of a cell that is another when it is made again."""
    task_name, index, policy, point = cell
    identity = submission.identity
    longest = {task.name: task.max_new_tokens for task in identity.tasks}
    task = replace(submission.tasks[task_name], max_new_tokens=longest[task_name])
    setting = Setting([find_policy(policy)], (point,), identity.seed, identity.mode, scope=identity.scope)
    grid = Grid([(task, index + 1)], setting, identity.held_out)
    rows = collect(submission.model, task, [grid.example(task, index)], setting, partial(grid.donor, task))
    anew = {record.question_id: record for record in rows.records}
    for record in stored:
        for name in SAME_ANYWHERE:
            said, made = getattr(record, name), getattr(anew.get(record.question_id), name, None)
            if not (math.isclose(said, made, abs_tol=CLOSE) if isinstance(made, float) else said == made):
                yield f"{place_of(record)}: {name} is {said!r:.60}, made again it is {made!r:.60}"
                break
