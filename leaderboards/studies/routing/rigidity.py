"""Shows erasure beside rigidity: the two ways in which arXiv 2603.01426 has an answer fail.

A rigid answer is wrong although its tokens survive, and its heads look at fewer tokens than they do in nine of ten
right answers of the full cache. It is no class of its own: it is unreachable, silent, confused or unused as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame, Series

from leaderboards.metrics.declaration import Definition
from leaderboards.routing.agreement import consensus
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.shares import share_of
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.parts import full_last, listing_of_fields, over_levels
from policies.declaration.levels import Level
from policies.declaration.names import FULL

TABLE = "attention"  # of a store (kvbench.store.observed)
ANSWER_STEP = 1
LOW_GER = 0.5  # below it most of the answer's tokens survive somewhere
FEW_RIGHT = 0.1  # of the full cache's right answers have so low a consensus
RIGID, AGREE_IF_RIGHT = "rigid", "heads agree, of right answers"  # rows beside the classes


@dataclass(frozen=True)
class TwoModes:
    """Says how often answers of a policy at a level are erased and rigid, as shares of all answers in classes."""

    task: str
    policy: str
    level: Level
    erased: Estimate
    rigid: Estimate
    heads_agree_if_right: (
        Estimate | None
    )  # as often without any failure; None where nothing is right


def consensus_of_answers(attention: DataFrame, by: Sequence[str]) -> Series:
    """Returns the consensus at the first token of each answer, mean over layers. ``by``: what names an answer."""
    rows = attention[attention["step"] == ANSWER_STEP]
    if rows.empty:
        return Series(dtype=float)
    of_layers = rows.assign(consensus=consensus(np.stack(rows["top"].to_list())))
    means: Series = of_layers.groupby(list(by), observed=True)["consensus"].mean()
    return means


def with_rigidity(joined: DataFrame, attention: DataFrame, by: Sequence[str]) -> DataFrame:
    """Tells of each answer whether its heads agree, and whether it is rigid. ``joined``: answers with their GER, as of
    :func:`routes.with_routes`. Answers without a token, or that were not observed, are neither."""
    found = joined.join(consensus_of_answers(attention, by).rename("consensus"), on=list(by))
    sound = found[(found["policy"] == FULL) & found["right"] & found["consensus"].notna()]
    bounds = sound.groupby("task", observed=True)["consensus"].quantile(FEW_RIGHT)
    bound = found["task"].map(bounds).astype(float)
    agree = found["consensus"] < bound
    failed = ~found["right"] & found["right_with_full"].astype(bool)
    survives = found["ger"].astype(float) < LOW_GER
    return found.assign(heads_agree=agree, rigid=agree & failed & survives)


def two_modes(answers: DataFrame) -> Iterator[TwoModes]:
    """Yields both shares by task, policy and level. ``answers``: of :func:`with_rigidity`, levels and ``erased``."""
    for (task, policy, level), group in answers.groupby(
        ["task", "policy", "level"], observed=True, sort=False
    ):
        right = group[group["right"]]
        if_right = share_of(right["heads_agree"], right["context"]) if len(right) else None
        shares = [share_of(group[name], group["context"]) for name in ("erased", "rigid")]
        yield TwoModes(str(task), str(policy), level, shares[0], shares[1], if_right)


def build_section(task: str, found: Sequence[TwoModes]) -> StudySection:
    of_task = [one for one in found if one.task == task]
    styles = full_last(one.policy for one in of_task)
    pictures = list[Picture]()
    for name, title in (("erased", "Erased"), ("rigid", "Rigid")):
        cells = {(one.policy, one.level): getattr(one, name) for one in of_task}
        pictures += over_levels(cells, styles, title, "share of answers", f"{name}/{task}")
    text = (
        "Erased: nothing is left of the answer’s tokens, and no route leads from them. Rigid: most of them are left, "
        "the full cache has the question right, the answer is wrong, and heads look at fewer tokens than in nine of "
        "ten right answers of the full cache. Beside it, how often heads agree so where the answer is right: rigidity "
        "that is not more frequent explains nothing."
    )
    listing = listing_of_fields(
        "Percent of answers, and of right ones", of_task, {}, leave_out=("task",)
    )
    shown = tuple(style for name, style in styles.items() if name != FULL)
    title = f"Why answers are wrong: erased or rigid, {task}"
    return StudySection(f"rigidity-{task}", title, text, shown, tuple(pictures), details=(listing,))


DEFINITIONS = (
    Definition(
        "Rigid",
        "An answer that the full cache has right and the policy wrong, whose GER is below a half, and whose consensus, "
        "mean over layers, is below that of nine tenths of the full cache’s right answers of the task. It is in "
        "another class too. The paper shows instances and gives no threshold.",
        "rigid = wrong and GER < 0.5 and consensus < 10th percentile of right answers of the full cache",
        "representational rigidity after arXiv 2603.01426",
    ),
)
