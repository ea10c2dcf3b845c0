"""A plain loop over transformers' own cache, to compare the engine with."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache

from kvbench.engine.decode.loop import Generation
from kvbench.engine.treat.branch import Branch, Trace, attention_modules
from kvbench.models.load import LoadedModel, find_decoder
from policies import ABSENT, UNKNOWN, Policy
from tests.support.models.toy import STEPS


class PlainRows:
    """What a plain cache holds of a branch, as :class:`policies.CacheRows`: its rows are those that
    some head reads."""

    def __init__(
        self, cache: DynamicCache, tokens: Sequence[torch.Tensor], next_position: int
    ) -> None:
        self.states: list[Any] = cache.layers
        self.cache, self._tokens, self._next_position = cache, tokens, next_position

    @property
    def layers(self) -> int:
        return len(self._tokens)

    def tokens(self, layer: int) -> torch.Tensor:
        context = self._tokens[layer]
        behind = self._next_position + torch.arange(
            self.states[layer].keys.shape[2] - context.shape[1]
        )
        return torch.cat([context, behind.expand(len(context), -1)], dim=1)

    def keys(self, layer: int) -> torch.Tensor:
        keys: torch.Tensor = self.states[layer].keys[0].clone()
        return keys

    def values(self, layer: int) -> torch.Tensor:
        values: torch.Tensor = self.states[layer].values[0].clone()
        return values

    def write(
        self, layer: int, keys: torch.Tensor | None = None, values: torch.Tensor | None = None
    ) -> None:
        present = (self.tokens(layer) != ABSENT)[..., None]
        for name, states in (("keys", keys), ("values", values)):
            if states is not None:
                stored = getattr(self.states[layer], name)
                setattr(self.states[layer], name, torch.where(present, states[None], stored))


class OneAnswer:
    """Plain rows as treatments see them: with a dimension of answers, of which there is one."""

    answers: Sequence[int] = (0,)

    def __init__(self, rows: PlainRows) -> None:
        self.rows, self.layers = rows, rows.layers

    def lengths(self, layer: int) -> torch.Tensor:
        return torch.tensor([self.rows.tokens(layer).shape[1]])

    def tokens(self, layer: int) -> torch.Tensor:
        return self.rows.tokens(layer)[None]

    def keys(self, layer: int) -> torch.Tensor:
        return self.rows.keys(layer)[None]

    def values(self, layer: int) -> torch.Tensor:
        return self.rows.values(layer)[None]

    def write(
        self,
        layer: int,
        keys: torch.Tensor | None = None,
        values: torch.Tensor | None = None,
        rows: torch.Tensor | None = None,
    ) -> None:
        for name, states in (("keys", keys), ("values", values)):
            if states is not None:
                before = getattr(self, name)(layer)
                after = states if rows is None else torch.where(rows[..., None], states, before)
                self.rows.write(layer, **{name: after[0]})


def plain_rows(trace: Trace, branch: Branch) -> PlainRows:
    """A plain cache of a branch: every layer as long as it is in the branch, what a head does not
    keep in front."""
    cache, tokens = DynamicCache(), []
    for number, left in enumerate(branch.layers):
        keys, values = trace.keys[number], trace.values[number]
        if left.keys is not None and left.values is not None:
            keys, values = left.keys, left.values
        if left.keep is None:
            tokens.append(torch.full(keys.shape[:2], UNKNOWN))
        else:
            heads, longest = (
                [head.nonzero()[:, 0] for head in left.keep],
                int(left.keep.sum(-1).max()),
            )
            tokens.append(
                torch.stack(
                    [
                        torch.cat([head.new_full((longest - len(head),), ABSENT), head])
                        for head in heads
                    ]
                )
            )
            index = tokens[-1].clamp(min=0)[..., None].expand(-1, -1, keys.shape[-1])
            keys, values = keys.gather(1, index), values.gather(1, index)
        cache.update(keys[None].clone(), values[None].clone(), number)
    return PlainRows(cache, tokens, branch.next_position)


@contextmanager
def masked(model: LoadedModel, rows: PlainRows) -> Iterator[None]:
    """Hides absent rows, what comes later, and what a sliding layer does not see any more, in each
    layer and head from transformers' own attention."""

    def hide(module: Any, positional: Any, named: dict[str, Any]) -> Any:
        hidden_states = positional[0] if positional else named["hidden_states"]
        absent = rows.tokens(module.layer_idx) == ABSENT
        new = hidden_states.shape[1]
        old = rows.states[module.layer_idx].keys.shape[2]
        seen = (
            torch.ones(new, old + new, dtype=torch.bool).tril(old)[None]
            & ~torch.cat([absent, torch.zeros(len(absent), new, dtype=torch.bool)], dim=1)[:, None]
        )
        if window := model.windows[module.layer_idx]:
            positions = torch.cat([rows.tokens(module.layer_idx)[0], named["position_ids"][0]])
            seen &= positions > positions[old:, None] - window
        heads = model.network.config.get_text_config().num_attention_heads
        mask = torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))
        named["attention_mask"] = mask.repeat_interleave(heads // len(absent), dim=0)[None]
        return positional, named

    hooks = [m.register_forward_pre_hook(hide, with_kwargs=True) for m in attention_modules(model)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def plain_logits(
    model: LoadedModel, rows: PlainRows, token_ids: Sequence[int], position: int
) -> torch.Tensor:
    """The logits behind each of these tokens, which the cache holds from now on."""
    with torch.inference_mode(), masked(model, rows):
        hidden = find_decoder(model.network)(
            input_ids=torch.tensor([list(token_ids)]),
            position_ids=torch.arange(position, position + len(token_ids))[None],
            past_key_values=rows.cache,
        ).last_hidden_state
        logits: torch.Tensor = model.network.lm_head(hidden)[0]
    return logits


def plain_nll(model: LoadedModel, trace: Trace, branch: Branch, number: int) -> float:
    """The mean negative log-likelihood of a right answer, in one pass over question and answer."""
    nats = plain_gold(model, trace, branch, number)[0]
    return sum(nats) / len(nats)


def plain_gold(
    model: LoadedModel, trace: Trace, branch: Branch, number: int
) -> tuple[list[float], list[bool]]:
    """Of each token of a right answer its negative log-likelihood, and whether it is the most
    likely one."""
    question, gold = (
        trace.prompt.questions[number].token_ids,
        trace.prompt.questions[number].gold_ids,
    )
    logits = plain_logits(
        model, plain_rows(trace, branch), [*question, *gold[:-1]], branch.next_position
    )
    nats = -logits[len(question) - 1 :].log_softmax(-1)
    targets = torch.tensor(gold)
    return nats[torch.arange(len(gold)), targets].tolist(), (nats.argmin(-1) == targets).tolist()


def plain_answer(
    model: LoadedModel,
    trace: Trace,
    branch: Branch,
    number: int,
    steps: int,
    treatment: Any = None,
    forced: Any = (),
) -> tuple[list[int], float]:
    """The tokens of an answer and the mean of their negative log-likelihoods, one pass for each
    token."""
    rows, position = plain_rows(trace, branch), branch.next_position
    if treatment:
        treatment.after_prefill(OneAnswer(rows))
    pending, written, nats = (
        list(trace.prompt.questions[number].token_ids),
        list[int](),
        list[float](),
    )
    for step in range(len(forced) or steps):
        logits = plain_logits(model, rows, pending, position)[-1]
        position += len(pending)
        if treatment:
            treatment.after_step(OneAnswer(rows), step)
        pending = [forced[step] if forced else int(logits.argmax())]
        written += pending
        nats.append(-float(logits.log_softmax(-1)[pending[0]]))
        if not forced and pending[0] in model.end_tokens():
            break
    return written, sum(nats) / len(nats)


def beside_a_plain_loop(
    model: LoadedModel,
    trace: Trace,
    policies: Iterable[Policy],
    generations: Iterable[Generation],
    treatment_of: Callable[[Branch], Any],
) -> Iterator[tuple[Generation, Callable[[], tuple[list[int], float]]]]:
    """Yields generations whose tokens are those of a plain loop, with the same loop over the gold
    answer, to be called. No branch of ``policies`` failed, and none is missing."""
    assert [branch.error for branch in trace.branches if branch.error] == []
    assert {branch.treatment.policy.name for branch in trace.branches} == {
        policy.name for policy in policies
    }
    for generation in generations:
        answer = partial(plain_answer, model, trace, generation.branch, generation.question, STEPS)
        gold = trace.prompt.questions[generation.question].gold_ids
        written, _ = answer(treatment_of(generation.branch))
        assert list(generation.token_ids) == written, generation.branch.treatment.policy.name
        yield generation, partial(answer, treatment_of(generation.branch), gold)
