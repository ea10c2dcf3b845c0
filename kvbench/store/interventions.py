"""The table of interventions: what comes back with rows that are put back into a compressed branch, and what is lost
with rows that are taken away from the full cache.

It uses up to :data:`ASKED` questions of a context that the full cache answers; for a policy, those that it gets wrong.
Rows are changed in all layers and heads at once. In the first :data:`MAPPED` contexts of each task one question is also
tried layer by layer and head by head: for a policy, at the lowest level at which it loses any question of that context.
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
MAPPED = 4  # contexts of each task
SPANS = ("answer", "subject", "bridge")
DRAWS = {"restore": {"evidence": 1}, "remove": {"answer": 4, "evidence": 1}}  # of as many random rows


class InterventionRow(AnswerRow):
    """Holds what an answer comes to once some rows are put back or taken away."""

    action: Literal["restore", "remove"]  # into the branch of the policy, or from the full cache
    target: Literal["answer", "subject", "bridge", "evidence"]  # the tokens whose rows they are
    draw: int  # 0: their rows; n: the n-th draw of as many random rows instead, of tokens that are no evidence
    layer: int  # -1: all of them
    head: int  # a KV head; -1: all of them
    rows: int  # that change, over all layers and heads; where it is 0 nothing can change, and the rest is as it was
    f1: float
    right: bool
    gold_nll: float | None  # in nats; none where it is no number


def _fill_interventions(answers: "Sequence[Answer]") -> Iterator[InterventionRow]:
    right, lost = _right_and_lost(answers)
    at_cliffs = {id(answer) for answer in _at_cliffs(lost)}
    asked = [(answer, "restore", id(answer) in at_cliffs) for answer in lost]
    of_full = [answer for answer in right if answer.record.policy == FULL]
    asked += [(answer, "remove", answer is of_full[0] and answer.context.example_index < MAPPED) for answer in of_full]
    cases = [(answer, action, case) for answer, action, mapped in asked for case in _cases(answer, action, mapped)]
    changed = {id(case.branch): (answer, case.branch) for answer, _, case in cases if case.changed}
    decoded = answers[0].decode([branch for _, branch in changed.values()]) if changed else []
    scores = {id(one.branch): changed[id(one.branch)][0].scores_of(one) for one in decoded}
    for answer, action, case in cases:
        cell = RECORDS.key_of(answer.record)
        layer, head = case.place
        places = {"target": case.rows.target, "draw": case.rows.draw, "layer": layer, "head": head}
        # What changes no row is not decoded again.
        outcome = scores.get(id(case.branch)) if case.changed else answer.record.model_dump()
        if outcome is not None:  # a branch that finds no memory has none
            kept = {name: outcome[name] for name in ("f1", "right", "gold_nll")}
            yield InterventionRow(**cell, action=action, **places, rows=case.changed, **kept)


def _right_and_lost(answers: "Sequence[Answer]") -> "tuple[list[Answer], list[Answer]]":
    """Returns the answers to the first questions that the full cache has right: the right ones, and those lost."""
    of_evidence = [one for one in answers if one.generation is not None and one.question.evidence_tokens]
    by_question = sorted({one.number: one for one in of_evidence}.items())
    right_with_full = [number for number, one in by_question if one.full and one.scores_of(one.full)["right"]]
    asked = [one for one in of_evidence if one.number in right_with_full[:ASKED]]
    lost = [one for one in asked if not one.record.right and not masks.reason_without_mask(one.branch)]
    return [one for one in asked if one.record.right], [one for one in lost if not masks.mask_of(one.branch).all()]


def _at_cliffs(lost: "Sequence[Answer]") -> "list[Answer]":
    """Returns of each policy's first draw the first lost answer at the lowest level that loses any."""
    first: dict[str, Answer] = {}
    for answer in sorted(lost, key=lambda one: (one.record.realised_ratio, one.number)):
        if answer.record.repeat == 0 and answer.context.example_index < MAPPED:
            first.setdefault(answer.record.policy, answer)
    return list(first.values())


def _cases(answer: "Answer", action: str, mapped: bool) -> list[Any]:
    """Lists what is tried on one answer: everywhere, and where it is mapped, at every place."""
    spans = [intervene.QuestionRows(name) for name in SPANS]
    draws = [intervene.QuestionRows(name, draw + 1) for name, many in DRAWS[action].items() for draw in range(many)]
    where = {intervene.EVERYWHERE: [*spans, intervene.QuestionRows("evidence"), *draws]}
    if mapped:
        in_places = [*spans, intervene.QuestionRows("answer", 1)]
        layers, heads, _ = masks.mask_of(answer.branch).shape
        where |= dict.fromkeys(intervene.places(layers, heads)[1:], in_places)
    return list(intervene.intervene(action, answer.branch, answer.trace.prompt, answer.number, where))


PLACE = ("action", "target", "draw", "layer", "head")
OF_SCORES = {name: RANGES[name] for name in ("f1", "gold_nll")}
INTERVENTIONS = register_study("interventions", InterventionRow, PLACE, 1, _fill_interventions, ranges=OF_SCORES)
