"""Packs every two policies of a board as data for the script of its page, which shows two of them that are chosen."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from leaderboards.aggregate.comparison.duel import UNDECIDED, WRONG, Contest, Duel
from leaderboards.aggregate.row import FEW_CONTEXTS
from leaderboards.boards.board import shown_of
from policies.declaration.levels import Level

NOTHING = -128  # of a byte that has no value
VERDICTS = {"worse": -1, UNDECIDED: 0, "better": 1}
NUMBERS = 8  # of a meeting: what leads and wrong of answered, each with its interval, and the tone of either
SHOWN_P = 1000  # p is told in thousandths, and as 0 below the first, where it is written "<0.001"

Duels = Mapping[tuple[str, str], Sequence[Duel]]


def encounters(duels: Duels, unmastered: Mapping[str, str], level_names: Mapping[Level, str]) -> dict[str, Any]:
    """Packs every two policies into bytes. ``numbers``: a signed byte each, in points, shape (pairs, tasks, levels, 8);
    ``p``: two bytes each, shape (pairs, tasks, levels). Both little-endian in base64. The pairs are those of
    ``policies``, the first with all others first; of a pair that is asked for the other way round, the script turns the
    signs. ``unmastered``: why the model cannot do a task, which has no numbers then."""
    policies = list(dict.fromkeys(name for pair in duels for name in pair))
    tasks = list(dict.fromkeys(duel.task for of_pair in duels.values() for duel in of_pair))
    levels = sorted({duel.level for of_pair in duels.values() for duel in of_pair})
    shape = len(policies) * (len(policies) - 1) // 2, len(tasks), len(levels)
    numbers = np.full((*shape, NUMBERS), NOTHING, dtype=np.int8)
    p = np.zeros(shape, dtype="<u2")
    places = {name: place for place, name in enumerate(policies)}
    of_task, of_level = ({name: place for place, name in enumerate(names)} for names in (tasks, levels))
    contexts: int | None = None  # the fewest of a cell
    for (one, other), of_pair in duels.items():
        pair = _place(places[one], places[other], len(policies))
        for duel in (duel for duel in of_pair if duel.task not in unmastered):
            place = pair, of_task[duel.task], of_level[duel.level]
            wrong = duel.contests.get(WRONG.name)
            tones = VERDICTS[duel.verdict], VERDICTS[wrong.verdict] if wrong else 0
            numbers[place] = [*_points(duel.lead), *(_points(wrong) if wrong else [NOTHING] * 3), *tones]
            p[place] = 0 if duel.lead.p < 1 / SHOWN_P else round(duel.lead.p * SHOWN_P)
            contexts = duel.contexts if contexts is None else min(contexts, duel.contexts)
    return {
        "policies": policies,
        "few": contexts if contexts is not None and contexts < FEW_CONTEXTS else 0,
        "tasks": tasks,
        "unmastered": {task: reason for task, reason in unmastered.items() if task in tasks},
        "levels": [level_names[level] for level in levels],
        "shown": [level_names[level] for level in shown_of(levels)],
        "numbers": base64.b64encode(numbers.tobytes()).decode(),
        "p": base64.b64encode(p.tobytes()).decode(),
    }


def _place(one: int, other: int, count: int) -> int:
    """Returns the place of a pair among all pairs of ``count``, in the order of ``itertools.combinations``; ``one``
    comes first."""
    return one * (2 * count - one - 1) // 2 + other - one - 1


def _points(contest: Contest) -> list[int]:
    ends = (contest.difference.mean, contest.difference.low, contest.difference.high)
    return [NOTHING if end is None else round(contest.measure.factor * end) for end in ends]
