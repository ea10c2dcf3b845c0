"""Shows where a fault hurts: in which layers, in which tokens, in keys or in values; and what a text reports."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from markupsafe import Markup

from leaderboards.figures.panels import share_map
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import named_styles
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.treatments.damage import Damage
from leaderboards.studies.treatments.measured import MeasuredTask
from leaderboards.studies.treatments.parts import KEPT, curves, in_percent, in_points, is_clear
from leaderboards.studies.treatments.published import CLEAN_LARGE, CLEAN_SMALL, FAULTS, LARGE, SMALL
from policies.declaration.levels import RATE, Level

RANDOM, EVIDENCE = "random", "evidence"
AIM_WORDS = {"all": "all tokens", RANDOM: "as many at random"}


def _by_fault(faults: Sequence[Damage], option: str, beside: Sequence[Damage] = ()) -> dict[str, list[Damage]]:
    """Sorts the faults that are restricted by one option alone by what they do; ``beside``: those that join theirs."""
    groups: dict[str, list[Damage]] = {}
    for fault in faults:
        if fault.restricted == {option}:
            groups.setdefault(fault.fault, []).append(fault)
    return {name: [*group, *(one for one in beside if one.fault == name)] for name, group in groups.items()}


def _everywhere(faults: Iterable[Damage]) -> list[Damage]:
    return [fault for fault in faults if not fault.restricted]


def bands(tasks: Sequence[MeasuredTask], faults: Sequence[Damage]) -> list[StudySection]:
    """Maps what is kept by band of layers and rate."""
    groups = {name: group for name, group in _by_fault(faults, "layers").items() if len(group) > 1}
    pictures, listings, words = [], [], []
    for task in tasks:
        for name, group in groups.items():
            levels = task.levels(group[0].policy)
            cells = [[task.share_kept(fault.policy, level) for level in levels] for fault in group]
            shares = np.array([[cell[0] for cell in row] for row in cells])
            title, columns = f"{name}, {task.name}", [str(Level(RATE.name, level)) for level in levels]
            rows = [fault.layers for fault in group]
            drawing = share_map(shares, rows, columns, (RATE.axis, "layers"), f"Share kept: {title}", f"bands/{title}")
            pictures.append(Picture(title, KEPT, Markup(drawing)))
            texts = tuple(
                (layers, *(in_percent(task.estimate(cell)) for cell in row))
                for layers, row in zip(rows, cells, strict=True)
            )
            listings.append(Listing(f"Share kept, {title}, percent", ("layers", *columns), texts))
            words.append(_critical(task, name, [fault for fault in group if fault.layers.startswith("Q")]))
    if not pictures:
        return []
    text = " ".join(filter(None, words))
    return [StudySection("bands", "Which layers matter", text, pictures=tuple(pictures), details=tuple(listings))]


def _critical(task: MeasuredTask, name: str, quarters: Sequence[Damage]) -> str:
    """Tells which quarter matters most at the highest rate, and whether it differs from the one that matters least."""
    if len(quarters) < 2:
        return ""
    rate = max(task.levels(quarters[0].policy))
    kept = {fault.layers: task.share_kept(fault.policy, rate) for fault in quarters}
    ordered = sorted(kept, key=lambda layers: kept[layers][0])
    lowest, highest = ordered[0], ordered[-1]
    difference = task.estimate(kept[highest] - kept[lowest])
    verdict = "" if is_clear(difference) else ": that may be chance"
    return (
        f"{name} at rate {rate:g} on {task.name}: {lowest} matters most (keeps {100 * kept[lowest][0]:.0f} %) and "
        f"{highest} least ({100 * kept[highest][0]:.0f} %), {in_points(difference)} points apart{verdict}."
    )


def aims(tasks: Sequence[MeasuredTask], faults: Sequence[Damage]) -> list[StudySection]:
    """Draws what is kept where a fault is aimed at some tokens, beside the same fault everywhere."""
    groups = _by_fault(faults, "tokens", _everywhere(faults))
    names = dict.fromkeys(_aim(fault) for group in groups.values() for fault in group)
    styles = named_styles(tuple(names))
    pictures, listings, words = [], [], []
    for task in tasks:
        for name, group in groups.items():
            title = f"{name}, {task.name}"
            lines = {fault.policy: styles[_aim(fault)] for fault in group}
            pictures.append(curves(task, lines, RATE.name, title, f"aims/{title}"))
            listings.append(_aimed_table(task, title, group))
            by_aim = {fault.options.tokens: fault.policy for fault in group}
            words.append(_compare_aims(task, name, by_aim, {EVIDENCE: "the evidence", RANDOM: "as many random tokens"}))
    if not pictures:
        return []
    text = " ".join(filter(None, words)) + (
        " The rate is a share of the rows of the tokens that are aimed at, so that a fault aimed at evidence damages "
        "far less of the cache than one at the same rate everywhere. Beside it as many tokens at random: the "
        "difference is what it costs that these tokens carry the evidence."
    )
    return [
        StudySection("aims", "Aimed faults", text.strip(), tuple(styles.values()), tuple(pictures), tuple(listings))
    ]


def _compare_aims(task: MeasuredTask, name: str, policies: Mapping[str, str], words: Mapping[str, str]) -> str:
    """Tells what is kept at the highest rate where one part is hit and where another is, and their paired difference.
    ``words``: two of the options that are the keys of ``policies``, as they are called; nothing where one was not
    run."""
    one, other = words
    if not {one, other} <= set(policies):
        return ""
    rate = max(set(task.levels(policies[one])) & set(task.levels(policies[other])), default=0.0)
    if not rate:
        return ""
    kept, beside = task.share_kept(policies[one], rate), task.share_kept(policies[other], rate)
    difference = task.estimate(kept - beside)
    verdict = "" if is_clear(difference) else ", which may be chance"
    return (
        f"{name} at rate {rate:g} on {task.name}: {100 * kept[0]:.0f} % is kept where it hits {words[one]}, "
        f"{100 * beside[0]:.0f} % where it hits {words[other]}, {in_points(difference)} points{verdict}."
    )


def _aim(fault: Damage) -> str:
    return AIM_WORDS.get(fault.options.tokens, fault.options.tokens)


def _aimed_table(task: MeasuredTask, title: str, faults: Sequence[Damage]) -> Listing:
    """Lists what is kept, and the paired difference from as many random tokens at the highest rate."""
    levels = task.levels(next(fault.policy for fault in faults if fault.restricted))
    random = next((fault.policy for fault in faults if fault.options.tokens == RANDOM), None)
    rows = []
    for fault in faults:
        usual = set(task.levels(fault.policy))
        kept = [
            in_percent(task.estimate(task.share_kept(fault.policy, one))) if one in usual else "–" for one in levels
        ]
        against = "–"
        if random and fault.policy != random and levels[-1] in usual:
            difference = task.share_kept(fault.policy, levels[-1]) - task.share_kept(random, levels[-1])
            against = in_points(task.estimate(difference))
        rows.append((_aim(fault), *kept, against))
    columns = ("aimed at", *(str(Level(RATE.name, level)) for level in levels), "against random tokens")
    return Listing(
        f"Share kept, {title}, percent; against random tokens in points, at the last rate", columns, tuple(rows)
    )


def tensors(tasks: Sequence[MeasuredTask], faults: Sequence[Damage]) -> list[StudySection]:
    """Draws keys against values."""
    groups = _by_fault(faults, "tensor", _everywhere(faults))
    words = {"K": "keys alone", "V": "values alone", "both": "keys and values"}
    styles = named_styles(tuple(words.values()))
    pictures, listings, told = [], [], []
    for task in tasks:
        for name, group in groups.items():
            title = f"{name}, {task.name}"
            lines = {fault.policy: styles[words[fault.options.tensor]] for fault in group}
            pictures.append(curves(task, lines, RATE.name, title, f"tensors/{title}"))
            by_tensor: dict[str, str] = {fault.options.tensor: fault.policy for fault in group}
            listings.append(_tensor_table(task, title, by_tensor))
            told.append(_compare_aims(task, name, by_tensor, {tensor: words[tensor] for tensor in ("K", "V")}))
    if not pictures:
        return []
    text = " ".join(filter(None, (*told, "The same rows are hit in keys, in values, or in both.")))
    tables = tuple(listing for listing in listings if listing is not None)
    return [StudySection("tensors", "Keys against values", text, tuple(styles.values()), tuple(pictures), tables)]


def _tensor_table(task: MeasuredTask, title: str, policies: dict[str, str]) -> Listing | None:
    if not {"K", "V"} <= set(policies):
        return None
    levels = [level for level in task.levels(policies["K"]) if level]
    kept = {tensor: [task.share_kept(policies[tensor], level) for level in levels] for tensor in ("K", "V")}
    rows = [
        ("K", *(in_percent(task.estimate(one)) for one in kept["K"])),
        ("V", *(in_percent(task.estimate(one)) for one in kept["V"])),
        ("K − V", *(in_points(task.estimate(k - v)) for k, v in zip(kept["K"], kept["V"], strict=True))),
    ]
    columns = ("damaged", *(str(Level(RATE.name, level)) for level in levels))
    return Listing(
        f"Share kept with keys or values damaged, {title}, percent; the difference in points", columns, tuple(rows)
    )


def figures_of_text(tasks: Sequence[MeasuredTask], faults: Sequence[Damage]) -> list[StudySection]:
    """Sets our share kept beside that of text F."""
    names = {fault.policy for fault in faults}
    listings = []
    for task in tasks:
        rows = []
        for row in FAULTS:
            runs = [name for name in row.policies if name in names and row.rate in task.levels(name)]
            theirs = _share(row.large, CLEAN_LARGE), _share(row.small, CLEAN_SMALL)
            for policy in runs or [""]:
                share = in_percent(task.estimate(task.share_kept(policy, row.rate))) if policy else "–"
                rows.append((row.words, policy or "not run", share, *theirs))
        columns = ("treatment", "our treatment", "percent of the control", LARGE, SMALL)
        listings.append(Listing(f"Percent of the control, {task.name}", columns, tuple(rows)))
    text = (
        "Text F asks GSM8K of Qwen2.5 and damages single values, drawn anew before every pass; ours in that form where "
        "it was run, and with whole rows damaged once. Other models and other tasks: what can be compared is the order."
    )
    return [StudySection("published", "Beside published figures", text, listings=tuple(listings))] if listings else []


def _share(value: float | None, clean: float) -> str:
    return "–" if value is None else f"{100 * value / clean:.0f} ({value:.2f} of {clean:.2f})"
