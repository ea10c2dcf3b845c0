"""Shows whether the heads of each layer look at the same token where the answer begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Definition
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import HeatMap, Tile
from leaderboards.routing.agreement import agreement, chance_of_consensus, consensus, slope
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import (
    banded_line,
    curve,
    estimate_mean,
    exactly,
    in_numbers,
    list_rows,
)
from leaderboards.studies.routing.routes import CELL, CONTEXT, context_names
from policies.declaration.levels import UNTREATED, Level, names_of
from policies.declaration.names import FULL

TABLE = "attention"  # of a store (kvbench.store.observed)
ANSWER_STEP = 1
AT_ANSWER = ["consensus", "consensus_by_chance", "agreement"]


@dataclass(frozen=True)
class Agreement:
    """Says how far the heads of each layer agree at the first token of the answer."""

    policy: str
    level: Level
    by_layer: DataFrame  # a row for each layer, with the columns AT_ANSWER
    slope: Estimate | None  # None of one layer


def with_questions(table: DataFrame, records: DataFrame) -> DataFrame:
    """Joins attention with what records say of the answer, and makes levels of kinds and values."""
    columns = [*CELL, "draw_id", "answer_tokens", "context_tokens", "right"]
    joined = table.merge(records[columns], on=CELL, validate="many_to_one")
    joined[CONTEXT] = context_names(joined)
    return with_levels(joined)


def at_answers(attention: DataFrame) -> DataFrame:
    """Returns the rows at the first token of the answer, with ``consensus`` and ``agreement`` of the heads."""
    rows = attention[attention["step"] == ANSWER_STEP]
    if rows.empty:  # every answer ends at once
        return rows
    tops = np.stack(rows["top"].to_list())
    return rows.assign(consensus=consensus(tops), agreement=agreement(tops))


def agreements(attention: DataFrame) -> list[Agreement]:
    """Returns the agreement of heads by policy and level. ``attention``: as of :func:`with_questions`."""
    rows = at_answers(attention)
    if rows.empty:
        return []
    left = (rows["kept"] * rows["context_tokens"]).clip(lower=1).to_numpy(dtype=np.float64)
    rows = rows.assign(consensus_by_chance=chance_of_consensus(len(rows["top"].iloc[0]), left))
    found = []
    for (policy, level), group in rows.groupby(["policy", "level"], observed=True):
        values, contexts = slopes(group)
        known = ~np.isnan(values)
        late = estimate_mean(values[known], contexts[known]) if known.any() else None
        found.append(Agreement(str(policy), level, group.groupby("layer")[AT_ANSWER].mean(), late))
    return found


@dataclass(frozen=True)
class HeadReads:
    """Says how often each head attends to a token of the gold answer most, at the first token of the answer."""

    policy: str
    level: Level
    shares: FloatArray  # of answers, shape (layers, heads)

    @property
    def rows(self) -> list[dict[str, Any]]:
        places = np.ndindex(*self.shares.shape)
        cell = {"policy": self.policy, "level": self.level}
        return [
            {**cell, "layer": layer, "head": head, "reads": self.shares[layer, head]}
            for layer, head in places
        ]


def heads_that_read(attention: DataFrame) -> list[HeadReads]:
    """Returns how often each head reads the answer, by policy and level. ``attention``: of :func:`with_questions`."""
    rows = attention[(attention["step"] == ANSWER_STEP) & (attention["answer_tokens"] > 0)]
    found = []
    for (policy, level), group in rows.groupby(["policy", "level"], observed=True):
        by_layer = [
            np.stack(of_layer.to_list()).mean(axis=0)
            for _, of_layer in group.groupby("layer")["retrieves"]
        ]
        found.append(HeadReads(str(policy), level, np.stack(by_layer)))
    return found


def slopes(group: DataFrame) -> tuple[FloatArray, npt.NDArray[np.str_]]:
    """Returns the slope of consensus over depth of each answer, and its context. ``group``: of :func:`at_answers`."""
    layers = group["layer"].nunique()
    by_answer = (
        group.sort_values("layer")
        .groupby([*CELL, CONTEXT], observed=True)["consensus"]
        .apply(np.array)
    )
    values = np.array([slope(one) if len(one) == layers else np.nan for one in by_answer])
    return values, by_answer.index.get_level_values(CONTEXT).to_numpy(dtype=str)


def build_content(study_input: StudyInput) -> StudyContent:
    attention = with_questions(study_input.tables[TABLE], study_input.records)
    found = agreements(attention)
    rows = [
        {"policy": one.policy, "level": one.level, "layer": layer} | means
        for one in found
        for layer, means in enumerate(one.by_layer.to_dict("records"))
    ]
    whole = next((one.by_layer for one in found if one.policy == FULL), None)
    if whole is None:
        return StudyContent(())
    styles = named_styles(("consensus", "agreement"))
    lines = [
        banded_line(style, enumerate(map(exactly, whole[name]))) for name, style in styles.items()
    ]
    picture = curve("Full cache", "by layer", lines, Axis.of_layers(len(whole)), "agreement")
    listing = list_rows(
        "Over all layers",
        found,
        {
            "policy": lambda one: one.policy,
            "level": lambda one: one.level,
            "consensus": lambda one: f"{one.by_layer['consensus'].mean():.2f}",
            "consensus by chance": lambda one: f"{one.by_layer['consensus_by_chance'].mean():.2f}",
            "agreement": lambda one: f"{one.by_layer['agreement'].mean():.2f}",
            "slope": lambda one: in_numbers(one.slope),
        },
    )
    reads = heads_that_read(attention)
    whole_reads = next((one for one in reads if one.policy == FULL), None)
    maps = () if whole_reads is None else (_map_of_heads(whole_reads),)
    text = (
        "At the first token of the answer. Consensus is the distinct tokens that heads attend to most over the heads, "
        "low where they agree; agreement is the largest share of heads on one token."
    )
    title = "Do heads agree, early or late?"
    section = StudySection(
        "agreement", title, text, tuple(styles.values()), (picture,), (listing,), maps=maps
    )
    sections = [section, *_under_compression(found, whole), *_beside(study_input, found)]
    sheets = [
        Sheet.of("routing-agreement", "Agreement of heads by layer", rows),
        Sheet.of(
            "routing-heads",
            "How often each head reads the answer",
            [row for one in reads for row in one.rows],
        ),
    ]
    return StudyContent(sections, sheets=sheets)


def _under_compression(found: Sequence[Agreement], whole: DataFrame) -> list[StudySection]:
    """Draws consensus over layers for the full cache and at each level, a picture for each policy."""
    levels = sorted({one.level for one in found if one.level != UNTREATED})
    if not levels:
        return []
    names = names_of(levels)
    styles = named_styles(("full cache", *(names[level] for level in levels)))
    pictures = []
    for policy in dict.fromkeys(one.policy for one in found if one.policy != FULL):
        lines = [banded_line(styles["full cache"], enumerate(map(exactly, whole["consensus"])))]
        of_policy = [one for one in found if one.policy == policy and one.level in names]
        for one in of_policy:
            style = styles[names[one.level]]
            lines.append(banded_line(style, enumerate(map(exactly, one.by_layer["consensus"]))))
        pictures.append(
            curve(policy, "consensus", lines, Axis.of_layers(len(whole)), f"consensus/{policy}")
        )
    text = (
        "Consensus by layer at the first token of the answer, for the full cache and at each level. Of fewer rows "
        "fewer can be looked at: the download has what chance would have."
    )
    title = "Consensus by depth under compression"
    return [StudySection("consensus", title, text, tuple(styles.values()), tuple(pictures))]


def _beside(study_input: StudyInput, found: Sequence[Agreement]) -> list[StudySection]:
    """Draws consensus of this model and of each beside it over depth, as a share of the layers, for the full cache and
    at the levels that both were run at; all questions of either count, as contexts of two tokenizers may differ."""
    sections = []
    for number, other in enumerate(study_input.beside, start=1):
        if other.number < study_input.number or TABLE not in other.tables:
            continue
        sides = [{(one.policy, one.level): one.by_layer["consensus"] for one in found}]
        of_other = agreements(with_questions(other.tables[TABLE], other.records))
        sides.append({(one.policy, one.level): one.by_layer["consensus"] for one in of_other})
        styles = named_styles((study_input.model, other.model))
        pictures = []
        for cell in sides[0]:
            if cell in sides[1]:
                layers = [side[cell].tolist() for side in sides]
                name = FULL if cell[0] == FULL else f"{cell[0]} at {cell[1]}"
                pictures.append(_over_depth(name, layers, list(styles.values()), f"depth-{number}"))
        models = f"{study_input.model} and {other.model}"
        text = f"Consensus of {models} over depth: 0 is the first layer, 1 the last. It is low where heads agree."
        title = f"Consensus by depth beside {other.model}"
        if pictures:
            section = StudySection(
                f"consensus-beside-{number}", title, text, tuple(styles.values()), tuple(pictures)
            )
            sections.append(section)
    return sections


def _over_depth(
    name: str, layers: Sequence[Sequence[float]], styles: Sequence[LineStyle], salt: str
) -> Picture:
    lines = []
    for of_model, style in zip(layers, styles, strict=True):
        last = max(1, len(of_model) - 1)
        lines.append(
            banded_line(
                style, [(layer / last, exactly(value)) for layer, value in enumerate(of_model)]
            )
        )
    return curve(
        name, "consensus", lines, Axis.from_values("depth, of the layers", [1.0]), f"{salt}/{name}"
    )


def _map_of_heads(reads: HeadReads) -> HeatMap:
    rows = []
    for layer, shares in enumerate(reads.shares):
        rows.append(
            (str(layer), tuple(Tile(f"{100 * share:.0f}", "", share) for share in shares.tolist()))
        )
    columns = tuple(map(str, range(reads.shares.shape[1])))
    title = "Answers that a head reads, full cache, percent"
    return HeatMap(title, "layer", columns, tuple(rows), "head", "share of answers")


DEFINITIONS = (
    Definition(
        "Consensus, agreement, and slope",
        "By layer, of the token that each head attends to most at the first token of the answer. Consensus, as the "
        "paper writes it, is low where heads agree; beside it that of heads which look at any of the n tokens that the "
        "layer keeps, at random. Agreement is the largest share of heads on one token. The slope is the mean consensus "
        "of the late half of the layers less that of the early half.",
        "consensus = distinct top tokens / heads; chance = n (1 − (1 − 1 / n)^heads) / heads",
        "arXiv 2603.01426",
    ),
    Definition(
        "Heads that read the answer",
        "The share of answers at whose first token a head attends to a token of the gold answer most, of questions "
        "whose answer stands in the context.",
    ),
)
