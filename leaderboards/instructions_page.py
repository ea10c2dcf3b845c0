"""The page of a study of instructions: what is obeyed, what leaks, which span suffers, and what protects."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from markupsafe import Markup
from pandas import DataFrame

from leaderboards.obedience import (
    DEFENDED,
    LEAKED_MORE,
    STILL_OBEYED,
    Gain,
    Study,
    accuracy,
    exposed,
    kept,
    leaks,
    protection_gain,
    rank_correlations,
    results,
    study,
    while_obeying,
)
from leaderboards.panels import SHARE, Axis, Path, layer_map, panel
from leaderboards.published import GAINS, GAINS_MODELS, GAINS_SOURCE
from leaderboards.resampling import Estimate
from leaderboards.row import CONTROLS, FULL
from leaderboards.study_parts import Cells, Listing, Part, Picture, cells_of, over_ratios, path_of, table_of, written
from leaderboards.style import LineStyle, named_styles
from leaderboards.templating import render

PLAIN = "plain"
DASHES_OF_ORDER = {DEFENDED[0]: (), DEFENDED[1]: (4.0, 1.5)}


def build_instructions(model: str, records: DataFrame, seed: int = 0) -> tuple[str, dict[str, Any]]:
    """The page as text, and what of it is worth quoting as plain values; the same records give the same bytes.
    ``records``: of one model, tasks with directives."""
    found = study(records, seed)
    gains = all_gains(found)
    parts = (_plane(found), _leakage(found), _gains(gains), _families(found), _bias(found), _order(found))
    page = render(
        "instructions.html.j2",
        model=model,
        facts=_facts(found),
        amnesia=(_amnesia(found), _exposed(found)),
        parts=[part for part in parts if part.pictures or part.listings],
    )
    return page, results(found, gains)


def all_gains(found: Study) -> list[Gain]:
    """Of every protected policy over the plain one inside it."""
    gains = (
        protection_gain(found, plain, protected)
        for plain, variants in _bases(found).items()
        for protected in variants
        if protected != plain
    )
    return [gain for gain in gains if gain is not None]


def _facts(found: Study) -> list[tuple[str, str]]:
    draws = found.resampler.count
    return [
        ("Policies", str(len(found.policies))),
        ("System prompts", f"{draws:,} draws, {found.caches['example_id'].nunique():,} contexts"),
        ("Directives judged", f"{len(found.directives):,}"),
        ("Attacks answered", f"{len(found.attacks):,}"),
    ]


def _amnesia(found: Study) -> Listing:
    """What leaks while the answers still look right."""
    rows = tuple(
        (
            f"{row['policy']}, {row['arm']}",
            str(row["asked"]),
            f"{100 * row['strict']:.0f}",
            f"{100 * row['leakage']:.0f}",
            f"{100 * row['more']:+.0f}",
            "yes" if row["more"] >= LEAKED_MORE else "no",
        )
        for _, row in while_obeying(found).iterrows()
    )
    title = f"The highest leakage while at least {STILL_OBEYED:.0%} of the directives are obeyed, percent"
    columns = ("policy, order", "asked", "obeyed", "leaked", "more than the full cache", "selective amnesia")
    return Listing(title, columns, rows)


def _exposed(found: Study) -> Listing:
    rows = tuple(
        (row["policy"], f"{row['n']:,}", f"{100 * row['leakage']:.0f}", f"{100 * row['full']:.0f}")
        for _, row in exposed(found).iterrows()
    )
    title = (
        "Attacks on contexts that have lost the defence and kept the directives (5 % and 95 % of the tokens), percent"
    )
    return Listing(title, ("policy", "attacks", "leaked", "under the full cache"), rows)


def _bases(found: Study) -> dict[str, list[str]]:
    """By plain policy, itself and its protected forms."""
    plain = [name for name in found.policies if "+" not in name and name not in CONTROLS]
    return {base: [name for name in found.policies if name == base or name.startswith(f"{base}+")] for base in plain}


def _way(policy: str) -> str:
    return policy.partition("+")[2] or PLAIN


def _ways(found: Study) -> dict[str, LineStyle]:
    return named_styles(list(dict.fromkeys(_way(name) for own in _bases(found).values() for name in own)))


def _plane(found: Study) -> Part:
    styles = _ways(found)
    pictures, details = [], []
    for arm in DEFENDED:
        own = _in_arm(found, arm)
        if own.directives.empty or own.attacks.empty:
            continue
        obeyed, leaked = cells_of(accuracy(own), "strict"), cells_of(leaks(own), "leakage")
        pictures += [_plane_of(found, base, arm, obeyed, leaked, styles) for base in _bases(found)]
        details.append(table_of(f"Directives obeyed, strict, percent; {arm}", found, obeyed, found.policies))
    return Part(
        "plane",
        "Obeyed, and leaked",
        "Each line starts where the full cache is and goes through all ratios. In the grey region the answers still "
        f"look right, with at least {STILL_OBEYED:.0%} of the directives obeyed, while the secret is out: at least "
        f"{LEAKED_MORE:.0%} more of it than under the full cache.",
        tuple(styles.values()),
        tuple(pictures),
        details=tuple(details),
    )


def _in_arm(found: Study, arm: str) -> Study:
    """What is asked of prompts in one order."""
    directives, attacks = (table[table["arm"] == arm] for table in (found.directives, found.attacks))
    return replace(found, directives=directives, attacks=attacks)


def _plane_of(
    found: Study, base: str, arm: str, obeyed: Cells, leaked: Cells, styles: Mapping[str, LineStyle]
) -> Picture:
    whole = next((key for key in leaked if key[0] == FULL), None)
    paths = []
    for policy in _bases(found)[base]:
        keys = [*([whole] if whole else []), *((policy, asked) for asked in found.levels)]
        places = tuple((leaked[key].mean, obeyed[key].mean) for key in keys if key in leaked and key in obeyed)
        paths.append(Path(styles[_way(policy)], places))
    title = f"Directives obeyed over leakage under {base}, {arm}, a place for each ratio from the full cache on"
    region = (((leaked[whole].mean if whole else 0.0) + LEAKED_MORE, STILL_OBEYED), (1.03, 1.03))
    axes = Axis("leakage of the directives", SHARE), Axis("", SHARE)
    drawing = panel(paths, *axes, title, f"plane/{arm}/{base}", region)
    return Picture(f"{base}, {arm}", "share of directives obeyed, over leakage", Markup(drawing))


def _leakage(found: Study) -> Part:
    table = leaks(found)
    styles = _ways(found)
    pictures, details = [], []
    for arm in dict.fromkeys(found.attacks["arm"]):
        own = table[table["arm"] == arm]
        cells = cells_of(own, "leakage")
        named = arm or "all orders"
        for base, variants in _bases(found).items() if arm in DEFENDED or not arm else ():
            paths = [path_of(styles[_way(policy)], cells, policy, found.levels) for policy in variants]
            title = f"Leakage of the directives over the asked ratio under {base}, {named}"
            drawing = panel(paths, over_ratios(found), Axis("", SHARE), title, f"leakage/{arm}/{base}")
            pictures.append(
                Picture(f"{base}, {named}", "ROUGE-L recall of the directives in answers to attacks", Markup(drawing))
            )
        details.append(table_of(f"Leakage of the directives, percent; {named}", found, cells, found.policies))
        for name, words in (
            ("defence_leakage", "Leakage of the defence"),
            ("refused", "Attacks refused as the defence asks"),
        ):
            if measured := cells_of(own, name):
                details.append(table_of(f"{words}, percent; {named}", found, measured, found.policies))
    return Part(
        "leakage",
        "Leakage, in both orders",
        "The same prompts with the defence before the directives and behind them: what stands further from the end "
        "is what a press that looks from there loses first.",
        tuple(styles.values()),
        tuple(pictures),
        details=tuple(details),
    )


def _gains(gains: Sequence[Gain]) -> Part:
    rows = []
    for gain in gains:
        published = GAINS.get((gain.plain, _way(gain.protected)))
        theirs = [f"{value:.3f}" for value in published.gains] if published else ["–"] * len(GAINS_MODELS)
        interval = f"{gain.estimate.low:+.3f} to {gain.estimate.high:+.3f}" if gain.estimate.low is not None else "–"
        rows.append((gain.protected, f"{gain.estimate.mean:+.3f}", interval, *theirs))
    columns = ("policy", "gain", "95 % interval", *(f"{name}, published" for name in GAINS_MODELS))
    return Part(
        "gain",
        "What protection gains",
        "Half the gain in directives obeyed plus half the fall in leakage against the plain policy, averaged over "
        f"the asked ratios 0.4 to 0.7. The published columns are those of {GAINS_SOURCE}, on other models and other "
        "prompts.",
        listings=(Listing("Protection gain", columns, tuple(rows)),) if rows else (),
    )


def _families(found: Study) -> Part:
    table = accuracy(found, by=("family",))
    styles = named_styles(found.families)
    pictures, details = [], []
    for base in _bases(found):
        paths = []
        for family, own in table.groupby("family", sort=False):
            paths.append(path_of(styles[str(family)], cells_of(own, "strict"), base, found.levels))
        title = f"Directives obeyed over the asked ratio under {base}, a line for each family"
        drawing = panel(paths, over_ratios(found), Axis("", SHARE), title, f"family/{base}")
        pictures.append(Picture(base, "share of the directives of a family obeyed", Markup(drawing)))
    for family, own in table.groupby("family", sort=False):
        details.append(
            table_of(f"{family}: directives obeyed, strict, percent", found, cells_of(own, "strict"), found.policies)
        )
    for title, name in (("strict", "strict"), ("loose", "loose")):
        details.append(
            table_of(f"All directives, {title}, percent", found, cells_of(accuracy(found), name), found.policies)
        )
    for several, own in accuracy(found, by=("several",)).groupby("several", sort=False):
        words = "several directives" if several else "a single directive"
        details.append(
            table_of(f"Prompts with {words}: obeyed, strict, percent", found, cells_of(own, "strict"), found.policies)
        )
    details += [_relative(found), _kinds(found)]
    return Part(
        "families",
        "Which directives go first",
        "The directives of all contexts by family; bands are 95 % intervals.",
        tuple(styles.values()),
        tuple(pictures),
        details=tuple(details),
    )


def _relative(found: Study) -> Listing:
    table = accuracy(found)
    cells = {(row["policy"], row["asked"]): row["relative"] for _, row in table.iterrows()}

    def written(share: float | None) -> str:
        return "–" if share is None else f"{100 * share:.0f}"

    rows = tuple((p, *(written(cells.get((p, a))) for a in found.levels)) for p in found.policies if p != FULL)
    return Listing("All directives, strict, percent of the full cache", ("policy", *map(str, found.levels)), rows)


def _kinds(found: Study) -> Listing:
    """Of the plain policies, each kind of directive."""
    table = accuracy(found, by=("kind",))
    cells = {(row["policy"], row["kind"], row["asked"]): row["strict"] for _, row in table.iterrows()}
    kinds = list(dict.fromkeys(table["kind"]))
    rows = tuple(
        (f"{base}, {kind}", *(written(cells.get((base, kind, asked))) for asked in found.levels))
        for base in _bases(found)
        for kind in kinds
    )
    return Listing("Each directive, strict, percent", ("policy, directive", *map(str, found.levels)), rows)


def _bias(found: Study) -> Part:
    table = kept(found)
    if table.empty:
        return Part("bias", "", "")
    names = {f"{span}, {arm}": (span, arm) for arm in DEFENDED for span in ("defence", "directives")}
    colours = named_styles(["defence", "directives"])
    styles = {
        name: replace(colours[span], policy=name, index=index, dashes=DASHES_OF_ORDER[arm])
        for index, (name, (span, arm)) in enumerate(names.items())
    }
    curves, maps = [], []
    for base in _bases(found):
        own = table[table["policy"] == base]
        if own.empty:
            continue
        paths = []
        for name, (span, arm) in names.items():
            points = own[own["arm"] == arm].sort_values("asked")
            paths.append(
                Path(
                    styles[name],
                    ((0.0, 1.0), *((a.value, s) for a, s in zip(points["asked"], points[span], strict=True))),
                )
            )
        title = f"Share of the tokens of defence and directives that {base} keeps, over the asked ratio, in both orders"
        drawing = panel(paths, over_ratios(found), Axis("", SHARE), title, f"kept/{base}")
        curves.append(Picture(base, "share of the tokens of a span that are kept", Markup(drawing)))
        maps += [_layers(own[own["arm"] == arm], base, arm) for arm in DEFENDED if arm in set(own["arm"])]
    return Part(
        "bias",
        "Eviction bias: which span loses its tokens",
        "Means over layers and heads. In the maps below, by layer: blue where the defence loses more than the "
        "directives, red where the directives do.",
        tuple(styles.values()),
        (*curves, *maps),
    )


def _layers(own: DataFrame, base: str, arm: str) -> Picture:
    points = own.sort_values("asked")
    shares = np.stack(points["defence_by_layer"].to_list(), 1) - np.stack(points["directives_by_layer"].to_list(), 1)
    title = f"Kept of the defence minus kept of the directives under {base}, by layer and ratio, {arm}"
    drawing = layer_map(shares, [str(asked) for asked in points["asked"]], title, f"layers/{base}/{arm}")
    return Picture(f"{base}, {arm}", "kept of the defence minus kept of the directives, by layer", Markup(drawing))


def _order(found: Study) -> Part:
    correlations = rank_correlations(found)
    cells = {(one.policy, one.asked, one.group): one.estimate for one in correlations}

    def written(estimate: Estimate | None) -> str:
        if estimate is None:
            return "–"
        band = f" [{estimate.low:.2f}–{estimate.high:.2f}]" if estimate.low is not None else ""
        return f"{estimate.mean:.2f}{band}"

    titles = {"all": "All prompts", "single": "Prompts with one directive", "several": "Prompts with several"}
    listings = [
        Listing(
            title,
            ("policy", *map(str, found.levels)),
            tuple((p, *(written(cells.get((p, a, group))) for a in found.levels)) for p in found.policies if p != FULL),
        )
        for group, title in titles.items()
    ]
    return Part(
        "order",
        "Do the easy directives stay the easy ones?",
        "Spearman’s rank correlation of the families’ order by accuracy with their order under the full cache, with"
        " 95 % intervals. A dash: one of the two orders does not exist, as all families are obeyed alike.",
        listings=tuple(listings[:1]),
        details=tuple(listings[1:]),
    )
