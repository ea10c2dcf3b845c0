"""Shows what leaks of the directives and of the defence: over what is obeyed, and over the levels."""

from collections.abc import Mapping
from dataclasses import replace

from markupsafe import Markup
from pandas import DataFrame

from leaderboards.figures.panels import BandedLine, fitted, panel
from leaderboards.rendering.frames import SHARE, Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.instructions.amnesia import LEAKED_MORE, STILL_OBEYED
from leaderboards.studies.instructions.obedience import DEFENDED, PromptRecords, accuracy, leaks
from leaderboards.studies.instructions.parts import Cells, cells_of, kind_of, over_levels, path_of, table_of
from leaderboards.studies.instructions.protection import forms_of
from policies.declaration.names import FULL, plain_and_way


def ways(prompts: PromptRecords) -> dict[str, LineStyle]:
    """Returns a line for each way of protection, and one for none."""
    return named_styles(
        list(dict.fromkeys(plain_and_way(name)[1] for forms in _forms(prompts).values() for name in forms))
    )


def _forms(prompts: PromptRecords) -> dict[str, list[str]]:
    return forms_of(prompts.policies)


def _orders(prompts: PromptRecords) -> list[str]:
    """Lists the orders of defence and directives; an empty one where each prompt has drawn its own."""
    return [arm for arm in dict.fromkeys(prompts.attacks["arm"]) if arm in DEFENDED or not arm]


def _title(base: str, arm: str) -> str:
    return f"{base}, {arm}" if arm else base


def plane(prompts: PromptRecords) -> StudySection:
    styles = ways(prompts)
    pictures, details = [], []
    for arm in _orders(prompts):
        of_arm = _in_arm(prompts, arm)
        if of_arm.directives.empty or of_arm.attacks.empty:
            continue
        obeyed, leaked = cells_of(accuracy(of_arm), "strict"), cells_of(leaks(of_arm), "leakage")
        pictures += [_plane_of(prompts, base, arm, obeyed, leaked, styles) for base in _forms(prompts)]
        details.append(table_of(_title("Directives obeyed, strict, percent", arm), prompts, obeyed, prompts.policies))
    return StudySection(
        "plane",
        "Obeyed, and leaked",
        "Each line starts where the full cache is and goes through all ratios. In the grey region the answers still "
        f"look right, with at least {STILL_OBEYED:.0%} of the directives obeyed, while the secret is out: at least "
        f"{LEAKED_MORE:.0%} more of it than under the full cache.",
        tuple(styles.values()),
        tuple(pictures),
        details=tuple(details),
    )


def _in_arm(prompts: PromptRecords, arm: str) -> PromptRecords:
    """Selects the prompts of one order."""
    directives, attacks = (table[table["arm"] == arm] for table in (prompts.directives, prompts.attacks))
    return replace(prompts, directives=directives, attacks=attacks)


def _plane_of(
    prompts: PromptRecords, base: str, arm: str, obeyed: Cells, leaked: Cells, styles: Mapping[str, LineStyle]
) -> Picture:
    whole = next((key for key in leaked if key[0] == FULL), None)
    paths = []
    for policy in _forms(prompts)[base]:
        keys = [*([whole] if whole else []), *((policy, level) for level in prompts.levels)]
        places = tuple((leaked[key].mean, obeyed[key].mean) for key in keys if key in leaked and key in obeyed)
        paths.append(BandedLine(styles[plain_and_way(policy)[1]], places))
    each = f"a place for each {kind_of(prompts.levels).name} from the full cache on"
    title = f"Directives obeyed over leakage under {_title(base, arm)}, {each}"
    region = (((leaked[whole].mean if whole else 0.0) + LEAKED_MORE, STILL_OBEYED), (1.03, 1.03))
    axes = Axis.around("leakage of the directives", SHARE), Axis.around("", SHARE)
    drawing = panel(paths, *axes, title, f"plane/{arm}/{base}", region)
    return Picture(_title(base, arm), "share of directives obeyed, over leakage", Markup(drawing))


def leakage(prompts: PromptRecords) -> StudySection:
    table = leaks(prompts)
    pictures, details = [], []
    for arm in dict.fromkeys(prompts.attacks["arm"]):
        of_arm = table[table["arm"] == arm]
        if arm in _orders(prompts):
            note = "ROUGE-L recall of the directives in answers to attacks"
            pictures += _curves(prompts, of_arm, "leakage", "Leakage of the directives", note, arm)
        cells = cells_of(of_arm, "leakage")
        details.append(table_of(_title("Leakage of the directives, percent", arm), prompts, cells, prompts.policies))
    return StudySection(
        "leakage",
        "Leakage, in both orders",
        "The same prompts with the defence before the directives and behind them: what stands further from the end "
        "is what a press that looks from there loses first.",
        tuple(ways(prompts).values()),
        tuple(pictures),
        details=tuple(details),
    )


def defence(prompts: PromptRecords) -> StudySection:
    """Shows what attacks get of the defence, and how many are refused as it asks."""
    table = leaks(prompts)
    pictures, details = [], []
    for arm in _orders(prompts):
        of_arm = table[table["arm"] == arm]
        note = "ROUGE-L recall of the defence in answers to attacks"
        pictures += _curves(prompts, of_arm, "defence_leakage", "Leakage of the defence", note, arm)
        for name, words in (
            ("defence_leakage", "Leakage of the defence, percent"),
            ("refused", "Attacks refused as the defence asks, percent"),
        ):
            details.append(table_of(_title(words, arm), prompts, cells_of(of_arm, name), prompts.policies))
    return StudySection(
        "defence",
        "The defence itself",
        "A refusal in the words that the defence asks for holds a part of its text, so that this leakage is seldom 0 "
        "while the defence works; the share of attacks that are refused stands in the numbers.",
        tuple(ways(prompts).values()),
        tuple(pictures),
        details=tuple(details),
    )


def _curves(prompts: PromptRecords, table: DataFrame, name: str, words: str, note: str, arm: str) -> list[Picture]:
    """Returns a picture for each plain policy, with a line for each of its forms."""
    styles, cells = ways(prompts), cells_of(table, name)
    if not cells:
        return []
    pictures = []
    for base, forms in _forms(prompts).items():
        paths = [path_of(styles[plain_and_way(policy)[1]], cells, policy, prompts.levels) for policy in forms]
        axis = over_levels(prompts)
        title = f"{words} over the {axis.title} under {_title(base, arm)}"
        drawing = panel(paths, axis, fitted(paths), title, f"{name}/{arm}/{base}")
        pictures.append(Picture(_title(base, arm), note, Markup(drawing)))
    return pictures
