"""The arguments that presses ran with, task by task, and whether they are those of their papers.

A window of 64 tokens would fill the budget of a short context alone, so some presses run with a
smaller one there. That is another press than the paper's, and is said wherever the policy is named.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame

from policies.composition import built_in

# Arguments that say how many of the last tokens a press looks at, or keeps whatever their scores
# are.
WINDOWS = ("window_size", "sliding_window_size", "n_recent", "recent")
LEAST_SHARE = 0.5  # of the paper's window, below which a press is another
Value = Any  # of an argument: a number, a truth value or a text


@dataclass(frozen=True)
class Arguments:
    """The arguments that a policy ran with on a task: ``used``, the values of all contexts,
    ascending, each once; ``paper``, kvpress's value of those that contexts may be too short for."""

    policy: str
    task: str
    used: Mapping[str, tuple[Value, ...]]
    paper: Mapping[str, float]

    @property
    def is_adapted(self) -> bool:
        """Tells whether some context was given another argument than the paper's."""
        return bool(self.others)

    @property
    def narrow(self) -> tuple[str, ...]:
        """Finds the windows of which even the largest is under half of the paper's, so that it is
        not ranked."""
        narrow = []
        for name in self.others:
            least = LEAST_SHARE * self.paper[name]
            if _end(name) in WINDOWS and max(self.used[name]) < least:
                narrow.append(name)
        return tuple(narrow)

    @property
    def text(self) -> str:
        """Writes all arguments, with the paper's values where they are others."""
        others = self.others
        parts = []
        for name, values in self.used.items():
            part = f"{name} {values_text(values)}"
            if name in others:
                part += f" (paper: {self.paper[name]:g})"
            parts.append(part)
        return ", ".join(parts)

    @property
    def others(self) -> list[str]:
        """Finds the arguments whose values are not all the paper's."""
        others = []
        for name, values in self.used.items():
            if name in self.paper and set(values) != {self.paper[name]}:
                others.append(name)
        return others


def values_text(values: Sequence[Value]) -> str:
    """Returns a value, both ends of several numbers, or all of what are no numbers.

    >>> values_text((2, 5, 11)), values_text((64,)), values_text(("mean",))
    ('2 to 11', '64', 'mean')
    """
    first, last = values[0], values[-1]
    if len(values) == 1:
        return f"{first:g}" if isinstance(first, float) else str(first)
    # Python counts True and False as integers, and “False to True” is no range.
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return f"{first:g} to {last:g}"
    return ", ".join(map(str, values))


def arguments_of_records(records: DataFrame) -> dict[tuple[str, str], Arguments]:
    """Reads, by policy and task, the arguments that each ran with; a policy without any has
    none."""
    by_key = {}
    columns = records[["policy", "task", "press_arguments"]].drop_duplicates().astype(str)
    # The same whatever the order of the records is.
    columns = columns.sort_values(list(columns.columns))
    grouped = columns.groupby(["policy", "task"], sort=False, observed=True)
    # Each text is what a press was built with for some contexts, as JSON.
    for (policy, task), texts in grouped["press_arguments"]:
        values: dict[str, list[Value]] = {}
        for text in texts:
            for name, value in json.loads(text).items():
                values.setdefault(name, []).append(value)
        used = {name: _distinct(of_name) for name, of_name in values.items()}
        paper = _paper_values(str(policy), list(used))
        by_key[str(policy), str(task)] = Arguments(str(policy), str(task), used, paper)
    return by_key


def _paper_values(policy: str, names: Sequence[str]) -> dict[str, float]:
    """Returns the paper's values of those arguments of a policy for which it declares one, by their
    whole name or by its last part; nothing of a plug-in."""
    declared = built_in(policy)
    if declared is None:
        return {}
    values = {}
    # A policy of several presses names an argument by its path, of which a paper may know the last
    # part.
    for name in names:
        for key in (name, _end(name)):
            if key in declared.paper_arguments:
                values[name] = declared.paper_arguments[key]
                break
    return values


def argument_rows(presses: Sequence[Arguments]) -> list[tuple[str, str, str]]:
    """Lists each policy, its arguments, and the tasks on which it ran with them."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for press in presses:
        if not press.used:
            continue
        parts = [press.text]
        if press.is_adapted:
            parts.append("adapted")
        if press.narrow:
            parts.append("window under half of the paper's")
        tasks.setdefault((press.policy, "; ".join(parts)), []).append(press.task)
    rows = []
    for (policy, arguments), names in tasks.items():
        rows.append((policy, arguments, ", ".join(names)))
    return rows


def adapted_presses(presses: Iterable[Arguments]) -> dict[str, str]:
    """Says by policy which arguments are not its paper's, such as ``window_size 5 to 10 instead of
    64``."""
    by_policy: dict[str, dict[tuple[str, float], list[Value]]] = {}
    for press in presses:
        for name in press.others:
            by_argument = by_policy.setdefault(press.policy, {})
            by_argument.setdefault((name, press.paper[name]), []).extend(press.used[name])
    texts = {}
    for policy, by_argument in by_policy.items():
        parts = []
        for (name, paper), values in by_argument.items():
            parts.append(f"{name} {values_text(_distinct(values))} instead of {paper:g}")
        texts[policy] = ", ".join(parts)
    return texts


def narrow_windows(presses: Sequence[Arguments]) -> str:
    """Says how narrow windows are, such as ``window 2 to 11 of 64``; empty where none is under half
    of the paper's."""
    by_paper: dict[float, list[Value]] = {}
    for press in presses:
        for name in press.narrow:
            by_paper.setdefault(press.paper[name], []).extend(press.used[name])
    parts = []
    for paper, values in by_paper.items():
        parts.append(f"window {values_text(_distinct(values))} of {paper:g}")
    return ", ".join(parts)


def _distinct(values: Sequence[Value]) -> tuple[Value, ...]:
    """Returns each value once, numbers in ascending order."""
    distinct = list(dict.fromkeys(values))
    if all(isinstance(value, int | float) for value in distinct):
        distinct.sort()
    return tuple(distinct)


def largest_window(arguments: Mapping[str, Value]) -> int:
    """Returns how many of the last tokens a press looks at or keeps by its arguments; 0 where none
    says so."""
    windows = [value for name, value in arguments.items() if _end(name) in WINDOWS]
    return max(windows, default=0)


def _end(name: str) -> str:
    return name.rpartition(".")[2]
