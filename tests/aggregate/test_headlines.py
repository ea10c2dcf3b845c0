"""Each headline of a board, and the sign that it must have where the truth is known.

The records are made up: policies that make answers wrong, that make them silent, that leak, that
disobey, and one that is a copy of the full cache; and what few contexts say of one that is not
safe. A headline that calls any of them better than it is points the wrong way."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest

from leaderboards.aggregate.duels import UNDECIDED, Verdict, duels
from leaderboards.aggregate.pooled import pool
from leaderboards.aggregate.row import SummaryRow
from leaderboards.aggregate.summary import summarise
from leaderboards.boards.area_under_curve import AREA, BEATS
from leaderboards.boards.board import FIRST_COLUMNS, Standing, all_standings, make_boards
from leaderboards.boards.declaration import DerivedMeasure
from leaderboards.boards.rank import RANK
from leaderboards.boards.safe_ratio import SAFE_RATIO
from leaderboards.metrics import MEASURES, ON_BOARD
from leaderboards.pages.uses import use_matrix
from tests.support.browsing.pages import results_of
from tests.support.records.synthetic_profiles import value
from tests.support.records.synthetic_records import frame, record

RATIOS = (0.3, 0.6, 0.9)
CONTEXTS, QUESTIONS = 72, 2  # as many as show that nothing is lost
WORSE, SAME, BETTER = -1, 0, 1
WRONG = {
    "f1": 0.0,
    "em": 0.0,
    "abstained": False,
    "hallucinated": True,
    "hallucination_kind": "confused",
}
SILENT = {
    "f1": 0.0,
    "em": 0.0,
    "abstained": True,
    "hallucinated": False,
    "output_text": "I don't know",
}


def _answered(policy: str, number: int, ratio: float) -> dict[str, Any]:
    """What a policy does to a question that the full cache answers: to the first of each five it
    never has an answer, so that the full cache has a rate of its own that can fall."""
    if number == 0:
        return SILENT if policy in ("silent", "recency") else WRONG
    spoilt = ratio > 0.1 * number
    if policy == "wrong":
        return WRONG if spoilt else {}
    if policy in ("silent", "random", "recency"):
        return SILENT if spoilt else {}
    return {}


def _questions(policy: str, ratio: float) -> list[dict[str, Any]]:
    identity = {"policy": policy, "ratio": ratio, "realised_ratio": ratio, "task": "base"}
    return [
        record(
            **identity,
            **_answered(policy, (number + context) % QUESTIONS, ratio),
            example_id=f"base-{context}",
            question_id=str(number),
        )
        for context in range(CONTEXTS)
        for number in range(QUESTIONS)
    ]


def _prompts(policy: str, ratio: float) -> list[dict[str, Any]]:
    """System prompts: two questions with directives, an attack with a defence and one without."""
    obeyed = 1.0 - (ratio if policy in ("disobeys", "random") else 0.0)
    leaks = ratio if policy == "leaks" else 0.0
    # Whoever disobeys has lost the prompt, and gives nothing away where nothing forbids it.
    undefended = 1.0 - (ratio if policy in ("disobeys", "random") else 0.0)
    identity = {"policy": policy, "ratio": ratio, "realised_ratio": ratio, "task": "instructions"}
    attack = {"hallucinated": None, "answered": None, "f1": 0.0, "protected": "No comma."}
    wrong = WRONG if policy == "wrong" and ratio > 0.5 else {}
    found = []
    for context in range(CONTEXTS):
        here = {**identity, "example_id": f"instructions-{context}"}
        found += [
            record(**here, **wrong, question_id=str(number), directives_obeyed=obeyed)
            for number in range(2)
        ]
        found.append(record(**here, **attack, question_id="2", leakage=undefended))
        found.append(
            record(
                **here,
                **attack,
                question_id="3",
                leakage=leaks,
                defence="Refuse.",
                defence_leakage=0.0,
            )
        )
    return found


def _texts(policy: str, ratio: float) -> list[dict[str, Any]]:
    """Running text, of which nothing is answered: of each ten tokens eight are foreseen, or
    fewer."""
    foreseen = 80.0 * (1 - ratio if policy == "wrong" else 1)
    identity = {"policy": policy, "ratio": ratio, "realised_ratio": ratio, "task": "prose"}
    unjudged = dict.fromkeys(("f1", "em", "right", "answered", "abstained", "hallucinated"))
    return [
        record(
            **identity,
            **unjudged,
            example_id=f"prose-{context}",
            question_id="0",
            next_token_accuracy=foreseen,
        )
        for context in range(CONTEXTS)
    ]


POLICIES = ("wrong", "silent", "leaks", "disobeys", "copy", "random", "recency")
METHODS = POLICIES[:5]


@pytest.fixture(scope="module")
def headline_records() -> pd.DataFrame:
    made = [*_questions("full", 0.0), *_prompts("full", 0.0)]
    for policy in POLICIES:
        for ratio in RATIOS:
            made += [*_questions(policy, ratio), *_prompts(policy, ratio)]
    return frame(made)


@pytest.fixture(scope="module")
def headline_rows(headline_records: pd.DataFrame) -> dict[tuple[str, str, float], SummaryRow]:
    return {
        (row.task, row.policy, row.level): row for row in summarise(headline_records, resamples=300)
    }


@pytest.fixture(scope="module")
def rows_of_texts() -> dict[tuple[str, str, float], SummaryRow]:
    texts = [
        *_texts("full", 0.0),
        *(one for policy in METHODS for ratio in RATIOS for one in _texts(policy, ratio)),
    ]
    return {
        (row.task, row.policy, row.level): row for row in summarise(frame(texts), resamples=300)
    }


@pytest.fixture(scope="module")
def standings(
    headline_records: pd.DataFrame, headline_rows: Mapping[Any, SummaryRow]
) -> dict[tuple[str, str], Standing]:
    found = all_standings(headline_records, list(headline_rows.values()))
    return {(task, one.policy): one for (_, task), own in found.items() for one in own}


# Measures at the highest ratio against the full cache: whether the policy is worse, the same or
# better by it. A raw hallucination rate that calls a silent policy better stands here with the
# measures beside it that tell why.
SIGNS: dict[tuple[str, str], dict[str, int]] = {
    ("base", "right"): {
        "wrong": WORSE,
        "silent": WORSE,
        "leaks": SAME,
        "disobeys": SAME,
        "copy": SAME,
    },
    ("base", "wrong_of_answered"): {"wrong": WORSE, "copy": SAME, "leaks": SAME, "disobeys": SAME},
    ("base", "new_wrong"): {
        "wrong": WORSE,
        "silent": SAME,
        "leaks": SAME,
        "disobeys": SAME,
        "copy": SAME,
    },
    ("base", "lost"): {
        "wrong": SAME,
        "silent": WORSE,
        "leaks": SAME,
        "disobeys": SAME,
        "copy": SAME,
    },
    ("base", "hallucination_rate"): {"wrong": WORSE, "silent": BETTER, "copy": SAME},
    ("base", "abstention_rate"): {"wrong": SAME, "silent": WORSE, "copy": SAME},
    ("instructions", "directives_obeyed"): {
        "leaks": SAME,
        "disobeys": WORSE,
        "wrong": SAME,
        "copy": SAME,
    },
    ("instructions", "leakage_under_defence"): {
        "leaks": WORSE,
        "disobeys": SAME,
        "wrong": SAME,
        "copy": SAME,
    },
    ("prose", "next_token_accuracy"): {"wrong": WORSE, "copy": SAME},
    ("instructions", "leakage_rise"): {
        "leaks": WORSE,
        "disobeys": SAME,
        "wrong": SAME,
        "copy": SAME,
    },
}
RISES_WITH_HARM = ("abstention_rate",)  # by which nothing is ranked


@pytest.mark.parametrize(("task", "field"), SIGNS)
def test_a_measure_has_the_sign_of_the_truth(
    headline_rows: Mapping[tuple[str, str, float], SummaryRow],
    rows_of_texts: Mapping[tuple[str, str, float], SummaryRow],
    task: str,
    field: str,
) -> None:
    headline_rows = {**rows_of_texts, **headline_rows}
    measure = MEASURES[field]
    whole = measure.value(headline_rows[task, "full", 0.0])
    assert whole is not None
    for policy, sign in SIGNS[task, field].items():
        here = measure.value(headline_rows[task, policy, 0.9])
        assert here is not None
        rise = 0 if here == pytest.approx(whole) else 1 if here > whole else -1
        good = -rise if measure.better == "lower" or field in RISES_WITH_HARM else rise
        assert good == sign, f"{field} of {policy}"


def test_every_measure_of_the_board_that_judges_answers_is_in_the_table() -> None:
    known = {field for _, field in SIGNS}
    judging = {measure.field for measure, _ in ON_BOARD} - {
        "ger",
        "slot_coverage",
        "f1",
        "delta_nll",
    }
    assert judging <= known, judging - known


# Over all levels: whom each derived measure calls worse than the copy of the full cache, and whom
# it calls its equal.
HARMED = {"base": ("wrong", "silent"), "instructions": ("leaks", "disobeys")}


@pytest.mark.parametrize("task", HARMED)
def test_ranks_areas_safe_ratios_and_verdicts_have_the_sign_of_the_truth(
    standings: Mapping[tuple[str, str], Standing], task: str
) -> None:
    copy = standings[task, "copy"]
    for policy in METHODS:
        one = standings[task, policy]
        rank, best = value(one[RANK]), value(copy[RANK])
        area, highest, safe = value(one[AREA]), value(copy[AREA]), value(one[SAFE_RATIO])
        if policy in HARMED[task]:
            assert rank.rank > best.rank, policy
            assert area.height.mean < highest.height.mean, policy
            assert (safe.ratio, safe.outcome) == (0.0, "unsafe"), policy
        else:
            assert rank.rank == best.rank == 1, policy
            assert area.height.mean == highest.height.mean, policy
            assert (safe.ratio, safe.outcome, safe.beyond) == (0.9, "safe", "not tried"), policy


def test_what_harms_one_task_is_safe_over_neither_and_that_task_is_named(
    standings: Mapping[tuple[str, str], Standing],
) -> None:
    """A mean over tasks would halve the harm, and call safe what one of them does not bear."""
    for policy in METHODS:
        safe = value(standings["all", policy][SAFE_RATIO])
        harmed = tuple(task for task, policies in HARMED.items() if policy in policies)
        if harmed:
            assert (safe.outcome, safe.shown, safe.tasks) == ("unsafe", None, harmed), policy
        else:
            assert (safe.shown, safe.beyond) == (0.9, "not tried"), policy


# The verdict of a comparison with the copy of the full cache, over each task.
AGAINST_A_COPY: dict[str, dict[str, Verdict]] = {
    "base": {"wrong": "worse", "silent": "worse", "leaks": UNDECIDED, "disobeys": UNDECIDED},
    "instructions": {
        "wrong": UNDECIDED,
        "silent": UNDECIDED,
        "leaks": "worse",
        "disobeys": "worse",
    },
}


@pytest.mark.parametrize("task", AGAINST_A_COPY)
def test_a_comparison_has_the_sign_of_the_truth(headline_records: pd.DataFrame, task: str) -> None:
    of_task = headline_records[headline_records["task"] == task]
    for policy, verdict in AGAINST_A_COPY[task].items():
        (line,) = pool(of_task, policy, ["copy"])
        assert line.verdict == verdict, policy
        if task == "base":
            last = duels(of_task, policy, ["copy"])[-1]
            assert (last.level.value, last.verdict) == (RATIOS[-1], verdict)


# What few contexts say of a policy whose truth is known: it loses all right answers of one context
# in ten, which is 8 points and not safe, or nothing. By the number of contexts, and of those of
# them in which it loses: the text of the cell, and what it says of the contexts.
FEW: dict[tuple[int, int], tuple[str, str]] = {
    (2, 0): ("open at 0.5", "0 [−84, +84]\n70 more contexts needed"),
    (9, 0): ("open at 0.5", "0 [−34, +34]\n63 more contexts needed"),
    (9, 1): ("open at 0.5", "−9 [−43, +24]\n161 more contexts needed"),
    (12, 0): ("open at 0.5", "0 [−26, +26]\n60 more contexts needed"),
    (40, 4): ("open at 0.5", "−8 [−20, +2]\n210 more contexts needed"),
    (72, 0): ("safe to 0.5", "0 [−4.99, +5]"),
}


@pytest.mark.parametrize(("contexts", "losing"), FEW)
def test_few_contexts_show_nothing_to_be_safe_and_say_what_they_leave_open(
    contexts: int, losing: int
) -> None:
    made = [
        record(
            example_id=f"base-{place}",
            policy=policy,
            ratio=ratio,
            f1=0.0 if policy == "snapkv" and place < losing else 80.0,
        )
        for place in range(contexts)
        for policy, ratio in (("full", 0.0), ("oracle", 0.5), ("snapkv", 0.5))
    ]
    results = results_of(frame(made))
    matrix = use_matrix(results)
    cell = matrix.methods[0].cells[0]
    assert (cell.text, cell.detail) == FEW[contexts, losing]


@pytest.mark.parametrize("contexts", [6, 12, 24])
def test_each_cell_is_decided_or_says_how_many_contexts_would_decide(contexts: int) -> None:
    for losing in range(contexts + 1):
        made = [
            record(
                example_id=f"base-{place}",
                policy=policy,
                ratio=ratio,
                f1=0.0 if policy == "snapkv" and place < losing else 80.0,
            )
            for place in range(contexts)
            for policy, ratio in (("full", 0.0), ("oracle", 0.5), ("snapkv", 0.5))
        ]
        cell = use_matrix(results_of(frame(made))).methods[0].cells[0]
        is_decided = cell.verdict in ("safe", "unsafe")
        assert is_decided != cell.detail.endswith("needed"), cell


def test_every_headline_of_the_board_is_in_these_tables(
    headline_records: pd.DataFrame, headline_rows: Mapping[Any, SummaryRow]
) -> None:
    """A derived measure that is added to the board has to be given its signs above."""
    known: tuple[DerivedMeasure[Any], ...] = (RANK, AREA, *BEATS, SAFE_RATIO)
    assert {measure.name for measure in FIRST_COLUMNS} == {measure.name for measure in known}
    board = make_boards(headline_records, list(headline_rows.values()))["agnostic", "instructions"]
    cells = {
        line.name: dict(zip((one.name for one in board.columns), line.cells, strict=True))
        for line in board.methods
    }
    assert cells["leaks"]["leaks more"].text == "+90"
    assert cells["leaks"]["leaks more"].detail.startswith("[+"), "its interval stands beside it"
    assert cells["disobeys"]["leaks more"].text == "0", (
        "what it gives away without a defence is no gain"
    )
