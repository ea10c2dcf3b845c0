"""Puts together the page on numerics: a section for each experiment, its picture and its download."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from markupsafe import Markup

from leaderboards.downloads.sheets import Sheet
from leaderboards.figures.panels import BandedLine, panel
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.text import p_text
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.numerics.layers import ALL, DRIFT, PATCHES, Drift, Recovery, drift_of, recoveries_of
from leaderboards.studies.numerics.pairs import (
    CACHE,
    NULL,
    TABLE,
    Boundary,
    Forced,
    Free,
    boundaries_of,
    forced_of,
    free_of,
    with_draws,
)
from leaderboards.studies.treatments.parts import in_percent

NAMES = {CACHE: "cache on and off", NULL: "off, at once and in chunks of 32"}
MILLION = 1e6
NO_FLIP = (
    "No answer has another token with the cache than without it, so that there is no flip to localise. Patched is the "
    "step of each answer with the largest divergence instead: it tells where rounding lies, not where answers part. "
)


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, and its downloads."""
    tables = {name: with_draws(table, given.records) for name, table in given.tables.items() if len(table)}
    table = tables[TABLE]
    forced, free = forced_of(table), free_of(table)
    drift = drift_of(tables[DRIFT]) if DRIFT in tables else []
    patches = recoveries_of(tables[PATCHES]) if PATCHES in tables else []
    experiments: list[tuple[str, str, Sequence[Any], Callable[[Any], StudySection]]] = [
        ("numerics-free", "Free-running cache on and off", free, _free_part),
        ("numerics-forced", "Teacher-forced pairs of paths", forced, _forced_part),
        ("numerics-drift", "Drift by layer", drift, _drift_part),
        ("numerics-boundary", "Margins and flips", boundaries_of(table), _boundary_part),
        ("numerics-patches", "Recovery by patches", patches, _patch_part),
    ]
    shown = [one for one in experiments if one[2]]
    return StudyContent(
        parts=[part(rows) for *_, rows, part in shown],
        facts=list(_facts(forced, free)),
        sheets=[Sheet.of(name, title, [*map(vars, rows)], kinds={"kl": Estimate}) for name, title, rows, _ in shown],
    )


def _facts(forced: Sequence[Forced], free: Sequence[Free]) -> Iterator[tuple[str, str]]:
    """Tells how often answers differ, and the largest difference of numbers."""
    pairs, differ = sum(one.pairs for one in free), sum(round(one.differ.mean * one.pairs) for one in free)
    if pairs:
        yield "Answers that the cache changes", f"{differ} of {pairs}" if differ else f"none of {pairs}"
    known = [(one.kl.mean, one) for one in forced if one.paths == CACHE and one.kl is not None]
    if known:
        kl, most = max(known, key=lambda pair: pair[0])
        yield "Largest mean KL, teacher-forced", f"{_nats(kl)} nats in {most.dtype}, {most.task}"


def _nats(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.2g}"


def _ranged(estimate: Estimate) -> str:
    ends = "" if estimate.interval is None else " [{:.2g} to {:.2g}]".format(*estimate.interval)
    return f"{_nats(estimate.mean)}{ends}"


def _p(value: float | None) -> str:
    return "–" if value is None else p_text(value)


def _free_part(rows: Sequence[Free]) -> StudySection:
    lines = tuple(
        (
            f"{one.task}, {one.dtype}, {one.sampling}",
            str(one.pairs),
            in_percent(one.differ),
            "–" if one.first_flip is None else f"{one.first_flip:g}",
            _nats(one.kl_before),
            _nats(one.kl_after),
        )
        for one in rows
    )
    judged = tuple(
        (
            f"{one.task}, {one.dtype}, {one.sampling}",
            *(f"{100 * share:.0f} %" for share in (one.right_on, one.right_off) if share is not None),
            f"{one.only_on} / {one.only_off}",
            *map(_p, (one.p_mcnemar, one.p_bh)),
        )
        for one in rows
        if one.right_on is not None
    )
    columns = ("answers of paths", "pairs", "differ", "Div_Index", "KL before", "KL after")
    tests = ("answers of paths", "right, on", "right, off", "only on / only off", "McNemar p", "BH")
    return StudySection(
        "free-running",
        "Each path goes on from its own tokens",
        "Both paths draw by the same random numbers. Up to the first token that differs they stand behind the same "
        "prefix, and their KL is a difference of numbers; behind it they write two texts, and their KL is that of two "
        "texts. The two are never averaged together here.",
        listings=(Listing("Free-running", columns, lines), Listing("Which path is right", tests, judged)),
    )


def _forced_part(rows: Sequence[Forced]) -> StudySection:
    lines = tuple(
        (
            f"{one.task}, {one.dtype}: {NAMES[one.paths]}",
            str(one.steps),
            "not finite" if one.kl is None else _ranged(one.kl),
            *map(_nats, (one.kl_largest, one.largest)),
            f"{100 * one.same_top:.1f} %",
            {True: "yes", False: "no: it says nothing", None: "–"}[one.above_null],
        )
        for one in rows
    )
    columns = ("pair of paths", "steps", "mean KL", "largest KL", "largest |Δ log p|", "same top", "above null row")
    return StudySection(
        "teacher-forced",
        "Both paths behind the same tokens: does the difference go in float32?",
        "At every step both paths are given the same tokens, and their next-token distributions are compared over the "
        "whole vocabulary, in nats. If rounding makes the difference, it shrinks with the type of numbers. The null "
        "row below each figure is cache off in chunks, which computes the same by definition; it is of the first steps "
        "of one context in three. A difference that is no larger than that, over the same questions, says nothing "
        "about the cache.",
        listings=(Listing("Teacher-forced", columns, lines),),
    )


def _drift_part(rows: Sequence[Drift]) -> StudySection:
    lines = tuple(
        (
            f"{one.task}, {one.dtype}, layer {one.layer}",
            *map(_nats, (one.keys_prompt, one.keys_answer, one.values_prompt, one.values_answer)),
            _ranged(one.hidden),
            *map(_p, (one.p_layer, one.p_layer_bh)),
        )
        for one in rows
    )
    columns = ("layer", "keys, prompt", "keys, answer", "values, prompt", "values, answer", "stream")
    styles = named_styles(list(dict.fromkeys(one.dtype for one in rows)))
    pictures = []
    # A picture for each task and dtype: they are of other orders of magnitude.
    for task, dtype in dict.fromkeys((one.task, one.dtype) for one in rows):
        own = [one for one in rows if (one.task, one.dtype) == (task, dtype)]
        ends = [[MILLION * (getattr(one.hidden, end) or 0.0) for one in own] for end in ("low", "high")]
        points = tuple((one.layer, MILLION * one.hidden.mean) for one in own)
        line = BandedLine(styles[dtype], points, *(map(tuple, ends) if own[0].hidden.interval else ()))
        vertical = Axis.from_values("", [*ends[1], *(y for _, y in points)])
        title = f"Drift of the residual stream, {task} in {dtype}"
        drawing = panel([line], Axis.of_layers(len(own)), vertical, title, f"drift/{task}/{dtype}")
        pictures.append(Picture(f"{task}, {dtype}", "relative drift in millionths, by layer", Markup(drawing)))
    return StudySection(
        "drift",
        "How the error enters",
        "Behind the same tokens, layer by layer: rows of the cache that cache on wrote one by one, against those that "
        "cache off computes with the whole sequence, and the residual stream of the last token.",
        tuple(styles.values()),
        tuple(pictures),
        details=(Listing("Drift by layer", (*columns, "Mann-Whitney p", "p, BH"), lines),),
    )


def _boundary_part(rows: Sequence[Boundary]) -> StudySection:
    lines = tuple(
        (
            one.dtype,
            f"{one.flips} of {one.pairs}",
            *map(_nats, (one.margin_at_flip, one.margin, one.kl_early, one.kl_late)),
            _p(one.p_welch),
        )
        for one in rows
    )
    columns = ("dtype", "flips", "margin at flips", "median margin", "KL, early flips", "KL, late flips", "Welch p")
    pairs = sum(one.pairs for one in rows)
    no_flips = f"None of {pairs} pairs of answers parts: nothing can be said of where they do. "
    return StudySection(
        "boundary",
        "How near answers stand to another token",
        ("" if any(one.flips for one in rows) else no_flips)
        + "The margin is cache on’s largest logit less its next, in answers that are chosen greedily. A token can "
        "change where the margin is no larger than what the other path moves.",
        listings=(Listing("Margins and flips", columns, lines),),
    )


def _patch_part(rows: Sequence[Recovery]) -> StudySection:
    flips = any(one.at_flip for one in rows)
    shown = [one for one in rows if one.at_flip == flips]
    styles = named_styles(list(dict.fromkeys(one.patched for one in rows)))
    layers = max(one.layer for one in rows) + 1
    lines = tuple(
        (
            f"{one.dtype}: {one.patched}, {'all layers' if one.layer == ALL else f'layer {one.layer}'}",
            str(one.cases),
            f"{100 * one.median:.0f}",
            in_percent(one.recovered),
        )
        for one in shown
        if one.layer in (ALL, layers // 2)
    )
    columns = ("patched", "cases", "median recovery, percent", "mean recovery, percent")
    pictures = []
    for dtype in dict.fromkeys(one.dtype for one in shown):
        own = [one for one in shown if one.dtype == dtype and one.layer != ALL]
        drawn = [
            BandedLine(style, tuple((float(one.layer), one.median) for one in own if one.patched == name))
            for name, style in styles.items()
        ]
        vertical = Axis.from_values("", [1.0, *(one.median for one in own)])
        title = f"Recovery by patching one layer, {dtype}"
        drawing = panel(drawn, Axis.of_layers(layers), vertical, title, f"patches/{dtype}")
        pictures.append(Picture(dtype, "median recovery, by the layer that is patched", Markup(drawing)))
    return StudySection(
        "patches",
        "Where the difference lies",
        ("" if flips else NO_FLIP)
        + "The pass of cache on over one token is repeated with parts of cache off in it: the residual stream of that "
        "token behind a layer, the rows of keys and values before it in a layer, or both. Recovery is the share of the "
        "divergence that goes. Behind the last layer the stream is all that logits are computed from, so that it "
        "recovers everything there by definition.",
        tuple(styles.values()),
        tuple(pictures),
        (Listing("Recovery by what is patched", columns, lines),),
    )
