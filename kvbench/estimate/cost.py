"""Computes the time and the bytes of a run from its counts, the shape of its model and the speed of
a machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import ceil
from statistics import mean
from typing import NamedTuple

from kvbench.engine.time_limit import NumericsOptions
from kvbench.estimate.decoder import DecoderShape
from kvbench.estimate.forecast import Passes, StudyPart
from kvbench.estimate.loads import Load, PressCost, StudyLoad
from kvbench.estimate.machines import Machine
from kvbench.studies.registry import forecasts
from policies import LazyModule, Policy

# It needs torch, which a mistyped name of a machine does not wait for.
columns = LazyModule("kvbench.engine.decode.columns")

USABLE = 0.9  # of the memory


class WorkPart(NamedTuple):
    """A part of the work of a run."""

    name: str
    policy: str  # empty, unless the part is for this policy alone
    seconds: float  # of one worker


class StudyTime(NamedTuple):
    """A part of the work of the studies, with the seconds that one worker needs for it."""

    part: StudyPart
    lower: float  # at least
    upper: float  # at most


@dataclass(frozen=True)
class RunCost:
    """The time and the bytes of a run. A worker has as many devices as it needs, whose layers work
    in turn."""

    loads: Sequence[Load]
    shape: DecoderShape
    machine: Machine
    tables: tuple[str, ...] = ()  # of studies
    numerics: NumericsOptions = field(default_factory=NumericsOptions)

    @property
    def context(self) -> int:
        """Returns the bytes of the cache of the longest context."""
        return max(load.tokens for load in self.loads) * self.shape.token_bytes

    @property
    def other_dtypes(self) -> list[str]:
        """Lists the dtypes in which a study copies the network."""
        if not any(table.startswith("numerics") for table in self.tables):
            return []
        return [dtype for dtype in self.numerics.dtypes if dtype != self.shape.dtype]

    @property
    def copy_bytes(self) -> int:
        """Counts the bytes of the largest copy of the network: one is held at a time
        (:class:`NetworkCopies`)."""
        return max(map(self._weight_bytes, self.other_dtypes), default=0)

    def _weight_bytes(self, dtype: str) -> int:
        weights = self.shape.in_dtype(dtype).weight_bytes
        if dtype in self.machine.emulated:  # then the weights are held in float32 too
            weights += 4 * self.shape.parameters
        return weights

    @property
    def held(self) -> int:
        """Returns the bytes of weights, the longest context, and the keep masks of all branches of
        a context: a byte for each token, layer and head."""
        rows = 0
        for load in self.loads:
            rows = max(rows, load.tokens * load.branches_of_context)
        masks = rows * self.shape.layers * self.shape.key_heads
        return self.shape.weight_bytes + self.copy_bytes + self.context + masks

    @property
    def studied(self) -> list[tuple[Load, StudyLoad]]:
        """Lists the tasks that studies look at, each with what they ask about its prompts."""
        studied: list[tuple[Load, StudyLoad]] = []
        for load in self.loads:
            if load.study is not None:
                studied.append((load, load.study))
        return studied

    @property
    def walked(self) -> float:
        """Returns the bytes of the caches that studies hold at once, in the widest dtype of
        numerics."""
        widest = max(self.shape.in_dtype(dtype).token_bytes for dtype in self.numerics.dtypes)
        tokens = 0.0
        for forecast in forecasts(self.tables):
            if forecast.cache_tokens is None:
                continue
            for load, study in self.studied:
                tokens = max(tokens, forecast.cache_tokens(load, study, self.numerics))
        return tokens * widest

    @property
    def needed(self) -> float:
        """Counts the bytes that a worker needs at least: what it holds, and beside it the largest
        branch, or later the caches of numerics."""
        return self.held + max(self.context, self.walked)

    @property
    def devices(self) -> int:
        """Returns how many devices hold a worker."""
        return ceil(self.needed / (self.machine.memory * USABLE))

    @cached_property
    def parts(self) -> list[WorkPart]:
        """Lists the parts of the work on all contexts."""
        parts: list[WorkPart] = []
        for load in self.loads:
            for part in self._context_parts(load):
                # By prompt and not by context: in mode aware each question has a prefill of its
                # own.
                parts.append(part._replace(seconds=load.all_prompts * part.seconds))
        return parts

    @property
    def seconds(self) -> float:
        """Returns the seconds of one worker, without those of studies."""
        return sum(part.seconds for part in self.parts)

    @cached_property
    def study_parts(self) -> list[StudyTime]:
        """Lists the parts of the studies with their times."""
        run = (self.numerics, self.tables, self.shape.layers, self.shape.heads)
        times: list[StudyTime] = []
        for (load, study), forecast in product(self.studied, forecasts(self.tables)):
            for part in forecast.parts(load, study, *run):
                lower_host, upper_host = part.host
                lower = lower_host + sum(map(self._study_seconds, part.lower))
                upper = upper_host + sum(map(self._study_seconds, part.upper))
                times.append(StudyTime(part, lower, upper))
        return times

    @property
    def copy_seconds(self) -> float:
        """Counts the time of the copies of the network: a context begins with the copy that the
        last one ended with."""
        copied: list[int] = []
        for dtype in self.other_dtypes:
            copied.append(self.shape.weight_bytes + self._weight_bytes(dtype))
        if not copied:
            return 0.0
        prompts = sum(load.all_prompts for load in self.loads)
        spared = mean(copied) * (prompts - 1)
        return (sum(copied) * prompts - spared) / self.machine.copies

    @property
    def ends(self) -> tuple[float, float]:
        """Returns the seconds of one worker at least and at most, studies included."""
        always = self.seconds + self.copy_seconds
        lower = upper = 0.0
        for study_time in self.study_parts:
            lower += study_time.lower
            upper += study_time.upper
        return always + lower, always + upper

    def _study_seconds(self, passes: Passes) -> float:
        """Returns the time of passes of a study, which are those of transformers' own code."""
        shape = self.shape.in_dtype(passes.dtype or self.shape.dtype)
        weights = shape.weight_bytes
        if passes.dtype in self.machine.emulated:  # then weights in float32 are read
            weights = 4 * shape.parameters
        read = passes.count * weights + passes.cached * shape.token_bytes + passes.read
        passed = passes.count + passes.layers / shape.layers
        layers = passed * shape.layers * self.machine.plain_calls
        operations = shape.operations(passes.tokens, passes.pairs)
        return self.machine.seconds(operations, read, layers, shape.dtype)

    def _seconds(self, tokens: float, pairs: float, passes: float, cached: float = 0) -> float:
        """Returns the time of tokens that attend to others in pairs, where each pass reads all
        weights; ``cached``: tokens of which keys and values are read."""
        operations = self.shape.operations(tokens, pairs)
        read = passes * self.shape.weight_bytes + cached * self.shape.token_bytes
        return self.machine.seconds(operations, read, passes * self.shape.layers)

    def _context_parts(self, load: Load) -> Iterator[WorkPart]:
        """Yields the parts of the work on one context of a task."""
        size = load.tokens
        # A token sees those before it, which makes half of all pairs.
        prefill = self._seconds(size, size**2 / 2, 1)
        yield WorkPart("prefill", "", prefill)
        together: list[float] = []  # the share of a context that each branch holds
        for policy, shares in load.branches:
            yield self._compression(policy, shares, size, prefill)
            if policy.while_decoding:
                yield self._answers_written_alone(load, policy, shares)
            else:
                together += shares
        yield self._answers(load, together)

    def _compression(
        self, policy: Policy, shares: Sequence[float], size: int, prefill: float
    ) -> WorkPart:
        """Returns the time in which a press scores a context and fills each of its branches."""
        press = PressCost.of(policy)
        # The cost of a press is measured in readings of the context's cache.
        copied = press.readings(size, len(shares)) * size * self.shape.token_bytes
        copying = copied / self.machine.copies
        # One scoring may serve all ratios.
        scorings = 1 if policy.ratio_free_score else len(shares)
        prefilling = scorings * press.prefills * prefill
        return WorkPart("compression", policy.name, copying + prefilling)

    def _answers_written_alone(
        self, load: Load, policy: Policy, shares: Sequence[float]
    ) -> WorkPart:
        """Returns the time of answers behind a press that acts while they are written: every token
        of one reads weights and cache, and so does the right answer behind the question again."""
        questions_of_prompt = load.questions / load.prompts  # from one prefill
        tokens = questions_of_prompt * (
            2 * load.question_tokens + load.answer_tokens + load.gold_tokens
        )
        passes = questions_of_prompt * (2 + load.answer_tokens + load.gold_tokens)
        kept = sum(shares) * load.tokens
        branches = len(shares)
        seconds = self._seconds(branches * tokens, tokens * kept, branches * passes, passes * kept)
        return WorkPart("answers written alone", policy.name, seconds)

    def _answers(self, load: Load, together: Sequence[float]) -> WorkPart:
        """Returns the time of the answers of all branches that are written together. Each wave
        reads the weights and its own cache for the start that questions share, for each portion of
        the questions, for each portion of the right answers, and for each token of the answers."""
        questions_of_prompt = load.questions / load.prompts
        kept = sum(together) * load.tokens
        free = self.machine.memory * USABLE * self.devices - self.held
        waves = ceil(kept * self.shape.token_bytes / free)
        passes = 1 + load.answer_tokens
        for part in (load.question_tokens, load.gold_tokens):
            passes += ceil(questions_of_prompt * part / columns.PLACES_AT_ONCE)
        tokens = questions_of_prompt * (
            load.question_tokens + load.answer_tokens + load.gold_tokens
        )
        seconds = self._seconds(
            tokens * len(together), tokens * kept, passes * waves, passes * kept
        )
        return WorkPart("answers", "", seconds)
