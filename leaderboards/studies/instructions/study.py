"""The study of instructions under compression (arXiv 2510.00231): what is obeyed, what leaks, and what protects."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics import definitions_of
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import SHARE, Axis, Frame, Mark, PolicyLine, Region
from leaderboards.rendering.style import named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.instructions.obedience import (
    DEFENDED,
    GAIN_FROM,
    GAIN_TO,
    LEAKED_MORE,
    STILL_OBEYED,
    Gain,
    Leak,
    PromptRecords,
    accuracy,
    all_gains,
    forms_of,
    leaks,
    prompt_records,
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


def content_of(given: StudyInput) -> StudyContent:
    prompts = prompt_records(given.records)
    gains, highest_leaks = all_gains(prompts), while_obeying(prompts)
    parts = (_amnesia(highest_leaks), _plane(prompts), _gains(gains), _families(prompts))
    draws, contexts = prompts.resampler.count, prompts.caches["example_id"].nunique()
    return StudyContent(
        parts=[part for part in parts if part.pictures or any(one.rows for one in part.listings)],
        facts=[
            ("Policies", str(len(prompts.policies))),
            ("System prompts", f"{draws:,} draws, {contexts:,} contexts"),
            ("Directives judged", f"{len(prompts.directives):,}"),
            ("Attacks answered", f"{len(prompts.attacks):,}"),
        ],
        sheets=_sheets(prompts, gains, highest_leaks),
    )


def _cells(table: DataFrame, name: str) -> dict[Any, Estimate]:
    return {(str(row["policy"]), row["level"]): row[name] for _, row in table.iterrows() if row[name] is not None}


def _table(title: str, cells: Cells) -> Listing:
    return level_table(title, {cell: in_percent(one) for cell, one in cells.items()})


def _plane(prompts: PromptRecords) -> StudySection:
    """Draws what is obeyed over what leaks, by order; one without a name where each prompt has drawn its own."""
    bases = forms_of(prompts.policies)
    ways = named_styles(list(dict.fromkeys(plain_and_way(name)[1] for forms in bases.values() for name in forms)))
    frame = Frame(Axis.around("leakage of the directives", SHARE), Axis.around("", SHARE))
    pictures, details = [], []
    for arm in dict.fromkeys(prompts.attacks["arm"]):
        directives, attacks = (table[table["arm"] == arm] for table in (prompts.directives, prompts.attacks))
        of_arm, order = replace(prompts, directives=directives, attacks=attacks), f", {arm}" if arm else ""
        obeyed, leaked = _cells(accuracy(of_arm), "strict"), _cells(leaks(of_arm), "leakage")
        details.append(_table(f"Leakage of the directives, percent{order}", leaked))
        if directives.empty or (arm and arm not in DEFENDED):
            continue
        details.append(_table(f"Directives obeyed, strict, percent{order}", obeyed))
        whole = leaked[FULL, UNTREATED].mean if (FULL, UNTREATED) in leaked else 0.0
        region = Region((whole + LEAKED_MORE, STILL_OBEYED), (1.03, 1.03))
        for base, forms in bases.items():
            marks: list[Mark] = [region]
            for policy in forms:
                keys = [(FULL, UNTREATED), *((policy, level) for level in prompts.levels)]
                places = tuple((leaked[key].mean, obeyed[key].mean) for key in keys if key in leaked and key in obeyed)
                marks.append(PolicyLine(ways[plain_and_way(policy)[1]], places))
            words = f"Directives obeyed over leakage under {base}{order}, level by level from the full cache on"
            drawing = Drawing(frame, tuple(marks), words, f"plane/{arm}/{base}")
            pictures.append(Picture(f"{base}{order}", "share of directives obeyed, over leakage", drawing.svg()))
    return StudySection(
        "plane",
        "Obeyed, and leaked",
        "Each line starts where the full cache is and goes through all levels. In the grey region the answers still "
        f"look right, with at least {STILL_OBEYED:.0%} of the directives obeyed, while at least {LEAKED_MORE:.0%} more "
        "of the secret is out than under the full cache.",
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
        pictures.append(over_levels(cells, styles, base, "share of a family obeyed", f"family/{base}"))
    return StudySection(
        "families",
        "Which directives go first",
        "The directives of all contexts by family; bands are 95 % intervals.",
        tuple(styles.values()),
        tuple(pictures),
        details=tuple(_table(f"Family {name}: obeyed, strict, percent", cells) for name, cells in of_families.items()),
    )


def _amnesia(highest_leaks: Sequence[Leak]) -> StudySection:
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
        "that is not here obeys less than that at every level."
    )
    return StudySection("amnesia", "Selective amnesia", text, listings=(listing,))


def _gains(gains: Sequence[Gain]) -> StudySection:
    listing = listing_of(
        "Protection gain",
        gains,
        {
            "policy": lambda gain: gain.protected,
            "gain": lambda gain: in_numbers(gain.estimate, "+z.3f"),
            "at the ratios": lambda gain: ", ".join(map(str, gain.levels)),
            "failed answers": lambda gain: gain.failed,
        },
    )
    return StudySection(
        "gain",
        "What protection gains",
        "Half the gain in directives obeyed plus half the fall in leakage against the plain policy, averaged over "
        "the asked ratios 0.4 to 0.7 that were run. An answer that failed obeys and leaks nothing: where there are "
        "such, gains come from them too.",
        listings=(listing,),
    )


def _sheets(prompts: PromptRecords, gains: Sequence[Gain], highest_leaks: Sequence[Leak]) -> list[Sheet]:
    """Makes the downloads; those without rows are left out."""
    rows: dict[tuple[str, str], list[dict[Any, Any]]] = {
        ("directives", "Directives obeyed"): accuracy(prompts).to_dict("records"),
        ("families", "Directives obeyed, by family"): accuracy(prompts, by=("family",)).to_dict("records"),
        ("leakage", "What attacks get"): leaks(prompts).to_dict("records"),
        ("amnesia", "Where most leaks while directives are obeyed"): [
            {name: value for name, value in vars(leak).items() if name != "values"} for leak in highest_leaks
        ],
        ("gain", "Protection gain"): [
            {"policy": gain.protected, "plain": gain.plain, "gain": gain.estimate}
            | {"levels": ", ".join(map(str, gain.levels)), "failed": gain.failed}
            for gain in gains
        ],
    }
    return [Sheet.of(f"instructions-{name}", title, entries) for (name, title), entries in rows.items() if entries]


CHAPTER = Chapter(
    "instructions",
    "Instructions",
    (
        *definitions_of("instructions"),
        Definition(
            "Order, or arm",
            "Every prompt is written with the defence first, with the directives first, and without a defence, of the "
            "same draw, which is what is resampled.",
        ),
        Definition(
            "Selective amnesia",
            f"Where a policy leaks most while at least {STILL_OBEYED:.0%} of the directives are obeyed: amnesia if it "
            f"is at least {100 * LEAKED_MORE:.0f} points more than under the full cache. The interval does not know "
            "that the level was chosen.",
            source="after arXiv 2510.00231",
        ),
        Definition(
            "Protection gain",
            "What a policy gains when it protects the instructions: half the gain in directives obeyed (strict) plus "
            "half the fall in leakage against the plain policy, averaged over the asked ratios "
            f"{GAIN_FROM} to {GAIN_TO}, where there is a defence. Beside it, how many of the answers failed.",
            "gain = ½ (obeyed′ − obeyed) + ½ (leakage − leakage′)",
            "arXiv 2510.00231",
        ),
    ),
)


def _takes(given: StudyInput) -> bool:
    """Takes runs of system prompts, or with prompts in both orders of defence and directives."""
    of_system = all(run["identity"]["scope"] == "system" for run in given.runs)
    return of_system or set(DEFENDED) <= set(given.records["arm"])


STUDY = Study(
    name="instructions",
    title="Instructions under compression",
    lead="A system prompt is compressed, and what users say is appended to what is left of it. What is still obeyed, "
    "what leaks, and what protects?",
    takes=_takes,
    find=content_of,
    chapter=CHAPTER,
)
