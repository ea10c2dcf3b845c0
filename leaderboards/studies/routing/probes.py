"""Shows what linear probes find, whatever the model says: in the hidden states of the question's
last token.

A probe is asked for the type of the answer, which the question tells as well, and for the first
letter of the answer, which only the context tells: values themselves are other words in every
context, so that no probe could learn them. Based on J. Hewitt and P. Liang, "Designing and
interpreting probes with control tasks" (arXiv 1909.03368): a probe says something only as far as it
does better than on labels that mean nothing."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pandas import DataFrame
from threadpoolctl import threadpool_limits

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.columns import with_levels
from leaderboards.statistics.shares import estimate_share
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import (
    axes_by_kind,
    banded_line,
    curve,
    exactly,
    full_last,
    in_percent,
    listing_of_fields,
    over_levels,
    without_full,
)
from leaderboards.studies.routing.routes import CELL, CONTEXT, context_names
from policies.declaration.lazy import LazyModule
from policies.declaration.levels import Level
from policies.declaration.names import CONTROLS, FULL

# Their import takes a second, and few sites need them.
linear_model = LazyModule("sklearn.linear_model")
metrics = LazyModule("sklearn.metrics")
model_selection = LazyModule("sklearn.model_selection")
pipeline = LazyModule("sklearn.pipeline")
preprocessing = LazyModule("sklearn.preprocessing")

TABLE = "states"  # of a store (kvbench.studies.routing)
TYPE, LETTER = "type of the answer", "first letter of the answer"
LABELS = (TYPE, LETTER)
FEWEST = 3  # answers of a class: rarer ones are left out, as no probe can learn them
STRENGTH = 0.1  # the inverse of the penalty: features are many and answers few
# Of the solver: a tenth of the usual one costs twice the time, for the same predictions.
TOLERANCE = 1e-3
FOLDS = 5
TELLING = 0.1  # of macro-F1 above that of shuffled labels: a probe with less has nothing to lose
# Behind which share of the layers a state is probed at every level; together they tell where
# compression harms first.
DEPTHS = {"early": 0.25, "middle": 0.5, "last": 1.0}


@dataclass(frozen=True)
class Probed:
    """Holds the macro-F1 of one probe, in [0, 1], on contexts that it was not trained on, and on
    shuffled labels."""

    label: str
    policy: str
    level: Level
    layer: int  # 0: before the first
    macro_f1: float
    control: float
    answers: int


def probe(
    features: npt.NDArray[np.floating],
    labels: Sequence[str],
    contexts: Sequence[str],
    seed: int = 0,
) -> tuple[float, float]:
    """Trains and tests a regularised logistic regression by cross-validation, grouped by context:
    returns its macro-F1 in [0, 1], and that on shuffled labels. ``features``: shape (answers,
    size). ``labels``: of two classes in two contexts at least."""
    true = np.asarray(labels)
    names = np.asarray(contexts)
    score = macro_f1(true, predictions(features, true, names))
    shuffled = np.random.default_rng(seed).permutation(true)
    control = macro_f1(shuffled, predictions(features, shuffled, names))
    return score, control


def macro_f1(labels: npt.NDArray[np.str_], predicted: npt.NDArray[np.str_]) -> float:
    """Computes the mean F1 over labels, in [0, 1]. Both arrays have the shape (answers,)."""
    classes = np.unique(labels)
    score = metrics.f1_score(labels, predicted, average="macro", labels=classes, zero_division=0.0)
    return float(score)


def predictions(
    features: npt.NDArray[np.floating],
    labels: npt.NDArray[np.str_],
    contexts: npt.NDArray[np.str_],
) -> npt.NDArray[np.str_]:
    """Predicts each label, shape (answers,), from a probe that saw no answer of its context.
    ``features``: shape (answers, size)."""
    regression = linear_model.LogisticRegression(C=STRENGTH, tol=TOLERANCE, max_iter=2000)
    classifier = pipeline.make_pipeline(preprocessing.StandardScaler(), regression)
    folds = model_selection.GroupKFold(min(FOLDS, len(np.unique(contexts))))
    predicted = np.empty_like(labels)
    for train, test in folds.split(features, groups=contexts):
        classes = np.unique(labels[train])
        if len(classes) == 1:  # there is nothing to fit
            predicted[test] = classes[0]
            continue
        with threadpool_limits(1):  # the matrices are small: more threads take thirty times as long
            fitted = classifier.fit(features[train], labels[train])
            predicted[test] = fitted.predict(features[test])
    return predicted


def with_labels(states: DataFrame, records: DataFrame) -> DataFrame:
    """Joins states with the labels of their questions; only questions with an answer in the context
    count, and running text has none."""
    has_label = (records["answer_tokens"] > 0) & (records["golds"].map(len) > 0)
    columns = [*CELL, "draw_id", "answer_type", "golds", "right", "f1"]
    questions = records.loc[has_label, columns].rename(columns={"answer_type": TYPE})
    questions[LETTER] = [golds[0][0].upper() for golds in questions["golds"]]
    questions[CONTEXT] = context_names(questions)
    return with_levels(states.merge(questions, on=CELL, validate="many_to_one"))


def by_layer(states: DataFrame) -> Iterator[Probed]:
    """Yields the probes of every layer with the full cache. ``states``: as of
    :func:`with_labels`."""
    full = states[states["policy"] == FULL]
    for label in LABELS:
        for _, group in full.groupby("layer"):
            yield from _probed(group, label)


def depths(layers: int) -> dict[str, int]:
    """Returns behind which layer a state is probed, by the name of its depth; of few layers fewer
    depths.

    >>> depths(30), depths(2)
    ({'early': 8, 'middle': 15, 'last': 30}, {'middle': 1, 'last': 2})
    """
    # By layer, so that of two depths that meet in one layer the later name stays.
    names = {}
    for name, share in DEPTHS.items():
        names[max(1, math.ceil(share * layers))] = name
    return {name: layer for layer, name in names.items()}


def by_level(states: DataFrame) -> Iterator[Probed]:
    """Yields the probes of three depths at each level. ``states``: as of :func:`with_labels`."""
    for layer in depths(int(states["layer"].max())).values():
        at_depth = states[states["layer"] == layer]
        for label in LABELS:
            for _, group in at_depth.groupby(["policy", "level"], observed=True):
                yield from _probed(group, label)


def learnable(group: DataFrame, label: str) -> DataFrame:
    """Returns the answers whose label is not too rare for a probe; none where fewer than two
    classes or contexts are left."""
    counts = group[label].value_counts()
    rows = group[group[label].map(counts) >= FEWEST]
    if rows[label].nunique() > 1 and rows[CONTEXT].nunique() > 1:
        return rows
    return rows[:0]


def read_features(group: DataFrame) -> npt.NDArray[np.float64]:
    """Reads the states of answers, which a store holds as bytes of float16: shape (answers,
    size)."""
    states = [np.frombuffer(state, dtype="<f2") for state in group["state"]]
    return np.stack(states).astype(np.float64)


def _probed(group: DataFrame, label: str) -> Iterator[Probed]:
    """Yields the probe of some answers, if there is any."""
    rows = learnable(group, label)
    if rows.empty:
        return
    labels = rows[label].astype(str).tolist()
    score, control = probe(read_features(rows), labels, rows[CONTEXT].tolist())
    first = rows.iloc[0]
    policy, layer = str(first["policy"]), int(first["layer"])
    yield Probed(label, policy, first["level"], layer, score, control, len(rows))


PROBE, CONTROL = "probe", "shuffled labels"
TEXT = (
    f"A linear probe on the hidden state of the question’s last token. The {TYPE} can be read off "
    f"the question too; the {LETTER} stands in the context alone. What a probe finds and the "
    "model does not say is retained and not used."
)


def build_content(study_input: StudyInput) -> StudyContent:
    """Shows what probes find by layer, by level, and at three depths beside right answers."""
    states = with_labels(study_input.tables[TABLE], study_input.records)
    if states.empty:  # no answer has a label to probe
        return StudyContent(())
    layers = list(by_layer(states))
    cells = list(by_level(states))
    last = int(states["layer"].max())
    beside = list(beside_answers(states, cells, depths(last)))
    parts = []
    if layers:
        of_last_layer = [result for result in cells if result.layer == last]
        parts.append(_section(layers, of_last_layer))
    if beside:
        parts.append(_depth_section(beside, _telling_depths(layers, depths(last))))
    rows = [*map(vars, layers), *map(vars, cells)]
    title = "Probes of three depths beside right answers"
    sheets = [
        Sheet.of("routing-probes", "What probes find", rows),
        Sheet.of("routing-depths", title, beside, kinds={"right": Estimate}),
    ]
    return StudyContent(parts, sheets=sheets)


def _telling_depths(layers: Sequence[Probed], named: Mapping[str, int]) -> list[str]:
    """Returns the depths at which a probe finds something with the full cache, which alone can lose
    it."""
    telling = set()
    for result in layers:
        if result.label == LETTER and result.macro_f1 - result.control >= TELLING:
            telling.add(result.layer)
    return [name for name, layer in named.items() if layer in telling]


def beside_answers(
    states: DataFrame, cells: Sequence[Probed], layers: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """Yields for each label, policy and level what probes find at each depth beside what is right
    and F1 of the same answers, as shares."""
    scores = {}
    for result in cells:
        scores[result.label, result.policy, result.level, result.layer] = result.macro_f1
    last = states[states["layer"] == states["layer"].max()]
    for label in LABELS:
        for (policy, level), group in last.groupby(["policy", "level"], observed=True):
            row: dict[str, Any] = {"label": label, "policy": str(policy), "level": level}
            for name, layer in layers.items():
                row[name] = scores.get((label, str(policy), level, layer))
            # All depths or no row, as it is about which of them falls first.
            if None in row.values():
                continue
            f1 = group["f1"].astype(float).fillna(0).mean()
            row["right"] = estimate_share(group["right"].eq(True), group[CONTEXT])
            row["f1"] = float(f1) / 100
            yield row


def _depth_section(rows: Sequence[Mapping[str, Any]], telling: Sequence[str]) -> StudySection:
    """Draws of each policy what a probe finds at each depth beside right answers, as shares of the
    full cache's. ``telling``: the depths at which a probe finds something with the full cache,
    which alone can lose it."""
    names = [name for name in rows[0] if name in DEPTHS]
    drawn = (*telling, "right")
    styles = named_styles((*names, "right"))
    styles = {name: style for name, style in styles.items() if name in drawn}
    shown = [row for row in rows if row["label"] == LETTER] or list(rows)
    whole: Mapping[str, Any] | None = None
    by_policy: dict[str, list[Mapping[str, Any]]] = {}
    for row in shown:
        if row["policy"] == FULL and whole is None:
            whole = row
        by_policy.setdefault(row["policy"], []).append(row)
    pictures = list[Picture]()
    for policy, of_policy in by_policy.items():
        if policy != FULL and whole is not None and policy not in CONTROLS:
            pictures += _draw_policy(policy, whole, of_policy, styles)
    columns = ("label", "policy", "level", *names, "right", "f1")
    lines = []
    for row in rows:
        lines.append(tuple(_cell(row[name]) for name in columns))
    heading = "Macro-F1 of probes by depth, beside right answers and F1, percent"
    listing = Listing(heading, columns, tuple(lines))
    text = (
        f"What a probe for the {shown[0]['label']} finds behind a quarter of the layers, a half "
        "and all, beside the right answers at that level, each as a share of the full cache’s. "
        "Where a line of a probe falls before that of right answers, compression harms "
        "representations before answers. A depth at which the probe finds little with the full "
        "cache is not drawn."
    )
    title = "Do representations degrade before answers do?"
    lines_shown = tuple(styles.values())
    return StudySection("depths", title, text, lines_shown, tuple(pictures), details=(listing,))


def _draw_policy(
    policy: str,
    whole: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    styles: Mapping[str, LineStyle],
) -> Iterator[Picture]:
    """Draws one policy over its levels of each kind, from the full cache on."""
    for ending, axis in axes_by_kind(row["level"] for row in rows).items():
        on_axis = [row for row in rows if row["level"] in axis]
        on_axis.sort(key=lambda row: row["level"].value)
        lines = []
        for name, style in styles.items():
            start = _number(whole[name])
            # Of nothing there is no share.
            if start <= 0:
                continue
            points = []
            if axis.origin is not None:
                points.append((axis.origin, exactly(1.0)))
            for row in on_axis:
                points.append((row["level"].value, exactly(_number(row[name]) / start)))
            lines.append(banded_line(style, points))
        if lines:
            title = f"{policy}{ending}"
            yield curve(title, "share of the full cache’s", lines, axis, f"depths/{title}")


def _number(value: float | Estimate) -> float:
    if isinstance(value, Estimate):
        return value.mean
    return float(value)


def _cell(value: object) -> str:
    if isinstance(value, Estimate):
        return in_percent(value)
    if isinstance(value, float):
        return f"{100 * value:.0f}"
    return str(value)


def _section(layers: Sequence[Probed], cells: Sequence[Probed]) -> StudySection:
    styles = full_last(result.policy for result in cells)
    pictures = []
    for label in LABELS:
        name = f"{label[0].upper()}{label[1:]}"
        of_layers = [result for result in layers if result.label == label]
        if of_layers:
            pictures.append(_over_layers(of_layers, f"{name}, full cache"))
        scores = {}
        for result in cells:
            if result.label == label:
                scores[result.policy, result.level] = exactly(result.macro_f1)
        if scores:
            title = f"{name}, last layer"
            pictures += over_levels(scores, styles, title, "macro-F1", f"probes/{label}")
    listing = listing_of_fields("Probes of the last layer", cells, {}, leave_out=("layer",))
    shown = without_full(styles)
    title = "What a probe finds in what the question’s last token holds"
    return StudySection("probes", title, TEXT, shown, tuple(pictures), details=(listing,))


def _over_layers(results: Sequence[Probed], title: str) -> Picture:
    styles = named_styles((PROBE, CONTROL))
    scores, controls = [], []
    for result in results:
        scores.append((result.layer, exactly(result.macro_f1)))
        controls.append((result.layer, exactly(result.control)))
    lines = [banded_line(styles[PROBE], scores), banded_line(styles[CONTROL], controls)]
    layers = Axis.for_layers(results[-1].layer + 1)
    axis = replace(layers, title="layer, 0 before the first")
    note = "macro-F1; below, of shuffled labels"
    return curve(title, note, lines, axis, f"layers/{results[0].label}")
