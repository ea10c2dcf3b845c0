"""Shows which instructions a policy keeps: the shares of the tokens of the defence and of the directives that survive,
over the realised ratio and by layer. Text P explains by them what is obeyed and what leaks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pandas import DataFrame, Series

from leaderboards.aggregate.duels import MeanDifference
from leaderboards.rendering.frames import SHARE, Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.instructions.prompts import PromptRecords, forms_of
from leaderboards.studies.parts import banded_line, curve, exactly, in_percent, level_table
from policies.declaration.levels import UNTREATED
from policies.declaration.names import FULL, PLAIN, plain_and_way

SPANS = ("defence", "directives")
CELL = ["policy", "level", "arm"]
REALISED, KEPT = Axis.around("realised ratio", SHARE), Axis.around("", SHARE)
DIFFERENCE = Axis.around("", (-1.0, -0.5, 0.0, 0.5, 1.0))
Row = Mapping[str, Any]


def spans_kept(prompts: PromptRecords) -> Sequence[Row]:
    """Averages by policy, level and order what is kept of each span, as :class:`Estimate` over contexts, and the
    difference: the defence less the directives. What has no such span, or was rewritten, has None."""
    rows = []
    for (policy, level, arm), caches in prompts.caches.groupby(CELL, sort=False, observed=True):
        shares: dict[str, Estimate | None] = {
            f"{span}_kept": prompts.estimate(caches, f"{span}_kept") for span in SPANS
        }
        shares["difference"] = _difference(prompts, caches)
        if policy == FULL:  # keeps everything by design, and no other context can differ
            shares = {
                name: one and replace(one, low=one.mean, high=one.mean)
                for name, one in shares.items()
            }
        if any(shares.values()):
            realised = float(caches["realised_ratio"].mean())
            rows.append(
                {"policy": policy, "level": level, "realised_ratio": realised, "arm": arm, **shares}
            )
    return rows


def _difference(prompts: PromptRecords, caches: DataFrame) -> Estimate | None:
    both = caches[caches["defence_kept"].notna() & caches["directives_kept"].notna()]
    if both.empty:
        return None
    means = prompts.means(both, "defence_kept") - prompts.means(both, "directives_kept")
    return prompts.resampler.estimate_mean(means, len(both))


def spans_kept_by_layer(prompts: PromptRecords) -> Sequence[Row]:
    """Averages the same by layer, over contexts and heads. Layers are those that presses compress."""
    rows = []
    for (policy, level, arm), caches in prompts.caches.groupby(CELL, sort=False, observed=True):
        shares = {span: _by_layer(caches[f"{span}_kept_by_layer"]) for span in SPANS}
        layers = max(len(of_span) for of_span in shares.values())
        for layer in range(layers):
            defence, directives = (float(of[layer]) if len(of) else None for of in shares.values())
            difference = None if defence is None or directives is None else defence - directives
            place = {"policy": policy, "level": level, "arm": arm, "layer": layer}
            rows.append(
                {
                    **place,
                    "defence_kept": defence,
                    "directives_kept": directives,
                    "difference": difference,
                }
            )
    return rows


def _by_layer(values: Series) -> FloatArray:
    """Averages lists of one share for each layer; none of them where no context has the span."""
    shares = [value for value in values if value is not None and np.ndim(value)]
    return np.mean(np.stack(shares), axis=0) if shares else np.empty(0)


def bias_sections(
    prompts: PromptRecords, kept: Sequence[Row], by_layer: Sequence[Row]
) -> tuple[StudySection, ...]:
    """Draws the shares of plain policies, what protection makes of their difference, and the shares by layer."""
    compared = [row for row in kept if row["difference"] is not None]
    bases = forms_of(prompts.policies)
    styles = named_styles(SPANS)
    return (
        StudySection(
            "bias",
            "Which instructions are evicted",
            "The share of the tokens of the defence and of the directives that survives, mean over layers and heads; "
            "bands are 95 % intervals over contexts. Where the lines part, the one goes before the other, which is "
            "how arXiv 2510.00231 explains what is obeyed and what leaks.",
            tuple(styles.values()),
            tuple(_pictures_of_spans(compared, bases, styles)),
            details=tuple(_tables(compared)),
        ),
        _protected_section(compared, bases),
        _layers_section(by_layer, bases, styles),
    )


def _points(
    rows: Iterable[Row], policy: str, arm: str, column: str
) -> list[tuple[float, Estimate]]:
    """Returns the places of a policy in one order, from the full cache's on, by their realised ratio."""
    of_policy = [row for row in rows if row["arm"] == arm and row["policy"] in (policy, FULL)]
    places = [(row["realised_ratio"], row[column]) for row in of_policy]
    return sorted(places, key=lambda place: place[0])


def _has_levels(rows: Iterable[Row], policy: str, arm: str) -> bool:
    return any(
        row["policy"] == policy and row["arm"] == arm and row["level"] != UNTREATED for row in rows
    )


def _arms(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["arm"] for row in rows))


def _titled(name: str, arm: str) -> str:
    return ", ".join(filter(None, (name, arm)))


def _pictures_of_spans(
    rows: Sequence[Row], bases: Mapping[str, Sequence[str]], styles: Mapping[str, LineStyle]
) -> Iterable[Picture]:
    for base in bases:
        for arm in _arms(rows):
            if _has_levels(rows, base, arm):
                lines = [
                    banded_line(style, _points(rows, base, arm, f"{span}_kept"))
                    for span, style in styles.items()
                ]
                yield curve(
                    _titled(base, arm),
                    "share of the tokens kept",
                    lines,
                    REALISED,
                    f"bias/{arm}/{base}",
                    KEPT,
                )


def _tables(rows: Sequence[Row]) -> Iterable[Listing]:
    words = {"defence_kept": "Defence kept, percent", "directives_kept": "Directives kept, percent"}
    for arm in _arms(rows):
        for column, title in words.items():
            cells = {
                (row["policy"], row["level"]): in_percent(row[column])
                for row in rows
                if row["arm"] == arm
            }
            yield level_table(_titled(title, arm), cells)


def _protected_section(rows: Sequence[Row], bases: Mapping[str, Sequence[str]]) -> StudySection:
    """Draws the difference under each form of a policy, where it was run in a protected one."""
    ways = list(dict.fromkeys(plain_and_way(form)[1] for forms in bases.values() for form in forms))
    styles = named_styles(ways)
    pictures = []
    for base, forms in bases.items():
        for arm in _arms(rows):
            drawn = [form for form in forms if _has_levels(rows, form, arm)]
            if any(plain_and_way(form)[1] != PLAIN for form in drawn):
                lines = [
                    banded_line(
                        styles[plain_and_way(form)[1]], _points(rows, form, arm, "difference")
                    )
                    for form in drawn
                ]
                note = "defence less directives, shares kept"
                pictures.append(
                    curve(
                        _titled(base, arm),
                        note,
                        lines,
                        REALISED,
                        f"protected/{arm}/{base}",
                        DIFFERENCE,
                    )
                )
    tables = []
    for arm in _arms(rows):
        cells = {
            (row["policy"], row["level"]): _points_of(row["difference"])
            for row in rows
            if row["arm"] == arm
        }
        tables.append(level_table(_titled("Defence less directives, points", arm), cells))
    return StudySection(
        "bias-protected",
        "What protection makes of it",
        "The share of the defence that is kept, less that of the directives: at 0 neither is preferred, below it "
        "the defence goes first. “fair” gives every span and gap its share, “fair(as=paper)” two ranges that reach "
        "to the ends of the context, as the paper’s code does.",
        tuple(styles.values()),
        tuple(pictures),
        details=tuple(tables),
    )


def _points_of(share: Estimate) -> str:
    """Writes a difference of shares in points, as differences are written everywhere."""
    ends = (None if end is None else 100 * end for end in (share.low, share.high))
    return MeanDifference(100 * share.mean, *ends).text


def _layers_section(
    rows: Sequence[Row], bases: Mapping[str, Sequence[str]], styles: Mapping[str, LineStyle]
) -> StudySection:
    """Draws the shares by layer at one level of each plain policy: the middle one of those that were run."""
    pictures = []
    layers = 1 + max((row["layer"] for row in rows), default=0)
    compared = [row for row in rows if row["difference"] is not None]
    for base in bases:
        levels = sorted({row["level"] for row in compared if row["policy"] == base} - {UNTREATED})
        if not levels or layers < 2:
            continue
        middle = levels[(len(levels) - 1) // 2]
        for arm in _arms(compared):
            shown = [
                row
                for row in compared
                if (row["policy"], row["level"], row["arm"]) == (base, middle, arm)
            ]
            lines = [
                banded_line(style, [(row["layer"], exactly(row[f"{span}_kept"])) for row in shown])
                for span, style in styles.items()
            ]
            if shown:
                title = f"{_titled(base, arm)}, {middle.where}"
                salt = f"layers/{arm}/{base}"
                pictures.append(
                    curve(
                        title, "share of the tokens kept", lines, Axis.of_layers(layers), salt, KEPT
                    )
                )
    return StudySection(
        "bias-layers",
        "Which instructions are evicted, by layer",
        "The same within each layer, mean over its heads, at the middle level of each policy; "
        "instructions-bias-layers.csv has all levels.",
        tuple(styles.values()),
        tuple(pictures),
    )
