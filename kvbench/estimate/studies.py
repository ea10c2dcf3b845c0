"""Counts what the studies of a run compute beside its answers: walks of numerics, observed turns,
interventions.

What depends on the answers is counted twice: at least, where answers end right behind their golds,
both paths choose the same and policies lose nothing; and at most, where no answer ends, all paths
part and policies lose everything."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil

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
        counts = {
            field.name: number * getattr(self, field.name)
            for field in fields(self)
            if field.name != "dtype"
        }
        return replace(self, **counts)


@dataclass(frozen=True)
class StudyPart:
    """A part of the work of the studies on one task, at least and at most."""

    name: str
    least: Sequence[Passes]
    most: Sequence[Passes]
    host: tuple[float, float] = (0.0, 0.0)  # seconds of one thread, which no card shortens


def parts_of(
    load: Load, numerics: NumericsOptions, tables: Sequence[str], layers: int, heads: int
) -> Iterator[StudyPart]:
    """Yields the parts of the studies that fill these tables on a task."""
    study = load.study
    if study is None:
        return
    if any(table.name in tables for table in TABLES_OF_NUMERICS):
        least, most = (
            list(numerics_passes(load, study, numerics, tables, layers, is_most))
            for is_most in (False, True)
        )
        yield StudyPart("numerics", least, most)
    if any(table.name in tables for table in OBSERVED):
        yield _observed(load, tables, layers, heads)
    if INTERVENTIONS.name in tables:
        fewest, all_of_them = (_interventions(load, study, is_most) for is_most in (False, True))
        yield StudyPart("interventions", [fewest], [all_of_them])


def reading(dtype: str, tokens: float) -> Passes:
    """Counts one pass over tokens that nothing stands before."""
    return Passes(dtype, 1, tokens, tokens**2 / 2)


def steps_behind(dtype: str, tokens: float, steps: int) -> Passes:
    """Counts passes over one token each, on a plain cache of those before."""
    rows = sum(tokens + step for step in range(1, steps + 1))
    return Passes(dtype, steps, steps, rows, STEP_READS * rows)


def rereadings(dtype: str, tokens: float, steps: int, chunk: int | None = None) -> Passes:
    """Counts the passes of cache off: at each step the whole sequence, at once or in chunks."""
    lengths = [tokens + step for step in range(steps)]
    pairs = sum(length**2 / 2 for length in lengths)
    if chunk is None:
        return Passes(dtype, steps, sum(lengths), pairs)
    passes = sum(ceil(length / chunk) for length in lengths)
    return Passes(dtype, passes, sum(lengths), pairs, STEP_READS * pairs / chunk)


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
    count, length = 1 + len(PATCHED) * extents, tokens + step
    patched = Passes(
        dtype, count, count, count * length, (STEP_READS + PATCH_READS) * count * length
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
    length, count = tokens + 1, 1 + layers
    cached = [reading(dtype, tokens), steps_behind(dtype, tokens, 1 + after)]
    return [*cached, reading(dtype, length).times(count), rereadings(dtype, length + 1, after)]


def rounding(dtype: str, tokens: float) -> list[Passes]:
    """Counts the pass whose numbers are looked at, and the two of its layers in float64
    (:func:`rounding.measure_rounding`)."""
    length = min(tokens, products.LENGTHS[-1])
    return [reading(dtype, length), reading("float64", length).times(2)]


def steps_walked(study: StudyLoad, numerics: NumericsOptions, is_most: bool) -> int:
    """Counts the steps of a walk: running text is as long as it is, and an answer ends behind its
    gold at the least."""
    steps = numerics.steps_on(study.longest)
    if is_most and not study.is_text:
        return steps
    return max(1, min(steps, round(study.first_gold) + (not study.is_text)))


def numerics_passes(
    load: Load,
    study: StudyLoad,
    numerics: NumericsOptions,
    tables: Sequence[str],
    layers: int,
    is_most: bool,
) -> Iterator[Passes]:
    """Yields the passes of numerics over all contexts of a task."""
    tokens, steps = load.tokens + study.first_tokens, steps_walked(study, numerics, is_most)
    prompts, closer = load.contexts * load.prompts, ceil(load.contexts / CLOSER) * load.prompts
    for dtype in numerics.dtypes:
        forced = walk(dtype, tokens, steps)
        of_all: list[Passes] = []
        of_closer: list[Passes] = []
        if NUMERICS.name in tables:
            of_all += _compared(dtype, tokens, steps, study, numerics, is_most)
            if "greedy" in numerics.sampling:
                of_closer += null_walks(dtype, tokens, steps)
        is_patched = RECOVERY.name in tables and dtype in IN_16_BITS
        is_walked = NUMERICS.name in tables and "greedy" in numerics.sampling
        if is_patched:
            of_all += [] if is_walked else forced
            of_all += _patched(dtype, tokens, steps, layers, is_most) if steps > 1 else []
        if DRIFT.name in tables:
            # It follows the greedy walk, and reads as many tokens.
            of_closer += forced if is_walked or is_patched else 2 * forced
        if ROUNDING.name in tables:
            of_closer += rounding(dtype, tokens)
        yield from (passes.times(prompts) for passes in of_all)
        yield from (passes.times(closer) for passes in of_closer)


def _patched(dtype: str, tokens: float, steps: int, layers: int, is_most: bool) -> list[Passes]:
    """Counts the passes that patch at a step. Behind the first step that differs an answer may end
    at once, or go on for as many steps as it may have."""
    at_first = injecting(dtype, tokens, layers, min(steps, patching.STEPS_AFTER) if is_most else 0)
    return localising(dtype, tokens, steps - 1 if is_most else 1, layers) + at_first


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
        return [*forced, *walk(dtype, tokens, numerics.steps_on(study.longest))]
    draws = sum(1 if way == "greedy" else numerics.repeats for way in numerics.sampling)
    return (1 + is_most) * draws * forced


def cache_tokens(load: Load, numerics: NumericsOptions, tables: Sequence[str]) -> float:
    """Counts the tokens of all caches that numerics holds at once for a context, beside that of its
    answers."""
    if load.study is None or not any(table.name in tables for table in TABLES_OF_NUMERICS):
        return 0.0
    return LIVE_CACHES * (
        load.tokens + load.study.first_tokens + numerics.steps_on(load.study.longest)
    )


def _is_masked(policy: Policy) -> bool:
    """Tells whether a mask says what a policy keeps: only then rows are put back."""
    return not (policy.while_decoding or policy.rewrites)


def _observed(load: Load, tables: Sequence[str], layers: int, heads: int) -> StudyPart:
    """Counts the turns that are passed once more, the contexts that are, and the routes through
    both."""
    seen = [
        branch
        for branch in load.branches
        if _is_masked(branch[0]) and branch[0].prefill == "shared"
    ]
    shares = [share for _, of_policy in seen for share in of_policy]
    questions_of_prompt = load.questions / load.prompts
    answers, rows = (
        questions_of_prompt * len(shares),
        questions_of_prompt * sum(shares) * load.tokens,
    )
    groups = STEPS_SEEN * ceil(answers / max(1, observer.ROWS_AT_ONCE // load.tokens))
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
    passes = [each.times(prompts) for each in (context, turns)]
    noted = STEPS_SEEN * answers * layers * ROW_SECONDS
    followed = STEPS_SEEN * answers * layers * load.tokens * EDGE_SECONDS
    is_followed = ROUTES.name in tables
    least, most = (prompts * (noted + is_followed * edges * followed) for edges in EDGES)
    return StudyPart("observed answers", passes, passes, (least, most))


def _interventions(load: Load, study: StudyLoad, is_most: bool) -> Passes:
    """Counts the answers of branches with other rows: those of the full cache, and at most all
    others."""
    masked = [branch for branch in load.branches if _is_masked(branch[0])]
    others = sum(len(shares) for policy, shares in masked if policy.name != FULL)
    has_full = any(policy.name == FULL for policy, _ in masked)
    branches = has_full * study.removed + is_most * others * study.restored
    tokens = load.question_tokens + load.answer_tokens + load.gold_tokens
    portions = sum(
        ceil(part / columns.PLACES_AT_ONCE) for part in (load.question_tokens, load.gold_tokens)
    )
    passes = portions + load.answer_tokens if branches else 0
    read = branches * load.tokens
    counted = Passes("", passes, branches * tokens, tokens * read, passes * read)
    return counted.times(load.contexts * load.prompts)
