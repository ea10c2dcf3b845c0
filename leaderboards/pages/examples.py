"""The page of a task's examples: from a cell to what was asked and answered, and which tokens were
still there."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame, Index, isna

from leaderboards.aggregate.answers import JUDGED, worst_first
from leaderboards.aggregate.duels import QUESTION
from leaderboards.rendering.templating import ALONE, Neighbours, as_packed_data, render
from leaderboards.statistics.columns import with_levels
from policies.declaration.names import CONTROLS, FULL

WORST = 6  # examples of each cell, the worst first
OF_A_CONTEXT = 2  # of them about one context, unless there are too few about others
# The columns of the records that the page is made of.
EXAMPLE_COLUMNS = (
    *("task", "policy", "level_kind", "level", "repeat", "status", *QUESTION, *JUDGED),
    *(
        "context",
        "token_ends",
        "question",
        "golds",
        "answer_spans",
        "evidence_spans",
        "output_text",
    ),
    *("abstained", "hallucination_kind", "next_token_accuracy"),
    *("ger", "slot_coverage", "eviction_rate", "realised_ratio", "token_kept"),
)


# The numbers of an answer as the page's script calls them, and their columns.
NUMBERS = {
    **{"f1": "f1", "obeyed": "directives_obeyed", "ger": "ger", "coverage": "slot_coverage"},
    **{"evicted": "eviction_rate", "realised": "realised_ratio"},
}


def build_examples(
    model: str,
    task: str,
    records: DataFrame,
    page: str = "index.html",
    neighbours: Neighbours = ALONE,
    page_in_words: str = "",
) -> str:
    """Returns the page as text. ``records``: of one task, with :data:`EXAMPLE_COLUMNS`; the worst
    answers of each policy and level are shown. ``page``: the file name of the page that leads here,
    usually that with the figures of the task; ``page_in_words``: what it is, if it is another."""
    return render(
        "examples.html.j2",
        ("examples.js",),
        neighbours,
        model=model,
        task=task,
        task_page=page,
        page_in_words=page_in_words or f"Figures and tables of {task}",
        data=as_packed_data(*worst_examples(records)),
    )


def worst_examples(records: DataFrame) -> tuple[dict[str, Any], bytes]:
    """Returns what the page's script draws from: contexts and questions once, and by cell the worst
    answers, of the first draw where a random policy was drawn several times; and, each once, the
    shares of what is kept by token. An answer says where its shares begin."""
    sound = with_levels(records[(records["status"] == "ok") & (records["repeat"] == 0)])
    full = sound[sound["policy"] == FULL].drop_duplicates(QUESTION).set_index(QUESTION)
    full_outputs = full["output_text"]
    shown = sound.loc[_spread(worst_first(sound))]
    contexts = _numbers(shown, ["context"])
    questions = _numbers(shown, QUESTION)
    cells: dict[str, dict[str, list[dict[str, Any]]]] = {}
    # Where the shares of each begin: all questions of a context are asked of the same cache.
    kept: dict[bytes, int] = {}
    length = 0
    rows = shown.to_dict("records")
    for row, context, question in zip(rows, contexts, questions, strict=True):
        answers = cells.setdefault(row["policy"], {}).setdefault(str(row["level"]), [])
        answer = {"question": question, "context": context, **_answer(row), "kept": None}
        if row["token_kept"] is not None:
            shares = row["token_kept"]
            if shares not in kept:
                kept[shares] = length
                length += len(shares)
            answer["kept"] = kept[shares]
        answers.append(answer)
    methods = [policy for policy in cells if policy not in CONTROLS]
    shown_once = {
        "contexts": [_context(row) for row in _first(rows, contexts)],
        "questions": [_question(row, full_outputs) for row in _first(rows, questions)],
        "first": next(iter([*methods, *cells]), ""),
        "cells": cells,
    }
    return shown_once, b"".join(kept)


def _context(row: Mapping[Any, Any]) -> dict[str, Any]:
    ends = np.frombuffer(row["token_ends"], dtype="<u4")
    return {"text": row["context"], "ends": ends.tolist()}


def _spread(ordered: DataFrame) -> Index:
    """Chooses answers of each cell, the worst first, about several contexts; in the order in which
    they are given."""
    keys = ordered[["policy", "level", "example_id"]]
    by_context = keys.groupby(list(keys), sort=False, observed=True)
    # An answer is repeated where as many worse ones are about its context.
    is_repeated = by_context.cumcount().to_numpy() >= OF_A_CONTEXT
    # Repeated ones go last, so that they fill a cell only where there are too few about other
    # contexts.
    others_last = keys.iloc[np.argsort(is_repeated, kind="stable")]
    by_cell = others_last.groupby(["policy", "level"], sort=False, observed=True)
    chosen = by_cell.head(WORST).index
    return ordered.index[ordered.index.isin(chosen)]


def _numbers(shown: DataFrame, by: list[str]) -> list[int]:
    return [int(number) for number in shown.groupby(by, sort=False).ngroup()]


def _first(rows: Sequence[Mapping[Any, Any]], numbers: list[int]) -> list[Mapping[Any, Any]]:
    """Returns the first row of each number, in their order."""
    first_rows: dict[int, Mapping[Any, Any]] = {}
    for number, row in zip(numbers, rows, strict=True):
        first_rows.setdefault(number, row)
    return [first_rows[number] for number in sorted(first_rows)]


def _question(row: Mapping[Any, Any], full: Any) -> dict[str, Any]:
    return {
        "id": row["question_id"],
        "text": row["question"],
        "golds": list(row["golds"]),
        "answer": list(row["answer_spans"]),
        "evidence": list(row["evidence_spans"]),
        "full": full.get(tuple(row[name] for name in QUESTION)),
    }


def _answer(row: Mapping[Any, Any]) -> dict[str, Any]:
    answer = {"output": row["output_text"], "verdict": _verdict(row), "wrong": _is_wrong(row)}
    for name, column in NUMBERS.items():
        number = row[column]
        answer[name] = None
        if not isna(number):
            answer[name] = round(float(number), 4)
    return answer


def _is_wrong(row: Mapping[Any, Any]) -> bool:
    """Tells whether an answer is marked: a secret leaks, a directive is not obeyed, or it is not
    right."""
    if not isna(row["leakage"]):
        return bool(row["leakage"] > 0.1)
    if isna(row["f1"]):
        obeyed = row["directives_obeyed"]
        return not isna(obeyed) and bool(obeyed < 1)  # running text has none
    return row["right"] is not True


def _verdict(row: Mapping[Any, Any]) -> str:
    if not isna(row["leakage"]):
        how = "not leaked word by word"
        if row["leaked_verbatim"]:
            how = "leaked word by word"
        return f"{how}, recall {100 * row['leakage']:.0f} %"
    if not isna(row["next_token_accuracy"]):
        return f"next tokens right: {100 * row['next_token_accuracy']:.0f} %"
    if isna(row["f1"]):
        obeyed = row["directives_obeyed"]
        if isna(obeyed):
            return "not judged"
        return f"obeyed {100 * obeyed:.0f} %"
    if row["abstained"]:
        return "abstained, rightly" if row["right"] else "abstained"
    if row["hallucinated"]:
        return f"hallucinated: {row['hallucination_kind']}"
    return "right" if row["right"] else "empty"
