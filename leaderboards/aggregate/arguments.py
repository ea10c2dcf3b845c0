"""The arguments that presses ran with, task by task, and whether they are those of their papers.

A window of 64 tokens would fill the budget of a short context alone, so some presses run with a smaller one there. That
is another press than the paper's, and is said wherever the policy is named.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pandas import DataFrame

from policies.composition import built_in

# Arguments that say how many of the last tokens a press looks at, or keeps whatever their scores are.
WINDOWS = ("window_size", "sliding_window_size", "n_recent", "recent")
LEAST_SHARE = 0.5  # of the paper's window, below which a press is another
Value = Any  # of an argument: a number, a truth value or a text


@dataclass(frozen=True)
class Arguments:
    """The arguments that a policy ran with on a task: ``used``, the values of all contexts, ascending, each once;
    ``paper``, kvpress's value of those that contexts may be too short for."""

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
        """Finds the windows of which even the largest is under half of the paper's, so that it is not ranked."""
        windows = [name for name in self.others if _end(name) in WINDOWS]
        return tuple(
            name for name in windows if max(self.used[name]) < LEAST_SHARE * self.paper[name]
        )

    @property
    def text(self) -> str:
        """Writes all arguments, with the paper's values where they are others."""
        papers = {name: f" (paper: {self.paper[name]:g})" for name in self.others}
        return ", ".join(
            f"{name} {values_text(used)}{papers.get(name, '')}" for name, used in self.used.items()
        )

    @property
    def others(self) -> list[str]:
        """Finds the arguments whose values are not all the paper's."""
        return [
            name
            for name, values in self.used.items()
            if name in self.paper and set(values) != {self.paper[name]}
        ]


def values_text(values: Sequence[Value]) -> str:
    """Returns a value, both ends of several numbers, or all of what are no numbers.

    >>> values_text((2, 5, 11)), values_text((64,)), values_text(("mean",))
    ('2 to 11', '64', 'mean')
    """
    first, last = values[0], values[-1]
    if len(values) == 1:
        return f"{first:g}" if isinstance(first, float) else str(first)
    numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )
    return f"{first:g} to {last:g}" if numbers else ", ".join(map(str, values))


def arguments_of_records(records: DataFrame) -> dict[tuple[str, str], Arguments]:
    """Reads, by policy and task, the arguments that each ran with; a policy without any has none."""
    by_key = {}
    columns = records[["policy", "task", "press_arguments"]].drop_duplicates().astype(str)
    columns = columns.sort_values(
        list(columns.columns)
    )  # the same whatever the order of the records is
    for (policy, task), texts in columns.groupby(["policy", "task"], sort=False, observed=True)[
        "press_arguments"
    ]:
        each = [json.loads(text) for text in texts]
        names = dict.fromkeys(name for arguments in each for name in arguments)
        used = {
            name: _distinct([arguments[name] for arguments in each if name in arguments])
            for name in names
        }
        declared = built_in(str(policy))  # none of a plug-in
        paper = declared.paper_arguments if declared else {}
        known = {
            name: paper[name if name in paper else _end(name)]
            for name in names
            if {name, _end(name)} & set(paper)
        }
        by_key[str(policy), str(task)] = Arguments(str(policy), str(task), used, known)
    return by_key


def argument_rows(presses: Sequence[Arguments]) -> list[tuple[str, str, str]]:
    """Lists each policy, its arguments, and the tasks on which it ran with them."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for one in (one for one in presses if one.used):
        marks = ["adapted"] * one.is_adapted + ["window under half of the paper's"] * bool(
            one.narrow
        )
        arguments = "; ".join([one.text, *marks])
        tasks.setdefault((one.policy, arguments), []).append(one.task)
    return [(policy, arguments, ", ".join(names)) for (policy, arguments), names in tasks.items()]


def adapted_presses(presses: Iterable[Arguments]) -> dict[str, str]:
    """Says by policy which arguments are not its paper's, such as ``window_size 5 to 10 instead of 64``."""
    by_policy: dict[str, dict[tuple[str, float], list[Value]]] = {}
    for one in presses:
        for name in one.others:
            by_policy.setdefault(one.policy, {}).setdefault((name, one.paper[name]), []).extend(
                one.used[name]
            )
    return {
        policy: ", ".join(
            f"{name} {values_text(_distinct(used))} instead of {paper:g}"
            for (name, paper), used in of.items()
        )
        for policy, of in by_policy.items()
    }


def narrow_windows(presses: Sequence[Arguments]) -> str:
    """Says how narrow windows are, such as ``window 2 to 11 of 64``; empty where none is under half of the paper's."""
    by_paper: dict[float, list[Value]] = {}
    for one in presses:
        for name in one.narrow:
            by_paper.setdefault(one.paper[name], []).extend(one.used[name])
    return ", ".join(
        f"window {values_text(_distinct(used))} of {paper:g}" for paper, used in by_paper.items()
    )


def _distinct(values: Sequence[Value]) -> tuple[Value, ...]:
    distinct = list(dict.fromkeys(values))
    return tuple(
        sorted(distinct) if all(isinstance(value, int | float) for value in distinct) else distinct
    )


def largest_window(arguments: Mapping[str, Value]) -> int:
    """Returns how many of the last tokens a press looks at or keeps by its arguments; 0 where none says so."""
    return max((value for name, value in arguments.items() if _end(name) in WINDOWS), default=0)


def _end(name: str) -> str:
    return name.rpartition(".")[2]
