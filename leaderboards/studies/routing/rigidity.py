"""Shows erasure beside rigidity: the two ways in which arXiv 2603.01426 has an answer fail.

A rigid answer is wrong although its tokens survive, and its heads look at fewer tokens than they do
in nine of ten right answers of the full cache. It is no class of its own: it is unreachable,
silent, confused or unused as well."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame, Series

from leaderboards.routing.agreement import consensus
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.shares import estimate_share
from leaderboards.studies.declaration import StudySection
from leaderboards.studies.parts import (
    full_last,
    listing_of_fields,
    over_levels,
    without_full,
)
from policies.declaration.levels import Level
from policies.declaration.names import FULL

TABLE = "attention"  # of a store (kvbench.studies.routing)
ANSWER_STEP = 1
LOW_GER = 0.5  # below it most of the answer's tokens survive somewhere
FEW_RIGHT = 0.1  # of the full cache's right answers have so low a consensus
RIGID, AGREE_IF_RIGHT = "rigid", "heads agree, of right answers"  # rows beside the classes


@dataclass(frozen=True)
class TwoModes:
    """Says how often answers of a policy at a level are erased and rigid, as shares of all answers
    in classes."""

    task: str
    policy: str
    level: Level
    erased: Estimate
    rigid: Estimate
    # As often without any failure; None where nothing is right.
    heads_agree_if_right: Estimate | None


def consensus_of_answers(attention: DataFrame, by: Sequence[str]) -> Series:
    """Returns the consensus at the first token of each answer, mean over layers. ``by``: what names
    an answer."""
    rows = attention[attention["step"] == ANSWER_STEP]
    if rows.empty:
        return Series(dtype=float)
    of_layers = rows.assign(consensus=consensus(np.stack(rows["top"].to_list())))
    means: Series = of_layers.groupby(list(by), observed=True)["consensus"].mean()
    return means


def with_rigidity(joined: DataFrame, attention: DataFrame, by: Sequence[str]) -> DataFrame:
    """Tells of each answer whether its heads agree, and whether it is rigid. ``joined``: answers
    with their GER, as of :func:`routes.with_routes`. Answers without a token, or that were not
    observed, are neither."""
    of_answers = consensus_of_answers(attention, by).rename("consensus")
    answers = joined.join(of_answers, on=list(by))
    is_sound = (answers["policy"] == FULL) & answers["right"] & answers["consensus"].notna()
    by_task = answers[is_sound].groupby("task", observed=True)["consensus"]
    # Where the full cache has nothing right the bound is NaN, below which nothing is: no answer is
    # rigid there.
    bounds = answers["task"].map(by_task.quantile(FEW_RIGHT)).astype(float)
    agree = answers["consensus"] < bounds
    failed = ~answers["right"] & answers["right_with_full"].astype(bool)
    survives = answers["ger"].astype(float) < LOW_GER
    return answers.assign(heads_agree=agree, rigid=agree & failed & survives)


def two_modes(answers: DataFrame) -> Iterator[TwoModes]:
    """Yields both shares by task, policy and level. ``answers``: of :func:`with_rigidity`, levels
    and ``erased``."""
    cell = ["task", "policy", "level"]
    for (task, policy, level), group in answers.groupby(cell, observed=True, sort=False):
        erased = estimate_share(group["erased"], group["context"])
        rigid = estimate_share(group["rigid"], group["context"])
        right = group[group["right"]]
        agree_if_right = None
        if len(right):
            agree_if_right = estimate_share(right["heads_agree"], right["context"])
        yield TwoModes(str(task), str(policy), level, erased, rigid, agree_if_right)


def build_section(task: str, modes: Sequence[TwoModes]) -> StudySection:
    """Draws the shares of erased and of rigid answers of a task over levels, policy by policy."""
    of_task: list[TwoModes] = []
    erased: dict[tuple[str, Level], Estimate] = {}
    rigid: dict[tuple[str, Level], Estimate] = {}
    for mode in modes:
        if mode.task == task:
            of_task.append(mode)
            erased[mode.policy, mode.level] = mode.erased
            rigid[mode.policy, mode.level] = mode.rigid
    styles = full_last(policy for policy, _ in erased)
    note = "share of answers"
    pictures = (
        *over_levels(erased, styles, "Erased", note, f"erased/{task}"),
        *over_levels(rigid, styles, "Rigid", note, f"rigid/{task}"),
    )
    text = (
        "Erased: nothing is left of the answer’s tokens, and no route leads from them. Rigid: "
        "most of them are left, the full cache has the question right, the answer is wrong, and "
        "heads look at fewer tokens than in nine of ten right answers of the full cache. Beside "
        "it, how often heads agree so where the answer is right: rigidity that is not more "
        "frequent explains nothing."
    )
    heading = "Percent of answers, and of right ones"
    listing = listing_of_fields(heading, of_task, {}, leave_out=("task",))
    shown = without_full(styles)
    title = f"Why answers are wrong: erased or rigid, {task}"
    return StudySection(f"rigidity-{task}", title, text, shown, pictures, details=(listing,))
