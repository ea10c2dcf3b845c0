"""Computes what heads attend to and keep: whether they agree, which read the answer, and what becomes of these."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pandas import DataFrame

from leaderboards.routing.agreement import agreement, chance_of_consensus, chance_of_jaccard, consensus, slope
from leaderboards.statistics.bootstrap import Estimate, resampled_means
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import StudyInput
from leaderboards.studies.routing.classes import CELL, CONTEXT, contexts_of
from policies.declaration.levels import Level
from policies.declaration.names import FULL

TABLE = "attention"  # of a store (kvbench.store.observed)
QUESTION_STEP, ANSWER_STEP = 0, 1
SPANS = ("answer", "subject", "bridge", "fact", "distractor")
AT_ANSWER = ("consensus", "consensus_by_chance", "agreement")
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Agreement:
    """Says how far the heads of each layer agree at the first token of the answer. Arrays go by layer.

    ``slope``: consensus of the late half of the layers less that of the early half. ``consensus_by_chance``: of heads
    that look at any token that the layer keeps. ``jaccard``, ``kappa``, ``kept``: of the tokens that heads keep, means
    over contexts.
    """

    policy: str
    level: Level
    consensus: FloatArray
    consensus_by_chance: FloatArray
    agreement: FloatArray
    slope: Estimate
    jaccard: FloatArray
    kappa: FloatArray
    kept: FloatArray

    @property
    def jaccard_by_chance(self) -> FloatArray:
        return np.array([chance_of_jaccard(share) for share in self.kept])


@dataclass(frozen=True)
class RetrievalHeads:
    """Says which heads attend most to a token of the gold answer, where its first token is about to be written.

    ``scores``: float (layers, heads), the share of answers of the full cache in which they do. ``chance``: that of a
    head that looks anywhere in the context.
    """

    scores: FloatArray
    chance: float
    answers: int

    def best(self, count: int) -> list[tuple[int, int]]:
        """Returns the layers and heads with the highest scores, the best first."""
        order = np.argsort(-self.scores, axis=None, kind="stable")[:count]
        return [divmod(int(place), self.scores.shape[1]) for place in order]


@dataclass(frozen=True)
class HeadsUnder:
    """Says what some heads do under a policy at a level: the mean of how often they attend most to the gold answer, and
    of their attention to it."""

    policy: str
    level: Level
    retrieves: Estimate
    attention: Estimate


def with_questions(table: DataFrame, records: DataFrame) -> DataFrame:
    """Joins attention with what records say of the answer, and makes levels of kinds and values."""
    columns = [*CELL, "draw_id", "answer_tokens", "context_tokens", "right"]
    joined = table.merge(records[columns], on=CELL, validate="many_to_one")
    joined[CONTEXT] = contexts_of(joined)
    return with_levels(joined)


def agreements(attention: DataFrame) -> Iterator[Agreement]:
    """Yields the agreement of heads by policy and level. ``attention``: as of :func:`with_questions`."""
    at_answer = at_answers(attention)
    if at_answer.empty:  # every answer ends at once
        return
    left = (at_answer["kept"] * at_answer["context_tokens"]).clip(lower=1)
    chance = chance_of_consensus(len(at_answer["top"].iloc[0]), left.to_numpy(dtype=np.float64))
    at_answer = at_answer.assign(consensus_by_chance=chance)
    kept = attention[attention["step"] == QUESTION_STEP]
    kept = kept.drop_duplicates([CONTEXT, "policy", "level", "repeat", "layer"])
    of_kept = {key: _by_layer(group) for key, group in kept.groupby(["policy", "level"], observed=True)}
    for (policy, level), group in at_answer.groupby(["policy", "level"], observed=True):
        means = _by_layer(group)
        keeps = of_kept[policy, level]
        yield Agreement(str(policy), level, slope=_slope(group), **means, **keeps)


def at_answers(attention: DataFrame) -> DataFrame:
    """Returns the rows at the first token of the answer, with ``consensus`` and ``agreement`` of the heads."""
    rows = attention[attention["step"] == ANSWER_STEP]
    if rows.empty:
        return rows
    tops = np.stack(rows["top"].to_list())
    return rows.assign(consensus=consensus(tops), agreement=agreement(tops))


def depths(given: StudyInput) -> Iterator[tuple[str, Agreement]]:
    """Yields the agreement of heads with the full cache of a model, and of those beside it."""
    for one in (given, *given.beside):
        table = one.tables.get(TABLE)
        if table is not None:
            full = table[table["policy"] == FULL]
            yield from ((one.model, found) for found in agreements(with_questions(full, one.records)))


def _by_layer(group: DataFrame) -> dict[str, FloatArray]:
    columns = [name for name in AT_ANSWER if name in group] or ["jaccard", "kappa", "kept"]
    means = group.groupby("layer")[columns].mean()
    return {name: means[name].to_numpy(dtype=np.float64) for name in columns}


def slopes(group: DataFrame) -> tuple[FloatArray, npt.NDArray[np.str_]]:
    """Returns the slope of consensus over depth of each answer, and its context. ``group``: of :func:`at_answers`."""
    layers = group["layer"].nunique()
    by_answer = group.sort_values("layer").groupby([*CELL, CONTEXT], observed=True)["consensus"].apply(np.array)
    values = np.array([slope(one) if len(one) == layers else np.nan for one in by_answer])
    return values, by_answer.index.get_level_values(CONTEXT).to_numpy(dtype=str)


def _slope(group: DataFrame) -> Estimate:
    """Estimates the mean slope over answers."""
    values, contexts = slopes(group)
    known = values[~np.isnan(values)]  # none of a model of one layer
    return Estimate.of(float(known.mean()) if len(known) else np.nan, resampled_means(values, contexts, 0), len(known))


def retrieval_heads(attention: DataFrame) -> RetrievalHeads:
    """Finds the heads that read the answer with the full cache."""
    full = _about_answers(attention)
    full = full[full["policy"] == FULL]
    scores = [np.stack(group["retrieves"].to_list()).mean(axis=0) for _, group in full.groupby("layer")]
    one_layer = full[full["layer"] == 0]
    chance = (one_layer["answer_tokens"] / one_layer["context_tokens"]).mean()
    return RetrievalHeads(np.stack(scores).astype(np.float64), float(chance), len(one_layer))


def heads_under(attention: DataFrame, heads: Sequence[tuple[int, int]]) -> Iterator[HeadsUnder]:
    """Yields what becomes of some heads by policy and level."""
    about = _about_answers(attention)
    about = about[about["layer"].isin([layer for layer, _ in heads])]
    chosen = [[head for one, head in heads if one == layer] for layer in about["layer"]]
    about = about.assign(
        retrieves=[np.mean(of[mine]) for of, mine in zip(map(np.array, about["retrieves"]), chosen, strict=True)],
        attention=[np.mean(of[mine]) for of, mine in zip(map(np.array, about["answer"]), chosen, strict=True)],
        weight=[float(len(mine)) for mine in chosen],
    )
    for (policy, level), group in about.groupby(["policy", "level"], observed=True):
        yield HeadsUnder(str(policy), level, _weighted(group, "retrieves"), _weighted(group, "attention"))


def _weighted(group: DataFrame, column: str) -> Estimate:
    """Averages over heads and answers; a layer weighs as many heads as it has."""
    weights = group["weight"].to_numpy(dtype=np.float64)
    totals = group[column].to_numpy(dtype=np.float64) * weights
    drawn = resampled_means(totals, group[CONTEXT].to_numpy(dtype=str), 0, weights=weights)
    return Estimate.of(float(totals.sum() / weights.sum()), drawn, len(group))


def _about_answers(attention: DataFrame) -> DataFrame:
    return attention[(attention["step"] == QUESTION_STEP) & (attention["answer_tokens"] > 0)]


def attention_by_layer(attention: DataFrame, policy: str, level: Level) -> dict[str, FloatArray]:
    """Returns by span the share of the attention of the question's last token, mean over heads and answers, by layer.
    Only questions with an answer in the context count."""
    about = _about_answers(attention)
    about = about[(about["policy"] == policy) & (about["level"] == level)]
    by_layer = [group for _, group in about.groupby("layer")]
    return {span: np.array([np.stack(group[span].to_list()).mean() for group in by_layer]) for span in SPANS}
