"""Writes answers one after the other while a press goes on cutting the cache, as in kvpress's pipeline."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from transformers import DynamicCache

from kvbench.engine.decode.cache import BranchCache, PlainRows
from kvbench.engine.decode.generation import FinalCache, Generation, GoldTokens
from kvbench.engine.decode.likelihood import GoldLikelihood
from kvbench.engine.decode.loop import Decoding, PendingAnswer, write_answers
from kvbench.engine.treat.branch import Branch, PressCache, Trace, draws_of, faults_of
from kvbench.engine.treat.guard import attention_modules, clearing_masks, leaving_sliding_layers, masks_of
from kvbench.engine.treat.keep import LayerCache, digest_of, survivors
from kvbench.models.load import LoadedModel


def answers_alone(model: LoadedModel, trace: Trace, branch: Branch, decoding: Decoding) -> list[Generation]:
    """Answers all questions of a branch whose press acts while decoding; there are none if it fails in any of them."""
    generations = []
    for number in branch.treatment.questions:
        started = model.clock()
        answer = PendingAnswer(branch, number, decoding.steps)
        with _under_press(model, branch, number) as cache:
            _, token_ids, ended, finite = _write(model, trace, cache, answer, decoding)
            tokens = trace.length + len(trace.prompt.questions[number].token_ids) + len(token_ids) - 1
            final_cache = _final_cache(model, trace, branch, cache, tokens)
            made = branch, number, tuple(token_ids), ended, model.clock() - started
            generations.append(Generation(*made, final_cache, finite))
        gold = trace.prompt.questions[number].gold_ids
        if decoding.gold and gold and branch.error is None:
            with _under_press(model, branch, number) as cache:
                answer = PendingAnswer(branch, number, len(gold), gold, forced=True)
                measured, *_ = _write(model, trace, cache, answer, decoding)
                generations[-1] = replace(generations[-1], gold=measured)
        if branch.error is not None:
            return []
    return generations


@contextmanager
def _under_press(model: LoadedModel, branch: Branch, number: int) -> Iterator[DynamicCache]:
    """Yields a copy of the cache that the press left, under a fresh press, as a press remembers what it has seen."""
    with (
        faults_of(branch, "while decoding", model),
        torch.inference_mode(False),
        torch.no_grad(),
        draws_of(branch, f"answer {number}", model.device),
        clearing_masks(model),
    ):
        cache = _copied(model, branch.press_cache)
        with leaving_sliding_layers(), branch.treatment.policy.press(branch.treatment.situation)(model.network):
            yield cache


def _write(
    model: LoadedModel, trace: Trace, cache: DynamicCache, answer: PendingAnswer, decoding: Decoding
) -> tuple[GoldTokens | None, list[int], bool, bool]:
    """Returns what the right answer shows, if that is passed, the tokens up to an end, whether there is one, and
    whether all logits were finite."""
    likelihood = GoldLikelihood([answer.gold], [answer.forced], model.device)
    source = PlainSource(model, trace, cache, answer)
    ends = trace.prompt.ends.with_tokens(model.end_tokens())
    answers = write_answers(source, decoding, likelihood, ends, 1)
    return likelihood.tokens()[0], *ends.until_end(answers.tokens[0].tolist()), bool(answers.finite[0])


class PlainSource:
    """Computes the logits of one answer over a separate cache."""

    def __init__(self, model: LoadedModel, trace: Trace, cache: DynamicCache, answer: PendingAnswer) -> None:
        self.answers: Sequence[PendingAnswer] = (answer,)
        self._model, self._cache = model, cache
        self._question = trace.prompt.questions[answer.question]
        self._position = answer.branch.next_position
        policy, situation = answer.branch.treatment.policy, answer.branch.treatment.situation
        once, build = policy.prefill_treatment, policy.step_treatment
        self._at_start = once([situation]) if once else None
        self._treatment = build([situation], [self._question.question.id]) if build else None

    def read(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for treatment in (self._at_start, self._treatment):
            if treatment:
                treatment.after_prefill(PlainRows(self._cache))
        question = torch.tensor(self._question.token_ids, device=self._model.device)
        yield torch.zeros(1, dtype=torch.long, device=self._model.device), self.step(question)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(self._position, self._position + len(tokens), device=self._model.device)
        self._position += len(tokens)
        logits: torch.Tensor = self._model.network(
            input_ids=tokens[None], past_key_values=self._cache, position_ids=positions[None], logits_to_keep=1
        ).logits[0]
        return logits

    def treat(self, step: int, numbers: torch.Tensor, done: torch.Tensor) -> None:
        if self._treatment and not bool(done.all()):
            self._treatment.after_step(PlainRows(self._cache), step)

    def keep_answering(self, going: torch.Tensor) -> None:
        """Does nothing: there is one answer only."""

    def cache_of(self, number: int) -> BranchCache:
        return BranchCache(PlainRows(self._cache))


def _copied(model: LoadedModel, press_cache: PressCache | None) -> DynamicCache:
    assert press_cache is not None
    cache = DynamicCache()
    for number, (layer, module) in enumerate(zip(press_cache.cache.layers, attention_modules(model), strict=True)):
        assert layer.keys is not None
        assert layer.values is not None
        cache.update(layer.keys.clone(), layer.values.clone(), number)
        module.masked_key_indices = press_cache.masked[number]
    return cache


def _final_cache(model: LoadedModel, trace: Trace, branch: Branch, cache: DynamicCache, tokens: int) -> FinalCache:
    keys = [layer.keys[0] for layer in cache.layers if layer.keys is not None]
    values = [layer.values[0] for layer in cache.layers if layer.values is not None]
    masked = any(masks_of(module) is not None for module in attention_modules(model))
    keep = None
    if not masked and not branch.treatment.policy.rewrites:
        keep = tuple(survivors(trace.keys[layer], keys[layer]) for layer in trace.compressed)
    layers = [LayerCache(None, 0, *states) for states in zip(keys, values, strict=True)]
    rows = sum(keys[layer].shape[0] * keys[layer].shape[1] for layer in trace.compressed)
    return FinalCache(keep, rows, tokens, digest_of(layers))
