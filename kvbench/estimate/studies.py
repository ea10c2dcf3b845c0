"""Counts what the studies of a run compute beside its answers: walks of numerics, observed turns,
interventions.

What depends on the answers is counted twice: at least, where answers end right behind their golds,
both paths choose the same and policies lose nothing; and at most, where no answer ends, all paths
part and policies lose everything."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any

from kvbench.engine.time_limit import NumericsOptions
from kvbench.estimate.loads import Load, StudyLoad
from kvbench.estimate.machines import CALLS
from kvbench.store.interventions import INTERVENTIONS
from kvbench.store.numerics import (
    CLOSER,
    DRIFT,
    IN_16_BITS,
    NUMERICS,
    RECOVERY,
    ROUNDING,
    TABLES_OF_NUMERICS,
)
from kvbench.store.observed import OBSERVED, ROUTES, SAMPLE
from policies import FULL, LazyModule, Policy

# They need torch, and a mistyped option waits for none.
columns = LazyModule("kvbench.engine.decode.columns")
observer = LazyModule("kvbench.engine.studies.observer")
patching = LazyModule("kvbench.engine.studies.patching")
products = LazyModule("kvbench.engine.studies.rounding")
walks = LazyModule("kvbench.engine.studies.decoding_paths")

# Of a row of a plain cache in a step: it is read and written to be joined with the new one, and
# read.
STEP_READS = 3
PATCH_READS = 2  # more of a patched step: a cache is made of the rows first
LIVE_CACHES = 3  # of numerics at once: cache on, cache off, and the one that is read or patched
# Of each extent of layers, and the pass that is not patched.
PATCHED = ("residual", "keys and values", "both")
# Of an observed matrix of attention: scaled, masked, normalised, compared, and multiplied.
WEIGHT_READS = 10
OF_A_BLOCK = 8  # calls of an observed block of one head
# Measured on `reference`, on one thread of an AMD EPYC.
OF_A_TURN = 1.5  # times the calls of a layer: an observed answer is attended to, and noted, alone
EDGE_SECONDS = 26e-9  # of the host, to join an edge to others and to follow it
ROW_SECONDS = 0.2e-3  # of the host: what is noted of a layer at a step, as a row of the store
# That a token of the context has in a layer: 21 on `reference`; of others assumed.
EDGES = (10.0, 60.0)
STEPS_SEEN = 2  # of an observed answer: behind its question, and behind its first token


@dataclass(frozen=True)
class Passes:
    """Counts passes over a decoder that are alike."""

    dtype: str = ""  # of weights and cache; none for the model's own
    count: float = 0.0  # passes, in each of which all weights are read
    tokens: float = 0.0
    pairs: float = 0.0  # of tokens that attend to each other
    # Tokens of which keys and values are read or written, beside those that a pass makes itself.
    cached: float = 0.0
    read: float = 0.0  # bytes beside those of weights and cache
    layers: float = 0.0  # as many layers as have the calls that come on top, whatever is computed

    def times(self, number: float) -> "Passes":
        """Returns as many times these passes, of which everything is counted so often."""
        counts: dict[str, Any] = {}
        for field in fields(self):
            if field.name != "dtype":
                counts[field.name] = number * getattr(self, field.name)
        return replace(self, **counts)


@dataclass(frozen=True)
class StudyPart:
    """A part of the work of the studies on one task, at least and at most."""

    name: str
    lower: Sequence[Passes]  # at least
    upper: Sequence[Passes]  # at most
    # Seconds of one thread, at least and at most, which no card shortens.
    host: tuple[float, float] = (0.0, 0.0)


def study_parts(
    load: Load, numerics: NumericsOptions, tables: Sequence[str], layers: int, heads: int
) -> Iterator[StudyPart]:
    """Yields the parts of the studies that fill these tables on a task."""
    study = load.study
    if study is None:
        return
    if any(table.name in tables for table in TABLES_OF_NUMERICS):
        lower = list(numerics_passes(load, study, numerics, tables, layers, is_most=False))
        upper = list(numerics_passes(load, study, numerics, tables, layers, is_most=True))
        yield StudyPart("numerics", lower, upper)
    if any(table.name in tables for table in OBSERVED):
        yield _observed(load, tables, layers, heads)
    if INTERVENTIONS.name in tables:
        fewest = _interventions(load, study, is_most=False)
        highest = _interventions(load, study, is_most=True)
        yield StudyPart("interventions", [fewest], [highest])


def reading(dtype: str, tokens: float) -> Passes:
    """Counts one pass over tokens that nothing stands before."""
    return Passes(dtype, count=1, tokens=tokens, pairs=tokens**2 / 2)


def steps_behind(dtype: str, tokens: float, steps: int) -> Passes:
    """Counts passes over one token each, on a plain cache of those before."""
    rows = sum(tokens + step for step in range(1, steps + 1))
    return Passes(dtype, count=steps, tokens=steps, pairs=rows, cached=STEP_READS * rows)


def rereadings(dtype: str, tokens: float, steps: int, chunk: int | None = None) -> Passes:
    """Counts the passes of cache off: at each step the whole sequence, at once or in chunks."""
    passes, read, pairs = 0, 0.0, 0.0
    for step in range(steps):
        length = tokens + step
        read += length
        pairs += length**2 / 2
        if chunk is None:
            passes += 1
        else:
            passes += ceil(length / chunk)
    cached = 0.0  # at once, a sequence reads no rows but its own
    if chunk is not None:
        cached = STEP_READS * pairs / chunk
    return Passes(dtype, count=passes, tokens=read, pairs=pairs, cached=cached)


def walk(dtype: str, tokens: float, steps: int) -> list[Passes]:
    """Counts the passes of cache on and of cache off behind so many tokens
    (:func:`walks.teacher_forced`)."""
    return [
        reading(dtype, tokens),
        steps_behind(dtype, tokens, steps - 1),
        rereadings(dtype, tokens, steps),
    ]


def null_walks(dtype: str, tokens: float, steps: int) -> list[Passes]:
    """Counts the passes of cache off, all at once and in chunks, over the first tokens of an answer
    (:func:`walks.null_walk`), and of cache on twice over all of them (:func:`walks.same_walk`)."""
    few = min(walks.NULL_STEPS, steps)
    same = [reading(dtype, tokens), steps_behind(dtype, tokens, steps - 1)]
    return [
        rereadings(dtype, tokens, few),
        rereadings(dtype, tokens, few, walks.CHUNK),
        *same,
        *same,
    ]


def localising(dtype: str, tokens: float, step: int, layers: int) -> list[Passes]:
    """Counts the passes that localise a difference at a step from 1 on
    (:func:`patching.localise`)."""
    extents = sum(1 for _ in patching.extents(layers))
    count = 1 + len(PATCHED) * extents
    length = tokens + step
    patched = Passes(
        dtype,
        count=count,
        tokens=count,
        pairs=count * length,
        cached=(STEP_READS + PATCH_READS) * count * length,
    )
    return [
        reading(dtype, tokens),
        steps_behind(dtype, tokens, step - 1),
        reading(dtype, length),
        patched,
    ]


def injecting(dtype: str, tokens: float, layers: int, after: int) -> list[Passes]:
    """Counts the passes that patch cache off at the first step that can differ, and those of both
    paths over the steps behind it (:func:`patching.inject`)."""
    length = tokens + 1
    patched = reading(dtype, length).times(1 + layers)
    return [
        reading(dtype, tokens),
        steps_behind(dtype, tokens, 1 + after),
        patched,
        rereadings(dtype, length + 1, after),
    ]


def rounding(dtype: str, tokens: float) -> list[Passes]:
    """Counts the pass whose numbers are looked at, and the two of its layers in float64
    (:func:`rounding.rounding_of`)."""
    length = min(tokens, products.LENGTHS[-1])
    return [reading(dtype, length), reading("float64", length).times(2)]


def steps_walked(study: StudyLoad, numerics: NumericsOptions, is_most: bool) -> int:
    """Counts the steps of a walk: running text is as long as it is, and an answer ends behind its
    gold at the least."""
    steps = numerics.steps_on(study.longest)
    if is_most and not study.is_text:
        return steps
    ended = round(study.first_gold)
    if not study.is_text:
        ended += 1
    return max(1, min(steps, ended))


def numerics_passes(
    load: Load,
    study: StudyLoad,
    numerics: NumericsOptions,
    tables: Sequence[str],
    layers: int,
    is_most: bool,
) -> Iterator[Passes]:
    """Yields the passes of numerics over all contexts of a task."""
    tokens = load.tokens + study.first_tokens
    steps = steps_walked(study, numerics, is_most)
    closer = ceil(load.contexts / CLOSER) * load.prompts  # prompts that are looked at closer
    for dtype in numerics.dtypes:
        forced = walk(dtype, tokens, steps)
        of_all: list[Passes] = []
        of_closer: list[Passes] = []
        is_walked = NUMERICS.name in tables and "greedy" in numerics.sampling
        is_patched = RECOVERY.name in tables and dtype in IN_16_BITS
        if NUMERICS.name in tables:
            of_all += _compared(dtype, tokens, steps, study, numerics, is_most)
        if is_walked:
            of_closer += null_walks(dtype, tokens, steps)
        if is_patched and not is_walked:
            of_all += forced
        if is_patched and steps > 1:
            of_all += _patched(dtype, tokens, steps, layers, is_most)
        if DRIFT.name in tables:
            # It follows the greedy walk, and reads as many tokens.
            of_closer += forced
            if not (is_walked or is_patched):
                of_closer += forced
        if ROUNDING.name in tables:
            of_closer += rounding(dtype, tokens)
        for passes in of_all:
            yield passes.times(load.all_prompts)
        for passes in of_closer:
            yield passes.times(closer)


def _patched(dtype: str, tokens: float, steps: int, layers: int, is_most: bool) -> list[Passes]:
    """Counts the passes that patch at a step. Behind the first step that differs an answer may end
    at once, or go on for as many steps as it may have."""
    step, after = 1, 0
    if is_most:
        step = steps - 1
        after = min(steps, patching.STEPS_AFTER)
    return localising(dtype, tokens, step, layers) + injecting(dtype, tokens, layers, after)


def _compared(
    dtype: str,
    tokens: float,
    steps: int,
    study: StudyLoad,
    numerics: NumericsOptions,
    is_most: bool,
) -> list[Passes]:
    """Counts the walks of all ways to choose. Free-running, an answer is walked again only where
    its paths part; text goes on greedily alone, and always twice: behind what is given, and behind
    its own tokens."""
    forced = walk(dtype, tokens, steps)
    if study.is_text:
        if "greedy" not in numerics.sampling:
            return []
        return forced + walk(dtype, tokens, numerics.steps_on(study.longest))
    walks_of_answer = 0
    for way in numerics.sampling:
        walks_of_answer += 1 if way == "greedy" else numerics.repeats
    if is_most:
        walks_of_answer *= 2
    return walks_of_answer * forced


def cache_tokens(load: Load, numerics: NumericsOptions, tables: Sequence[str]) -> float:
    """Counts the tokens of all caches that numerics holds at once for a context, beside that of its
    answers."""
    is_numerics = any(table.name in tables for table in TABLES_OF_NUMERICS)
    if load.study is None or not is_numerics:
        return 0.0
    steps = numerics.steps_on(load.study.longest)
    return LIVE_CACHES * (load.tokens + load.study.first_tokens + steps)


def _is_masked(policy: Policy) -> bool:
    """Tells whether a mask says what a policy keeps: only then rows are put back."""
    return not (policy.while_decoding or policy.rewrites)


def _observed(load: Load, tables: Sequence[str], layers: int, heads: int) -> StudyPart:
    """Counts the turns that are passed once more, the contexts that are, and the routes through
    both."""
    shares: list[float] = []
    for policy, shares_of_policy in load.branches:
        if _is_masked(policy) and policy.prefill == "shared":
            shares += shares_of_policy
    questions_of_prompt = load.questions / load.prompts
    answers = questions_of_prompt * len(shares)
    rows = questions_of_prompt * sum(shares) * load.tokens
    answers_at_once = max(1, observer.ROWS_AT_ONCE // load.tokens)
    groups = STEPS_SEEN * ceil(answers / answers_at_once)
    turn = load.question_tokens + 1
    blocks = ceil(load.tokens**2 / observer.WEIGHTS_AT_ONCE)
    context = Passes(
        count=1,
        tokens=load.tokens,
        pairs=load.tokens**2,
        read=WEIGHT_READS * 4 * layers * heads * load.tokens**2,
        layers=layers * heads * blocks * OF_A_BLOCK / CALLS,
    )
    turns = Passes(
        count=groups,
        tokens=answers * turn,
        pairs=turn * rows,
        cached=STEPS_SEEN * STEP_READS * rows,
        layers=STEPS_SEEN * answers * layers * OF_A_TURN,
    )
    prompts = min(load.contexts, SAMPLE) * load.prompts
    passes = [context.times(prompts), turns.times(prompts)]
    noted = STEPS_SEEN * answers * layers * ROW_SECONDS
    followed = 0.0  # seconds for each edge of a token
    if ROUTES.name in tables:
        followed = STEPS_SEEN * answers * layers * load.tokens * EDGE_SECONDS
    fewest_edges, highest_edges = EDGES
    host = (
        prompts * (noted + fewest_edges * followed),
        prompts * (noted + highest_edges * followed),
    )
    return StudyPart("observed answers", passes, passes, host)


def _interventions(load: Load, study: StudyLoad, is_most: bool) -> Passes:
    """Counts the answers of branches with other rows: those of the full cache, and at most all
    others."""
    branches = 0.0
    others = 0
    for policy, shares in load.branches:
        if not _is_masked(policy):
            continue
        if policy.name == FULL:
            branches = study.removed
        else:
            others += len(shares)
    if is_most:
        branches += others * study.restored
    if not branches:
        return Passes()
    passes = load.answer_tokens
    for part in (load.question_tokens, load.gold_tokens):
        passes += ceil(part / columns.PLACES_AT_ONCE)
    tokens = load.question_tokens + load.answer_tokens + load.gold_tokens
    read = branches * load.tokens
    counted = Passes(
        count=passes, tokens=branches * tokens, pairs=tokens * read, cached=passes * read
    )
    return counted.times(load.all_prompts)
