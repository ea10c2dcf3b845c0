"""Puts together the page on numerics."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.listing import Listing
from leaderboards.statistics.significance import p_text
from leaderboards.studies.declaration import StudyContent, StudyInput, StudySection
from leaderboards.studies.numerics.boundary_parts import Parts, boundary_parts, policy_parts, remedy_parts
from leaderboards.studies.numerics.layers import DRIFT, GROUPS, PATCHES, Misplaced, misplaced
from leaderboards.studies.numerics.layers_parts import drift_parts, group_parts, nats, patch_parts
from leaderboards.studies.numerics.pairs import (
    CACHE,
    TABLE,
    Forced,
    Free,
    Mistakes,
    OverConfigurations,
    forced_of,
    free_of,
    mistakes_of,
    scatter_of,
    with_draws,
)
from leaderboards.studies.numerics.precision import POLICIES, REMEDIES
from leaderboards.studies.treatments.parts import in_percent

NAMES = {
    CACHE: "cache on and off",
    "on again": "cache on twice",
    "off again": "cache off twice",
    "batch": "off, alone and in a batch of 2",
    "chunks": "off, at once and in chunks of 32",
    "threads": "off, on all threads and on one",
    "float32": "off, here and in float32",
}

NO_THREADS = (
    " Another number of threads was not tried: the processes of this run had one thread each, and the row is missing."
)


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, and its downloads."""
    tables = {name: with_draws(table, given.records) for name, table in given.tables.items() if len(table)}
    alarms = misplaced(tables[DRIFT]) if DRIFT in tables else {}
    table = tables[TABLE]
    forced, free, mistakes = forced_of(table, alarms), free_of(table), mistakes_of(table)
    scatter = scatter_of(table)
    further = _further(tables, given.records, alarms)
    return StudyContent(
        parts=[
            _free_part(free, scatter),
            _forced_part(forced),
            _mistakes_part(mistakes),
            *(part for parts, _ in further for part in parts),
        ],
        facts=list(_facts(forced, free)),
        sheets=[
            Sheet.of("numerics-forced", "Teacher-forced pairs of paths", [vars(one) for one in forced]),
            Sheet.of("numerics-free", "Free-running cache on and off", [vars(one) for one in free]),
            Sheet.of("numerics-scatter", "Accuracy and length over configurations", [vars(one) for one in scatter]),
            Sheet.of("numerics-mistakes", "What mistakes would give", [vars(one) for one in mistakes]),
            *(sheet for _, sheets in further for sheet in sheets),
        ],
    )


def _further(
    tables: Mapping[str, DataFrame], records: DataFrame, alarms: Mapping[tuple[str, str], Misplaced]
) -> list[Parts]:
    """Makes the parts on where differences come from, as far as there are tables of them."""
    makers: dict[str, Callable[[DataFrame], Parts]] = {
        DRIFT: lambda table: drift_parts(table, alarms),
        PATCHES: patch_parts,
        GROUPS: group_parts,
    }
    found = [make(tables[name]) for name, make in makers.items() if name in tables]
    found += [boundary_parts(tables[TABLE], records), remedy_parts(tables[TABLE])]
    return [*found, policy_parts(tables[POLICIES], records)] if POLICIES in tables else found


def _facts(forced: Sequence[Forced], free: Sequence[Free]) -> Iterator[tuple[str, str]]:
    """Tells how often answers differ, the largest difference of numbers, and what it comes from."""
    pairs, differ = sum(one.pairs for one in free), sum(round(one.differ.mean * one.pairs) for one in free)
    if pairs:
        yield "Answers that the cache changes", f"{differ} of {pairs}" if differ else f"none of {pairs}"
    of_cache = [one for one in forced if one.paths == CACHE]
    known = [(one.kl.mean, one) for one in of_cache if one.kl is not None]
    if known:
        kl, most = max(known, key=lambda pair: pair[0])
        yield "Largest mean KL, teacher-forced", f"{nats(kl)} nats in {most.dtype}, {most.task}: {most.cause}"
    for one in of_cache:
        if one.cause == "misaligned":
            yield "Misaligned", f"{one.dtype}, {one.task}: the paths were given other tokens or positions"


def _forced_part(rows: Sequence[Forced]) -> StudySection:
    shown = [one for one in rows if one.paths not in REMEDIES]
    threads = "" if any(one.paths == "threads" for one in rows) else NO_THREADS
    lines = tuple(
        (
            f"{one.task}, {one.dtype}: {NAMES[one.paths]}",
            str(one.steps),
            _mean_kl(one),
            *map(nats, (one.kl_999, one.kl_largest, one.js, one.largest)),
            f"{100 * one.same_top:.1f} %",
            one.cause,
            {True: "yes", False: "no: it says nothing", None: "–"}[one.above_null],
        )
        for one in shown
    )
    columns = ("pair of paths", "steps", "mean KL", "99.9 % KL", "largest KL", "mean JS", "largest |Δ log p|")
    return StudySection(
        "teacher-forced",
        "Both paths behind the same tokens",
        "At every step both paths are given the same tokens, and their next-token distributions are compared over the "
        "whole vocabulary, in nats. Null rows stand below each figure: the same path twice, which is 0 to the bit, and "
        "cache off in other batches, chunks and threads, which compute the same by definition; they are of the first "
        "steps of one context in three. A difference that is no larger than these, over the same questions, says "
        "nothing about the cache. The row of float32 says what the type of numbers moves." + threads,
        listings=(Listing("Teacher-forced", (*columns, "same top", "cause", "above null rows"), lines),),
    )


def _mean_kl(one: Forced) -> str:
    if one.kl is None:
        return "not finite"
    ends = "" if one.kl.interval is None else " [{:.2g} to {:.2g}]".format(*one.kl.interval)
    return f"{one.kl.mean:.2g}{ends}"


def _free_part(rows: Sequence[Free], scatter: Sequence[OverConfigurations]) -> StudySection:
    lines = tuple(
        (
            f"{one.task}, {one.dtype}, {one.sampling}",
            str(one.pairs),
            in_percent(one.differ),
            "–" if one.first_flip is None else f"{one.first_flip:g}",
            nats(one.kl_before),
            nats(one.kl_after),
            f"{one.always} / {one.sometimes} / {one.never}",
            f"{one.completions:.2f}",
            f"{one.length_on:.1f} / {one.length_off:.1f}",
        )
        for one in rows
    )
    columns = (
        "answers of paths",
        "pairs",
        "differ",
        "Div_Index",
        "KL before",
        "KL after",
        "always / sometimes / never",
    )
    judged = tuple(
        (
            f"{one.task}, {one.dtype}, {one.sampling}",
            *(f"{100 * share:.0f} %" for share in (one.right_on, one.right_off) if share is not None),
            f"{one.only_on} / {one.only_off}",
            *("–" if p is None else p_text(p) for p in (one.p_mcnemar, one.p_bonferroni, one.p_bh)),
        )
        for one in rows
        if one.right_on is not None
    )
    tests = ("answers of paths", "right, on", "right, off", "only on / only off", "McNemar p", "Bonferroni", "BH")
    spreads = ("task", "configurations", "Std@Acc", "Std@length")
    scattered = tuple(
        (
            one.task,
            str(one.configurations),
            "–" if one.std_accuracy is None else f"{100 * one.std_accuracy:.1f} points",
            f"{one.std_length:.2f} tokens",
        )
        for one in scatter
    )
    return StudySection(
        "free-running",
        "Each path goes on from its own tokens",
        "Both paths draw by the same random numbers. Up to the first token that differs they stand behind the same "
        "prefix, and their KL is a difference of numbers; behind it they write two texts, and their KL is that of two "
        "texts. The two are never averaged together here.",
        listings=(
            Listing("Free-running", (*columns, "unique completions", "length, on / off"), lines),
            Listing("Which path is right", tests, judged),
            Listing("Greedy answers over all configurations", spreads, scattered),
        ),
    )


def _mistakes_part(rows: Sequence[Mistakes]) -> StudySection:
    lines = tuple(
        (f"{one.task}, {one.dtype}", *map(nats, (one.aligned, one.earlier, one.later, one.pooled))) for one in rows
    )
    columns = ("task and dtype", "aligned", "off one step early", "off one step late", "pooled after the flip")
    return StudySection(
        "mistakes",
        "What a mistake would give",
        "A text (arXiv 2604.15409) reports a mean KL of 10.7 to 12.8 nats between cache on and off, more than ln of "
        "its vocabulary: the same logits give such figures if the ids of one path are shifted by one step, or if "
        "free-running answers are averaged over the steps behind their first difference.",
        listings=(Listing("Mean KL in nats, by mistake", columns, lines),),
    )
