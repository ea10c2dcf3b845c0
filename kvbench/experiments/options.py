"""Checks the options of a run before anything is loaded."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from datasets_gen import Task, at_level, unknown_name
from kvbench.engine.time_limit import (
    DIRECTIONS,
    DTYPES,
    MOST_STEPS,
    SAMPLING,
    NumericsOptions,
)
from kvbench.store.run_file import MOST_CONTEXTS, MOST_REPEATS, MOST_TOKENS, Job
from kvbench.system.errors import KVBenchError
from policies import CONTROLS, LEVEL_KINDS, Level, LevelError, Point, Policy, list_points

AUTO = "auto"  # the highest level of each task that the model masters
LEVEL = re.compile(r"\d{1,3}")  # of a task
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Entry = TypeVar("Entry")


def parse_points(
    texts: Mapping[str, str], policies: Sequence[Policy], repeats: int = 1, comparing: bool = False
) -> tuple[Point, ...]:
    """Returns the levels of a run with the draws of each. ``texts``: what was given, by kind;
    ``repeats``: draws of random policies; ``comparing``: with the few default levels of a
    comparison. Raises :class:`KVBenchError` for a text that names no levels, two kinds that one policy
    would take both, and a policy that takes none of what is given."""
    try:
        # Controls stand beside what is named: their levels are run for their own sake only where
        # nothing else is.
        named = [policy for policy in policies if policy.kinds and policy.name not in CONTROLS]
        text_by_kind = dict(texts)
        if not texts:
            for policy in named or policies:
                if policy.kinds:
                    kind = policy.kinds[0]
                    text_by_kind[kind] = _default_levels(kind, policies, comparing)
            for kind, text in text_by_kind.items():
                if not text:
                    raise KVBenchError(f"say at which levels: give {LEVEL_KINDS[kind].option}")
        levels = parse_levels(text_by_kind)
    except LevelError as error:
        raise KVBenchError(str(error)) from error
    # Controls last: nobody named them.
    for policy in sorted(policies, key=lambda policy: policy.name in CONTROLS):
        _check_kinds(policy, list(text_by_kind))
    if not 1 <= repeats <= MOST_REPEATS:
        raise KVBenchError(f"--repeats is 1 or more and at most {MOST_REPEATS}, not {repeats}")
    return list_points(levels, repeats)


def parse_levels(texts: Mapping[str, str]) -> list[Level]:
    """Reads levels from the texts of their options, by kind. Raises :class:`LevelError`."""
    levels: list[Level] = []
    for kind, text in texts.items():
        levels += [Level(kind, value) for value in LEVEL_KINDS[kind].parse(text)]
    return levels


def _default_levels(kind: str, policies: Sequence[Policy], comparing: bool) -> str:
    """Joins the default levels of the policies that take a kind, each text once."""
    default = LEVEL_KINDS[kind].default
    if comparing:
        return LEVEL_KINDS[kind].few
    texts: list[str] = []
    for policy in policies:
        if kind in policy.kinds:
            text = policy.levels.defaults.get(kind, default)
            if text and text not in texts:
                texts.append(text)
    return ",".join(texts) or default


def _check_kinds(policy: Policy, kinds: Sequence[str]) -> None:
    """Raises :class:`KVBenchError` for a policy that takes several of these kinds, or none."""
    options: list[str] = []
    taken: list[str] = []
    for kind in kinds:
        options.append(LEVEL_KINDS[kind].option)
        if kind in policy.kinds:
            taken.append(LEVEL_KINDS[kind].option)
    if len(taken) > 1:
        raise KVBenchError(
            f"{' and '.join(taken)} are two ways to ask {policy.name} for the same: give one of "
            f"them"
        )
    if policy.kinds and not taken and policy.name not in CONTROLS:
        advice = " or ".join(LEVEL_KINDS[kind].option for kind in policy.kinds)
        raise KVBenchError(f"{policy.name} takes none of {', '.join(options)}: give {advice}")


def choose(
    kind: str,
    names: str | None,
    by_default: Mapping[str, Entry],
    if_named: Mapping[str, Entry] | None = None,
    families: Mapping[str, Sequence[str]] | None = None,
) -> list[Entry]:
    """Finds the registered entries of a comma-separated list, in its order, each once; for ``None``
    it takes all of them, without those that take part only if they are named. The name of a family
    stands for the names in it. Raises :class:`KVBenchError` for a list of none, and for a name that
    is not registered."""
    if names is None:
        return list(by_default.values())
    registered = {**by_default, **(if_named or {})}
    families = families or {}
    chosen: dict[str, None] = {}
    for text in names.split(","):
        word = text.strip()
        if word:
            chosen |= dict.fromkeys(families.get(word, (word,)))
    if not chosen:
        raise KVBenchError(f"no {kind} given: name one of {', '.join(sorted(registered))}")
    for name in chosen:
        if name not in registered:
            raise KVBenchError(unknown_name(kind, name, {**registered, **families}))
    return [registered[name] for name in chosen]


def check_count(option: str, value: int) -> int:
    """Returns the number. Raises :class:`KVBenchError` where it is no number of contexts."""
    if not 1 <= value <= MOST_CONTEXTS:
        raise KVBenchError(f"{option} is 1 or more and at most {MOST_CONTEXTS:,}, not {value}")
    return value


def count_contexts(
    task: Task,
    profile: str,
    limit: int | None,
    of_suite: int | None = None,
    of_task: int | None = None,
) -> int:
    """Counts the contexts of a task: by its own limit, which stands in its brackets, by that of the
    run, by its suite, which may have more than there are, or by its profile. Raises
    :class:`KVBenchError` for another profile, and a limit that is too high or too low."""
    if profile not in task.contexts:
        raise KVBenchError(unknown_name("profile", profile, task.contexts))
    if of_task is not None:
        return _check_limit(task, f"{task.name}(limit={of_task})", of_task)
    if limit is not None:
        return _check_limit(task, f"--limit {limit}", limit)
    if of_suite is None:
        return next(contexts for name, contexts in task.contexts.items() if name == profile)
    if task.most is None:
        return of_suite
    return min(of_suite, task.most)


def _check_limit(task: Task, written: str, limit: int) -> int:
    if task.most is not None and limit > task.most:
        raise KVBenchError(
            f"{written}: {task.name} has {task.most:,} contexts, give so many at most"
        )
    return check_count(written.partition(" ")[0], limit)


def limit_answers(
    tasks: Sequence[Task], tokens: int | None, most_of_suite: int | None = None
) -> list[Task]:
    """Returns the tasks with answers of so many tokens, by default their own, and of no more than a
    suite has. Raises :class:`KVBenchError` for a number that no answer can have."""
    if tokens is not None:
        if not 1 <= tokens < MOST_TOKENS:
            raise KVBenchError(
                f"--max-new-tokens is 1 or more and below {MOST_TOKENS:,}, not {tokens}"
            )
        return [replace(task, max_new_tokens=tokens) for task in tasks]
    if most_of_suite is None:
        return list(tasks)
    limited: list[Task] = []
    for task in tasks:
        longest = min(task.max_new_tokens, most_of_suite)
        limited.append(replace(task, max_new_tokens=longest))
    return limited


def at_levels(tasks: Sequence[Task], difficulty: str | None) -> list[Task]:
    """Returns the tasks at the levels that ``--difficulty`` names: a number for all tasks, or
    ``base=2,hops=1``. A task that has fewer levels is asked at its highest, and so is one that is
    not named. Raises :class:`KVBenchError` for another text, and where no task has levels."""
    if difficulty in (None, AUTO):
        return list(tasks)
    leveled = {task.name: task for task in tasks if task.top_level > 0}
    if not leveled:
        names = ", ".join(task.name for task in tasks)
        raise KVBenchError(
            f"--difficulty {difficulty}: no task of this run ({names}) has levels: leave it out"
        )
    parts = difficulty.split(",")
    if LEVEL.fullmatch(difficulty.strip()):
        parts = [f"{name}={difficulty}" for name in leveled]
    levels: dict[str, int] = {}
    for part in parts:
        name, equals, level = map(str.strip, part.partition("="))
        if not equals or not LEVEL.fullmatch(level):
            raise KVBenchError(
                f"--difficulty is a level, {AUTO}, or task=level,task=level, not '{difficulty}'"
            )
        if name not in leveled:
            raise KVBenchError(
                f"--difficulty {part.strip()}: {unknown_name('task with levels', name, leveled)}"
            )
        levels[name] = min(int(level), leveled[name].top_level)
    # The highest level is what a task has by itself: named or not, it is the same run.
    leveled_tasks: list[Task] = []
    for task in tasks:
        level_of_task = levels.get(task.name, task.top_level)
        if level_of_task < task.top_level:
            leveled_tasks.append(at_level(task, level_of_task))
        else:
            leveled_tasks.append(task)
    return leveled_tasks


def notes_on_levels(tasks: Sequence[Task], difficulty: str | None) -> list[str]:
    """Says which tasks are not asked at the level that ``--difficulty`` gives for all. ``tasks``:
    as they are registered, with all of their levels."""
    if difficulty is None or not LEVEL.fullmatch(difficulty.strip()):
        return []
    level = int(difficulty)
    without: list[str] = []
    lower: list[str] = []
    for task in tasks:
        if not task.top_level:
            without.append(task.name)
        elif task.top_level < level:
            lower.append(f"{task.name} ({task.top_level})")
    notes: list[str] = []
    if without:
        names = ", ".join(without)
        notes.append(f"--difficulty {level}: without levels, and asked as they are: {names}")
    if lower:
        names = ", ".join(lower)
        notes.append(f"--difficulty {level}: asked at the highest level that they have: {names}")
    return notes


def numerics_options(job: Job, repeats: int, is_numerics: bool) -> NumericsOptions:
    """Checks the options of the study of numerics. Raises :class:`KVBenchError` where another run
    is given any."""
    is_given = {
        "dtypes": bool(job.dtypes),
        "sampling": bool(job.sampling),
        "deterministic": job.deterministic is not None,
        "directions": bool(job.directions),
    }
    for option in is_given:
        if is_given[option] and not is_numerics:
            raise KVBenchError(f"{option} is for --suite numerics: give that too")
    steps = job.max_new_tokens
    if is_numerics and steps is not None and steps > MOST_STEPS:
        raise KVBenchError(
            f"--max-new-tokens {steps}: numerics are measured over {MOST_STEPS} tokens at most"
        )
    dtypes = NumericsOptions().dtypes
    if job.dtypes:
        dtypes = tuple(choose("dtype", job.dtypes, DTYPES))
    sampling = tuple(choose("sampling", job.sampling or None, {way: way for way in SAMPLING}))
    directions = tuple(
        choose("direction", job.directions or None, {way: way for way in DIRECTIONS})
    )
    is_deterministic = job.deterministic is not False
    return NumericsOptions(dtypes, sampling, repeats, steps, is_deterministic, directions)


def check_tolerance(points: float | None) -> None:
    """Raises :class:`KVBenchError` for a loss in points that no level could be safe of."""
    if points is not None and not 0 < points < 100:
        raise KVBenchError(
            f"--tolerance is a number of points above 0 and below 100, such as 5, not {points:g}"
        )


def check_name(name: str) -> str:
    """Returns the name of a run. Raises :class:`KVBenchError` where it is no name of a folder."""
    if not RUN_NAME.fullmatch(name):
        raise KVBenchError(
            f"--name '{name}': use letters, digits, '.', '_' and '-', beginning with a letter or "
            f"digit"
        )
    return name


def check_above_zero(option: str, value: float) -> float:
    """Returns the number. Raises :class:`KVBenchError` where it is not above 0, or not finite."""
    # Times 1e9, as gigabytes become bytes: what is finite before may be infinite then.
    if not math.isfinite(value * 1e9) or value <= 0:
        raise KVBenchError(f"{option} is a number above 0, not {value:g}")
    return value


def kv_bytes(gigabytes: float | None) -> int | None:
    """Returns the bound on live keys and values in bytes; ``None`` is a share of what is free when
    the run starts."""
    if gigabytes is None:
        return None
    return int(check_above_zero("--max-kv-gb", gigabytes) * 1e9)
