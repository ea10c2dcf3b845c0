"""Shows which instructions a policy keeps: the shares of the tokens of the defence and of the
directives that survive, over the realised ratio and by layer. Text P explains by them what is
obeyed and what leaks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np
from pandas import DataFrame, Series

from leaderboards.aggregate.duels import POINTS_OF_ONE
from leaderboards.rendering.frames import SHARE, Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.paired_difference import MeanDifference
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.instructions.prompts import PromptRecords, forms_by_policy, styles_of_ways
from leaderboards.studies.parts import banded_line, curve, exactly, in_percent, level_table
from policies.declaration.levels import UNTREATED
from policies.declaration.names import FULL, PLAIN, plain_and_way

SPANS = ("defence", "directives")
CELL = ["policy", "level", "arm"]
REALISED, KEPT = Axis.around("realised ratio", SHARE), Axis.around("", SHARE)
DIFFERENCE = Axis.around("", (-1.0, -0.5, 0.0, 0.5, 1.0))
SHARE_KEPT = "share of the tokens kept"
Row = Mapping[str, Any]


def spans_kept(prompts: PromptRecords) -> Sequence[Row]:
    """Averages by policy, level and order what is kept of each span, as :class:`Estimate` over
    contexts, and the difference: the defence less the directives. What has no such span, or was
    rewritten, has None."""
    rows = []
    for (policy, level, arm), caches in prompts.caches.groupby(CELL, sort=False, observed=True):
        shares: dict[str, Estimate | None] = {}
        for span in SPANS:
            shares[f"{span}_kept"] = prompts.estimate(caches, f"{span}_kept")
        shares["difference"] = _difference(prompts, caches)
        if policy == FULL:
            shares = _without_width(shares)
        if any(shares.values()):
            realised = float(caches["realised_ratio"].mean())
            cell = {"policy": policy, "level": level, "realised_ratio": realised, "arm": arm}
            rows.append(cell | shares)
    return rows


def _without_width(shares: Mapping[str, Estimate | None]) -> dict[str, Estimate | None]:
    """Closes the intervals of the full cache: it keeps everything by design, and no other context
    can differ."""
    closed: dict[str, Estimate | None] = dict(shares)
    for name, estimate in shares.items():
        if estimate is not None:
            closed[name] = replace(estimate, low=estimate.mean, high=estimate.mean)
    return closed


def _difference(prompts: PromptRecords, caches: DataFrame) -> Estimate | None:
    has_both = caches["defence_kept"].notna() & caches["directives_kept"].notna()
    rows = caches[has_both]
    if rows.empty:
        return None
    # In the same resamples, so that what the two have in common goes out of the interval.
    means = prompts.means(rows, "defence_kept") - prompts.means(rows, "directives_kept")
    return prompts.resampler.make_estimate(means, len(rows))


def spans_kept_by_layer(prompts: PromptRecords) -> Sequence[Row]:
    """Averages the same by layer, over contexts and heads. Layers are those that presses
    compress."""
    rows = []
    for (policy, level, arm), caches in prompts.caches.groupby(CELL, sort=False, observed=True):
        of_defence = _by_layer(caches["defence_kept_by_layer"])
        of_directives = _by_layer(caches["directives_kept_by_layer"])
        for layer in range(max(len(of_defence), len(of_directives))):
            row: dict[str, Any] = {"policy": policy, "level": level, "arm": arm, "layer": layer}
            row["defence_kept"] = float(of_defence[layer]) if len(of_defence) else None
            row["directives_kept"] = float(of_directives[layer]) if len(of_directives) else None
            row["difference"] = None
            if len(of_defence) and len(of_directives):
                row["difference"] = row["defence_kept"] - row["directives_kept"]
            rows.append(row)
    return rows


def _by_layer(values: Series) -> FloatArray:
    """Averages lists of one share for each layer, shape (layers,); empty where no context has the
    span."""
    # A list that is missing is None or NaN, and NaN has no dimension.
    shares = [value for value in values if value is not None and np.ndim(value)]
    if not shares:
        return np.empty(0)
    means: FloatArray = np.mean(np.stack(shares), axis=0)
    return means


def bias_sections(
    prompts: PromptRecords, kept: Sequence[Row], by_layer: Sequence[Row]
) -> tuple[StudySection, ...]:
    """Draws the shares of plain policies, what protection makes of their difference, and the shares
    by layer."""
    compared = [row for row in kept if row["difference"] is not None]
    bases = forms_by_policy(prompts.policies)
    styles = named_styles(SPANS)
    text = (
        "The share of the tokens of the defence and of the directives that survives, mean over "
        "layers and heads; bands are 95 % intervals over contexts. Where the lines part, the one "
        "goes before the other, which is how arXiv 2510.00231 explains what is obeyed and what "
        "leaks."
    )
    evicted = StudySection(
        "bias",
        "Which instructions are evicted",
        text,
        tuple(styles.values()),
        tuple(_pictures_of_spans(compared, bases, styles)),
        details=tuple(_tables(compared)),
    )
    by_protection = _protected_section(compared, bases)
    return evicted, by_protection, _layers_section(by_layer, bases, styles)


def _points(
    rows: Iterable[Row], policy: str, arm: str, column: str
) -> list[tuple[float, Estimate]]:
    """Returns the places of a policy in one order, from the full cache's on, by their realised
    ratio."""
    places = []
    for row in rows:
        if row["arm"] == arm and row["policy"] in (policy, FULL):
            places.append((row["realised_ratio"], row[column]))
    return sorted(places, key=itemgetter(0))


def _has_levels(rows: Iterable[Row], policy: str, arm: str) -> bool:
    for row in rows:
        if (row["policy"], row["arm"]) == (policy, arm) and row["level"] != UNTREATED:
            return True
    return False


def _arms(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["arm"] for row in rows))


def _titled(name: str, arm: str) -> str:
    return ", ".join(filter(None, (name, arm)))


def _pictures_of_spans(
    rows: Sequence[Row], bases: Mapping[str, Sequence[str]], styles: Mapping[str, LineStyle]
) -> Iterable[Picture]:
    for base in bases:
        for arm in _arms(rows):
            if not _has_levels(rows, base, arm):
                continue
            lines = []
            for span, style in styles.items():
                points = _points(rows, base, arm, f"{span}_kept")
                lines.append(banded_line(style, points))
            title = _titled(base, arm)
            yield curve(title, SHARE_KEPT, lines, REALISED, f"bias/{arm}/{base}", KEPT)


def _tables(rows: Sequence[Row]) -> Iterable[Listing]:
    for arm in _arms(rows):
        yield _level_table("Defence kept, percent", rows, arm, _defence_text)
        yield _level_table("Directives kept, percent", rows, arm, _directives_text)


def _defence_text(row: Row) -> str:
    return in_percent(row["defence_kept"])


def _directives_text(row: Row) -> str:
    return in_percent(row["directives_kept"])


def _level_table(title: str, rows: Sequence[Row], arm: str, write: Callable[[Row], str]) -> Listing:
    """Lists policies against levels in one order, with the text that ``write`` makes of each
    row."""
    texts = {}
    for row in rows:
        if row["arm"] == arm:
            texts[row["policy"], row["level"]] = write(row)
    return level_table(_titled(title, arm), texts)


def _protected_section(rows: Sequence[Row], bases: Mapping[str, Sequence[str]]) -> StudySection:
    """Draws the difference under each form of a policy, where it was run in a protected one."""
    styles = styles_of_ways(bases)
    pictures = []
    for base, forms in bases.items():
        for arm in _arms(rows):
            lines = []
            has_protected = False
            for form in forms:
                if not _has_levels(rows, form, arm):
                    continue
                _, way = plain_and_way(form)
                has_protected |= way != PLAIN
                lines.append(banded_line(styles[way], _points(rows, form, arm, "difference")))
            if not has_protected:
                continue
            note = "defence less directives, shares kept"
            salt = f"protected/{arm}/{base}"
            pictures.append(curve(_titled(base, arm), note, lines, REALISED, salt, DIFFERENCE))
    title = "Defence less directives, points"
    tables = [_level_table(title, rows, arm, _difference_text) for arm in _arms(rows)]
    text = (
        "The share of the defence that is kept, less that of the directives: at 0 neither is "
        "preferred, below it the defence goes first. “fair” gives every span and gap its share, "
        "“fair(as=paper)” two ranges that reach to the ends of the context, as the paper’s code "
        "does."
    )
    return StudySection(
        "bias-protected",
        "What protection makes of it",
        text,
        tuple(styles.values()),
        tuple(pictures),
        details=tuple(tables),
    )


def _difference_text(row: Row) -> str:
    """Writes a difference of shares in points, as differences are written everywhere."""
    return MeanDifference.of(row["difference"], POINTS_OF_ONE).text


def _layers_section(
    rows: Sequence[Row], bases: Mapping[str, Sequence[str]], styles: Mapping[str, LineStyle]
) -> StudySection:
    """Draws the shares by layer at one level of each plain policy: the middle one of those that
    were run."""
    layers = 1 + max((row["layer"] for row in rows), default=0)
    axis = Axis.for_layers(layers)
    compared = [row for row in rows if row["difference"] is not None]
    pictures = []
    for base in bases:
        of_policy = [row for row in compared if row["policy"] == base]
        levels = sorted({row["level"] for row in of_policy} - {UNTREATED})
        if not levels or layers < 2:
            continue
        # Of an even number the lower of the two in the middle.
        middle = levels[(len(levels) - 1) // 2]
        for arm in _arms(compared):
            shown = [row for row in of_policy if (row["level"], row["arm"]) == (middle, arm)]
            if not shown:
                continue
            lines = []
            for span, style in styles.items():
                points = []
                for row in shown:
                    points.append((row["layer"], exactly(row[f"{span}_kept"])))
                lines.append(banded_line(style, points))
            title = f"{_titled(base, arm)}, {middle.where}"
            pictures.append(curve(title, SHARE_KEPT, lines, axis, f"layers/{arm}/{base}", KEPT))
    return StudySection(
        "bias-layers",
        "Which instructions are evicted, by layer",
        "The same within each layer, mean over its heads, at the middle level of each policy; "
        "instructions-bias-layers.csv has all levels.",
        tuple(styles.values()),
        tuple(pictures),
    )
