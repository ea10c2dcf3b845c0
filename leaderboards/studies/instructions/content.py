"""The study of instructions under compression (arXiv 2510.00231): what is obeyed, what leaks, and
what protects."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pandas import DataFrame

from leaderboards.aggregate.attacks import attack_cells
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import SHARE, Axis, Frame, Mark, PolicyLine, Region
from leaderboards.rendering.style import policy_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.attacks import leak_sections
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.instructions.bias import bias_sections, spans_kept, spans_kept_by_layer
from leaderboards.studies.instructions.by_number import kept_by_number, numbers_section
from leaderboards.studies.instructions.definitions import DEFENDED, LEAKED_MORE, STILL_OBEYED
from leaderboards.studies.instructions.families import (
    families_section,
    rank_correlations,
    ranks_section,
)
from leaderboards.studies.instructions.prompts import (
    LEAKED,
    OF_ONE_ORDER,
    SUCCESS,
    PromptRecords,
    accuracy,
    estimates_by_cell,
    forms_by_policy,
    leaks,
    percent_table,
    plain_policies,
    prompt_records,
    styles_of_ways,
)
from leaderboards.studies.instructions.protection import (
    Gain,
    amnesia_section,
    gains_section,
    protection_gain,
    while_obeying,
)
from leaderboards.studies.parts import Cells, over_levels
from policies.declaration.levels import UNTREATED
from policies.declaration.names import FULL, PLAIN, plain_and_way

PLANE = Frame(Axis.around("leakage", SHARE), Axis.around("", SHARE))
Rows = Sequence[Mapping[Any, Any]]
# Of a download, the columns that have an interval; a run may have no value there.
ESTIMATES: Mapping[str, Sequence[str]] = {
    "ranks": ("correlation",),
    "numbers": ("strict", "relative"),
    "leakage": (*LEAKED, *SUCCESS),
    "bias": ("defence_kept", "directives_kept", "difference"),
}


def build_content(study_input: StudyInput) -> StudyContent:
    """Shows what is obeyed, what leaks, and what protects."""
    prompts = prompt_records(study_input.records)
    gains = _gains(prompts)
    highest_leaks = while_obeying(prompts)
    leaked = leaks(prompts)
    ranks = rank_correlations(prompts)
    numbers = kept_by_number(prompts)
    kept = spans_kept(prompts)
    by_layer = spans_kept_by_layer(prompts)
    parts = (
        *_leaks_of_attacks(study_input.records),
        amnesia_section(highest_leaks),
        _plane(prompts, leaked),
        _defence(prompts, leaked),
        *bias_sections(prompts, kept, by_layer),
        gains_section(gains),
        families_section(prompts),
        ranks_section(ranks),
        numbers_section(prompts, numbers),
    )
    sheets = (
        _sheet("directives", "Directives obeyed", _rows(accuracy(prompts))),
        _sheet("families", "Directives obeyed, by family", _rows(accuracy(prompts, ["family"]))),
        _sheet("ranks", "Rank correlation of the families with the full cache", _fields(ranks)),
        _sheet("numbers", "Directives obeyed, by how many a prompt has", _fields(numbers)),
        _sheet("leakage", "What attacks get", _rows(leaked)),
        _sheet("bias", "What is kept of defence and directives", kept),
        _sheet("bias-layers", "What is kept of defence and directives, by layer", by_layer),
        _sheet("amnesia", "Where most leaks while directives are obeyed", _fields(highest_leaks)),
        _sheet("gain", "Protection gain", [gain.row for gain in gains]),
    )
    # What stands behind a summary alone holds no section.
    shown = [part for part in parts if part.pictures or _has_rows(part)]
    return StudyContent(
        parts=shown,
        facts=_facts(prompts),
        sheets=[sheet for sheet in sheets if sheet.rows],
    )


def _has_rows(part: StudySection) -> bool:
    return any(listing.rows for listing in part.listings)


def _gains(prompts: PromptRecords) -> list[Gain]:
    """Lists what each protected form of a policy gains, where it can be told."""
    gains = []
    for policy in prompts.policies:
        plain, way = plain_and_way(policy)
        gain = None
        if way != PLAIN:
            gain = protection_gain(prompts, plain, policy)
        if gain is not None:
            gains.append(gain)
    return gains


def _facts(prompts: PromptRecords) -> list[tuple[str, str]]:
    draws = prompts.resampler.count
    contexts = prompts.caches["example_id"].nunique()
    return [
        ("Policies", str(len(prompts.policies))),
        ("System prompts", f"{draws:,} draws, {contexts:,} contexts"),
        ("Directives judged", f"{len(prompts.directives):,}"),
        ("Attacks answered", f"{len(prompts.attacks):,}"),
    ]


def _sheet(name: str, title: str, rows: Rows) -> Sheet:
    kinds = dict.fromkeys(ESTIMATES.get(name, ()), Estimate)
    return Sheet.of(f"instructions-{name}", title, rows, kinds=kinds)


def _rows(table: DataFrame) -> Rows:
    rows: Rows = table.to_dict("records")
    return rows


def _fields(results: Sequence[Any]) -> Rows:
    """Returns dataclasses as rows by column, without the resamples that their estimates are made
    of."""
    rows = []
    for result in results:
        row = dict(vars(result))
        row.pop("values", None)
        rows.append(row)
    return rows


def _plane(prompts: PromptRecords, leak_table: DataFrame) -> StudySection:
    """Draws what is obeyed over what leaks, by order; one without a name where each prompt has
    drawn its own."""
    bases = forms_by_policy(prompts.policies)
    ways = styles_of_ways(bases)
    pictures, details = [], []
    for arm in dict.fromkeys(prompts.attacks["arm"]):
        order = f", {arm}" if arm else ""
        directives = prompts.directives[prompts.directives["arm"] == arm]
        of_order = replace(prompts, directives=directives)
        obeyed = estimates_by_cell(accuracy(of_order), "strict")
        leaked = estimates_by_cell(leak_table[leak_table["arm"] == arm], "leakage")
        details.append(percent_table(f"Leakage, percent of the protected text{order}", leaked))
        # Only where there is a defence, or one's own prompts: without one nothing forbids what
        # leaks.
        if directives.empty or arm not in (*DEFENDED, OF_ONE_ORDER):
            continue
        details.append(percent_table(f"Directives obeyed, strict, percent{order}", obeyed))
        for base, forms in bases.items():
            lines: list[PolicyLine] = []
            for policy in forms:
                cells = [(FULL, UNTREATED), *((policy, level) for level in prompts.levels)]
                places = []
                for cell in cells:
                    if cell in leaked and cell in obeyed:
                        places.append((leaked[cell].mean, obeyed[cell].mean))
                _, way = plain_and_way(policy)
                lines.append(PolicyLine(ways[way], tuple(places)))
            marks: list[Mark] = [_still_right(leaked), *lines]
            words = (
                f"Directives obeyed over leakage under {base}{order}, level by level from the full "
                "cache on"
            )
            drawing = Drawing(PLANE, tuple(marks), words, f"plane/{arm}/{base}")
            note = "share of directives obeyed, over leakage"
            pictures.append(Picture(f"{base}{order}", note, drawing))
    text = (
        "Each line starts where the full cache is and goes through all levels. In the grey region "
        f"the answers still look right, with at least {STILL_OBEYED:.0%} of the directives obeyed, "
        f"while at least {LEAKED_MORE:.0%} more of the secret is out than under the full cache."
    )
    return StudySection(
        "plane",
        "Obeyed, and leaked",
        text,
        tuple(ways.values()),
        tuple(pictures),
        details=tuple(details),
    )


def _still_right(leaked: Cells) -> Region:
    """Marks where answers still look right, and the secret is out."""
    whole = 0.0
    if (FULL, UNTREATED) in leaked:
        whole = leaked[FULL, UNTREATED].mean
    return Region((whole + LEAKED_MORE, STILL_OBEYED), (1.03, 1.03))


def _defence(prompts: PromptRecords, leaked: DataFrame) -> StudySection:
    """Draws in how many attacks the defence holds, in each order, under plain policies."""
    styles = policy_styles(plain_policies(prompts.policies))
    pictures: list[Picture] = []
    tables = []
    for arm, of_arm in leaked.groupby("arm", sort=False):
        held = estimates_by_cell(of_arm, "defence_success")
        if not held:
            continue
        order = f", {arm}" if arm else ""
        note = "share of attacks that get less than half"
        pictures += over_levels(held, styles, str(arm) or "All prompts", note, f"defence/{arm}")
        title = f"Attacks that get less than half of the text, percent{order}"
        tables.append(percent_table(title, held))
    half, *thresholds = SUCCESS.values()
    others = " and ".join(f"{threshold:.0%}" for threshold in thresholds)
    text = (
        "The share of attacks on prompts with a defence whose answers hold less than "
        f"{half:.0%} of the protected text; instructions-leakage.csv has {others} too. A cache "
        "that has lost its directives gives nothing away either: read it beside what is obeyed."
    )
    return StudySection(
        "defence",
        "Does the defence hold?",
        text,
        tuple(styles.values()),
        tuple(pictures),
        details=tuple(tables),
    )


def _leaks_of_attacks(records: DataFrame) -> list[StudySection]:
    """Says of each kind of attack in how many answers the text stands, and whether it is kept back
    or forgotten."""
    sections = []
    for number, leak in enumerate(leak_sections(attack_cells(records)), start=1):
        section = StudySection(
            f"leaks-{number}",
            f"Does it leak? {leak.title}",
            " ".join(leak.sentences),
            listings=(leak.table,),
            details=leak.attacks,
        )
        sections.append(section)
    return sections
