"""Says why an answer is wrong: each is in exactly one class, in the order of the tests below."""

from dataclasses import dataclass
from enum import StrEnum


class FailureClass(StrEnum):
    """The classes of answers.

    They follow the difference between storage, accessibility and use [arXiv 2603.01426]: *erased* is a failure of
    storage, *unreachable* one of accessibility, and the next three are failures of use, by what is said instead.
    """

    RIGHT = "right"
    BEYOND_MODEL = "wrong with the full cache too"
    ERASED = "erased"
    UNREACHABLE = "unreachable"
    SILENT = "silent"
    CONFUSED = "confused"
    UNUSED = "reached and unused"
    NOT_OBSERVED = "not observed"


@dataclass(frozen=True)
class AnswerFacts:
    """Says what is known of one answer.

    ``alive``: a slot of the evidence is left. ``reached``: a route leads from the evidence. ``silent``: the answer is
    empty or an abstention. ``distractor_reached``: it is a value that the context states for something else, and a
    route leads from there. ``observed``: the routes are known; without them nothing is said of what is lost.
    """

    right: bool
    right_with_full: bool
    alive: bool
    reached: bool
    silent: bool
    distractor_reached: bool
    observed: bool = True


def outcome_of(finding: AnswerFacts) -> FailureClass:
    """Returns the class of an answer: the first that it belongs to.

    An answer is *erased* if no slot of the evidence is left and no route leads from it: evidence that other tokens have
    read during the prefill may be gone from every slot and still be reached. What is said counts only where the
    evidence is reached: an answer without a route to it is erased or unreachable, silent or not.
    """
    if finding.right:
        return FailureClass.RIGHT
    if not finding.right_with_full:
        return FailureClass.BEYOND_MODEL
    if not finding.observed:
        return FailureClass.NOT_OBSERVED
    if not finding.reached:
        return FailureClass.UNREACHABLE if finding.alive else FailureClass.ERASED
    if finding.silent:
        return FailureClass.SILENT
    return FailureClass.CONFUSED if finding.distractor_reached else FailureClass.UNUSED
