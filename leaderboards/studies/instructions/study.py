"""The study of instructions under compression (arXiv 2510.00231): what is obeyed, what leaks, and what protects."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics import definitions_of
from leaderboards.metrics.declaration.definition import Chapter, Definition, estimates
from leaderboards.rendering.frames import SHARE, Axis
from leaderboards.rendering.panels import BandedLine, panel
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.instructions.obedience import (
    DEFENDED,
    PromptRecords,
    accuracy,
    leaks,
    prompt_records,
    spans_kept,
)
from leaderboards.studies.instructions.protection import (
    GAIN_FROM,
    GAIN_TO,
    LEAKED_MORE,
    STILL_OBEYED,
    Gain,
    Leak,
    all_gains,
    forms_of,
    while_obeying,
)
from leaderboards.studies.parts import (
    Cells,
    exactly,
    in_numbers,
    in_percent,
    in_points,
    level_table,
    listing_of,
    over_levels,
)
from policies.declaration.levels import UNTREATED
from policies.declaration.names import FULL, plain_and_way

SPANS = ("defence", "directives")
NO_ORDERS = Markup(
    "Each prompt of this run stands in an order of its own or without a defence. What is compared between the orders, "
    "and what protection gains, is measured by <code>python -m kvbench run --suite instructions</code>."
)


def has_orders(records: DataFrame) -> bool:
    """Tells whether prompts stand in both orders of defence and directives, which the study compares."""
    return set(DEFENDED) <= set(records["arm"])


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, its downloads, and the numbers that are worth quoting."""
    prompts = prompt_records(given.records)
    gains, highest_leaks = all_gains(prompts), while_obeying(prompts)
    parts = (_plane(prompts), _leakage(prompts), _gains(gains), _families(prompts), _bias(prompts))
    return StudyContent(
        parts=[
            _amnesia(highest_leaks, has_orders(given.records)),
            *(part for part in parts if part.pictures or part.listings),
        ],
        facts=[
            ("Policies", str(len(prompts.policies))),
            (
                "System prompts",
                f"{prompts.resampler.count:,} draws, {prompts.caches['example_id'].nunique():,} contexts",
            ),
            ("Directives judged", f"{len(prompts.directives):,}"),
            ("Attacks answered", f"{len(prompts.attacks):,}"),
        ],
        sheets=_sheets(prompts, gains, highest_leaks),
        quoted=_numbers_to_quote(gains, highest_leaks),
    )


def _cells(table: DataFrame, name: str) -> dict[Any, Estimate]:
    """Returns a column by policy and level."""
    return {(str(row["policy"]), row["level"]): row[name] for _, row in table.iterrows() if row[name] is not None}


def _table(title: str, cells: Cells) -> Listing:
    return level_table(title, {cell: in_percent(one) for cell, one in cells.items()})


def _ways(prompts: PromptRecords) -> dict[str, LineStyle]:
    """Returns a line for each way of protection, and one for none."""
    forms = forms_of(prompts.policies).values()
    return named_styles(list(dict.fromkeys(plain_and_way(name)[1] for own in forms for name in own)))


def _orders(prompts: PromptRecords) -> list[str]:
    """Lists the orders of defence and directives; an empty one where each prompt has drawn its own."""
    return [arm for arm in dict.fromkeys(prompts.attacks["arm"]) if arm in DEFENDED or not arm]


def _title(base: str, arm: str) -> str:
    return f"{base}, {arm}" if arm else base


def _plane(prompts: PromptRecords) -> StudySection:
    """Draws what is obeyed over what leaks, from the full cache through all levels."""
    ways = _ways(prompts)
    pictures, details = [], []
    for arm in _orders(prompts):
        directives, attacks = (table[table["arm"] == arm] for table in (prompts.directives, prompts.attacks))
        if directives.empty or attacks.empty:
            continue
        of_arm = replace(prompts, directives=directives, attacks=attacks)
        obeyed, leaked = _cells(accuracy(of_arm), "strict"), _cells(leaks(of_arm), "leakage")
        whole = leaked[FULL, UNTREATED].mean if (FULL, UNTREATED) in leaked else 0.0
        region = (whole + LEAKED_MORE, STILL_OBEYED), (1.03, 1.03)
        for base, forms in forms_of(prompts.policies).items():
            lines = []
            for policy in forms:
                keys = [(FULL, UNTREATED), *((policy, level) for level in prompts.levels)]
                places = tuple((leaked[key].mean, obeyed[key].mean) for key in keys if key in leaked and key in obeyed)
                lines.append(BandedLine(ways[plain_and_way(policy)[1]], places))
            axes = Axis.around("leakage of the directives", SHARE), Axis.around("", SHARE)
            words = f"Directives obeyed over leakage under {_title(base, arm)}, level by level from the full cache on"
            drawing = panel(lines, *axes, words, f"plane/{arm}/{base}", region)
            pictures.append(Picture(_title(base, arm), "share of directives obeyed, over leakage", Markup(drawing)))
        details.append(_table(_title("Directives obeyed, strict, percent", arm), obeyed))
    return StudySection(
        "plane",
        "Obeyed, and leaked",
        "Each line starts where the full cache is and goes through all levels. In the grey region the answers still "
        f"look right, with at least {STILL_OBEYED:.0%} of the directives obeyed, while the secret is out: at least "
        f"{LEAKED_MORE:.0%} more of it than under the full cache.",
        tuple(ways.values()),
        tuple(pictures),
        details=tuple(details),
    )


def _leakage(prompts: PromptRecords) -> StudySection:
    table, ways = leaks(prompts), _ways(prompts)
    pictures, details = [], []
    for arm in dict.fromkeys(prompts.attacks["arm"]):
        cells = _cells(table[table["arm"] == arm], "leakage")
        details.append(_table(_title("Leakage of the directives, percent", arm), cells))
        for base, forms in forms_of(prompts.policies).items() if arm in _orders(prompts) else ():
            styles = {name: ways[plain_and_way(name)[1]] for name in forms}
            note = "ROUGE-L recall of the directives in answers to attacks"
            pictures.append(over_levels(cells, styles, _title(base, arm), note, f"leakage/{arm}/{base}"))
    return StudySection(
        "leakage",
        "Leakage, in both orders",
        "The same prompts with the defence before the directives and behind them: what stands further from the end "
        "is what a press that looks from there loses first.",
        tuple(ways.values()),
        tuple(pictures),
        details=tuple(details),
    )


def _families(prompts: PromptRecords) -> StudySection:
    """Draws what is obeyed of each family of directives under each plain policy."""
    table = accuracy(prompts, by=("family",))
    styles = named_styles(prompts.families)
    of_families = {str(family): _cells(own, "strict") for family, own in table.groupby("family", sort=False)}
    pictures = []
    for base in forms_of(prompts.policies):
        cells = {
            (family, level): one
            for family, own in of_families.items()
            for (policy, level), one in own.items()
            if policy in (base, FULL)
        }
        note = "share of the directives of a family obeyed"
        pictures.append(over_levels(cells, styles, base, note, f"family/{base}"))
    return StudySection(
        "families",
        "Which directives go first",
        "The directives of all contexts by family; bands are 95 % intervals. The downloads have them by kind, alone "
        "and among several, and loosely judged.",
        tuple(styles.values()),
        tuple(pictures),
        details=tuple(_table(f"Family {name}: obeyed, strict, percent", cells) for name, cells in of_families.items()),
    )


def _bias(prompts: PromptRecords) -> StudySection:
    """Draws which of the two spans loses its tokens."""
    table = spans_kept(prompts)
    styles = named_styles([f"{span}, {arm}" for arm in DEFENDED for span in SPANS])
    pictures = []
    for base in forms_of(prompts.policies):
        rows = table[table["policy"] == base].to_dict("records")
        if rows:
            cells = {(f"{span}, {row['arm']}", row["level"]): exactly(row[span]) for row in rows for span in SPANS}
            whole = {(FULL, UNTREATED): exactly(1.0)}
            note = "share of the tokens of a span that are kept"
            pictures.append(over_levels(whole | cells, styles, base, note, f"kept/{base}"))
    return StudySection(
        "bias",
        "Eviction bias: which span loses its tokens",
        "Means over layers and heads. Protected forms stand in the downloads.",
        tuple(styles.values()),
        tuple(pictures),
    )


def _amnesia(highest_leaks: Sequence[Leak], with_orders: bool) -> StudySection:
    """Shows what leaks while the answers still look right."""
    listing = listing_of(
        f"The highest leakage while at least {STILL_OBEYED:.0%} of the directives are obeyed, percent",
        highest_leaks,
        {
            "policy, order": lambda leak: f"{leak.policy}, {leak.arm}",
            "level": lambda leak: leak.level,
            "obeyed": lambda leak: exactly(leak.obeyed),
            "leaked": lambda leak: exactly(leak.leakage),
            "more than the full cache": lambda leak: in_points(leak.more),
            "selective amnesia": lambda leak: "yes" if leak.more.mean >= LEAKED_MORE else "no",
        },
    )
    text = (
        "The answers still look right, and the secret is out: where each policy leaks most while it obeys. A policy "
        "that is not here obeys less than that at every level. The level is the one with the highest leakage of "
        "several, which its interval does not know of."
    )
    return StudySection("amnesia", "Selective amnesia", text if with_orders else NO_ORDERS, listings=(listing,))


def _gains(gains: Sequence[Gain]) -> StudySection:
    listing = listing_of(
        "Protection gain",
        gains,
        {
            "policy": lambda gain: gain.protected,
            "gain": lambda gain: in_numbers(gain.estimate, "+z.3f"),
            "at the ratios": lambda gain: ", ".join(map(str, gain.levels)),
            "spans whole, percent": lambda gain: None if gain.whole is None else exactly(gain.whole),
            "failed answers": lambda gain: gain.failed,
        },
    )
    return StudySection(
        "gain",
        "What protection gains",
        "Half the gain in directives obeyed plus half the fall in leakage against the plain policy, averaged over "
        "the asked ratios 0.4 to 0.7 that were run; each interval stands by itself. Spans whole: in how many contexts, "
        "at these ratios, all tokens of defence and directives are kept: the budget does not always hold them. An "
        "answer that failed obeys and leaks nothing: where there are such, gains come from them too. Claim P5 has what "
        "the text reports.",
        listings=(listing,) if gains else (),
    )


def _sheets(prompts: PromptRecords, gains: Sequence[Gain], highest_leaks: Sequence[Leak]) -> list[Sheet]:
    """Makes the downloads; those without rows are left out."""
    tables = {
        ("directives", "Directives obeyed"): accuracy(prompts),
        ("families", "Directives obeyed, by family"): accuracy(prompts, by=("family",)),
        ("kinds", "Directives obeyed, by kind"): accuracy(prompts, by=("kind",)),
        ("several", "Directives obeyed, alone and among several"): accuracy(prompts, by=("several",)),
        ("leakage", "What attacks get"): leaks(prompts),
        ("kept", "What is kept of defence and directives"): spans_kept(prompts),
    }
    of_gains = [
        {"policy": gain.protected, "plain": gain.plain, "gain": gain.estimate}
        | {"levels": ", ".join(map(str, gain.levels)), "failed": gain.failed, "whole": gain.whole}
        for gain in gains
    ]
    of_leaks = [{name: value for name, value in vars(leak).items() if name != "values"} for leak in highest_leaks]
    rows: dict[tuple[str, str], list[dict[Any, Any]]] = {
        **{key: table.to_dict("records") for key, table in tables.items()},
        ("amnesia", "Where most leaks while directives are obeyed"): of_leaks,
        ("gain", "Protection gain"): of_gains,
    }
    return [Sheet.of(f"instructions-{name}", title, entries) for (name, title), entries in rows.items() if entries]


def _numbers_to_quote(gains: Sequence[Gain], highest_leaks: Sequence[Leak]) -> dict[str, Any]:
    return {
        "gains": [
            {"policy": gain.protected, "gain": gain.estimate.mean, "low": gain.estimate.low, "high": gain.estimate.high}
            | {"levels": ", ".join(map(str, gain.levels)), "failed": gain.failed, "whole": gain.whole}
            for gain in gains
        ],
        "while_obeying": [
            {"policy": leak.policy, "order": leak.arm, "level": str(leak.level), "obeyed": leak.obeyed}
            | {"leaked_more": leak.more.mean, "low": leak.more.low, "high": leak.more.high}
            for leak in highest_leaks
        ],
    }


PITFALLS = "arXiv 2510.00231"
CHAPTER = Chapter(
    "instructions",
    "Instructions",
    (
        *definitions_of("instructions"),
        Definition(
            "Order, or arm",
            "Every prompt is written with the defence first, with the directives first, and without a defence, of the "
            "same draw, which is what is resampled.",
            names=("arm", "policy, order", "draw_id"),
        ),
        Definition(
            "Selective amnesia",
            f"Where a policy leaks most while at least {STILL_OBEYED:.0%} of the directives are obeyed: amnesia if it "
            f"is at least {100 * LEAKED_MORE:.0f} points more than under the full cache.",
            source=f"after {PITFALLS}",
            names=("selective amnesia", "more than the full cache", *estimates("more")),
        ),
        Definition(
            "Protection gain",
            "What a policy gains when it protects the instructions: half the gain in directives obeyed (strict) plus "
            "half the fall in leakage against the plain policy, averaged over the asked ratios "
            f"{GAIN_FROM} to {GAIN_TO}, where there is a defence. Beside it, how many "
            "of the answers it is taken from failed: these obey and leak nothing.",
            "gain = ½ (obeyed′ − obeyed) + ½ (leakage − leakage′)",
            PITFALLS,
            (
                *("gain", *estimates("gain"), "plain", "failed", "failed answers"),
                *("levels", "at the ratios", "whole", "spans whole, percent"),
            ),
        ),
    ),
)


def _takes(given: StudyInput) -> bool:
    """Takes runs of system prompts, or in both orders."""
    return all(run["identity"]["scope"] == "system" for run in given.runs) or has_orders(given.records)


STUDY = Study(
    name="instructions",
    title="Instructions under compression",
    lead="A system prompt is compressed, and what users say is appended to what is left of it. What is still obeyed, "
    "what leaks, and what protects?",
    takes=_takes,
    find=content_of,
    chapter=CHAPTER,
)
