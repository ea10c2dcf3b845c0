"""Shows whether the heads of each layer look at the same token where the answer begins."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration.definition import Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import named_styles
from leaderboards.routing.agreement import agreement, chance_of_consensus, consensus, slope
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import StudyInput, StudySection
from leaderboards.studies.parts import curve, estimate_of, exactly, in_numbers, line_of, listing_of
from leaderboards.studies.routing.routes import CELL, CONTEXT, contexts_of
from policies.declaration.levels import Level
from policies.declaration.names import FULL

TABLE = "attention"  # of a store (kvbench.store.observed)
ANSWER_STEP = 1
AT_ANSWER = ("consensus", "consensus_by_chance", "agreement")


@dataclass(frozen=True)
class Agreement:
    """Says how far the heads of each layer agree at the first token of the answer. Arrays go by layer.

    ``slope``: consensus of the late half of the layers less that of the early half. ``consensus_by_chance``: of heads
    that look at any token that the layer keeps.
    """

    policy: str
    level: Level
    consensus: FloatArray
    consensus_by_chance: FloatArray
    agreement: FloatArray
    slope: Estimate | None  # None of a model of one layer


def with_questions(table: DataFrame, records: DataFrame) -> DataFrame:
    """Joins attention with what records say of the answer, and makes levels of kinds and values."""
    columns = [*CELL, "draw_id", "answer_tokens", "context_tokens", "right"]
    joined = table.merge(records[columns], on=CELL, validate="many_to_one")
    joined[CONTEXT] = contexts_of(joined)
    return with_levels(joined)


def at_answers(attention: DataFrame) -> DataFrame:
    """Returns the rows at the first token of the answer, with ``consensus`` and ``agreement`` of the heads."""
    rows = attention[attention["step"] == ANSWER_STEP]
    if rows.empty:
        return rows
    tops = np.stack(rows["top"].to_list())
    return rows.assign(consensus=consensus(tops), agreement=agreement(tops))


def agreements(attention: DataFrame) -> Iterator[Agreement]:
    """Yields the agreement of heads by policy and level. ``attention``: as of :func:`with_questions`."""
    at_answer = at_answers(attention)
    if at_answer.empty:  # every answer ends at once
        return
    left = (at_answer["kept"] * at_answer["context_tokens"]).clip(lower=1)
    chance = chance_of_consensus(len(at_answer["top"].iloc[0]), left.to_numpy(dtype=np.float64))
    at_answer = at_answer.assign(consensus_by_chance=chance)
    for (policy, level), group in at_answer.groupby(["policy", "level"], observed=True):
        means = group.groupby("layer")[list(AT_ANSWER)].mean()
        by_layer = {name: means[name].to_numpy(dtype=np.float64) for name in AT_ANSWER}
        values, contexts = slopes(group)
        known = ~np.isnan(values)
        late = estimate_of(values[known], contexts[known]) if known.any() else None
        yield Agreement(str(policy), level, slope=late, **by_layer)


def slopes(group: DataFrame) -> tuple[FloatArray, npt.NDArray[np.str_]]:
    """Returns the slope of consensus over depth of each answer, and its context. ``group``: of :func:`at_answers`."""
    layers = group["layer"].nunique()
    by_answer = group.sort_values("layer").groupby([*CELL, CONTEXT], observed=True)["consensus"].apply(np.array)
    values = np.array([slope(one) if len(one) == layers else np.nan for one in by_answer])
    return values, by_answer.index.get_level_values(CONTEXT).to_numpy(dtype=str)


class Heads:
    """Holds how far heads agree, by layer, under each policy."""

    def __init__(self, given: StudyInput) -> None:
        self.agreements = list(agreements(with_questions(given.tables[TABLE], given.records)))

    def parts(self) -> list[StudySection]:
        whole = next((one for one in self.agreements if one.policy == FULL), None)
        if whole is None:
            return []
        styles = named_styles(("consensus", "agreement"))
        lines = [line_of(style, enumerate(map(exactly, getattr(whole, name)))) for name, style in styles.items()]
        picture = curve("Full cache", "by layer", lines, Axis.of_layers(len(whole.consensus)), "agreement")
        columns: dict[str, Callable[[Agreement], object]] = {
            "policy": lambda one: one.policy,
            "level": lambda one: one.level,
            "consensus": lambda one: f"{one.consensus.mean():.2f}",
            "consensus by chance": lambda one: f"{one.consensus_by_chance.mean():.2f}",
            "agreement": lambda one: f"{one.agreement.mean():.2f}",
            "slope": lambda one: in_numbers(one.slope),
        }
        section = StudySection(
            "agreement",
            "Do heads agree, early or late?",
            "At the first token of the answer. Consensus is the distinct tokens that heads attend to most over the "
            "heads, low where they agree; agreement is the largest share of heads on one token.",
            tuple(styles.values()),
            (picture,),
            (listing_of("Over all layers", self.agreements, columns),),
        )
        return [section]

    def sheets(self) -> list[Sheet]:
        rows = [
            {"policy": one.policy, "level": one.level, "layer": layer}
            | {name: float(getattr(one, name)[layer]) for name in AT_ANSWER}
            for one in self.agreements
            for layer in range(len(one.consensus))
        ]
        return [Sheet.of("routing-agreement", "Agreement of heads by layer", rows)]


DEFINITIONS = (
    Definition(
        "Consensus, agreement, and slope",
        "By layer, of the token that each head attends to most at the first token of the answer. Consensus, as the "
        "paper writes it, is low where heads agree; beside it that of heads which look at any of the n tokens that the "
        "layer keeps, at random. Agreement is the largest share of heads on one token. The slope is the mean consensus "
        "of the late half of the layers less that of the early half.",
        "consensus = distinct top tokens / heads; chance = n (1 − (1 − 1 / n)^heads) / heads",
        "arXiv 2603.01426",
        names=("consensus", "consensus by chance", "consensus_by_chance", "agreement", "slope"),
    ),
)
