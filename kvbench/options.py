"""What a run is asked to do, checked before anything is loaded."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Literal, TypeVar

from datasets_gen import Task, unknown_name
from kvbench.errors import KVBenchError

DEFAULT_RATIOS = "0.1:0.9:0.1"
MOST_RATIOS = 1000
MOST_TOKENS = 10_000_000
MOST_CONTEXTS = 1_000_000
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Mode = Literal["agnostic", "aware"]  # compressed before or after the question is seen
Scope = Literal["context", "system"]  # what is compressed: any context, or system prompts alone
Levels = tuple[tuple[float, ...], tuple[int, ...]]  # ratios and budgets, one of them empty
Entry = TypeVar("Entry")


def parse_ratios(text: str) -> tuple[float, ...]:
    """``0.1,0.5`` or ``0.1:0.9:0.1`` (first, last, step), ascending and each once.

    Counted in decimals: in floats 0.1 + 0.2 would ask for 0.30000000000000004, and keep one token less.
    """
    ratios: set[Decimal] = set()
    for part in text.split(","):
        numbers = [_decimal(number, text) for number in part.split(":")]
        if len(numbers) == 1:
            ratios.add(numbers[0])
        elif len(numbers) == 3:
            first, last, step = numbers
            if step <= 0 or last < first:
                raise KVBenchError(f"--ratios {text}: a range is first:last:step with a step above 0 and last >= first")
            if last - first > step * MOST_RATIOS:
                raise KVBenchError(f"--ratios {text}: that is more than {MOST_RATIOS} ratios: take a larger step")
            ratios.update(first + step * count for count in range(int((last - first) / step) + 1))
        else:
            raise KVBenchError(f"--ratios {text}: give numbers such as 0.1,0.5 or a range such as 0.1:0.9:0.1")
    for ratio in ratios:
        if not 0 <= float(ratio) < 1:
            raise KVBenchError(f"--ratios {text}: {ratio} is outside [0, 1): a ratio is the share of the cache removed")
    return tuple(sorted(float(ratio) + 0.0 for ratio in ratios))  # -0 is 0


def parse_budgets(text: str) -> tuple[int, ...]:
    """``64,128,256``, tokens to keep in every head, ascending and each once."""
    budgets = set()
    for part in text.split(","):
        if not part.strip().isdecimal() or not 0 < int(part) < MOST_TOKENS:
            raise KVBenchError(f"--budgets {text}: '{part.strip()}' is no count of tokens: give such as 64,128,256")
        budgets.add(int(part))
    return tuple(sorted(budgets))


def parse_levels(ratios: str | None, budgets: str | None, default: str = DEFAULT_RATIOS) -> Levels:
    """What policies are asked to reach: ratios, of which there are default ones, or budgets."""
    if ratios is not None and budgets is not None:
        raise KVBenchError("--ratios and --budgets are two ways to ask for the same: give one of them")
    if budgets is not None:
        return (), parse_budgets(budgets)
    return parse_ratios(default if ratios is None else ratios), ()


def _decimal(number: str, text: str) -> Decimal:
    try:
        value = Decimal(number.strip())
    except InvalidOperation as error:
        raise KVBenchError(f"--ratios {text}: '{number}' is not a number") from error
    if not value.is_finite() or value.adjusted() > 6 or value.as_tuple().exponent < -50:  # type: ignore[operator]
        raise KVBenchError(f"--ratios {text}: '{number}' is not a number")
    return value


def choose(
    kind: str, names: str | None, known: Mapping[str, Entry], if_named: Mapping[str, Entry] | None = None
) -> list[Entry]:
    """The registered entries of a comma-separated list, in its order, each once; all of them for ``None``, without
    those that take part only if they are named."""
    if names is None:
        return list(known.values())
    known = {**known, **(if_named or {})}
    asked: Sequence[str] = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not asked:
        raise KVBenchError(f"no {kind} given: name one of {', '.join(sorted(known))}")
    for name in asked:
        if name not in known:
            raise KVBenchError(unknown_name(kind, name, known))
    return [known[name] for name in asked]


def check_count(option: str, value: int) -> int:
    if not 1 <= value <= MOST_CONTEXTS:
        raise KVBenchError(f"{option} is 1 or more and at most {MOST_CONTEXTS:,}, not {value}")
    return value


def contexts_of(task: Task, profile: str, limit: int | None) -> int:
    """How many contexts of a task a profile takes, or a limit where one is given."""
    if profile not in task.contexts:
        raise KVBenchError(unknown_name("profile", profile, task.contexts))
    if limit is not None:
        if task.most is not None and limit > task.most:
            raise KVBenchError(f"--limit {limit}: {task.name} has {task.most:,} contexts, give so many at most")
        return check_count("--limit", limit)
    return next(contexts for name, contexts in task.contexts.items() if name == profile)


def with_answers_of(tasks: Sequence[Task], tokens: int | None) -> list[Task]:
    """The tasks with so many tokens at most for each answer, or with their own."""
    if tokens is None:
        return list(tasks)
    if not 1 <= tokens < MOST_TOKENS:
        raise KVBenchError(f"--max-new-tokens is 1 or more and below {MOST_TOKENS:,}, not {tokens}")
    return [replace(task, max_new_tokens=tokens) for task in tasks]


def check_name(name: str) -> str:
    """A run's name is the name of its folder."""
    if not RUN_NAME.fullmatch(name):
        raise KVBenchError(f"--name '{name}': use letters, digits, '.', '_' and '-', beginning with a letter or digit")
    return name


def cell_bound(seconds: float) -> float:
    """How long a press may take with one context."""
    if not math.isfinite(seconds) or seconds <= 0:
        raise KVBenchError(f"--cell-seconds is a time above 0 in seconds, not {seconds:g}")
    return seconds


def kv_bytes(gigabytes: float | None) -> int | None:
    """The bound on live keys and values in bytes; ``None`` is a share of what is free when the run starts."""
    if gigabytes is None:
        return None
    if not math.isfinite(gigabytes * 1e9) or gigabytes <= 0:
        raise KVBenchError(f"--max-kv-gb is a size above 0 in gigabytes, not {gigabytes}")
    return int(gigabytes * 1e9)
