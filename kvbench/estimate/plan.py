"""Adds up what a run would cost on a machine.

The time of every part follows from one formula: it is bound by its operations or by the bytes that it reads,
max(operations / speed, bytes / bandwidth), and each layer takes some time of each pass, however little it computes.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import NamedTuple, Self

from kvbench.engine.decode.columns import PLACES_AT_ONCE
from kvbench.estimate.constants import Constants
from kvbench.estimate.load import Load
from kvbench.estimate.machine import USABLE, Machine
from kvbench.estimate.shape import DecoderShape
from kvbench.system.errors import KVBenchError
from policies import Policy

MOST_DEVICES = 1024


class PlannedWork(NamedTuple):
    """A part of the work on one context."""

    name: str
    policy: str | None  # None where the work serves all policies
    tokens: float  # that pass the model
    operations: float
    read: float  # bytes
    passes: float  # through all layers
    copied: float = 0.0  # bytes

    @classmethod
    def of(
        cls,
        shape: DecoderShape,
        name: str,
        policy: str | None = None,
        tokens: float = 0,
        pairs: float = 0,  # of a token that passes and a token that it attends to
        weights: float = 0,  # how often all weights are read
        cached: float = 0,  # tokens whose keys and values are read
    ) -> Self:
        read = weights * shape.weight_bytes + cached * shape.cache_bytes
        return cls(name, policy, tokens, shape.operations(tokens, pairs), read, weights)


def parts_of(load: Load, shape: DecoderShape, constants: Constants, room: float) -> Iterator[PlannedWork]:
    """Yields all parts of the work on one context of a task; ``room`` is the most bytes of a wave of branches."""
    tokens, pairs = load.tokens, load.tokens**2 / 2
    yield PlannedWork.of(shape, "prefill", None, tokens, pairs, 1)
    for policy, shares in load.branches:
        press = constants.press(policy)
        times = len(shares) * press.prefills
        readings = press.readings_at(tokens, constants.lengths) + len(shares) * press.level_readings
        yield PlannedWork.of(shape, "private prefills", policy.name, times * tokens, times * pairs, times)
        copied = readings * tokens * shape.cache_bytes
        yield PlannedWork("compression", policy.name, 0, 0, 0, 0, copied)
        if policy.while_decoding:
            yield from _answers_alone(load, shape, policy, sum(shares), len(shares))
    together = [share for policy, shares in load.branches if not policy.while_decoding for share in shares]
    yield from answers_together(load, shape, together, room)


def _answers_alone(
    load: Load, shape: DecoderShape, policy: Policy, kept: float, branches: int
) -> Iterator[PlannedWork]:
    """Estimates answers alone: every token of an answer reads weights and cache. The right answer is passed token by
    token too, behind the question once more."""
    for name, length in (("answers written alone", load.answer_tokens), ("likelihood alone", load.gold_tokens)):
        tokens = load.questions_at_once * (load.question_tokens + length)
        passes = load.questions_at_once * (1 + length)
        pairs, cached = tokens * kept * load.tokens, passes * kept * load.tokens
        yield PlannedWork.of(shape, name, policy.name, branches * tokens, pairs, branches * passes, cached)


def answers_together(load: Load, shape: DecoderShape, shares: Sequence[float], room: float) -> Iterator[PlannedWork]:
    """Returns the decoding of branches in as few waves as the room allows. Each wave reads the weights and its own
    cache for the start that questions share, for each portion of the questions, for each portion of the right answers,
    and for each token of the answers."""
    kept = sum(shares) * load.tokens
    waves = ceil(kept * shape.cache_bytes / room)
    questions, golds = (load.questions_at_once * tokens for tokens in (load.question_tokens, load.gold_tokens))
    for name, tokens, passes in (
        (
            "answers written together",
            questions + load.questions_at_once * load.answer_tokens,
            1 + ceil(questions / PLACES_AT_ONCE) + load.answer_tokens,
        ),
        ("likelihood together", golds, ceil(golds / PLACES_AT_ONCE)),
    ):
        yield PlannedWork.of(shape, name, None, tokens * len(shares), tokens * kept, passes * waves, passes * kept)


@dataclass(frozen=True)
class Plan:
    """The estimated cost of a run, and its assumptions. A worker holds the weights and has as many devices as it needs
    for that; their layers work one after the other."""

    loads: Sequence[Load]
    shape: DecoderShape
    machine: Machine
    constants: Constants

    @property
    def context(self) -> int:
        """Returns the bytes of the cache of the longest context."""
        return ceil(max(load.tokens * self.shape.at(load.tokens).cache_bytes for load in self.loads))

    @property
    def masks(self) -> int:
        """Returns the bytes of the keep masks of all branches of a context."""
        return max(len(load.shares) * load.tokens for load in self.loads) * self.shape.mask_bytes

    @property
    def branches(self) -> float:
        """Returns the bytes of the caches of all branches of a context."""
        return max(sum(load.shares) * load.tokens * self.shape.at(load.tokens).cache_bytes for load in self.loads)

    @property
    def waiting_bytes(self) -> float:
        """Counts the bytes of all branches of a context while they wait to be decoded: presses that rewrite the cache
        or prefill alone leave keys and values of their own, the others a keep mask."""
        return max(
            load.tokens * sum(self._waiting_bytes(policy, shares, load.tokens) for policy, shares in load.branches)
            for load in self.loads
        )

    def _waiting_bytes(self, policy: Policy, shares: Sequence[float], tokens: int) -> float:
        """Counts the same for one policy, in bytes for each token of a context of so many."""
        if policy.rewrites or policy.prefill == "private":
            return sum(shares) * self.shape.at(tokens).cache_bytes
        return len(shares) * self.shape.mask_bytes

    @property
    def needed(self) -> int:
        """Counts the bytes that a worker needs at least: weights, the longest context, its largest branch beside it,
        and the keep masks."""
        return self.shape.weight_bytes + 2 * self.context + self.masks

    @cached_property
    def devices(self) -> int:
        """Returns the number of devices of a worker."""
        devices = ceil(self.needed / (self.machine.memory * USABLE))
        if devices > MOST_DEVICES:
            raise KVBenchError(f"a worker would need {devices:,} devices of {self.machine.name}: ask for less at once")
        return devices

    @property
    def room(self) -> float:
        """Returns the bytes that a wave of branches may take."""
        return self.machine.memory * USABLE * self.devices - self.shape.weight_bytes - self.context - self.masks

    @cached_property
    def times(self) -> list[tuple[PlannedWork, float]]:
        """Returns the seconds that one worker takes over all contexts, by part of the work."""
        return [
            (part, load.contexts * load.prompts * self._seconds(part))
            for load in self.loads
            for part in parts_of(load, self.shape.at(load.tokens), self.constants, self.room)
        ]

    def _seconds(self, part: PlannedWork) -> float:
        return self.machine.seconds(part.operations, part.read, part.passes * self.shape.layers, part.copied)

    @property
    def seconds(self) -> dict[str, float]:
        """Returns the time of one worker by part."""
        return _sums((part.name, seconds) for part, seconds in self.times)

    @property
    def policy_seconds(self) -> dict[str, float]:
        """Returns the time that one worker spends on each policy alone."""
        return _sums((part.policy, seconds) for part, seconds in self.times if part.policy)

    @property
    def device_hours(self) -> float:
        return self.devices * sum(self.seconds.values()) / 3600

    @property
    def store(self) -> float:
        """Returns the bytes of the store."""
        return sum(
            self.constants.store[table].of(files, rows, load.tokens)
            for load in self.loads
            for table, files, rows in (
                ("contexts", load.units, load.contexts),
                ("questions", load.units, load.contexts * load.questions),
                ("records", load.units * len(load.branches), load.answers),
            )
        )


def _sums(pairs: Iterable[tuple[str, float]]) -> dict[str, float]:
    sums: defaultdict[str, float] = defaultdict(float)
    for name, value in pairs:
        sums[name] += value
    return dict(sums)
