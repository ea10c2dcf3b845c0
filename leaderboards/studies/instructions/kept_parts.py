"""Shows what is kept of defence and of directives: over the levels, and layer by layer."""

from dataclasses import replace

import numpy as np
from markupsafe import Markup
from pandas import DataFrame

from leaderboards.figures.panels import BandedLine, fitted, layer_map, panel
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.instructions.obedience import DEFENDED, PromptRecords, spans_kept
from leaderboards.studies.instructions.parts import kind_of, level_listing, over_levels, percent
from leaderboards.studies.instructions.protection import forms_of
from policies.declaration.names import FULL

SPANS = ("defence", "directives")
DASHES_OF_ORDER = {DEFENDED[0]: (), DEFENDED[1]: (4.0, 1.5)}


def bias(prompts: PromptRecords) -> StudySection:
    table = spans_kept(prompts)
    if table.empty:
        return StudySection("bias", "", "")
    styles = _styles()
    curves, maps = [], []
    for base in forms_of(prompts.policies):
        of_base = table[table["policy"] == base]
        if of_base.empty:
            continue
        curves.append(_curve(prompts, of_base, base, styles))
        axis = over_levels(prompts).title
        maps += [
            _layers(of_base[of_base["arm"] == arm], base, arm, axis) for arm in DEFENDED if arm in set(of_base["arm"])
        ]
    return StudySection(
        "bias",
        "Eviction bias: which span loses its tokens",
        "Means over layers and heads. In the maps below, by layer: blue where the defence loses more than the "
        "directives, red where the directives do. Protected forms stand in the numbers.",
        tuple(styles.values()),
        (*curves, *maps),
        details=tuple(_list_kept(prompts, table, span, arm) for arm in DEFENDED for span in SPANS),
    )


def _styles() -> dict[str, LineStyle]:
    """Returns a colour for each span, dashes for the second order."""
    colours = named_styles(SPANS)
    names = [(span, arm) for arm in DEFENDED for span in SPANS]
    return {
        f"{span}, {arm}": replace(colours[span], policy=f"{span}, {arm}", index=index, dashes=DASHES_OF_ORDER[arm])
        for index, (span, arm) in enumerate(names)
    }


def _curve(prompts: PromptRecords, of_base: DataFrame, base: str, styles: dict[str, LineStyle]) -> Picture:
    axis = over_levels(prompts)
    kind = kind_of(prompts.levels)
    start = ((kind.nothing, 1.0),) if kind.has_origin else ()
    paths = []
    for arm in DEFENDED:
        points = of_base[of_base["arm"] == arm].sort_values("level")
        for span in SPANS:
            places = ((level.value, share) for level, share in zip(points["level"], points[span], strict=True))
            paths.append(BandedLine(styles[f"{span}, {arm}"], (*start, *places)))
    title = f"Share of the tokens of defence and directives that {base} keeps, over the {axis.title}, in both orders"
    drawing = panel(paths, axis, fitted(paths), title, f"kept/{base}")
    return Picture(base, "share of the tokens of a span that are kept", Markup(drawing))


def _layers(of_base: DataFrame, base: str, arm: str, axis: str) -> Picture:
    points = of_base.sort_values("level")
    shares = np.stack(points["defence_by_layer"].to_list(), 1) - np.stack(points["directives_by_layer"].to_list(), 1)
    title = f"Kept of the defence minus kept of the directives under {base}, by layer and {axis}, {arm}"
    drawing = layer_map(shares, [f"{level.value:g}" for level in points["level"]], axis, title, f"layers/{base}/{arm}")
    return Picture(f"{base}, {arm}", "kept of the defence minus kept of the directives, by layer", Markup(drawing))


def _list_kept(prompts: PromptRecords, table: DataFrame, span: str, arm: str) -> Listing:
    of_arm = table[table["arm"] == arm]
    texts = {(str(row["policy"]), row["level"]): percent(row[span]) for _, row in of_arm.iterrows()}
    others = [policy for policy in prompts.policies if policy != FULL]
    return level_listing(f"Kept of the {span}, {arm}, percent", prompts, texts, others)
