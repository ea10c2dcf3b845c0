"""Computes what linear probes find, whatever the model says: in the hidden states of the question's last token, and in
the values that are left of the answer's rows.

A probe is asked for the type of the answer, which the question tells as well, and for the first letter of the answer,
which only the context tells: values themselves are other words in every context, so that no probe could learn them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame

from leaderboards.routing.probe import ProbeScore, probe, ratio_of_loss
from leaderboards.statistics.bootstrap import Estimate, FloatArray, resampled_means
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.routing.classes import CELL, CONTEXT, contexts_of
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

TABLE = "states"  # of a store (kvbench.store.observed)
SHUFFLES = 1  # of the labels, for each of the many probes of a page
STATE, VALUES = "state", "values"  # what is probed: columns of the table
TYPE, LETTER = "type of the answer", "first letter of the answer"
LABELS = (TYPE, LETTER)
TELLING = 0.1  # of macro-F1 above that of shuffled labels: a probe that finds less with the full cache finds nothing
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


def first_losses(scores: Mapping[tuple[str, Level], float]) -> dict[str, float]:
    """Returns by policy the ratio at which a score has lost a tenth of the full cache's; NaN where it never does, and
    nothing of policies without ratios. ``scores``: by policy and level."""
    whole = scores.get((FULL, UNTREATED))
    found = {}
    for policy in dict.fromkeys(policy for policy, _ in scores if policy != FULL):
        levels = sorted(level for name, level in scores if name == policy and level.kind == UNTREATED.kind)
        if whole is not None and levels:
            ratios = [0.0, *(level.value for level in levels)]
            found[policy] = ratio_of_loss(ratios, [whole, *(scores[policy, level] for level in levels)])
    return found


def f1_of_answers(states: DataFrame) -> dict[tuple[str, Level], Estimate]:
    """Returns F1 in [0, 1] by policy and level, over the questions that probes are asked."""
    one_layer = states[states["layer"] == 0]
    found = {}
    for (policy, level), group in one_layer.groupby(["policy", "level"], observed=True):
        values, contexts = group["f1"].to_numpy(), group[CONTEXT].to_numpy(dtype=str)
        found[str(policy), level] = Estimate.of(float(values.mean()), resampled_means(values, contexts, 0), len(group))
    return found
