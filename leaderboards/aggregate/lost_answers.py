"""Asks what became of the answers that a policy has lost: was all of their evidence evicted, could
it not be reached, does it suffice to put its rows back? Each is counted where it was measured, and
nowhere else."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from pandas import DataFrame, Series

from leaderboards.metrics.declaration import Definition
from leaderboards.statistics.columns import with_levels
from policies.declaration.levels import Level
from policies.declaration.names import FULL

# The key of an answer in every table of a store.
CELL = ["task", "question_id", "policy", "level_kind", "level", "repeat"]
QUESTION = ["task", "question_id"]
LOST_COLUMNS = (*CELL, "status", "answerable", "right", "ger")


class Fate(StrEnum):
    """Says what became of a lost answer: the first of these that holds, from below in a stack."""

    ERASED = "GER 1: no token of the answer survives anywhere"
    UNREACHABLE = "unreachable"
    REPAIRED = "repaired by its rows"
    PARTLY = "GER between 0 and 1"
    THERE = "GER 0: each token of the answer survives somewhere"
    UNKNOWN = "GER not measured"


DEFINITION = Definition(
    "Lost answers, and what became of them",
    "An answer is lost if the full cache has it right and the policy wrong. Three things are "
    "counted of lost answers. How many have GER 1, so that no token of the answer survives in any "
    "layer and head? How many are unreachable, where routes were observed: rows are left and no "
    "route leads from them? How many are right again with all rows of their evidence put back, "
    "where that was tried? One answer may be counted in several of these; in the picture it "
    "stands in the first.",
)


@dataclass(frozen=True)
class LostAnswers:
    """Counts what became of the lost answers of a policy over its levels."""

    policy: str
    right_with_full: int  # answers of the policy to questions that the full cache has right
    lost: int
    with_ger: int  # lost answers whose GER was measured
    erased: int  # of these, with GER 1
    there: int  # of these, with GER 0
    observed: int  # lost answers whose routes were observed
    unreachable: int
    tried: int  # lost answers that were asked again with their rows put back
    repaired: int
    by_level: Mapping[Level, Mapping[Fate, int]]  # each lost answer once

    @property
    def sentence(self) -> str:
        """Says what became of the lost answers, as far as it was measured, and whether GER explains
        them."""
        if not self.lost:
            answers = f"the {self.right_with_full} answers that the full cache has right"
            return f"{self.policy} loses none of {answers}."
        parts = []
        if self.with_ger:
            erased = _count(self.erased, self.with_ger, self.lost, "has", "have")
            there = _count(self.there, self.lost, self.lost, "has", "have")
            parts.append(f"{erased} GER 1 (all of the answer is evicted everywhere)")
            parts.append(f"{there} GER 0 (each of its tokens survives somewhere)")
        if self.observed:
            parts.append(f"{_count(self.unreachable, self.observed, self.lost)} unreachable")
        if self.tried:
            parts.append(
                f"{_count(self.repaired, self.tried, self.lost)} repaired when their rows are put "
                f"back"
            )
        measured = ", ".join(parts) or "GER was not measured, as the policy rewrites the cache"
        answers = "answer" if self.lost == 1 else "answers"
        return f"Of the {self.lost} lost {answers} of {self.policy}, {measured}.{self._conclusion}"

    @property
    def _conclusion(self) -> str:
        if not self.with_ger:
            return ""
        explained = {0: "none of them", self.with_ger: "all of them"}
        return (
            f" So GER explains {explained.get(self.erased, f'{self.erased} of {self.with_ger}')}."
        )


def _count(some: int, measured: int, lost: int, of_one: str = "is", of_many: str = "are") -> str:
    """Writes a count with its verb, and what it is of where not all lost answers were measured."""
    verb = of_one if some == 1 else of_many
    if measured == lost:
        return f"{some} {verb}"
    return f"{some} of {measured} {verb}"


def lost_answers(
    records: DataFrame, unreachable: Series | None = None, repaired: Series | None = None
) -> list[LostAnswers]:
    """Counts by policy, without the full cache, over all tasks. ``unreachable``, ``repaired``:
    truth values by :data:`CELL`, of the answers of which this was measured."""
    is_answered = (records["status"] == "ok") & records["right"].notna()
    answered = records[is_answered & records["answerable"].eq(True)]
    is_full = answered["policy"] == FULL
    # The full cache has no draws. A random policy keeps a row for each draw, so that its lost
    # answers are counted over all of them.
    right_with_full = answered[is_full & answered["right"].eq(True)].drop_duplicates(QUESTION)
    treated = answered.loc[~is_full, list(LOST_COLUMNS)]
    answers = treated.merge(right_with_full[QUESTION], on=QUESTION)
    answers["unreachable"] = _look_up(unreachable, answers)
    answers["repaired"] = _look_up(repaired, answers)
    counts = []
    for policy, of_policy in answers.groupby("policy", sort=False, observed=True):
        counts.append(_count_lost(str(policy), of_policy))
    return counts


def _look_up(values: Series | None, answers: DataFrame) -> list[object]:
    """Returns the value of each answer; None where there is none."""
    by_cell: dict[object, object] = {}
    if values is not None:
        by_cell.update(zip(values.index, values, strict=True))
    # None is not False: what was not measured must not count as reachable or as not repaired.
    return [by_cell.get(key) for key in answers[CELL].itertuples(index=False, name=None)]


def _count_lost(policy: str, answers: DataFrame) -> LostAnswers:
    """Counts the lost ones of the answers of a policy to questions that the full cache has
    right."""
    lost = with_levels(answers[~answers["right"].eq(True)])
    ger = lost["ger"].astype(float)
    by_level: dict[Level, Counter[Fate]] = {}
    for level, fate in zip(lost["level"], _fates(lost), strict=True):
        by_level.setdefault(level, Counter())[fate] += 1
    return LostAnswers(
        policy,
        right_with_full=len(answers),
        lost=len(lost),
        with_ger=int(ger.notna().sum()),
        erased=int(ger.eq(1).sum()),
        there=int(ger.eq(0).sum()),
        observed=int(lost["unreachable"].notna().sum()),
        unreachable=int(lost["unreachable"].eq(True).sum()),
        tried=int(lost["repaired"].notna().sum()),
        repaired=int(lost["repaired"].eq(True).sum()),
        by_level=by_level,
    )


def _fates(lost: DataFrame) -> Sequence[Fate]:
    ger = lost["ger"].astype(float)
    # In the order of :class:`Fate`, since np.select takes the first condition that holds.
    holds = {
        Fate.ERASED: ger.eq(1),
        Fate.UNREACHABLE: lost["unreachable"].eq(True),
        Fate.REPAIRED: lost["repaired"].eq(True),
        Fate.PARTLY: ger.gt(0),
        Fate.THERE: ger.eq(0),
    }
    fates = [*holds, Fate.UNKNOWN]
    conditions = [np.asarray(flags) for flags in holds.values()]
    places = np.select(conditions, range(len(holds)), len(holds))
    return [fates[place] for place in places]


@dataclass(frozen=True)
class ChangedAnswer:
    """Holds both answers to a question that one of two policies has right and the other has not."""

    task: str
    question: str
    golds: tuple[str, ...]
    before: str  # the answer of the policy that is compared with
    now: str
    is_lost: bool  # right before, and wrong now


def changed_answers(records: DataFrame, policy: str, other: str) -> list[ChangedAnswer]:
    """Lists the questions of which one of two policies has the answer right, each without levels:
    first what ``policy`` has lost of ``other``, then what it has won."""
    key = [*QUESTION, "example_id"]
    sound = records[(records["status"] == "ok") & records["right"].notna()]
    before = sound[sound["policy"] == other].drop_duplicates(key)
    now = sound[sound["policy"] == policy].drop_duplicates(key)
    answers = before[[*key, "output_text", "right"]]
    pairs = now.merge(answers, on=key, suffixes=("", "_before"))
    changed = pairs[pairs["right"].astype(bool) != pairs["right_before"].astype(bool)]
    rows: list[ChangedAnswer] = []
    for row in changed.itertuples(index=False):
        golds = tuple(map(str, row.golds))
        texts = (str(row.output_text_before), str(row.output_text))
        lost = bool(row.right_before)
        rows.append(ChangedAnswer(str(row.task), str(row.question), golds, *texts, lost))
    return sorted(rows, key=lambda answer: not answer.is_lost)
