"""The study of numerics: is a cached answer the answer that would be computed without the cache?"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.numerics.pairs import (
    ALL,
    CACHE,
    DRIFT,
    NULL,
    PATCHES,
    TABLE,
    Drift,
    Forced,
    Free,
    Recovery,
    drift_of,
    forced_of,
    free_of,
    recoveries_of,
    with_draws,
)
from leaderboards.studies.parts import NONE, in_numbers, listing_of

NAMES = {CACHE: "cache on and off", NULL: "off, at once and in chunks of 32"}


def content_of(given: StudyInput) -> StudyContent:
    """Computes both parts of the page, and its downloads."""
    tables = {name: with_draws(table, given.records) for name, table in given.tables.items() if len(table)}
    free, forced = free_of(tables[TABLE]), forced_of(tables[TABLE])
    experiments: list[tuple[str, str, Sequence[Any], Callable[[Any], StudySection]]] = [
        ("numerics-free", "Free-running cache on and off", free, _free_part),
        ("numerics-forced", "Teacher-forced pairs of paths", forced, _forced_part),
        ("numerics-drift", "Drift by layer", drift_of(tables[DRIFT]) if DRIFT in tables else [], _drift_part),
        (
            "numerics-patches",
            "Recovery by patches",
            recoveries_of(tables[PATCHES]) if PATCHES in tables else [],
            _patch_part,
        ),
    ]
    shown = [one for one in experiments if one[2]]
    return StudyContent(
        parts=[part(rows) for *_, rows, part in shown],
        facts=list(_facts(free)),
        sheets=[Sheet.of(name, title, [*map(vars, rows)], kinds={"kl": Estimate}) for name, title, rows, _ in shown],
    )


def _facts(free: Sequence[Free]) -> Iterator[tuple[str, str]]:
    """Tells how often answers differ."""
    pairs, differ = sum(one.pairs for one in free), sum(round(one.differ.mean * one.pairs) for one in free)
    if pairs:
        yield "Answers that the cache changes", f"{differ} of {pairs}" if differ else f"none of {pairs}"


def _free_part(rows: Sequence[Free]) -> StudySection:
    listing = listing_of(
        "Free-running",
        rows,
        {
            "answers of paths": lambda one: f"{one.task}, {one.dtype}, {one.sampling}",
            "pairs": lambda one: one.pairs,
            "differ": lambda one: one.differ,
            "Div_Index": lambda one: None if one.first_flip is None else f"{one.first_flip:g}",
            "KL before": lambda one: one.kl_before,
            "KL after": lambda one: one.kl_after,
            "right, on": lambda one: None if one.right_on is None else f"{100 * one.right_on:.0f} %",
            "right, off": lambda one: None if one.right_off is None else f"{100 * one.right_off:.0f} %",
        },
    )
    return StudySection(
        "free-running",
        "Each path goes on from its own tokens",
        "Both paths draw by the same random numbers. Up to the first token that differs they stand behind the same "
        "prefix; behind it they write two texts.",
        listings=(listing,),
    )


def _forced_part(rows: Sequence[Forced]) -> StudySection:
    listing = listing_of(
        "Teacher-forced",
        rows,
        {
            "pair of paths": lambda one: f"{one.task}, {one.dtype}: {NAMES[one.paths]}",
            "steps": lambda one: one.steps,
            "mean KL": lambda one: "not finite" if one.kl is None else in_numbers(one.kl, ".2g"),
            "largest KL": lambda one: one.kl_largest,
            "largest |Δ log p|": lambda one: one.largest,
            "same top": lambda one: f"{100 * one.same_top:.1f} %",
            "above null row": lambda one: {True: "yes", False: "no: it says nothing", None: NONE}[one.above_null],
        },
    )
    return StudySection(
        "teacher-forced",
        "Both paths behind the same tokens: does the difference go in float32?",
        "Next-token distributions over the whole vocabulary, in nats. The null row is cache off in chunks, on one "
        "context in three: a difference no larger than that says nothing about the cache.",
        listings=(listing,),
    )


def _drift_part(rows: Sequence[Drift]) -> StudySection:
    listing = listing_of(
        "Drift by layer",
        rows,
        {
            "layer": lambda one: f"{one.task}, {one.dtype}, layer {one.layer}",
            "keys, prompt": lambda one: one.keys_prompt,
            "keys, answer": lambda one: one.keys_answer,
            "values, prompt": lambda one: one.values_prompt,
            "values, answer": lambda one: one.values_answer,
            "stream": lambda one: in_numbers(one.hidden, ".2g"),
        },
    )
    return StudySection(
        "drift",
        "How the error enters",
        "Behind the same tokens, layer by layer: rows of the cache that cache on wrote one by one, against those that "
        "cache off computes with the whole sequence, and the residual stream of the last token.",
        details=(listing,),
    )


def _patch_part(rows: Sequence[Recovery]) -> StudySection:
    flips = any(one.at_flip for one in rows)
    listing = listing_of(
        "Recovery by what is patched",
        [one for one in rows if one.at_flip == flips],
        {
            "patched": lambda one: (
                f"{one.dtype}: {one.patched}, {'all layers' if one.layer == ALL else f'layer {one.layer}'}"
            ),
            "cases": lambda one: one.cases,
            "median recovery, percent": lambda one: f"{100 * one.median:.0f}",
            "mean recovery, percent": lambda one: one.recovered,
        },
    )
    where = "at the first token that differs" if flips else "at the step of the largest divergence, as no answer parts"
    return StudySection(
        "patches",
        "Where the difference lies",
        f"The pass of cache on over one token, {where}, is repeated with parts of cache off in it. Recovery is the "
        "share of the divergence that goes. Logits come from the stream behind the last layer: it recovers all.",
        details=(listing,),
    )


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
