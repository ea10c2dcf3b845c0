"""Looks at the scores that a press gives to tokens: whether they say which tokens to keep.

A press that scores by infinities, by values that are no numbers, or all tokens alike runs, keeps its budget and is
deterministic; and yet what it keeps has nothing to do with the context.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from kvpress.utils import compute_n_kept

from kvbench.checks.findings import Outcome
from policies import Policy, Situation
from policies.declaration.same_code import presses_inside

MANY_ALIKE = 0.5  # of the tokens of a head, from which on ties are worth a note


@dataclass(frozen=True)
class Scores:
    """The scores that a press gave to the tokens of one layer, by one call of its ``score``."""

    values: torch.Tensor  # shape (..., tokens)
    ratio: float  # the share of the tokens that was to be removed


def recording(policy: Policy, seen: list[Scores]) -> Policy:
    """Returns the policy with a press whose ``score``, and that of presses inside, adds what it returns to ``seen``."""

    def build(situation: Situation) -> Any:
        press = policy.build(situation)
        _record(press, situation.ratio, seen)
        return press

    return replace(policy, build=build)


def has_score(press: Any) -> bool:
    """Tells whether a press, or one inside it, has a method that scores."""
    return callable(getattr(type(press), "score", None)) or any(map(has_score, presses_inside(press)))


def _record(press: Any, ratio: float, seen: list[Scores]) -> None:
    """Gives a press, and those inside it, a class of its own whose ``score`` records: the engine sets and deletes
    ``score`` of objects."""
    for inside in presses_inside(press):
        _record(inside, ratio, seen)
    kind = type(press)
    if not callable(getattr(kind, "score", None)):
        return

    def score(self: Any, *inputs: Any, **more: Any) -> Any:
        values = kind.score(self, *inputs, **more)
        if isinstance(values, torch.Tensor) and values.ndim and values.is_floating_point():
            seen.append(Scores(values.detach().clone(), ratio))
        return values

    press.__class__ = type(kind.__name__, (kind,), {"score": score, "__module__": kind.__module__})


def judge(seen: list[Scores]) -> tuple[Outcome, str]:
    """Says in a line whether scores decide what is kept."""
    if not seen:
        return "ok", "not compared: it has no method score"
    heads = [head for scores in seen for head in _heads(scores)]
    if any(head.not_finite for head in heads):
        return "wrong", "scores are not finite: kept tokens are arbitrary"
    alike = [head.alike for head in heads if head.alike >= MANY_ALIKE]
    if not alike:
        return "ok", "they are finite where they decide, and tell the tokens apart"
    which = "" if len(alike) == len(heads) else f" in {len(alike)} of {len(heads)} heads"
    if min(alike) == 1:
        return "note", f"all scores are equal{which}: the press keeps by position alone"
    return "note", f"{min(alike):.0%} of the scores are equal{which}: among these the press keeps by position alone"


@dataclass(frozen=True)
class _Head:
    not_finite: bool  # NaN, or infinite where the last token is chosen
    alike: float  # the share of the tokens that have the score at which the cut is, if some of these are evicted


def _heads(scores: Scores) -> Iterator[_Head]:
    for values in scores.values.reshape(-1, scores.values.shape[-1]):
        kept = compute_n_kept(len(values), scores.ratio)
        if values.isnan().any():
            yield _Head(not_finite=True, alike=0.0)
            continue
        ordered = values.sort(descending=True).values
        last = ordered[kept - 1]
        tied = kept < len(values) and bool(last == ordered[kept])  # a token of the same score is evicted
        yield _Head(tied and bool(last.isinf()), float((values == last).float().mean()) if tied else 0.0)
