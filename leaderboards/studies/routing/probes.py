"""Shows what linear probes find, whatever the model says: in the hidden states of the question's last token.

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
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import curve, exactly, full_last, line_of, listing_of_fields, over_levels
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
TYPE, LETTER = "type of the answer", "first letter of the answer"
LABELS = (TYPE, LETTER)
FEWEST = 3  # answers of a class: rarer ones are left out, as no probe can learn them
STRENGTH = 0.1  # the inverse of the penalty: features are many and answers few
TOLERANCE = 1e-3  # of the solver: a tenth of the usual one costs twice the time, for the same predictions
FOLDS = 5


@dataclass(frozen=True)
class Probed:
    """Holds the macro-F1 of one probe, in [0, 1], on contexts that it was not trained on, and on shuffled labels."""

    label: str
    policy: str
    level: Level
    layer: int  # 0: before the first
    macro_f1: float
    control: float
    answers: int


def probe(
    features: npt.NDArray[np.floating], labels: Sequence[str], contexts: Sequence[str], seed: int = 0
) -> tuple[float, float]:
    """Trains and tests a regularised logistic regression by cross-validation, grouped by context: returns its macro-F1
    in [0, 1], and that on shuffled labels. ``features``: shape (answers, size). ``labels``: of two classes in two
    contexts at least."""
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
    predicted = np.empty_like(labels)
    for train, test in folds.split(features, groups=contexts):
        one, *others = np.unique(labels[train])  # with no other class there is nothing to fit
        predicted[test] = classifier.fit(features[train], labels[train]).predict(features[test]) if others else one
    return float(metrics.f1_score(labels, predicted, average="macro", labels=np.unique(labels), zero_division=0.0))


def with_labels(states: DataFrame, records: DataFrame) -> DataFrame:
    """Joins states with the labels of their questions; only questions with an answer in the context count, and running
    text has none."""
    asked = records[(records["answer_tokens"] > 0) & (records["golds"].map(len) > 0)]
    asked = asked[[*CELL, "draw_id", "answer_type", "golds"]].rename(columns={"answer_type": TYPE})
    asked[LETTER] = [golds[0][0].upper() for golds in asked["golds"]]
    asked[CONTEXT] = contexts_of(asked)
    return with_levels(states.merge(asked, on=CELL, validate="many_to_one"))


def by_layer(states: DataFrame) -> Iterator[Probed]:
    """Yields the probes of every layer with the full cache. ``states``: as of :func:`with_labels`."""
    full = states[states["policy"] == FULL]
    for label in LABELS:
        for _, group in full.groupby("layer"):
            yield from _probed(group, label)


def by_level(states: DataFrame) -> Iterator[Probed]:
    last = states[states["layer"] == states["layer"].max()]
    for label in LABELS:
        for _, group in last.groupby(["policy", "level"], observed=True):
            yield from _probed(group, label)


def _probed(group: DataFrame, label: str) -> Iterator[Probed]:
    """Yields the probe of some answers; none where fewer than two classes or contexts are left without rare labels."""
    group = group[group[label].map(group[label].value_counts()) >= FEWEST]
    if group[label].nunique() < 2 or group[CONTEXT].nunique() < 2:
        return
    features = np.stack([np.frombuffer(one, dtype="<f2") for one in group["state"]]).astype(np.float64)
    found = probe(features, group[label].astype(str).tolist(), group[CONTEXT].tolist())
    first = group.iloc[0]
    yield Probed(label, str(first["policy"]), first["level"], int(first["layer"]), *found, len(group))


PROBE, CONTROL = "probe", "shuffled labels"
TEXT = (
    f"A linear probe on the hidden state of the question’s last token. The {TYPE} can be read off the question too; "
    f"the {LETTER} stands in the context alone. What a probe finds and the model does not say is retained and not used."
)


def content_of(given: StudyInput) -> StudyContent:
    states = with_labels(given.tables[TABLE], given.records)
    layers, cells = list(by_layer(states)), list(by_level(states))
    rows = [*map(vars, (*layers, *cells))]
    sheets = [Sheet.of("routing-probes", "What probes find", rows)]
    return StudyContent([_section(layers, cells)] if layers else [], sheets=sheets)


def _section(layers: Sequence[Probed], cells: Sequence[Probed]) -> StudySection:
    styles = full_last(one.policy for one in cells)
    pictures = []
    for label in LABELS:
        of_layers = [one for one in layers if one.label == label]
        of_levels = {(one.policy, one.level): exactly(one.macro_f1) for one in cells if one.label == label}
        name = f"{label[0].upper()}{label[1:]}"
        if of_layers:
            pictures.append(_over_layers(of_layers, f"{name}, full cache"))
        if of_levels:
            pictures += over_levels(of_levels, styles, f"{name}, last layer", "macro-F1", f"probes/{label}")
    listing = listing_of_fields("Probes of the last layer", cells, {}, leave_out=("layer",))
    shown = tuple(style for name, style in styles.items() if name != FULL)
    title = "What a probe finds in what the question’s last token holds"
    return StudySection("probes", title, TEXT, shown, tuple(pictures), details=(listing,))


def _over_layers(found: Sequence[Probed], title: str) -> Picture:
    styles = named_styles((PROBE, CONTROL))
    lines = [
        line_of(styles[PROBE], [(one.layer, exactly(one.macro_f1)) for one in found]),
        line_of(styles[CONTROL], [(one.layer, exactly(one.control)) for one in found]),
    ]
    axis = replace(Axis.of_layers(found[-1].layer + 1), title="layer, 0 before the first")
    return curve(title, "macro-F1; below, of shuffled labels", lines, axis, f"layers/{found[0].label}")


DEFINITIONS = (
    Definition(
        "Probes",
        "A regularised logistic regression predicts a label of the question from the hidden state of its last token; "
        "it is tested on contexts that it was not trained on. Control: the same on shuffled labels. Labels of fewer "
        "than three answers are left out.",
        "macro-F1 = mean over labels of 2 · precision · recall / (precision + recall)",
        "J. Hewitt and P. Liang, arXiv 1909.03368",
    ),
)
