"""The study of numerics: is a cached answer the answer that would be computed without the cache?"""

from collections.abc import Iterator, Sequence

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Chapter, Definition, estimates
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.numerics.pairs import (
    CACHE,
    NULL,
    TABLE,
    Forced,
    Free,
    forced_of,
    free_of,
    with_draws,
)
from leaderboards.studies.parts import NONE, in_numbers, listing_of

NAMES = {CACHE: "cache on and off", NULL: "off, at once and in chunks of 32"}


def content_of(given: StudyInput) -> StudyContent:
    """Computes both parts of the page, and its downloads."""
    table = with_draws(given.tables[TABLE], given.records)
    forced, free = forced_of(table), free_of(table)
    sheets = [
        Sheet.of("numerics-free", "Free-running cache on and off", [*map(vars, free)]),
        Sheet.of("numerics-forced", "Teacher-forced pairs of paths", [*map(vars, forced)], kinds={"kl": Estimate}),
    ]
    parts = [_free_part(free), _forced_part(forced)]
    return StudyContent(
        [part for part in parts if part.listings[0].rows], list(_facts(free)), [sheet for sheet in sheets if sheet.rows]
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
        names=(
            *("pair of paths", "paths", "pairs", "steps", "dtype", "sampling", "answers of paths"),
            *("above_null", "above null row"),
        ),
    ),
    Definition(
        "Difference of two paths",
        "Over the whole vocabulary, in float64: KL of the first path’s distribution from the second’s, its mean over "
        "steps with an interval over contexts, its largest value, the largest difference of a log-probability, and the "
        "share of steps with the same most likely token.",
        "KL = Σ p (log p − log q), computed as Σ p (d + exp(−d) − 1) with d = log p − log q",
        names=(
            *(*estimates("kl"), "kl_largest", "largest", "same_top", "same top"),
            *("mean KL", "largest KL", "largest |Δ log p|"),
        ),
    ),
    Definition(
        "Flip",
        "The first step at which free-running paths choose different tokens, counted from 0 (Div_Index). Up to it "
        "both stand behind the same prefix, and KL before is over these steps; KL after is over the steps behind it. "
        "Right, on and off: the share of judged answers that each path has right.",
        source="Div_Index: arXiv 2506.09501",
        names=(
            *estimates("differ"),
            *("first_flip", "kl_before", "kl_after", "Div_Index", "KL before", "KL after"),
            *("right_on", "right_off", "right, on", "right, off"),
        ),
    ),
)
STUDY = Study(
    name="numerics",
    title="Numerics",
    lead="Is a cached answer the answer that would be computed without the cache?",
    takes=_takes,
    find=content_of,
    chapter=Chapter("numerics", "Cache on and cache off", DEFINITIONS),
    tables=(TABLE,),
)
