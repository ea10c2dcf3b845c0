"""Puts together the page on instructions under compression: what is obeyed, what leaks, and what protects."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from markupsafe import Markup
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.figures.panels import BandedLine, fitted, layer_map, panel
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.instructions.amnesia import (
    LEAKED_MORE,
    STILL_OBEYED,
    Leak,
    attacks_without_defence,
    while_obeying,
)
from leaderboards.studies.instructions.leak_parts import defence, leakage, plane
from leaderboards.studies.instructions.obedience import (
    DEFENDED,
    GAINS,
    GAINS_MODELS,
    GAINS_SOURCE,
    PromptRecords,
    accuracy,
    leaks,
    prompt_records,
    rank_correlations,
    spans_kept,
)
from leaderboards.studies.instructions.obeyed_parts import families, order
from leaderboards.studies.instructions.parts import kind_of, level_listing, over_levels, percent
from leaderboards.studies.instructions.protection import Gain, all_gains, forms_of
from policies.declaration.names import FULL, plain_and_way

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


def study_sheets(prompts: PromptRecords, gains: Sequence[Gain], highest_leaks: Sequence[Leak]) -> tuple[Sheet, ...]:
    """Makes the downloads of all that the page on instructions shows; those without rows are left out."""
    tables = {
        ("directives", "Directives obeyed"): accuracy(prompts),
        ("families", "Directives obeyed, by family"): accuracy(prompts, by=("family",)),
        ("kinds", "Directives obeyed, by kind"): accuracy(prompts, by=("kind",)),
        ("several", "Directives obeyed, alone and among several"): accuracy(prompts, by=("several",)),
        ("leakage", "What attacks get"): leaks(prompts),
        ("kept", "What is kept of defence and directives"): spans_kept(prompts),
        ("exposed", "Attacks on contexts that have lost the defence"): attacks_without_defence(prompts),
    }
    correlations = [
        {"policy": one.policy, "level": one.level, "group": one.group, "rank_correlation": one.estimate}
        for one in rank_correlations(prompts)
    ]
    lists = {
        ("order", "Rank correlations of the families’ order"): correlations,
        ("amnesia", "Where most leaks while directives are obeyed"): [_fields(leak) for leak in highest_leaks],
        ("gain", "Protection gain"): [_gain(gain) for gain in gains],
    }
    rows = {**{key: table.to_dict("records") for key, table in tables.items()}, **lists}
    kinds = {"rank_correlation": Estimate}
    return tuple(
        Sheet.of(f"instructions-{name}", title, entries, kinds=kinds)
        for (name, title), entries in rows.items()
        if entries
    )


def _gain(gain: Gain) -> dict[str, object]:
    return {
        "policy": gain.protected,
        "plain": gain.plain,
        "gain": gain.estimate,
        "levels": ", ".join(map(str, gain.levels)),
        "failed": gain.failed,
        "whole": gain.whole,
    }


def _fields(leak: Leak) -> dict[str, object]:
    """Returns the fields of a leak without the resamples that its interval is of."""
    return {name: value for name, value in vars(leak).items() if name != "values"}


def has_orders(records: DataFrame) -> bool:
    """Tells whether prompts stand in both orders of defence and directives, which the study compares."""
    return set(DEFENDED) <= set(records["arm"])


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, its downloads, and the numbers that are worth quoting."""
    prompts = prompt_records(given.records)
    gains, leaks = all_gains(prompts), while_obeying(prompts)
    parts = (
        plane(prompts),
        leakage(prompts),
        defence(prompts),
        _gains(gains),
        families(prompts),
        bias(prompts),
        order(prompts),
    )
    return StudyContent(
        parts=[
            _amnesia(prompts, leaks, has_orders(given.records)),
            *(part for part in parts if part.pictures or part.listings),
        ],
        facts=_facts(prompts),
        sheets=study_sheets(prompts, gains, leaks),
        quoted=_numbers_to_quote(prompts, gains, leaks),
    )


def _facts(prompts: PromptRecords) -> list[tuple[str, str]]:
    draws = prompts.resampler.count
    return [
        ("Policies", str(len(prompts.policies))),
        ("System prompts", f"{draws:,} draws, {prompts.caches['example_id'].nunique():,} contexts"),
        ("Directives judged", f"{len(prompts.directives):,}"),
        ("Attacks answered", f"{len(prompts.attacks):,}"),
    ]


def _numbers_to_quote(prompts: PromptRecords, gains: Sequence[Gain], leaks: Sequence[Leak]) -> dict[str, Any]:
    return {
        "gains": [
            {
                "policy": gain.protected,
                "gain": gain.estimate.mean,
                "low": gain.estimate.low,
                "high": gain.estimate.high,
                "levels": ", ".join(map(str, gain.levels)),
                "failed": gain.failed,
                "whole": gain.whole,
            }
            for gain in gains
        ],
        "while_obeying": [
            {
                "policy": leak.policy,
                "order": leak.arm,
                "level": str(leak.level),
                "obeyed": leak.obeyed,
                "leaked_more": leak.more.mean,
                "low": leak.more.low,
                "high": leak.more.high,
            }
            for leak in leaks
        ],
        "exposed": attacks_without_defence(prompts).to_dict("records"),
    }


ORDERS = (
    "The answers still look right, and the secret is out: where each policy leaks most while it obeys. A policy that "
    "is not here obeys less than that at every level. The level is the one with the highest leakage of several, which "
    "its interval does not know of."
)
NO_ORDERS = Markup(
    "Each prompt of this run stands in an order of its own or without a defence. What is compared between the orders, "
    "and what protection gains, is measured by <code>python -m kvbench run --suite instructions</code>."
)


def _amnesia(prompts: PromptRecords, leaks: Sequence[Leak], with_orders: bool) -> StudySection:
    """Shows what leaks while the answers still look right."""
    listings = _highest_leakage(leaks), _attacks_without_defence(prompts)
    return StudySection("amnesia", "Selective amnesia", ORDERS if with_orders else NO_ORDERS, listings=listings)


def _highest_leakage(leaks: Sequence[Leak]) -> Listing:
    rows = tuple(
        (
            f"{leak.policy}, {leak.arm}",
            str(leak.level),
            percent(leak.obeyed),
            percent(leak.leakage),
            f"{100 * leak.more.mean:+z.0f}{_points(leak.more)}",
            "yes" if leak.more.mean >= LEAKED_MORE else "no",
        )
        for leak in leaks
    )
    title = f"The highest leakage while at least {STILL_OBEYED:.0%} of the directives are obeyed, percent"
    columns = ("policy, order", "level", "obeyed", "leaked", "more than the full cache", "selective amnesia")
    return Listing(title, columns, rows)


def _points(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f" [{100 * estimate.low:+z.0f} to {100 * estimate.high:+z.0f}]"


def _attacks_without_defence(prompts: PromptRecords) -> Listing:
    rows = tuple(
        (row["policy"], f"{row['n']:,}", percent(row["leakage"]), percent(row["full"]))
        for _, row in attacks_without_defence(prompts).iterrows()
    )
    title = (
        "Attacks on contexts that have lost the defence and kept the directives (5 % and 95 % of the tokens), percent"
    )
    return Listing(title, ("policy", "attacks", "leaked", "under the full cache"), rows)


def _gains(gains: Sequence[Gain]) -> StudySection:
    rows = []
    for gain in gains:
        published = GAINS.get(plain_and_way(gain.protected))
        theirs = [f"{value:.3f}" for value in published] if published else ["–"] * len(GAINS_MODELS)
        interval = f"{gain.estimate.low:+z.3f} to {gain.estimate.high:+z.3f}" if gain.estimate.low is not None else "–"
        levels = ", ".join(map(str, gain.levels))
        cells = (f"{gain.estimate.mean:+z.3f}", interval, levels, percent(gain.whole), str(gain.failed))
        rows.append((gain.protected, *cells, *theirs))
    columns = (
        *("policy", "gain", "95 % interval", "at the ratios", "spans whole, percent", "failed answers"),
        *(f"{name}, published" for name in GAINS_MODELS),
    )
    return StudySection(
        "gain",
        "What protection gains",
        "Half the gain in directives obeyed plus half the fall in leakage against the plain policy, averaged over "
        "the asked ratios 0.4 to 0.7 that were run; each interval stands by itself. Spans whole: in how many contexts, "
        "at these ratios, all tokens of defence and directives are kept: the budget does not always hold them. An "
        "answer that failed obeys and leaks nothing: where there are such, gains come "
        f"from them too. The published columns are those of {GAINS_SOURCE}, on other models and other prompts.",
        listings=(Listing("Protection gain", columns, tuple(rows)),) if rows else (),
    )
