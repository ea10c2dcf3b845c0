"""Checks the options of a run before anything is loaded."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from datasets_gen import Task, at_level, unknown_name
from kvbench.engine.time_limit import DTYPES, MOST_STEPS, SAMPLING, NumericsOptions
from kvbench.store.run_file import MOST_CONTEXTS, MOST_REPEATS, MOST_TOKENS, Job
from kvbench.system.errors import KVBenchError
from policies import CONTROLS, KINDS, Level, LevelError, Point, Policy, points_of

AUTO = "auto"  # the highest level of each task that the model masters
QUICK = "quick"  # the profile of a run unless another is given
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Entry = TypeVar("Entry")


def parse_points(
    texts: Mapping[str, str], policies: Sequence[Policy], repeats: int = 1, comparing: bool = False
) -> tuple[Point, ...]:
    """Returns the levels of a run with the draws of each. ``texts``: what was given, by kind;
    ``repeats``: draws of random policies; ``comparing``: with the few default levels of a
    comparison. :class:`KVBenchError` for a text that names no levels, two kinds that one policy
    would take both, and a policy that takes none of what is given."""
    try:
        # Controls stand beside what is named: their levels are run for their own sake only where
        # nothing else is.
        named = [
            policy for policy in policies if policy.kinds and policy.name not in CONTROLS
        ] or policies
        kinds = tuple(texts) or tuple(
            dict.fromkeys(policy.kinds[0] for policy in named if policy.kinds)
        )
        given = texts or {kind: _default_levels(kind, policies, comparing) for kind in kinds}
        if not texts and (needed := [kind for kind, text in given.items() if not text]):
            raise KVBenchError(f"say at which levels: give {KINDS[needed[0]].option}")
        levels = [
            Level(kind, value) for kind, text in given.items() for value in KINDS[kind].parse(text)
        ]
    except LevelError as error:
        raise KVBenchError(str(error)) from error
    for policy in sorted(
        policies, key=lambda policy: policy.name in CONTROLS
    ):  # controls last: nobody named them
        _check_kinds(policy, kinds)
    if not 1 <= repeats <= MOST_REPEATS:
        raise KVBenchError(f"--repeats is 1 or more and at most {MOST_REPEATS}, not {repeats}")
    return points_of(levels, repeats)


def _default_levels(kind: str, policies: Sequence[Policy], comparing: bool) -> str:
    if comparing:
        return KINDS[kind].few
    taking = (policy for policy in policies if kind in policy.kinds)
    texts = dict.fromkeys(policy.default_levels.get(kind, KINDS[kind].default) for policy in taking)
    return ",".join(filter(None, texts)) or KINDS[kind].default


def _check_kinds(policy: Policy, kinds: Sequence[str]) -> None:
    options_by_kind = {kind: KINDS[kind].option for kind in kinds}
    taken = [option for kind, option in options_by_kind.items() if kind in policy.kinds]
    if len(taken) > 1:
        raise KVBenchError(
            f"{' and '.join(taken)} are two ways to ask {policy.name} for the same: give one of "
            f"them"
        )
    if policy.kinds and not taken and policy.name not in CONTROLS:
        options = " or ".join(KINDS[kind].option for kind in policy.kinds)
        raise KVBenchError(
            f"{policy.name} takes none of {', '.join(options_by_kind.values())}: give {options}"
        )


def choose(
    kind: str,
    names: str | None,
    known: Mapping[str, Entry],
    if_named: Mapping[str, Entry] | None = None,
    families: Mapping[str, Sequence[str]] | None = None,
) -> list[Entry]:
    """Finds the registered entries of a comma-separated list, in its order, each once; for ``None``
    it takes all of them, without those that take part only if they are named. The name of a family
    stands for the names in it."""
    if names is None:
        return list(known.values())
    known, families = {**known, **(if_named or {})}, families or {}
    words = (name.strip() for name in names.split(",") if name.strip())
    chosen: Sequence[str] = list(
        dict.fromkeys(name for word in words for name in families.get(word, (word,)))
    )
    if not chosen:
        raise KVBenchError(f"no {kind} given: name one of {', '.join(sorted(known))}")
    for name in chosen:
        if name not in known:
            raise KVBenchError(unknown_name(kind, name, {**known, **families}))
    return [known[name] for name in chosen]


def check_count(option: str, value: int) -> int:
    if not 1 <= value <= MOST_CONTEXTS:
        raise KVBenchError(f"{option} is 1 or more and at most {MOST_CONTEXTS:,}, not {value}")
    return value


def contexts_of(task: Task, profile: str, limit: int | None, of_suite: int | None = None) -> int:
    """Counts the contexts of a task by its profile, or by a limit; what a suite has may be more
    than there are."""
    if profile not in task.contexts:
        raise KVBenchError(unknown_name("profile", profile, task.contexts))
    if limit is not None:
        if task.most is not None and limit > task.most:
            raise KVBenchError(
                f"--limit {limit}: {task.name} has {task.most:,} contexts, give so many at most"
            )
        return check_count("--limit", limit)
    if of_suite is not None:
        return of_suite if task.most is None else min(of_suite, task.most)
    return next(contexts for name, contexts in task.contexts.items() if name == profile)


def with_answers_of(
    tasks: Sequence[Task], tokens: int | None, most_of_suite: int | None = None
) -> list[Task]:
    """Returns the tasks with answers of so many tokens, by default their own, and of no more than a
    suite has."""
    if tokens is None:
        if most_of_suite is None:
            return list(tasks)
        return [
            replace(task, max_new_tokens=min(task.max_new_tokens, most_of_suite)) for task in tasks
        ]
    if not 1 <= tokens < MOST_TOKENS:
        raise KVBenchError(f"--max-new-tokens is 1 or more and below {MOST_TOKENS:,}, not {tokens}")
    return [replace(task, max_new_tokens=tokens) for task in tasks]


def at_levels(tasks: Sequence[Task], difficulty: str | None) -> list[Task]:
    """Returns the tasks at the levels that ``--difficulty`` names: a number for all tasks, or
    ``base=2,hops=1``. A task that has fewer levels is asked at its highest, and so is one that is
    not named."""
    if difficulty in (None, AUTO):
        return list(tasks)
    leveled = {task.name: task for task in tasks if task.top_level > 0}
    if not leveled:
        names = ", ".join(task.name for task in tasks)
        raise KVBenchError(
            f"--difficulty {difficulty}: no task of this run ({names}) has levels: leave it out"
        )
    levels: dict[str, int] = {}
    is_of_all = re.fullmatch(r"\d{1,3}", difficulty.strip())
    for part in (
        [f"{name}={difficulty}" for name in leveled] if is_of_all else difficulty.split(",")
    ):
        name, equals, level = (text.strip() for text in part.partition("="))
        if not equals or not re.fullmatch(r"\d{1,3}", level):
            raise KVBenchError(
                f"--difficulty is a level, {AUTO}, or task=level,task=level, not '{difficulty}'"
            )
        if name not in leveled:
            raise KVBenchError(
                f"--difficulty {part.strip()}: {unknown_name('task with levels', name, leveled)}"
            )
        levels[name] = min(int(level), leveled[name].top_level)
    # The highest level is what a task has by itself: named or not, it is the same run.
    below = {task.name for task in tasks if levels.get(task.name, task.top_level) < task.top_level}
    return [at_level(task, levels[task.name]) if task.name in below else task for task in tasks]


def notes_on_levels(tasks: Sequence[Task], difficulty: str | None) -> list[str]:
    """Says which tasks are not asked at the level that ``--difficulty`` gives for all. ``tasks``:
    as they are registered, with all of their levels."""
    if difficulty is None or not re.fullmatch(r"\d{1,3}", difficulty.strip()):
        return []
    level, notes = int(difficulty), []
    without = [task.name for task in tasks if not task.top_level]
    if without:
        notes.append(
            f"--difficulty {level}: without levels, and asked as they are: {', '.join(without)}"
        )
    if lower := [f"{task.name} ({task.top_level})" for task in tasks if 0 < task.top_level < level]:
        notes.append(
            f"--difficulty {level}: asked at the highest level that they have: {', '.join(lower)}"
        )
    return notes


def numerics_options(job: Job, repeats: int, is_numerics: bool) -> NumericsOptions:
    """Checks the options of the study of numerics; :class:`KVBenchError` where another run is given
    any."""
    is_set = job.deterministic is not None
    arguments = {"dtypes": job.dtypes, "sampling": job.sampling, "deterministic": is_set}
    for name, value in arguments.items():
        if value and not is_numerics:
            raise KVBenchError(f"{name} is for --suite numerics: give that too")
    default, steps = NumericsOptions(), job.max_new_tokens
    if steps is not None and steps > MOST_STEPS and is_numerics:
        raise KVBenchError(
            f"--max-new-tokens {steps}: numerics are measured over {MOST_STEPS} tokens at most"
        )
    dtypes = tuple(choose("dtype", job.dtypes, DTYPES)) if job.dtypes else default.dtypes
    sampling = tuple(choose("sampling", job.sampling or None, {way: way for way in SAMPLING}))
    return NumericsOptions(dtypes, sampling, repeats, steps, job.deterministic is not False)


def check_tolerance(points: float | None) -> None:
    if points is not None and not 0 < points < 100:
        raise KVBenchError(
            f"--tolerance is a number of points above 0 and below 100, such as 5, not {points:g}"
        )


def check_name(name: str) -> str:
    if not RUN_NAME.fullmatch(name):
        raise KVBenchError(
            f"--name '{name}': use letters, digits, '.', '_' and '-', beginning with a letter or "
            f"digit"
        )
    return name


def check_above_zero(option: str, value: float) -> float:
    if not math.isfinite(value * 1e9) or value <= 0:
        raise KVBenchError(f"{option} is a number above 0, not {value:g}")
    return value


def kv_bytes(gigabytes: float | None) -> int | None:
    """Returns the bound on live keys and values in bytes; ``None`` is a share of what is free when
    the run starts."""
    return None if gigabytes is None else int(check_above_zero("--max-kv-gb", gigabytes) * 1e9)
