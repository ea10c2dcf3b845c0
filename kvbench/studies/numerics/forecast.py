"""Counts what numerics computes beside the answers of a run: the passes of its walks."""

from collections.abc import Iterator, Sequence
from math import ceil

from kvbench.engine.time_limit import INTO_OFF, INTO_ON, NumericsOptions
from kvbench.estimate.forecast import STEP_READS, Forecast, Passes, StudyPart
from kvbench.estimate.loads import Load, StudyLoad
from kvbench.studies.numerics.tables import (
    CLOSER,
    DRIFT,
    IN_16_BITS,
    NUMERICS,
    RECOVERY,
    ROUNDING,
)
from policies import LazyModule

# They need torch, and a mistyped option waits for none.
patching = LazyModule("kvbench.engine.studies.patching")
products = LazyModule("kvbench.engine.studies.rounding")
walks = LazyModule("kvbench.engine.studies.decoding_paths")

PATCH_READS = 2  # more of a patched step: a cache is made of the rows first
LIVE_CACHES = 3  # of numerics at once: cache on, cache off, and the one that is read or patched
# Of each extent of layers, and the pass that is not patched.
PATCHED = ("residual", "keys and values", "both")
ASSUMPTION = (
    "Numerics, at least: answers end behind their golds, and both paths choose the same; at most: "
    "no answer ends before its last step, and all paths part."
)


def parts(
    load: Load,
    study: StudyLoad,
    numerics: NumericsOptions,
    tables: Sequence[str],
    layers: int,
    heads: int,
) -> Iterator[StudyPart]:
    """Yields the walks of all tables on a task, as one part."""
    lower = list(numerics_passes(load, study, numerics, tables, layers, is_most=False))
    upper = list(numerics_passes(load, study, numerics, tables, layers, is_most=True))
    yield StudyPart("numerics", lower, upper, ASSUMPTION)


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
        # The first token is chosen from the reading of the prompt.
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
    # Once as it is and once for each layer: of several layers the last one decides
    # (patching.inject).
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
            of_all += _patched(dtype, tokens, steps, layers, numerics, is_most)
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


def _patched(
    dtype: str,
    tokens: float,
    steps: int,
    layers: int,
    numerics: NumericsOptions,
    is_most: bool,
) -> list[Passes]:
    """Counts the passes that patch at a step. Behind the first step that differs an answer may end
    at once, or go on for as many steps as it may have."""
    step, after = 1, 0
    if is_most:
        step = steps - 1
        after = min(steps, patching.STEPS_AFTER)
    passes: list[Passes] = []
    if INTO_ON in numerics.directions:
        passes += localising(dtype, tokens, step, layers)
    if INTO_OFF in numerics.directions:
        passes += injecting(dtype, tokens, layers, after)
    return passes


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


def cache_tokens(load: Load, study: StudyLoad, numerics: NumericsOptions) -> float:
    """Counts the tokens of all caches that numerics holds at once for a context, beside that of its
    answers."""
    steps = numerics.steps_on(study.longest)
    return LIVE_CACHES * (load.tokens + study.first_tokens + steps)


FORECAST = Forecast(parts, cache_tokens=cache_tokens)
