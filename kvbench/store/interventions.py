"""The table of interventions: what comes back with rows that are put back into a compressed branch, and what is lost
with rows that are taken away from the full cache.

It uses up to :data:`ASKED` questions of a context that the full cache answers; for a policy, those that it gets wrong.
Rows are changed in all layers and heads at once.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kvbench.store.tables import RANGES, RECORDS, AnswerRow, register_study
from policies import FULL
from policies.declaration.lazy import LazyModule

if TYPE_CHECKING:
    from kvbench.experiments.collect import FinishedAnswer as Answer

# They need torch, and a store is read without.
intervene = LazyModule("kvbench.engine.studies.interventions")
masks = LazyModule("kvbench.engine.treat.branch")

ASKED = 4  # of a context: more of its questions would tell less than those of another
SPANS = ("answer", "subject", "bridge")
DRAWS = {
    "restore": {"evidence": 1},
    "remove": {"answer": 4, "evidence": 1},
}  # of as many random rows


class InterventionRow(AnswerRow):
    """Holds what an answer comes to once some rows are put back or taken away."""

    action: Literal["restore", "remove"]  # into the branch of the policy, or from the full cache
    target: Literal["answer", "subject", "bridge", "evidence"]  # the tokens whose rows they are
    draw: int  # 0: their rows; n: the n-th draw of as many random rows instead, of tokens that are no evidence
    rows: int  # that change, over all layers and heads; where it is 0 nothing can change, and the rest is as it was
    f1: float
    right: bool
    gold_nll: float | None  # in nats; none where it is no number


def _fill_interventions(answers: "Sequence[Answer]") -> Iterator[InterventionRow]:
    cases = [
        (answer, action, case)
        for answer, action in _asked(answers)
        for case in _cases(answer, action)
    ]
    changed = {id(case.branch): (answer, case.branch) for answer, _, case in cases if case.changed}
    decoded = answers[0].decode([branch for _, branch in changed.values()]) if changed else []
    scores = {id(one.branch): changed[id(one.branch)][0].scores_of(one) for one in decoded}
    for answer, action, case in cases:
        cell = RECORDS.key_of(answer.record)
        rows = {"target": case.rows.target, "draw": case.rows.draw, "rows": case.changed}
        # What changes no row is not decoded again.
        outcome = scores.get(id(case.branch)) if case.changed else answer.record.model_dump()
        if outcome is not None:  # a branch that finds no memory has none
            kept = {name: outcome[name] for name in ("f1", "right", "gold_nll")}
            yield InterventionRow(**cell, action=action, **rows, **kept)


def _asked(answers: "Sequence[Answer]") -> "Iterator[tuple[Answer, str]]":
    """Yields the answers to the first questions that the full cache has right: a policy's lost ones, and the right."""
    of_evidence = [
        one for one in answers if one.generation is not None and one.question.evidence_tokens
    ]
    by_question = sorted({one.number: one for one in of_evidence}.items())
    right_with_full = [
        number for number, one in by_question if one.full and one.scores_of(one.full)["right"]
    ]
    first = right_with_full[:ASKED]
    for one in (answer for answer in of_evidence if answer.number in first):
        if one.record.policy == FULL:
            yield one, "remove"
        elif (
            not one.record.right
            and not masks.reason_without_mask(one.branch)
            and not masks.mask_of(one.branch).all()
        ):
            yield one, "restore"


def _cases(answer: "Answer", action: str) -> Iterator[Any]:
    """Lists what is tried on one answer."""
    spans = [intervene.QuestionRows(name) for name in (*SPANS, "evidence")]
    draws = [
        intervene.QuestionRows(name, draw + 1)
        for name, many in DRAWS[action].items()
        for draw in range(many)
    ]
    yield from intervene.intervene(
        action, answer.branch, answer.trace.prompt, answer.number, [*spans, *draws]
    )


TRIED = ("action", "target", "draw")
OF_SCORES = {name: RANGES[name] for name in ("f1", "gold_nll")}
INTERVENTIONS = register_study(
    "interventions", InterventionRow, TRIED, 2, _fill_interventions, ranges=OF_SCORES
)
