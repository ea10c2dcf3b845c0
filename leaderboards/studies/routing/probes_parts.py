"""The sections of the page, download and definition on what probes find."""

import math
from collections.abc import Sequence

from markupsafe import Markup
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.figures.panels import BandedLine, fitted, panel
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.routing.probes import (
    LABELS,
    LETTER,
    STATE,
    TELLING,
    TYPE,
    VALUES,
    Probed,
    by_layer,
    by_level,
    f1_of_answers,
    first_losses,
    with_labels,
)
from leaderboards.studies.routing.reaching_parts import over_levels, styles_of
from policies.declaration.names import FULL

PROBE, CONTROL = "probe", "shuffled labels"
PROBED = {STATE: "what the question’s last token holds", VALUES: "what is left of the answer’s values"}
AXES = {STATE: "layer, 0 before the first", VALUES: "layer"}
TEXTS = {
    STATE: f"A linear probe on the hidden state of the question’s last token. The {TYPE} can be read off the question "
    f"too: it is found whatever is kept. The {LETTER} stands in the context alone. What a probe finds and the "
    "model does not say is retained and not used.",
    VALUES: "A linear probe on the mean of the values that heads still hold of the answer’s tokens, zeros where they "
    "hold none: what is stored, whether or not the question finds it. A policy that keeps what the probe reads and "
    "answers wrongly has lost the way to it.",
}


class Probes:
    """Holds what probes find in hidden states and in values, by layer of the full cache and by level of each policy."""

    def __init__(self, table: DataFrame, records: DataFrame) -> None:
        states = with_labels(table, records)
        self.by_layer = [one for of in PROBED for one in by_layer(states, of)]
        self.by_level = [one for of in PROBED for one in by_level(states, of)]
        self.f1 = f1_of_answers(states)

    def parts(self) -> list[StudySection]:
        probed = dict.fromkeys(one.of for one in self.by_layer)
        return [self._part(of) for of in probed]

    def _part(self, of: str) -> StudySection:
        cells = [one for one in self.by_level if one.of == of]
        styles = styles_of(one.policy for one in cells)
        pictures = [
            _over_layers([one for one in self.by_layer if (one.of, one.label) == (of, name)]) for name in LABELS
        ]
        pictures += [
            over_levels(
                {
                    (one.policy, one.level): Estimate(one.score.macro_f1, None, None, one.answers)
                    for one in cells
                    if one.label == label
                },
                styles,
                f"{label[0].upper()}{label[1:]}, last layer",
                "macro-F1",
                f"probes/{of}/levels/{label}",
            )
            for label in LABELS
            if any(one.label == label for one in cells)
        ]
        pictures.append(over_levels(self.f1, styles, "F1 of the answers", "of 1", f"probes/{of}/f1"))
        rows = tuple(
            (
                one.label,
                one.policy,
                str(one.level),
                _number(one.score.macro_f1),
                _number(one.score.control),
                _number(one.score.selectivity),
                str(one.answers),
            )
            for one in cells
        )
        columns = ("asked for", "policy", "level", "macro-F1", "control", "selectivity", "answers")
        return StudySection(
            f"probes-{of}",
            f"What a probe finds in {PROBED[of]}",
            TEXTS[of],
            tuple(style for name, style in styles.items() if name != FULL),
            tuple(picture for picture in pictures if picture is not None),
            listings=(self._first_losses(cells),),
            details=(Listing("Probes of the last layer", columns, rows),),
        )

    def _first_losses(self, cells: Sequence[Probed]) -> Listing:
        # What is not found with the full cache cannot be lost.
        found = {one.label for one in cells if one.policy == FULL and one.score.selectivity >= TELLING}
        losses = {
            label: first_losses({(one.policy, one.level): one.score.macro_f1 for one in cells if one.label == label})
            for label in LABELS
            if label in found
        }
        columns = {**losses, "F1": first_losses({cell: one.mean for cell, one in self.f1.items()})}
        policies = dict.fromkeys(policy for one in columns.values() for policy in one)
        rows = tuple((policy, *(_ratio(one.get(policy)) for one in columns.values())) for policy in policies)
        return Listing("Ratio at which a tenth is lost", ("policy", *columns), rows)

    def sheet(self) -> Sheet:
        rows = [
            {"probed": PROBED[one.of], "asked_for": one.label, "policy": one.policy, "level": one.level}
            | {"layer": one.layer, "macro_f1": one.score.macro_f1, "control": one.score.control, "answers": one.answers}
            for one in (*self.by_layer, *self.by_level)
        ]
        return Sheet.of("routing-probes", "What probes find", rows, ("policy",))


def _over_layers(found: Sequence[Probed]) -> Picture | None:
    if not found:
        return None
    styles, label, of = named_styles((PROBE, CONTROL)), found[0].label, found[0].of
    paths = [
        BandedLine(styles[PROBE], tuple((float(one.layer), one.score.macro_f1) for one in found)),
        BandedLine(styles[CONTROL], tuple((float(one.layer), one.score.control) for one in found)),
    ]
    last = found[-1].layer
    ticks = tuple(float(at) for at in range(0, last + 1, max(1, -(-last // 6))))
    axis = Axis(AXES[of], ticks, -0.3, last + 0.3)
    title = f"{label[0].upper()}{label[1:]}, full cache"
    drawing = panel(paths, axis, fitted(paths), f"{title}: probe and control by layer", f"probes/{of}/{label}")
    return Picture(title, "macro-F1; below, of shuffled labels", Markup(drawing))


def _ratio(value: float | None) -> str:
    return "–" if value is None else "never" if math.isnan(value) else f"{value:.2f}"


def _number(value: float) -> str:
    return f"{value:z.2f}"


DEFINITIONS = (
    Definition(
        "Probes",
        "A regularised logistic regression predicts a label of the question from the hidden state of its last token, "
        "or from the mean of the values that each head holds of the answer’s tokens, 0 where it holds none; it is "
        "tested on contexts that it was not trained on. Control: the same on shuffled labels; selectivity is "
        "what is better than that. Labels of fewer than three answers are left out. A tenth is lost at the ratio, on "
        "the line between two that were asked, where macro-F1, or F1, has first fallen to 90 % of the full cache’s; "
        f"labels that a probe finds by less than {TELLING:g} better than shuffled ones with the full cache are left "
        "out there: there is nothing to lose.",
        "macro-F1 = mean over labels of 2 · precision · recall / (precision + recall)",
        "J. Hewitt and P. Liang, arXiv 1909.03368",
        names=(*LABELS, "probed", "asked for", "asked_for", "macro-F1", "macro_f1", "control", "selectivity"),
    ),
)
