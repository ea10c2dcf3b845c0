"""Walks two or more paths over an answer. Either all are given the same tokens (*teacher-forced*), or each goes on from
its own (*free-running*); figures of the two are never mixed, as behind the first difference the prefixes differ."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from kvbench.engine.numerics.measures import Difference, difference, divergence, log_probabilities
from kvbench.engine.numerics.paths import Path
from kvbench.engine.numerics.sampling import Choose
from kvbench.system.errors import KVBenchError

Given = TypeVar("Given")


@dataclass
class Walk:
    """Holds what two paths did at each step. Free-running, one may go on when the other has ended, and the steps that
    both have are compared."""

    tokens: list[int] = field(default_factory=list)  # that the first path chose
    other_tokens: list[int] = field(default_factory=list)  # that the second chose
    differences: list[Difference] = field(default_factory=list)
    # KL of the first at a step against the second one step earlier or later, NaN where there is none: rounding cannot
    # make these smaller than the KL at the same step, and a shift by one makes one of them small.
    kl_earlier: list[float] = field(default_factory=list)
    kl_later: list[float] = field(default_factory=list)
    path_seconds: float = float("nan")  # that the first path took, where that was measured: teacher-forced
    other_path_seconds: float = float("nan")


@dataclass
class _Pair:
    """Compares the rows of two paths as they come; it holds no more than those of the step before."""

    walk: Walk = field(default_factory=Walk)
    before: tuple[torch.Tensor, torch.Tensor] | None = None

    def add(self, first: torch.Tensor, second: torch.Tensor) -> None:
        self.walk.differences.append(difference(first, second))
        if self.before is None:
            self.walk.kl_earlier.append(float("nan"))
        else:
            self.walk.kl_earlier.append(_kl(first, self.before[1]))
            self.walk.kl_later.append(_kl(self.before[0], second))
        self.before = first, second

    def end(self) -> Walk:
        if self.before is not None:
            self.walk.kl_later.append(float("nan"))
        return self.walk


def _kl(first: torch.Tensor, second: torch.Tensor) -> float:
    return divergence(log_probabilities(first), log_probabilities(second))


def teacher_forced(
    paths: Mapping[str, Path],
    pairs: Mapping[str, tuple[str, str]],
    ids: Sequence[int],
    choose: Choose,
    steps: int,
    ends: Collection[int],
    given: Sequence[int] = (),
) -> dict[str, Walk]:
    """Walks all paths over the same tokens, and compares pairs of them by their names. These tokens are ``given``, or
    those that the first path chooses, up to an end token. Raises :class:`KVBenchError` if two paths differ in it."""
    leader = next(iter(paths))
    compared = {name: _Pair() for name in pairs}
    clock = _Clock()
    rows = {name: clock.time(name, path.begin, ids) for name, path in paths.items()}
    last = min(steps, len(given) or steps) - 1
    for step in range(last + 1):
        _check_same_tokens(paths)
        chosen = {name: choose(row, step) for name, row in rows.items()}
        for name, (first, second) in pairs.items():
            compared[name].add(rows[first], rows[second])
            compared[name].walk.tokens.append(chosen[first])
            compared[name].walk.other_tokens.append(chosen[second])
        token = given[step] if given else chosen[leader]
        if step == last or (not given and token in ends):
            break
        rows = {name: clock.time(name, path.extend, token) for name, path in paths.items()}
    for name, (first, second) in pairs.items():
        walk = compared[name].walk
        walk.path_seconds, walk.other_path_seconds = clock.seconds[first], clock.seconds[second]
    return {name: pair.end() for name, pair in compared.items()}


@dataclass
class _Clock:
    """Adds up the time of each path."""

    seconds: dict[str, float] = field(default_factory=dict)

    def time(self, name: str, read: Callable[[Given], torch.Tensor], given: Given) -> torch.Tensor:
        started = time.perf_counter()
        row = read(given)
        if row.is_cuda:
            torch.cuda.synchronize(row.device)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
        return row


def _check_same_tokens(paths: Mapping[str, Path]) -> None:
    leader, *others = paths.items()
    for name, path in others:
        if path.ids != leader[1].ids:
            raise KVBenchError(f"the paths {leader[0]} and {name} were given other tokens: nothing can be compared")


def free_running(
    first: Path, second: Path, ids: Sequence[int], choose: Choose, steps: int, ends: Collection[int]
) -> Walk:
    """Lets each of two paths go on from the tokens that it chooses itself, up to an end token."""
    pair = _Pair()
    going = {"tokens": first, "other_tokens": second}
    rows = {side: path.begin(ids) for side, path in going.items()}
    for step in range(steps):
        if len(rows) == 2:
            pair.add(rows["tokens"], rows["other_tokens"])
        for side, row in list(rows.items()):
            written: list[int] = getattr(pair.walk, side)
            written.append(choose(row, step))
            if written[-1] in ends or step == steps - 1:
                del rows[side]
            else:
                rows[side] = going[side].extend(written[-1])
    return pair.end()
