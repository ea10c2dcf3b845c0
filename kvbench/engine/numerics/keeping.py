"""Treats and answers a prompt once more in another type of numbers, to see what a policy keeps and answers there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.generation import Generation
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.given import mask_of, reason_without_mask
from kvbench.engine.treat.plan import Scoring
from kvbench.engine.treat.prefill import prefill
from kvbench.models.load import LoadedModel


@dataclass(frozen=True)
class Again:
    """Holds an answer and its answer in another type of numbers."""

    branch: Branch
    generation: Generation
    moved: float | None  # share of the slots kept that the other type does not keep; None where no mask tells it


def answers_in(
    cast: LoadedModel, trace: Trace, branches: Sequence[Branch], steps: int, bound: int | None
) -> Iterator[Again]:
    """Treats what ``branches`` of a trace treated, in the type of numbers of a ``cast`` model, and answers the first
    question. Branches that fail there have no answer. ``bound``: the bytes of keys and values at once."""
    treatments = [one.treatment for one in branches]
    first = [replace(one, questions=one.questions[:1]) for one in treatments]
    scorings = [Scoring(one.policy, (one,)) for one in first]
    again = prefill(cast, trace.prompt, scorings)
    before = {id(new): old for new, old in zip(again.branches, branches, strict=True)}
    for generation in decode(cast, again, steps, bound):
        old = before[id(generation.branch)]
        yield Again(old, generation, _moved(old, generation.branch))


def _moved(one: Branch, other: Branch) -> float | None:
    if reason_without_mask(one) or reason_without_mask(other):
        return None
    kept, again = mask_of(one), mask_of(other)
    return float((kept & ~again).sum() / kept.sum())
