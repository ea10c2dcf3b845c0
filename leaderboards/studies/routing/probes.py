"""Shows what linear probes find, whatever the model says: in the hidden states of the question's last token, and in the
values that are left of the answer's rows.

A probe is asked for the type of the answer, which the question tells as well, and for the first letter of the answer,
which only the context tells: values themselves are other words in every context, so that no probe could learn them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import named_styles
from leaderboards.routing.probe import ProbeScore, probe
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Picture, StudyInput, StudySection
from leaderboards.studies.parts import curve, estimate_of, exactly, full_last, line_of, listing_of, over_levels
from leaderboards.studies.routing.routes import CELL, CONTEXT, contexts_of
from policies.declaration.levels import Level
from policies.declaration.names import FULL

TABLE = "states"  # of a store (kvbench.store.observed)
SHUFFLES = 1  # of the labels, for each of the many probes of a page
STATE, VALUES = "state", "values"  # what is probed: columns of the table
TYPE, LETTER = "type of the answer", "first letter of the answer"
LABELS = (TYPE, LETTER)
FEWEST = 3  # answers of a class: rarer ones are left out, as no probe can learn them


@dataclass(frozen=True)
class Probed:
    """Holds the score of one probe: on the states or values of one layer, under a policy at a level."""

    of: str  # STATE or VALUES
    label: str
    policy: str
    level: Level
    layer: int  # of states, 0: before the first
    score: ProbeScore
    answers: int


def with_labels(states: DataFrame, records: DataFrame) -> DataFrame:
    """Joins states with the labels of their questions; only questions with an answer in the context count."""
    asked = records[records["answer_tokens"] > 0]
    asked = asked[[*CELL, "draw_id", "answer_type", "golds", "f1"]].rename(columns={"answer_type": TYPE})
    asked["f1"] = asked["f1"].fillna(0.0).astype(float) / 100
    asked[LETTER] = [golds[0][0].upper() for golds in asked["golds"]]
    asked[CONTEXT] = contexts_of(asked)
    return with_levels(states.merge(asked, on=CELL, validate="many_to_one"))


def by_layer(states: DataFrame, of: str) -> Iterator[Probed]:
    """Yields the probes of every layer with the full cache. ``states``: as of :func:`with_labels`."""
    full = states[(states["policy"] == FULL) & states[of].notna()]
    for label in LABELS:
        for _, group in full.groupby("layer"):
            yield from _probed(group, of, label)


def by_level(states: DataFrame, of: str, labels: Sequence[str] = LABELS) -> Iterator[Probed]:
    """Yields the probes of the last layer, for every policy and level."""
    known = states[states[of].notna()]
    last = known[known["layer"] == known["layer"].max()]
    for label in labels:
        for _, group in last.groupby(["policy", "level"], observed=True):
            yield from _probed(group, of, label)


def learnable(group: DataFrame, label: str) -> DataFrame:
    """Leaves out the answers whose label is too rare for a probe."""
    common: DataFrame = group[group[label].map(group[label].value_counts()) >= FEWEST]
    return common


def features_of(group: DataFrame, of: str) -> FloatArray:
    """Returns what is probed, shape (answers, size)."""
    features: FloatArray = np.stack([np.frombuffer(one, dtype="<f2") for one in group[of]]).astype(np.float64)
    return features


def _probed(group: DataFrame, of: str, label: str) -> Iterator[Probed]:
    group = learnable(group, label)
    labels, contexts = group[label].astype(str).tolist(), group[CONTEXT].tolist()
    if len(set(labels)) < 2 or len(set(contexts)) < 2:
        return
    first = group.iloc[0]
    score = probe(features_of(group, of), labels, contexts, shuffles=SHUFFLES)
    yield Probed(of, label, str(first["policy"]), first["level"], int(first["layer"]), score, len(group))


def f1_of_answers(states: DataFrame) -> dict[tuple[str, Level], Estimate]:
    """Returns F1 in [0, 1] by policy and level, over the questions that probes are asked."""
    cells = states[states["layer"] == 0].groupby(["policy", "level"], observed=True)
    return {(str(policy), level): estimate_of(group["f1"], group[CONTEXT]) for (policy, level), group in cells}


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

    def __init__(self, given: StudyInput) -> None:
        states = with_labels(given.tables[TABLE], given.records)
        self.by_layer = [one for of in PROBED for one in by_layer(states, of)]
        self.by_level = [one for of in PROBED for one in by_level(states, of)]
        self.f1 = f1_of_answers(states)

    def parts(self) -> list[StudySection]:
        return [self._part(of) for of in dict.fromkeys(one.of for one in self.by_layer)]

    def _part(self, of: str) -> StudySection:
        cells = [one for one in self.by_level if one.of == of]
        styles = full_last(one.policy for one in cells)
        pictures = []
        for label in LABELS:
            layers = [one for one in self.by_layer if (one.of, one.label) == (of, label)]
            own = {(one.policy, one.level): exactly(one.score.macro_f1) for one in cells if one.label == label}
            name = f"{label[0].upper()}{label[1:]}"
            if layers:
                pictures.append(_over_layers(layers, f"{name}, full cache"))
            if own:
                pictures.append(over_levels(own, styles, f"{name}, last layer", "macro-F1", f"probes/{of}/{label}"))
        pictures.append(over_levels(self.f1, styles, "F1 of the answers", "of 1", f"probes/{of}/f1"))
        columns: dict[str, Callable[[Probed], object]] = {
            "asked for": lambda one: one.label,
            "policy": lambda one: one.policy,
            "level": lambda one: one.level,
            "macro-F1": lambda one: f"{one.score.macro_f1:z.2f}",
            "control": lambda one: f"{one.score.control:z.2f}",
            "selectivity": lambda one: f"{one.score.selectivity:z.2f}",
            "answers": lambda one: one.answers,
        }
        return StudySection(
            f"probes-{of}",
            f"What a probe finds in {PROBED[of]}",
            TEXTS[of],
            tuple(style for name, style in styles.items() if name != FULL),
            tuple(pictures),
            details=(listing_of("Probes of the last layer", cells, columns),),
        )

    def sheets(self) -> list[Sheet]:
        rows = [
            {"probed": PROBED[one.of], "asked_for": one.label, "policy": one.policy, "level": one.level}
            | {"layer": one.layer, "macro_f1": one.score.macro_f1, "control": one.score.control, "answers": one.answers}
            for one in (*self.by_layer, *self.by_level)
        ]
        return [Sheet.of("routing-probes", "What probes find", rows)]


def _over_layers(found: Sequence[Probed], title: str) -> Picture:
    styles = named_styles((PROBE, CONTROL))
    lines = [
        line_of(styles[PROBE], [(one.layer, exactly(one.score.macro_f1)) for one in found]),
        line_of(styles[CONTROL], [(one.layer, exactly(one.score.control)) for one in found]),
    ]
    axis = replace(Axis.of_layers(found[-1].layer + 1), title=AXES[found[0].of])
    return curve(title, "macro-F1; below, of shuffled labels", lines, axis, f"layers/{found[0].of}/{found[0].label}")


DEFINITIONS = (
    Definition(
        "Probes",
        "A regularised logistic regression predicts a label of the question from the hidden state of its last token, "
        "or from the mean of the values that each head holds of the answer’s tokens, 0 where it holds none; it is "
        "tested on contexts that it was not trained on. Control: the same on shuffled labels; selectivity is "
        "what is better than that. Labels of fewer than three answers are left out.",
        "macro-F1 = mean over labels of 2 · precision · recall / (precision + recall)",
        "J. Hewitt and P. Liang, arXiv 1909.03368",
        names=(*LABELS, "probed", "asked for", "asked_for", "macro-F1", "macro_f1", "control", "selectivity"),
    ),
)
