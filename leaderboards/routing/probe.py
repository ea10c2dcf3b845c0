"""Trains linear probes on hidden states or on pooled values, which show what they hold, whatever the model says.

Based on J. Hewitt and P. Liang, "Designing and interpreting probes with control tasks" (arXiv 1909.03368): a probe says
something of the features only as far as it does better than on labels that mean nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from policies.declaration.lazy import LazyModule

# Their import takes a second, and few sites need them.
linear_model = LazyModule("sklearn.linear_model")
metrics = LazyModule("sklearn.metrics")
model_selection = LazyModule("sklearn.model_selection")
pipeline = LazyModule("sklearn.pipeline")
preprocessing = LazyModule("sklearn.preprocessing")

FloatArray = npt.NDArray[np.float64]

STRENGTH = 0.1  # the inverse of the penalty: features are many and answers few
TOLERANCE = 1e-3  # of the solver: a tenth of the usual one costs twice the time, for the same predictions
FOLDS = 5
SHUFFLES = 5  # of labels, whose mean is the control


@dataclass(frozen=True)
class ProbeScore:
    """Holds the macro-F1 of a probe, in [0, 1], on contexts that it was not trained on.

    ``control``: that on shuffled labels. ``chance``: 1 / classes, what guesses by frequency reach. ``predictions``: by
    answer, for a bootstrap over contexts.
    """

    macro_f1: float
    control: float
    chance: float
    predictions: npt.NDArray[np.str_]

    @property
    def selectivity(self) -> float:
        """Returns how much better the probe is on the labels than on shuffled ones."""
        return self.macro_f1 - self.control


def probe(
    features: npt.NDArray[np.floating],
    labels: Sequence[str],
    contexts: Sequence[str],
    seed: int = 0,
    shuffles: int = SHUFFLES,
) -> ProbeScore:
    """Trains and tests a regularised logistic regression by cross-validation, grouped by context.

    ``features``: shape (answers, size), such as the hidden states of one layer. ``labels``: by answer, such as the type
    of the answer, or the value itself. ``shuffles``: of the control. Raises :class:`ValueError` if there are fewer than
    two classes or contexts.
    """
    classes, groups = np.unique(labels), np.asarray(contexts)
    if len(classes) < 2 or len(np.unique(groups)) < 2:
        raise ValueError("a probe needs two classes and two contexts at least")
    true = np.asarray(labels)
    generator = np.random.default_rng(seed)
    shuffled = [generator.permutation(true) for _ in range(shuffles)]
    with threadpool_limits(1):  # the matrices are small: more threads take thirty times as long
        predictions = _predicted(features, true, groups)
        controls = [_macro_f1(one, _predicted(features, one, groups)) for one in shuffled]
    return ProbeScore(_macro_f1(true, predictions), float(np.mean(controls)), 1 / len(classes), predictions)


def _predicted(
    features: npt.NDArray[np.floating], labels: npt.NDArray[np.str_], groups: npt.NDArray[np.str_]
) -> npt.NDArray[np.str_]:
    """Predicts each label from a probe that saw no answer of its context."""
    regression = linear_model.LogisticRegression(C=STRENGTH, tol=TOLERANCE, max_iter=2000)
    classifier = pipeline.make_pipeline(preprocessing.StandardScaler(), regression)
    folds = model_selection.GroupKFold(min(FOLDS, len(np.unique(groups))))
    predicted: npt.NDArray[np.str_] = model_selection.cross_val_predict(
        classifier, features, labels, groups=groups, cv=folds
    )
    return predicted


def _macro_f1(labels: npt.NDArray[np.str_], predictions: npt.NDArray[np.str_]) -> float:
    return float(metrics.f1_score(labels, predictions, average="macro", labels=np.unique(labels), zero_division=0.0))
