"""Adds up what a run would cost on a machine.

The time of every part follows from one formula: it is bound by its operations or by the bytes that it reads,
max(operations / speed, bytes / bandwidth).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import starmap
from math import ceil
from typing import NamedTuple

from kvbench.engine.decode.columns import PLACES_AT_ONCE
from kvbench.estimate.constants import Constants
from kvbench.estimate.load import Load
from kvbench.estimate.machine import USABLE, Machine
from kvbench.estimate.shape import Shape
from kvbench.system.errors import KVBenchError
from policies import Policy

MOST_DEVICES = 1024


class Part(NamedTuple):
    """A part of the work on one context."""

    name: str
    policy: str | None  # None where the work serves all policies
    operations: float
    read: float  # bytes


def parts_of(load: Load, shape: Shape, constants: Constants, room: float) -> Iterator[Part]:
    """Yields all parts of the work on one context of a task; ``room`` is the most bytes of a wave of branches."""
    weights, cache = shape.weight_bytes, load.tokens * shape.cache_bytes
    prefill = shape.prefill_operations(load.tokens)
    yield Part("prefill", None, prefill, weights)
    for policy, shares in load.branches:
        press = constants.press(policy)
        prefills = len(shares) * press.prefills
        readings = press.readings_at(load.tokens, constants.lengths) + len(shares) * press.level_readings
        yield Part("private prefills", policy.name, prefills * prefill, prefills * weights)
        yield Part("compression", policy.name, 0, readings * cache)
        for share in shares if policy.while_decoding else ():  # every token of an answer reads weights and cache
            operations = 2.0 * shape.parameters * (load.question_tokens + load.answer_tokens)
            read = (1 + load.answer_tokens) * (weights + share * cache)
            yield Part("answers written alone", policy.name, load.questions * operations, load.questions * read)
    together = [share for policy, shares in load.branches if not policy.while_decoding for share in shares]
    yield answers_together(load, shape, together, room)


def answers_together(load: Load, shape: Shape, shares: Sequence[float], room: float) -> Part:
    """The decoding of branches in as few waves as the room allows. Each wave reads the weights and its own cache for
    each portion of the questions and for each token of the answers."""
    kept = sum(shares) * load.tokens
    size = kept * shape.cache_bytes
    passes = 1 + ceil(load.questions * load.question_tokens / PLACES_AT_ONCE) + load.answer_tokens
    places = load.questions * (load.question_tokens + load.answer_tokens)  # of one branch
    scores = 4.0 * shape.heads * shape.head_size * shape.layers * places * kept
    operations = 2.0 * shape.parameters * places * len(shares) + scores
    return Part("answers written together", None, operations, passes * (ceil(size / room) * shape.weight_bytes + size))


@dataclass(frozen=True)
class Plan:
    """The estimated cost of a run, and its assumptions. A worker holds the weights and has as many devices as it needs
    for that; their layers work one after the other."""

    loads: Sequence[Load]
    shape: Shape
    machine: Machine
    constants: Constants

    @property
    def context(self) -> int:
        """Bytes of the cache of the longest context."""
        return max(load.tokens for load in self.loads) * self.shape.cache_bytes

    @property
    def masks(self) -> int:
        """Bytes of the keep masks of all branches of a context."""
        return max(len(load.shares) * load.tokens for load in self.loads) * self.shape.mask_bytes

    @property
    def branches(self) -> float:
        """Bytes of the caches of all branches of a context."""
        return max(sum(load.shares) * load.tokens for load in self.loads) * self.shape.cache_bytes

    @property
    def waiting(self) -> float:
        """Bytes of all branches of a context while they wait to be decoded: presses that rewrite the cache or prefill
        alone leave keys and values of their own, the others a keep mask."""
        return max(load.tokens * sum(starmap(self._waiting, load.branches)) for load in self.loads)

    def _waiting(self, policy: Policy, shares: Sequence[float]) -> float:
        """Bytes for each token of the context."""
        if policy.rewrites or policy.prefill == "private":
            return sum(shares) * self.shape.cache_bytes
        return len(shares) * self.shape.mask_bytes

    @cached_property
    def devices(self) -> int:
        """Devices of a worker."""
        needed = self.shape.weight_bytes + 2 * self.context + self.masks
        devices = ceil(needed / (self.machine.memory * USABLE))
        if devices > MOST_DEVICES:
            raise KVBenchError(f"a worker would need {devices:,} devices of {self.machine.name}: ask for less at once")
        return devices

    @property
    def room(self) -> float:
        """Bytes that a wave of branches may take."""
        return self.machine.memory * USABLE * self.devices - self.shape.weight_bytes - self.context - self.masks

    @cached_property
    def times(self) -> list[tuple[Part, float]]:
        """Returns the seconds that one worker takes over all contexts, by part of the work."""
        return [
            (part, load.contexts * self.machine.seconds(part.operations, part.read))
            for load in self.loads
            for part in parts_of(load, self.shape, self.constants, self.room)
        ]

    @property
    def seconds(self) -> dict[str, float]:
        """The time of one worker by part."""
        return _sums((part.name, seconds) for part, seconds in self.times)

    @property
    def policy_seconds(self) -> dict[str, float]:
        """The time that one worker spends on each policy alone."""
        return _sums((part.policy, seconds) for part, seconds in self.times if part.policy)

    @property
    def device_hours(self) -> float:
        return self.devices * sum(seconds for _, seconds in self.times) / 3600

    @property
    def store(self) -> float:
        """Bytes of the store."""
        fixed, per_token = self.constants.record_bytes
        return sum(load.answers * (fixed + per_token * load.tokens) for load in self.loads)


def _sums(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: defaultdict[str, float] = defaultdict(float)
    for name, value in pairs:
        sums[name] += value
    return dict(sums)
