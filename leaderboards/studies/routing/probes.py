"""Shows what linear probes find, whatever the model says: in the hidden states of the question's last token, and in the
values that are left of the answer's rows.

A probe is asked for the type of the answer, which the question tells as well, and for the first letter of the answer,
which only the context tells: values themselves are other words in every context, so that no probe could learn them.
Based on J. Hewitt and P. Liang, "Designing and interpreting probes with control tasks" (arXiv 1909.03368): a probe says
something only as far as it does better than on labels that mean nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from pandas import DataFrame
from threadpoolctl import threadpool_limits

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import Cells, curve, estimate_of, exactly, full_last, line_of, listing_of, over_levels
from leaderboards.studies.routing.routes import CELL, CONTEXT, contexts_of
from policies.declaration.lazy import LazyModule
from policies.declaration.levels import Level
from policies.declaration.names import FULL

# Their import takes a second, and few sites need them.
linear_model = LazyModule("sklearn.linear_model")
metrics = LazyModule("sklearn.metrics")
model_selection = LazyModule("sklearn.model_selection")
pipeline = LazyModule("sklearn.pipeline")
preprocessing = LazyModule("sklearn.preprocessing")

TABLE = "states"  # of a store (kvbench.store.observed)
STATE, VALUES = "state", "values"  # what is probed: columns of the table
TYPE, LETTER = "type of the answer", "first letter of the answer"
LABELS = (TYPE, LETTER)
FEWEST = 3  # answers of a class: rarer ones are left out, as no probe can learn them
STRENGTH = 0.1  # the inverse of the penalty: features are many and answers few
TOLERANCE = 1e-3  # of the solver: a tenth of the usual one costs twice the time, for the same predictions
FOLDS = 5


@dataclass(frozen=True)
class Probed:
    """Holds the macro-F1 of one probe, in [0, 1], on contexts that it was not trained on, and on shuffled labels."""

    of: str  # STATE or VALUES
    label: str
    policy: str
    level: Level
    layer: int  # of states, 0: before the first
    macro_f1: float
    control: float
    answers: int


def probe(
    features: npt.NDArray[np.floating], labels: Sequence[str], contexts: Sequence[str], seed: int = 0
) -> tuple[float, float]:
    """Trains and tests a regularised logistic regression by cross-validation, grouped by context: returns its macro-F1
    in [0, 1], and that on shuffled labels.

    ``features``: shape (answers, size). ``labels``: by answer, of two classes at least, in two contexts at least.
    """
    true = np.asarray(labels)
    shuffled = np.random.default_rng(seed).permutation(true)
    with threadpool_limits(1):  # the matrices are small: more threads take thirty times as long
        found, control = (_macro_f1(features, one, np.asarray(contexts)) for one in (true, shuffled))
    return found, control


def _macro_f1(
    features: npt.NDArray[np.floating], labels: npt.NDArray[np.str_], contexts: npt.NDArray[np.str_]
) -> float:
    """Predicts each label from a probe that saw no answer of its context."""
    regression = linear_model.LogisticRegression(C=STRENGTH, tol=TOLERANCE, max_iter=2000)
    classifier = pipeline.make_pipeline(preprocessing.StandardScaler(), regression)
    folds = model_selection.GroupKFold(min(FOLDS, len(np.unique(contexts))))
    predicted = model_selection.cross_val_predict(classifier, features, labels, groups=contexts, cv=folds)
    return float(metrics.f1_score(labels, predicted, average="macro", labels=np.unique(labels), zero_division=0.0))


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


def _probed(group: DataFrame, of: str, label: str) -> Iterator[Probed]:
    """Yields the probe of some answers; none where fewer than two classes or contexts are left without rare labels."""
    group = group[group[label].map(group[label].value_counts()) >= FEWEST]
    if group[label].nunique() < 2 or group[CONTEXT].nunique() < 2:
        return
    features = np.stack([np.frombuffer(one, dtype="<f2") for one in group[of]]).astype(np.float64)
    found = probe(features, group[label].astype(str).tolist(), group[CONTEXT].tolist())
    first = group.iloc[0]
    yield Probed(of, label, str(first["policy"]), first["level"], int(first["layer"]), *found, len(group))


def f1_of_answers(states: DataFrame) -> dict[tuple[str, Level], Estimate]:
    """Returns F1 in [0, 1] by policy and level, over the questions that probes are asked."""
    cells = states[states["layer"] == 0].groupby(["policy", "level"], observed=True)
    return {(str(policy), level): estimate_of(group["f1"], group[CONTEXT]) for (policy, level), group in cells}


PROBE, CONTROL = "probe", "shuffled labels"
PROBED = {STATE: "what the question’s last token holds", VALUES: "what is left of the answer’s values"}
AXES = {STATE: "layer, 0 before the first", VALUES: "layer"}
TEXTS = {
    STATE: f"A linear probe on the hidden state of the question’s last token. The {TYPE} can be read off the question "
    f"too; the {LETTER} stands in the context alone. What a probe finds and the model does not say is retained and "
    "not used.",
    VALUES: "A linear probe on the mean of the values that heads still hold of the answer’s tokens: what is stored, "
    "whether or not the question finds it.",
}


def content_of(given: StudyInput) -> StudyContent:
    """Shows what probes find, by layer of the full cache and by level of each policy."""
    states = with_labels(given.tables[TABLE], given.records)
    layers = [one for of in PROBED for one in by_layer(states, of)]
    cells = [one for of in PROBED for one in by_level(states, of)]
    rows = [
        {"probed": PROBED[one.of], "asked_for": one.label, "policy": one.policy, "level": one.level}
        | {"layer": one.layer, "macro_f1": one.macro_f1, "control": one.control, "answers": one.answers}
        for one in (*layers, *cells)
    ]
    f1 = f1_of_answers(states)
    parts = [_section(of, layers, cells, f1) for of in dict.fromkeys(one.of for one in layers)]
    return StudyContent(parts, sheets=[Sheet.of("routing-probes", "What probes find", rows)])


def _section(of: str, layers: Sequence[Probed], levels: Sequence[Probed], f1: Cells) -> StudySection:
    cells = [one for one in levels if one.of == of]
    styles = full_last(one.policy for one in cells)
    pictures = []
    for label in LABELS:
        by_label = [one for one in layers if (one.of, one.label) == (of, label)]
        own = {(one.policy, one.level): exactly(one.macro_f1) for one in cells if one.label == label}
        name = f"{label[0].upper()}{label[1:]}"
        if by_label:
            pictures.append(_over_layers(by_label, f"{name}, full cache"))
        if own:
            pictures.append(over_levels(own, styles, f"{name}, last layer", "macro-F1", f"probes/{of}/{label}"))
    pictures.append(over_levels(f1, styles, "F1 of the answers", "of 1", f"probes/{of}/f1"))
    listing = listing_of(
        "Probes of the last layer",
        cells,
        {
            "asked for": lambda one: one.label,
            "policy": lambda one: one.policy,
            "level": lambda one: one.level,
            "macro-F1": lambda one: f"{one.macro_f1:z.2f}",
            "control": lambda one: f"{one.control:z.2f}",
            "selectivity": lambda one: f"{one.macro_f1 - one.control:z.2f}",
            "answers": lambda one: one.answers,
        },
    )
    shown = tuple(style for name, style in styles.items() if name != FULL)
    title = f"What a probe finds in {PROBED[of]}"
    return StudySection(f"probes-{of}", title, TEXTS[of], shown, tuple(pictures), details=(listing,))


def _over_layers(found: Sequence[Probed], title: str) -> Picture:
    styles = named_styles((PROBE, CONTROL))
    lines = [
        line_of(styles[PROBE], [(one.layer, exactly(one.macro_f1)) for one in found]),
        line_of(styles[CONTROL], [(one.layer, exactly(one.control)) for one in found]),
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
    ),
)
