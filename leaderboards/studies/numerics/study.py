"""The study of numerics: is a cached answer the answer that would be computed without the cache?"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.numerics.pairs import (
    ALL,
    CACHE,
    DRIFT,
    PATCHES,
    TABLE,
    Free,
    drift_of,
    forced_of,
    free_of,
    recoveries_of,
    with_draws,
)
from leaderboards.studies.parts import listing_of_fields


def content_of(given: StudyInput) -> StudyContent:
    tables = {name: with_draws(table, given.records) for name, table in given.tables.items() if len(table)}
    free = free_of(tables[TABLE])
    found: dict[str, Sequence[Any]] = {
        "free": free,
        "forced": forced_of(tables[TABLE]),
        "drift": drift_of(tables[DRIFT]) if DRIFT in tables else [],
        "patches": recoveries_of(tables[PATCHES]) if PATCHES in tables else [],
    }
    parts, sheets = [], []
    for name, rows in found.items():
        title, text, forms = EXPERIMENTS[name]
        if rows:
            listings = (listing_of_fields(title, rows, forms),)
            shown, folded = ((), listings) if name in ("drift", "patches") else (listings, ())
            parts.append(StudySection(name, title, text, listings=shown, details=folded))
            sheets.append(Sheet.of(f"numerics-{name}", title, [*map(vars, rows)], kinds={"kl": Estimate}))
    return StudyContent(parts, list(_facts(free)), sheets)


# Of each experiment: the title, what it is, and how its numbers are written.
EXPERIMENTS: Mapping[str, tuple[str, str, Mapping[str, str | Callable[[Any], str]]]] = {
    "free": (
        "Each path goes on from its own tokens",
        "Both paths draw by the same random numbers. Up to the first token that differs they stand behind the same "
        "prefix; behind it they write two texts.",
        {"first_flip": "g", "right_on": ".0%", "right_off": ".0%"},
    ),
    "forced": (
        "Both paths behind the same tokens: does the difference go in float32?",
        "Next-token distributions over the whole vocabulary, in nats. The null row is cache off in chunks, on one "
        "context in three: a difference no larger than that says nothing about the cache.",
        {"kl": ".2g", "same_top": ".1%"},
    ),
    "drift": (
        "How the error enters",
        "Behind the same tokens, layer by layer: rows of the cache that cache on wrote one by one, against those that "
        "cache off computes with the whole sequence, and the residual stream of the last token.",
        {"hidden": ".2g"},
    ),
    "patches": (
        "Where the difference lies",
        "The pass of cache on over one token is repeated with parts of cache off in it: at the first token that "
        "differs (at flip), or at the step of the largest divergence where no answer parts. Recovery is the share of "
        "the divergence that goes. Logits come from the stream behind the last layer: it recovers all.",
        {"layer": lambda layer: "all" if layer == ALL else str(layer), "median": ".0%"},
    ),
}


def _facts(free: Sequence[Free]) -> Iterator[tuple[str, str]]:
    pairs, differ = sum(one.pairs for one in free), sum(round(one.differ.mean * one.pairs) for one in free)
    if pairs:
        yield "Answers that the cache changes", f"{differ} of {pairs}" if differ else f"none of {pairs}"


def _takes(given: StudyInput) -> bool:
    """Takes runs whose table of numerics compares cache on with cache off."""
    table = given.tables.get(TABLE)
    return table is not None and CACHE in set(table["pair"])


DEFINITIONS = (
    Definition(
        "Pair of paths",
        "Two ways to compute the logits of the same next token. Cache on reads the prompt once and then one token at a "
        "time on its cache; cache off reads the whole sequence anew at every step. The null row compares cache off "
        "with itself, reading 32 tokens at once. What is not finite is left out of means, and the steps that are left "
        "are counted. A mean KL that is not above the null row’s says nothing of the cache.",
    ),
    Definition(
        "Difference of two paths",
        "Over the whole vocabulary, in float64: KL of the first path’s distribution from the second’s, its mean over "
        "steps with an interval over contexts, its largest value, the largest difference of a log-probability, and the "
        "share of steps with the same most likely token.",
        "KL = Σ p (log p − log q), computed as Σ p (d + exp(−d) − 1) with d = log p − log q",
    ),
    Definition(
        "Flip",
        "The first step at which free-running paths choose different tokens, counted from 0 (Div_Index). Up to it "
        "both stand behind the same prefix, and KL before is over these steps; KL after is over the steps behind it. "
        "Right, on and off: the share of judged answers that each path has right.",
        source="Div_Index: arXiv 2506.09501",
    ),
    Definition(
        "Drift of both paths",
        "How far what cache on computes is from what cache off does behind the same tokens: of rows of keys and "
        "values, those of the prompt and those that cache on wrote one by one, and of the residual stream of the last "
        "token.",
        "drift = ‖on − off‖ / ‖off‖",
    ),
    Definition(
        "Recovery",
        "The share of the divergence of cache on from cache off that goes if a part of cache on’s pass over one token "
        "is cache off’s. At flip: at the first token that differs; else at the step with the largest divergence.",
        "recovery = 1 − KL patched / KL",
    ),
)
STUDY = Study(
    name="numerics",
    title="Numerics",
    lead="Is a cached answer the answer that would be computed without the cache?",
    takes=_takes,
    find=content_of,
    chapter=Chapter("numerics", "Cache on and cache off", DEFINITIONS),
    tables=(TABLE, DRIFT, PATCHES),
)
