"""Shows what linear probes find, whatever the model says: in the hidden states of the question's last token.

A probe is asked for the type of the answer, which the question tells as well, and for the first letter of the answer,
which only the context tells: values themselves are other words in every context, so that no probe could learn them.
Based on J. Hewitt and P. Liang, "Designing and interpreting probes with control tasks" (arXiv 1909.03368): a probe says
something only as far as it does better than on labels that mean nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from pandas import DataFrame
from threadpoolctl import threadpool_limits

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.columns import with_levels
from leaderboards.statistics.shares import share_of
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

TABLE = "states"  # of a store (kvbench.store.observed)
TYPE, LETTER = "type of the answer", "first letter of the answer"
LABELS = (TYPE, LETTER)
FEWEST = 3  # answers of a class: rarer ones are left out, as no probe can learn them
STRENGTH = 0.1  # the inverse of the penalty: features are many and answers few
TOLERANCE = (
    1e-3  # of the solver: a tenth of the usual one costs twice the time, for the same predictions
)
FOLDS = 5
TELLING = 0.1  # of macro-F1 above that of shuffled labels: a probe with less has nothing to lose
# Behind which share of the layers a state is probed at every level; together they tell where compression harms first.
DEPTHS = {"early": 0.25, "middle": 0.5, "last": 1.0}


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
    features: npt.NDArray[np.floating],
    labels: Sequence[str],
    contexts: Sequence[str],
    seed: int = 0,
) -> tuple[float, float]:
    """Trains and tests a regularised logistic regression by cross-validation, grouped by context: returns its macro-F1
    in [0, 1], and that on shuffled labels. ``features``: shape (answers, size). ``labels``: of two classes in two
    contexts at least."""
    true = np.asarray(labels)
    shuffled = np.random.default_rng(seed).permutation(true)
    found, control = (
        macro_f1(one, predictions(features, one, np.asarray(contexts))) for one in (true, shuffled)
    )
    return found, control


def macro_f1(labels: npt.NDArray[np.str_], predicted: npt.NDArray[np.str_]) -> float:
    return float(
        metrics.f1_score(
            labels, predicted, average="macro", labels=np.unique(labels), zero_division=0.0
        )
    )


def predictions(
    features: npt.NDArray[np.floating], labels: npt.NDArray[np.str_], contexts: npt.NDArray[np.str_]
) -> npt.NDArray[np.str_]:
    """Predicts each label from a probe that saw no answer of its context."""
    regression = linear_model.LogisticRegression(C=STRENGTH, tol=TOLERANCE, max_iter=2000)
    classifier = pipeline.make_pipeline(preprocessing.StandardScaler(), regression)
    folds = model_selection.GroupKFold(min(FOLDS, len(np.unique(contexts))))
    predicted = np.empty_like(labels)
    for train, test in folds.split(features, groups=contexts):
        one, *others = np.unique(labels[train])  # with no other class there is nothing to fit
        with threadpool_limits(1):  # the matrices are small: more threads take thirty times as long
            fitted = classifier.fit(features[train], labels[train]) if others else None
            predicted[test] = fitted.predict(features[test]) if fitted else one
    return predicted


def with_labels(states: DataFrame, records: DataFrame) -> DataFrame:
    """Joins states with the labels of their questions; only questions with an answer in the context count, and running
    text has none."""
    asked = records[(records["answer_tokens"] > 0) & (records["golds"].map(len) > 0)]
    asked = asked[[*CELL, "draw_id", "answer_type", "golds", "right", "f1"]].rename(
        columns={"answer_type": TYPE}
    )
    asked[LETTER] = [golds[0][0].upper() for golds in asked["golds"]]
    asked[CONTEXT] = context_names(asked)
    return with_levels(states.merge(asked, on=CELL, validate="many_to_one"))


def by_layer(states: DataFrame) -> Iterator[Probed]:
    """Yields the probes of every layer with the full cache. ``states``: as of :func:`with_labels`."""
    full = states[states["policy"] == FULL]
    for label in LABELS:
        for _, group in full.groupby("layer"):
            yield from _probed(group, label)


def depths(layers: int) -> dict[str, int]:
    """Returns behind which layer a state is probed, by the name of its depth; of few layers fewer depths.

    >>> depths(30), depths(2)
    ({'early': 8, 'middle': 15, 'last': 30}, {'middle': 1, 'last': 2})
    """
    names = {max(1, math.ceil(share * layers)): name for name, share in DEPTHS.items()}
    return {name: layer for layer, name in names.items()}


def by_level(states: DataFrame) -> Iterator[Probed]:
    """Yields the probes of three depths at each level; none of answers that have no label. ``states``: as of
    :func:`with_labels`."""
    if states.empty:
        return
    for layer in depths(int(states["layer"].max())).values():
        at_depth = states[states["layer"] == layer]
        for label in LABELS:
            for _, group in at_depth.groupby(["policy", "level"], observed=True):
                yield from _probed(group, label)


def learnable(group: DataFrame, label: str) -> DataFrame:
    """Returns the answers whose label is not too rare for a probe; none where fewer than two classes or contexts are
    left."""
    group = group[group[label].map(group[label].value_counts()) >= FEWEST]
    return group if group[label].nunique() > 1 and group[CONTEXT].nunique() > 1 else group[:0]


def features_of(group: DataFrame) -> npt.NDArray[np.float64]:
    return np.stack([np.frombuffer(one, dtype="<f2") for one in group["state"]]).astype(np.float64)


def _probed(group: DataFrame, label: str) -> Iterator[Probed]:
    """Yields the probe of some answers, if there is any."""
    group = learnable(group, label)
    if group.empty:
        return
    found = probe(features_of(group), group[label].astype(str).tolist(), group[CONTEXT].tolist())
    first = group.iloc[0]
    yield Probed(
        label, str(first["policy"]), first["level"], int(first["layer"]), *found, len(group)
    )


PROBE, CONTROL = "probe", "shuffled labels"
TEXT = (
    f"A linear probe on the hidden state of the question’s last token. The {TYPE} can be read off the question too; "
    f"the {LETTER} stands in the context alone. What a probe finds and the model does not say is retained and not used."
)


def build_content(study_input: StudyInput) -> StudyContent:
    states = with_labels(study_input.tables[TABLE], study_input.records)
    layers, cells = list(by_layer(states)), list(by_level(states))
    rows = [*map(vars, (*layers, *cells))]
    last = int(states["layer"].max())
    beside = list(beside_answers(states, cells, depths(last)))
    parts = [_section(layers, [one for one in cells if one.layer == last])] if layers else []
    full = [one for one in layers if one.label == LETTER and one.macro_f1 - one.control >= TELLING]
    telling = {one.layer for one in full}
    parts += [
        _depth_section(beside, [name for name, layer in depths(last).items() if layer in telling])
    ] * bool(beside)
    sheets = [
        Sheet.of("routing-probes", "What probes find", rows),
        Sheet.of(
            "routing-depths",
            "Probes of three depths beside right answers",
            beside,
            kinds={"right": Estimate},
        ),
    ]
    return StudyContent(parts, sheets=sheets)


def beside_answers(
    states: DataFrame, cells: Sequence[Probed], layers: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """Yields for each label, policy and level what probes find at each depth beside what is right and F1 of the same
    answers, as shares."""
    found = {(one.label, one.policy, one.level, one.layer): one.macro_f1 for one in cells}
    last = states[states["layer"] == states["layer"].max()]
    for label in LABELS:
        for (policy, level), group in last.groupby(["policy", "level"], observed=True):
            at_depths = {
                name: found.get((label, str(policy), level, layer))
                for name, layer in layers.items()
            }
            if None in at_depths.values():
                continue
            answers = {
                "right": share_of(group["right"].eq(True), group[CONTEXT]),
                "f1": float(group["f1"].astype(float).fillna(0).mean()) / 100,
            }
            yield {"label": label, "policy": str(policy), "level": level, **at_depths, **answers}


def _depth_section(rows: Sequence[Mapping[str, Any]], telling: Sequence[str]) -> StudySection:
    """Draws of each policy what a probe finds at each depth beside right answers, as shares of the full cache's.
    ``telling``: the depths at which a probe finds something with the full cache, which alone can lose it."""
    names = [name for name in rows[0] if name in DEPTHS]
    styles = {
        name: style
        for name, style in named_styles((*names, "right")).items()
        if name in (*telling, "right")
    }
    pictures = list[Picture]()
    of_letter = [row for row in rows if row["label"] == LETTER] or list(rows)
    whole = next((row for row in of_letter if row["policy"] == FULL), None)
    for policy in dict.fromkeys(row["policy"] for row in of_letter):
        if policy != FULL and whole is not None and policy not in CONTROLS:
            own = [row for row in of_letter if row["policy"] == policy]
            pictures += _of_policy(policy, whole, own, styles)
    columns = ["label", "policy", "level", *names, "right", "f1"]
    listing = Listing(
        "Macro-F1 of probes by depth, beside right answers and F1, percent",
        tuple(columns),
        tuple(tuple(_cell(row[name]) for name in columns) for row in rows),
    )
    text = (
        f"What a probe for the {of_letter[0]['label']} finds behind a quarter of the layers, a half and all, beside "
        "the right answers at that level, each as a share of the full cache’s. Where a line of a probe falls before "
        "that of right answers, compression harms representations before answers. A depth at which the probe finds "
        "little with the full cache is not drawn."
    )
    title = "Do representations degrade before answers do?"
    return StudySection(
        "depths", title, text, tuple(styles.values()), tuple(pictures), details=(listing,)
    )


def _of_policy(
    policy: str,
    whole: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    styles: Mapping[str, LineStyle],
) -> Iterator[Picture]:
    """Draws one policy over its levels of each kind, from the full cache on."""
    for ending, axis in axes_by_kind(row["level"] for row in rows).items():
        lines = []
        for name, style in styles.items():
            start = _number(whole[name])
            shown = sorted(
                (row["level"].value, _number(row[name])) for row in rows if row["level"] in axis
            )
            origin = [] if axis.origin is None else [(axis.origin, exactly(1.0))]
            if start > 0:
                lines.append(
                    banded_line(
                        style,
                        [*origin, *((place, exactly(value / start)) for place, value in shown)],
                    )
                )
        if lines:
            title = f"{policy}{ending}"
            yield curve(title, "share of the full cache’s", lines, axis, f"depths/{title}")


def _number(value: Any) -> float:
    return float(value.mean if isinstance(value, Estimate) else value)


def _cell(value: Any) -> str:
    if isinstance(value, Estimate):
        return in_percent(value)
    return f"{100 * value:.0f}" if isinstance(value, float) else str(value)


def _section(layers: Sequence[Probed], cells: Sequence[Probed]) -> StudySection:
    styles = full_last(one.policy for one in cells)
    pictures = []
    for label in LABELS:
        of_layers = [one for one in layers if one.label == label]
        of_levels = {
            (one.policy, one.level): exactly(one.macro_f1) for one in cells if one.label == label
        }
        name = f"{label[0].upper()}{label[1:]}"
        if of_layers:
            pictures.append(_over_layers(of_layers, f"{name}, full cache"))
        if of_levels:
            pictures += over_levels(
                of_levels, styles, f"{name}, last layer", "macro-F1", f"probes/{label}"
            )
    listing = listing_of_fields("Probes of the last layer", cells, {}, leave_out=("layer",))
    shown = tuple(style for name, style in styles.items() if name != FULL)
    title = "What a probe finds in what the question’s last token holds"
    return StudySection("probes", title, TEXT, shown, tuple(pictures), details=(listing,))


def _over_layers(found: Sequence[Probed], title: str) -> Picture:
    styles = named_styles((PROBE, CONTROL))
    lines = [
        banded_line(styles[PROBE], [(one.layer, exactly(one.macro_f1)) for one in found]),
        banded_line(styles[CONTROL], [(one.layer, exactly(one.control)) for one in found]),
    ]
    axis = replace(Axis.of_layers(found[-1].layer + 1), title="layer, 0 before the first")
    return curve(
        title, "macro-F1; below, of shuffled labels", lines, axis, f"layers/{found[0].label}"
    )


DEFINITIONS = (
    Definition(
        "Probes",
        "A regularised logistic regression predicts a label of the question from the hidden state of its last token; "
        "it is tested on contexts that it was not trained on. Control: the same on shuffled labels. Labels of fewer "
        "than three answers are left out. By level three depths are probed: behind a quarter of the layers, a half and "
        "all.",
        "macro-F1 = mean over labels of 2 · precision · recall / (precision + recall)",
        "J. Hewitt and P. Liang, arXiv 1909.03368",
    ),
)
