"""Shows whether the heads of each layer look at the same token where the answer begins."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.rendering.templating import HeatMap, Tile
from leaderboards.routing.agreement import agreement, chance_of_consensus, consensus, slope
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Picture, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import (
    BandedLine,
    banded_line,
    curve,
    estimate_mean,
    exactly,
    in_numbers,
    list_rows,
)
from leaderboards.studies.routing.routes import CELL, CONTEXT, context_names
from policies.declaration.levels import UNTREATED, Level, name_levels
from policies.declaration.names import FULL

TABLE = "attention"  # of a store (kvbench.studies.routing)
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
    # A row for each answer, step and layer.
    joined = table.merge(records[columns], on=CELL, validate="many_to_one")
    joined[CONTEXT] = context_names(joined)
    return with_levels(joined)


def at_answers(attention: DataFrame) -> DataFrame:
    """Returns the rows at the first token of the answer, with ``consensus`` and ``agreement`` of
    the heads."""
    rows = attention[attention["step"] == ANSWER_STEP]
    if rows.empty:  # every answer ends at once
        return rows
    tops = np.stack(rows["top"].to_list())
    return rows.assign(consensus=consensus(tops), agreement=agreement(tops))


def agreements(attention: DataFrame) -> list[Agreement]:
    """Returns the agreement of heads by policy and level. ``attention``: as of
    :func:`with_questions`."""
    rows = at_answers(attention)
    if rows.empty:
        return []
    heads = len(rows["top"].iloc[0])
    # At least one: heads look at some token in any case.
    left = (rows["kept"] * rows["context_tokens"]).clip(lower=1).to_numpy(dtype=np.float64)
    rows = rows.assign(consensus_by_chance=chance_of_consensus(heads, left))
    results = []
    for (policy, level), group in rows.groupby(["policy", "level"], observed=True):
        values, contexts = slopes(group)
        has_slope = ~np.isnan(values)
        late = None
        if has_slope.any():
            late = estimate_mean(values[has_slope], contexts[has_slope])
        by_layer = group.groupby("layer")[AT_ANSWER].mean()
        results.append(Agreement(str(policy), level, by_layer, late))
    return results


@dataclass(frozen=True)
class HeadReads:
    """Says how often each head attends to a token of the gold answer most, at the first token of
    the answer."""

    policy: str
    level: Level
    shares: FloatArray  # of answers, shape (layers, heads)

    @property
    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields a row of the download for each head."""
        cell = {"policy": self.policy, "level": self.level}
        for layer, head in np.ndindex(*self.shares.shape):
            yield {**cell, "layer": layer, "head": head, "reads": self.shares[layer, head]}


def heads_that_read(attention: DataFrame) -> list[HeadReads]:
    """Returns how often each head reads the answer, by policy and level. ``attention``: of
    :func:`with_questions`."""
    rows = attention[(attention["step"] == ANSWER_STEP) & (attention["answer_tokens"] > 0)]
    results = []
    for (policy, level), group in rows.groupby(["policy", "level"], observed=True):
        by_layer = []
        for _, of_layer in group.groupby("layer")["retrieves"]:
            by_layer.append(np.stack(of_layer.to_list()).mean(axis=0))
        results.append(HeadReads(str(policy), level, np.stack(by_layer)))
    return results


def slopes(group: DataFrame) -> tuple[FloatArray, npt.NDArray[np.str_]]:
    """Returns the slope of consensus over depth of each answer, and its context, both of shape
    (answers,); NaN of an answer that lacks a layer. ``group``: of :func:`at_answers`."""
    layers = group["layer"].nunique()
    answers = group.sort_values("layer").groupby([*CELL, CONTEXT], observed=True)
    by_answer = answers["consensus"].apply(np.array)
    values = np.full(len(by_answer), np.nan)
    for place, of_layers in enumerate(by_answer):
        if len(of_layers) == layers:
            values[place] = slope(of_layers)
    return values, by_answer.index.get_level_values(CONTEXT).to_numpy(dtype=str)


def build_content(study_input: StudyInput) -> StudyContent:
    """Shows whether heads agree, layer by layer, and which of them read the answer."""
    attention = with_questions(study_input.tables[TABLE], study_input.records)
    results = agreements(attention)
    with_full = [result for result in results if result.policy == FULL]
    if not with_full:
        return StudyContent(())
    whole = with_full[0].by_layer
    reads = heads_that_read(attention)
    section = _agreement_section(results, whole, reads)
    sections = [section, *_under_compression(results, whole), *_beside(study_input, results)]
    rows: list[dict[str, Any]] = []
    for result in results:
        cell = {"policy": result.policy, "level": result.level}
        for layer, means in enumerate(result.by_layer.to_dict("records")):
            rows.append({**cell, "layer": layer, **means})
    head_rows: list[dict[str, Any]] = []
    for heads in reads:
        head_rows += heads.rows
    sheets = [
        Sheet.of("routing-agreement", "Agreement of heads by layer", rows),
        Sheet.of("routing-heads", "How often each head reads the answer", head_rows),
    ]
    return StudyContent(sections, sheets=sheets)


def _agreement_section(
    results: Sequence[Agreement], whole: DataFrame, reads: Sequence[HeadReads]
) -> StudySection:
    """Draws the agreement of the full cache's heads by layer, and lists that of all policies over
    all layers."""
    styles = named_styles(("consensus", "agreement"))
    lines = [_over_layers(style, whole[name]) for name, style in styles.items()]
    picture = curve("Full cache", "by layer", lines, Axis.for_layers(len(whole)), "agreement")
    columns: dict[str, Callable[[Agreement], object]] = {
        "policy": attrgetter("policy"),
        "level": attrgetter("level"),
        "consensus": lambda result: f"{result.by_layer['consensus'].mean():.2f}",
        "consensus by chance": lambda result: (
            f"{result.by_layer['consensus_by_chance'].mean():.2f}"
        ),
        "agreement": lambda result: f"{result.by_layer['agreement'].mean():.2f}",
        "slope": lambda result: in_numbers(result.slope),
    }
    listing = list_rows("Over all layers", results, columns)
    maps = [_heat_map(heads) for heads in reads if heads.policy == FULL]
    text = (
        "At the first token of the answer. Consensus is the distinct tokens that heads attend to "
        "most over the heads, low where they agree; agreement is the largest share of heads on "
        "one token."
    )
    return StudySection(
        "agreement",
        "Do heads agree, early or late?",
        text,
        tuple(styles.values()),
        (picture,),
        (listing,),
        maps=tuple(maps[:1]),
    )


def _over_layers(style: LineStyle, values: Iterable[float]) -> BandedLine:
    """Makes a line of one number for each layer."""
    return banded_line(style, enumerate(map(exactly, values)))


def _under_compression(results: Sequence[Agreement], whole: DataFrame) -> list[StudySection]:
    """Draws consensus over layers for the full cache and at each level, a picture for each
    policy."""
    levels = sorted({result.level for result in results if result.level != UNTREATED})
    if not levels:
        return []
    names = name_levels(levels)
    styles = named_styles(("full cache", *(names[level] for level in levels)))
    lines: dict[str, list[BandedLine]] = {}
    for result in results:
        if result.policy == FULL:
            continue
        start = _over_layers(styles["full cache"], whole["consensus"])
        of_policy = lines.setdefault(result.policy, [start])
        if result.level in names:
            style = styles[names[result.level]]
            of_policy.append(_over_layers(style, result.by_layer["consensus"]))
    axis = Axis.for_layers(len(whole))
    pictures = []
    for policy, of_policy in lines.items():
        pictures.append(curve(policy, "consensus", of_policy, axis, f"consensus/{policy}"))
    text = (
        "Consensus by layer at the first token of the answer, for the full cache and at each "
        "level. Of fewer rows fewer can be looked at: the download has what chance would have."
    )
    title = "Consensus by depth under compression"
    return [StudySection("consensus", title, text, tuple(styles.values()), tuple(pictures))]


def _beside(study_input: StudyInput, results: Sequence[Agreement]) -> list[StudySection]:
    """Draws consensus of this model and of each beside it over depth, as a share of the layers, for
    the full cache and at the levels that both were run at; all questions of either count, as
    contexts of two tokenizers may differ."""
    here = _consensus(results)
    sections = []
    for number, other in enumerate(study_input.beside, start=1):
        if other.number < study_input.number or TABLE not in other.tables:
            continue
        there = _consensus(agreements(with_questions(other.tables[TABLE], other.records)))
        styles = named_styles((study_input.model, other.model))
        pictures = []
        for cell, layers in here.items():
            if cell in there:
                policy, level = cell
                name = FULL if policy == FULL else f"{policy} at {level}"
                sides = (layers, there[cell])
                pictures.append(_over_depth(name, sides, [*styles.values()], f"depth-{number}"))
        if not pictures:
            continue
        models = f"{study_input.model} and {other.model}"
        text = f"Consensus of {models} over depth: 0 is the first layer, 1 the last. It is low where heads agree."
        section = StudySection(
            f"consensus-beside-{number}",
            f"Consensus by depth beside {other.model}",
            text,
            tuple(styles.values()),
            tuple(pictures),
        )
        sections.append(section)
    return sections


def _consensus(results: Sequence[Agreement]) -> dict[tuple[str, Level], list[float]]:
    """Returns the consensus of each layer by policy and level."""
    consensus: dict[tuple[str, Level], list[float]] = {}
    for result in results:
        consensus[result.policy, result.level] = result.by_layer["consensus"].tolist()
    return consensus


def _over_depth(
    name: str, layers: Sequence[Sequence[float]], styles: Sequence[LineStyle], salt: str
) -> Picture:
    lines = []
    for of_model, style in zip(layers, styles, strict=True):
        # A model of one layer has no depth to divide by.
        last = max(1, len(of_model) - 1)
        points = []
        for layer, value in enumerate(of_model):
            points.append((layer / last, exactly(value)))
        lines.append(banded_line(style, points))
    axis = Axis.from_values("depth, of the layers", [1.0])
    return curve(name, "consensus", lines, axis, f"{salt}/{name}")


def _heat_map(reads: HeadReads) -> HeatMap:
    layers, heads = reads.shares.shape
    rows = []
    for layer in range(layers):
        shares = reads.shares[layer].tolist()
        tiles = tuple(Tile(f"{100 * share:.0f}", "", share) for share in shares)
        rows.append((str(layer), tiles))
    columns = tuple(map(str, range(heads)))
    title = "Answers that a head reads, full cache, percent"
    return HeatMap(title, "layer", columns, tuple(rows), "head", "share of answers")
