"""Chooses rows of the cache to put back into a branch or to take away from it, and makes the
branches that do so.

Rows go by their tokens, in all layers and heads at once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from kvbench.engine.treat.branch import Branch, keep_mask, with_mask
from kvbench.prompts.prompt import Prompt, TokenizedQuestion
from policies.declaration.draws import derive_seed

Action = Literal["restore", "remove"]


@dataclass(frozen=True)
class QuestionRows:
    """Names rows of a question.

    ``target``: the span that they are, such as ``answer``. ``draw``: 0 for its own rows; n > 0 for
    the n-th draw of as many random rows instead, of tokens of the context that are no evidence."""

    target: str
    draw: int = 0


@dataclass(frozen=True)
class Intervention:
    """Describes a branch in which rows were put back or taken away: as many as ``changed``, over
    layers and heads."""

    rows: QuestionRows
    changed: int
    branch: Branch  # it answers one question


def intervene(
    action: Action, branch: Branch, prompt: Prompt, question: int, tried: Sequence[QuestionRows]
) -> Iterator[Intervention]:
    """Makes a branch for all rows that are tried; it is equal to ``branch`` where no row is to be
    changed. Those of spans that the question does not have are left out."""
    keep = keep_mask(branch)
    available = ~keep if action == "restore" else keep
    for rows in tried:
        tokens = span_tokens(prompt.questions[question], rows.target)
        if not tokens:
            continue
        order = random_order(prompt, question, rows.draw) if rows.draw else None
        changed = choose(available, tokens, order)
        # Only rows that may change are in `changed`: one operation adds them or takes them away.
        changed_branch = with_mask(branch, keep ^ changed, (question,))
        yield Intervention(rows, int(changed.sum()), changed_branch)


def span_tokens(question: TokenizedQuestion, target: str) -> tuple[int, ...]:
    """Returns the tokens of a span of a question; none where it has no such span."""
    if target == "evidence":
        return question.evidence_tokens
    return question.spans.get(target, ())


def random_order(prompt: Prompt, question: int, draw: int) -> list[int]:
    """Orders the tokens of the context that are no evidence of a question at random, the same in
    every run."""
    tokenized = prompt.questions[question]
    # Sorted, as the order of a set is no rule, and the same rows are to be drawn in every run.
    others = sorted(set(prompt.context_tokens) - set(tokenized.evidence_tokens))
    seed = derive_seed(draw, tokenized.question.id, "rows of an intervention")
    # A generator of its own, on the host: the draw disturbs no other, and is the same on any
    # device.
    generator = torch.Generator().manual_seed(seed)
    places = torch.randperm(len(others), generator=generator).tolist()
    return [others[place] for place in places]


def choose(
    available: torch.Tensor, tokens: Sequence[int], order: Sequence[int] | None = None
) -> torch.Tensor:
    """Returns which of the available rows belong to some tokens, bool (layers, num_kv_heads,
    seq_len) as ``available``. With an ``order`` of other tokens, it returns in every head the first
    of these that are available, as many."""
    of_target = torch.zeros_like(available)
    of_target[..., list(tokens)] = True
    of_target &= available
    if order is None:
        return of_target
    places = list(order)
    ordered = available[..., places]
    count = of_target.sum(-1, keepdim=True)
    chosen = torch.zeros_like(available)
    chosen[..., places] = ordered & (ordered.cumsum(-1) <= count)
    return chosen
