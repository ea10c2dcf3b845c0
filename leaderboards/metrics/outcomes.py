"""Outcomes of a treatment against the full cache's own answer, right or wrong: the same, another,
or none that ends."""

from collections.abc import Callable

from leaderboards.metrics.declaration import Better, Definition, Measure, Metric, Over
from leaderboards.metrics.inputs import Outcome

OUTCOMES = Definition(
    "Masked, corrupted, DUE, unended",
    "The outcome of a question against the full cache’s own answer to it in the same run, right "
    "or wrong. Masked: the same tokens. Corrupted: other tokens, up to an end. DUE, a detected "
    "and unrecoverable error: infinity or NaN among the logits that a token is chosen from, or "
    "other tokens without an end. The three add up to all questions. Unended: the answer has as "
    "many tokens as it may and no end token, whatever the full cache does. A press that raises an "
    "error is no outcome: its records are failed.",
    "masked + corrupted + DUE = 1",
    "outcomes of fault injection: masked, silent data corruption, detected unrecoverable error",
    chapter="answers",
)


# The first three exclude one another and leave nothing out: what is not finite is a DUE, also where
# its tokens are the same.
def _is_masked(outcome: Outcome) -> bool:
    return outcome.finite and outcome.same_tokens


def _is_corrupted(outcome: Outcome) -> bool:
    return outcome.finite and outcome.ended and not outcome.same_tokens


def _is_due(outcome: Outcome) -> bool:
    return not outcome.finite or not (outcome.same_tokens or outcome.ended)


def _is_unended(outcome: Outcome) -> bool:
    return not outcome.ended


def _outcome(name: str, better: Better, line: str, of_outcome: Callable[[Outcome], bool]) -> Metric:
    """Declares the share of questions with an outcome."""
    return Metric(
        name=name,
        type=bool,
        better=better,
        line=line,
        definition=OUTCOMES,
        of_outcome=of_outcome,
        measures=(
            Measure(
                name=name,
                field=f"{name}_rate",
                over=Over.ALL,
                has_interval=True,
                columns=(name,),
                heading="DUE" if name == "due" else name,
            ),
        ),
    )


METRICS = (
    _outcome(
        "masked",
        "higher",
        "The answer has the tokens of the full cache's own answer",
        _is_masked,
    ),
    _outcome(
        "corrupted",
        "lower",
        "The answer has an end and other tokens than the full cache's own",
        _is_corrupted,
    ),
    _outcome(
        "due",
        "lower",
        "Infinity or NaN among the logits, or another answer without an end",
        _is_due,
    ),
    _outcome(
        "unended",
        "lower",
        "The answer has as many tokens as it may, and no end token",
        _is_unended,
    ),
)
