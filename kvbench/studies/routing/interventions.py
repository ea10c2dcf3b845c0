"""The table of interventions: what comes back with rows that are put back into a compressed branch,
and what is lost with rows that are taken away from the full cache.

It uses up to :data:`ASKED` questions of a context that the full cache answers; for a policy, those
that it gets wrong. Rows are changed in all layers and heads at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
# Of as many random rows.
DRAWS = {
    "restore": {"evidence": 1},
    "remove": {"answer": 4, "evidence": 1},
}


class InterventionRow(AnswerRow):
    """Holds what an answer comes to once some rows are put back or taken away."""

    action: Literal["restore", "remove"]  # into the branch of the policy, or from the full cache
    target: Literal["answer", "subject", "bridge", "evidence"]  # the tokens whose rows they are
    # 0: their rows; n: the n-th draw of as many random rows instead, of tokens that are no
    # evidence.
    draw: int
    # That change, over all layers and heads; where it is 0 nothing can change, and the rest is as
    # it was.
    rows: int
    f1: float
    right: bool
    gold_nll: float | None  # in nats; none where it is no number


@dataclass(frozen=True)
class _Trial:
    """Rows that are put back into the branch of an answer, or taken away from it."""

    answer: "Answer"
    action: str
    case: Any  # an Intervention of the engine


def _fill_interventions(answers: "Sequence[Answer]") -> Iterator[InterventionRow]:
    trials = list(_trials(answers))
    # What changes no row is not decoded again.
    changed = {id(trial.case.branch): trial for trial in trials if trial.case.changed}
    scores: dict[int, Mapping[str, Any]] = {}
    if changed:
        for generation in answers[0].decode([trial.case.branch for trial in changed.values()]):
            branch = id(generation.branch)
            scores[branch] = changed[branch].answer.score(generation)
    for trial in trials:
        case, record = trial.case, trial.answer.record
        if case.changed:
            outcome = scores.get(id(case.branch))
        else:
            outcome = record.model_dump()
        if outcome is None:  # a branch that finds no memory has none
            continue
        yield InterventionRow(
            **RECORDS.row_key(record),
            action=trial.action,
            target=case.rows.target,
            draw=case.rows.draw,
            rows=case.changed,
            **{name: outcome[name] for name in ("f1", "right", "gold_nll")},
        )


def _trials(answers: "Sequence[Answer]") -> Iterator[_Trial]:
    """Yields all that is tried, answer by answer."""
    for answer, action in _chosen(answers):
        for case in _cases(answer, action):
            yield _Trial(answer, action, case)


def _chosen(answers: "Sequence[Answer]") -> "Iterator[tuple[Answer, str]]":
    """Yields the answers to the first questions that the full cache has right: a policy's lost
    answers, and the right ones of the full cache."""
    usable: list[Answer] = []
    by_question: dict[int, Answer] = {}
    for answer in answers:
        if answer.generation and answer.question.evidence_tokens:
            usable.append(answer)
            by_question[answer.number] = answer
    right_with_full = []
    for number, answer in sorted(by_question.items()):
        if answer.full and answer.score(answer.full)["right"]:
            right_with_full.append(number)
    first = right_with_full[:ASKED]
    # The questions are chosen by the full cache alone, so that all policies are tried on the same.
    for answer in usable:
        if answer.number not in first:
            continue
        if answer.record.policy == FULL:
            yield answer, "remove"
        elif not answer.record.right and _has_lost_rows(answer):
            yield answer, "restore"


def _has_lost_rows(answer: "Answer") -> bool:
    """Tells whether an answer was written without some rows of its context, which are known."""
    if masks.reason_without_mask(answer.branch):
        return False
    return not masks.keep_mask(answer.branch).all()


def _cases(answer: "Answer", action: str) -> Iterator[Any]:
    """Lists what is tried on one answer."""
    rows = [intervene.QuestionRows(name) for name in (*SPANS, "evidence")]
    for name, count in DRAWS[action].items():
        for draw in range(1, count + 1):
            rows.append(intervene.QuestionRows(name, draw))
    yield from intervene.intervene(action, answer.branch, answer.trace.prompt, answer.number, rows)


TRIED = ("action", "target", "draw")
SCORE_RANGES = {name: RANGES[name] for name in ("f1", "gold_nll")}
INTERVENTIONS = register_study(
    "interventions", InterventionRow, TRIED, 2, _fill_interventions, ranges=SCORE_RANGES
)
