"""Decodes all questions of many branches at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from transformers import AttentionInterface, DynamicCache

from kvbench.engine.decode.cache import PlainRows
from kvbench.engine.decode.columns import Row
from kvbench.engine.decode.loop import (
    Decoding,
    FinalCache,
    Generation,
    GoldLikelihood,
    GoldTokens,
    Observer,
    PendingAnswer,
    Sampler,
    fail_overflowing,
    greedy,
    write_answers,
)
from kvbench.engine.decode.together import Golds, TreatApartError, answers_of_wave
from kvbench.engine.decode.waves import (
    BRANCH_ATTENTION,
    Rows,
    all_rows,
    branch_attention,
    in_waves,
    wave_bytes,
    waves,
)
from kvbench.engine.treat.branch import (
    Branch,
    PressCache,
    Trace,
    attention_modules,
    clearing_masks,
    give_up,
    head_masks,
    keys_and_values,
    leaving_sliding_layers,
    record_faults,
    repeatable_draws,
)
from kvbench.engine.treat.keep import LayerCache, hash_caches, survivors
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.models.load import (
    LoadedModel,
    attention,
    check_places,
    count_embeddings,
    longest_sequence,
    rotation_switch,
)
from kvbench.prompts.prompt import Prompt
from kvbench.system.errors import KVBenchError
from kvbench.system.memory import is_out_of_memory, kv_share, memory_bound
from policies import FULL, POLICIES
from policies.declaration.devices import device_kind

PLACE = "while decoding"


def answers_alone(
    model: LoadedModel, trace: Trace, branch: Branch, decoding: Decoding
) -> list[Generation]:
    """Answers all questions of a branch whose press acts while decoding; there are none if it fails
    in any of them."""
    if give_up([branch], PLACE):
        return []
    generations = []
    for number in branch.treatment.questions:
        started = model.clock()
        answer = PendingAnswer(branch, number, decoding.steps)
        # Faults are recorded outside of the press's own block: it is then looked whether the model
        # has changed, and hooks that the press has still set would count as a change.
        with record_faults(branch, PLACE, model), _under_press(model, branch, number) as cache:
            _, token_ids, ended, finite = _write(model, trace, cache, answer, decoding)
            question_length = len(trace.prompt.questions[number].token_ids)
            # The last token of an answer is never passed, as nothing follows it.
            tokens = trace.length + question_length + len(token_ids) - 1
            final_cache = _final_cache(model, trace, branch, cache, tokens)
            written = branch, number, tuple(token_ids), ended, model.clock() - started
            generations.append(Generation(*written, final_cache, finite))
        gold = trace.prompt.questions[number].gold_ids
        # Over another copy of the cache: behind the answer that was written, the press has cut it.
        if decoding.gold and gold and branch.error is None:
            with record_faults(branch, PLACE, model), _under_press(model, branch, number) as cache:
                answer = PendingAnswer(branch, number, len(gold), gold, forced=True)
                measured, *_ = _write(model, trace, cache, answer, decoding)
                generations[-1] = replace(generations[-1], gold=measured)
        if branch.error is not None:
            return []
    return generations


@contextmanager
def _under_press(model: LoadedModel, branch: Branch, number: int) -> Iterator[DynamicCache]:
    """Yields a copy of the cache that the press left, under a fresh press, as a press remembers
    what it has seen."""
    # As in the prefill of such a press: some of them look for gradients, which tensors of inference
    # mode cannot have.
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        repeatable_draws(branch, f"answer {number}", model.device),
        clearing_masks(model),
    ):
        cache = _copied(model, branch.press_cache)
        # The patch comes before the press, which looks at the class of the model when it is
        # entered.
        with (
            leaving_sliding_layers(),
            branch.treatment.policy.press(branch.treatment.situation)(model.network),
        ):
            yield cache


def _write(
    model: LoadedModel, trace: Trace, cache: DynamicCache, answer: PendingAnswer, decoding: Decoding
) -> tuple[GoldTokens | None, list[int], bool, bool]:
    """Returns what the right answer shows, if that is passed, the tokens up to an end, whether
    there is one, and whether all logits were finite."""
    likelihood = GoldLikelihood([answer.gold], [answer.forced], model.device)
    source = PlainSource(model, trace, cache, answer)
    ends = trace.prompt.ends.with_tokens(model.end_tokens())
    answers = write_answers(source, decoding, likelihood, ends, 1)
    return (
        likelihood.tokens()[0],
        *ends.until_end(answers.tokens[0].tolist()),
        bool(answers.finite[0]),
    )


class PlainSource:
    """Computes the logits of one answer over a separate cache. Its methods are documented at
    :class:`Source`."""

    def __init__(
        self, model: LoadedModel, trace: Trace, cache: DynamicCache, answer: PendingAnswer
    ) -> None:
        self.answers: Sequence[PendingAnswer] = (answer,)
        self._model, self._cache = model, cache
        self._question = trace.prompt.questions[answer.question]
        self._position = answer.branch.next_position
        policy, situation = answer.branch.treatment.policy, answer.branch.treatment.situation
        once = policy.treatment.prefill_treatment
        build = policy.treatment.step_treatment
        self._at_start = once([situation]) if once else None
        self._treatment = build([situation], [self._question.question.id]) if build else None

    def read(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        # In the order of WaveSource.read: what acts once on the context, then what acts at steps.
        for treatment in (self._at_start, self._treatment):
            if treatment:
                treatment.after_prefill(PlainRows(self._cache))
        question = torch.tensor(self._question.token_ids, device=self._model.device)
        yield torch.zeros(1, dtype=torch.long, device=self._model.device), self.step(question)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        # On from the length of the context as it was, as in kvpress's pipeline. Left alone,
        # transformers would count on from the rows that the press has left.
        positions = torch.arange(
            self._position, self._position + len(tokens), device=self._model.device
        )
        self._position += len(tokens)
        logits: torch.Tensor = self._model.network(
            input_ids=tokens[None],
            past_key_values=self._cache,
            position_ids=positions[None],
            logits_to_keep=1,
        ).logits[0]
        return logits

    def treat(self, step: int, numbers: torch.Tensor, done: torch.Tensor) -> None:
        if self._treatment and not bool(done.all()):
            self._treatment.after_step(PlainRows(self._cache), step)

    def keep_answering(self, going: torch.Tensor) -> None:
        """Does nothing: there is one answer only."""

    def cache_rows(self, number: int) -> PlainRows:
        return PlainRows(self._cache)


def _copied(model: LoadedModel, press_cache: PressCache | None) -> DynamicCache:
    assert press_cache is not None
    # Without a configuration: by it transformers would make layers that drop what leaves a window.
    cache = DynamicCache()
    for number, (layer, module) in enumerate(
        zip(press_cache.cache.layers, attention_modules(model), strict=True)
    ):
        assert layer.keys is not None
        assert layer.values is not None
        cache.update(layer.keys.clone(), layer.values.clone(), number)
        # The masks of a head-wise press stand on the modules and not in the cache; kvpress's
        # attention reads them there at every step.
        module.masked_key_indices = press_cache.masked[number]
    return cache


def _final_cache(
    model: LoadedModel, trace: Trace, branch: Branch, cache: DynamicCache, tokens: int
) -> FinalCache:
    keys, values = keys_and_values(cache)
    masked = any(mask is not None for mask in head_masks(model))
    keep = None
    # Under masks kvpress writes fake keys over the masked ones while it decodes, so that rows are
    # no longer found by what they hold.
    if not masked and not branch.treatment.policy.rewrites:
        keep = tuple(survivors(trace.keys[layer], keys[layer]) for layer in trace.compressed)
    # Without a mask, so that the rows themselves are hashed.
    layers = [LayerCache(None, 0, *states) for states in zip(keys, values, strict=True)]
    rows = sum(keys[layer].shape[0] * keys[layer].shape[1] for layer in trace.compressed)
    return FinalCache(keep, rows, tokens, hash_caches(layers))


def decode(
    model: LoadedModel,
    trace: Trace,
    steps: int,
    max_kv_bytes: int | None,
    sampler: Sampler = greedy,
    observers: Sequence[Observer] = (),
    gold: bool = False,
) -> list[Generation]:
    """Answers every question of every sound branch of a trace (:func:`decode_all`)."""
    return decode_all(model, [trace], steps, max_kv_bytes, sampler, observers, gold)[0]


def decode_all(
    model: LoadedModel,
    traces: Sequence[Trace],
    steps: int,
    max_kv_bytes: int | None,
    sampler: Sampler = greedy,
    observers: Sequence[Observer] = (),
    gold: bool = False,
) -> list[list[Generation]]:
    """Answers every question of every sound branch of traces whose answers end alike, at most
    ``steps`` tokens each. Returns the generations of each trace.

    ``max_kv_bytes`` bounds the keys and values that are decoded at once, ``None`` by a share of
    what is free. A branch that does not fit alone fails. ``gold``: whether the likelihood of right
    answers is measured."""
    for trace in traces:
        check_length(model, trace.prompt, steps)
    decoding = Decoding(steps, sampler, observers, gold)
    bound = kv_share(model.device) if max_kv_bytes is None else max_kv_bytes
    with memory_bound(model.device):
        together = _decode_together(model, traces, decoding, bound)
        by_trace = []
        for trace in traces:
            branches = {id(branch) for branch in trace.branches}
            generations = [answer for answer in together if id(answer.branch) in branches]
            for branch in trace.branches:
                if branch.press_cache is not None:  # its press acts while decoding
                    generations += answers_alone(model, trace, branch, decoding)
            # Once all answers of the trace are there: if the full cache overflows, every branch
            # fails.
            fail_overflowing(model, trace, generations)
            by_trace.append([answer for answer in generations if answer.branch.error is None])
        return by_trace


@torch.inference_mode()
def _decode_together(
    model: LoadedModel, traces: Sequence[Trace], decoding: Decoding, max_kv_bytes: int
) -> list[Generation]:
    """Decodes waves within the bound. A wave that finds no memory all the same is halved, with all
    waves after it."""
    AttentionInterface.register(BRANCH_ATTENTION, branch_attention)  # again changes nothing
    generations: list[Generation] = []
    golds: Golds = {}
    queue, halvings = waves(traces, decoding.steps, max_kv_bytes, decoding.gold), 0
    # For an attention whose name it does not know transformers makes no mask: bundles have theirs.
    with attention(model.network, BRANCH_ATTENTION):
        while queue:
            wave, *queue = queue
            wave = _sound_rows(wave)
            size, needed = wave_bytes(wave), f"{wave_bytes(wave) / 1e9:.3g} GB"
            if size > max_kv_bytes:  # then it is one row
                reason = f"its keys and values need {needed}, --max-kv-gb allows {max_kv_bytes / 1e9:.3g}: allow more"
            else:
                try:
                    result = _if_it_fits(model, wave, decoding)
                # The branches of the failed treatment are marked by now: the same wave is decoded
                # again, with each of them treated alone.
                except TreatApartError:
                    queue = [wave, *queue]
                    continue
                if result is not None:
                    for generation in result[0]:
                        generations.append(replace(generation, halvings=halvings))
                    golds |= result[1]
                    continue
                reason = f"out of memory with {needed} of keys and values: it was alone"
            # The waves behind it are as large and would find no memory either: all are made anew.
            if len(rows := all_rows([wave])) > 1:
                halvings += 1
                queue = in_waves([*rows, *all_rows(queue)], size // 2, model.device)
                continue
            # A single row cannot be halved.
            branch = rows[0].of
            branch.error = f"{branch.treatment.policy.name} failed while decoding: {reason}"
            branch.layers = []
    # Found at the end: a copy of a row may have passed the right answer, and not the row itself.
    answers = []
    for answer in generations:
        gold = golds.get((id(answer.branch), answer.question))
        answers.append(replace(answer, gold=gold))
    return answers


def _sound_rows(wave: Sequence[Rows[Branch]]) -> list[Rows[Branch]]:
    """Leaves out the rows of branches that have failed since the wave was made."""
    bundles = []
    for rows in wave:
        sound = [row for row in rows if row.of.error is None]
        if sound:
            bundles.append(sound)
    return bundles


def _if_it_fits(
    model: LoadedModel, wave: Sequence[Sequence[Row[Branch]]], decoding: Decoding
) -> tuple[list[Generation], Golds] | None:
    """Answers a wave, or returns ``None`` where memory ends. Whatever the error holds is freed with
    it."""
    try:
        return answers_of_wave(model, wave, decoding)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    # Behind the block of the error, whose traceback holds the tensors of the wave.
    device_kind(model.device).empty_cache()
    return None


def check_logits(model: LoadedModel, prompt: Prompt) -> None:
    """Raises :class:`KVBenchError` if the full cache alone makes logits infinite or NaN: no press
    is to blame."""
    trace = prefill(model, prompt, plan([POLICIES[FULL]], (), prompt, seed=0))
    decode(model, trace, 1, None)
    if error := trace.branches[0].error:
        raise KVBenchError(error)


def check_length(model: LoadedModel, prompt: Prompt, steps: int) -> None:
    """Raises :class:`KVBenchError` if the context with its longest question and answer is more than
    the model takes, or crosses the length where longrope switches, or if one of its tokens has no
    embedding: some published tokenizers have more entries than their model."""
    highest = max(prompt.token_ids, default=0)
    longest_turn = 0
    for question in prompt.questions:
        highest = max(highest, *question.token_ids, 0)
        answer_length = max(steps, len(question.gold_ids))
        longest_turn = max(longest_turn, len(question.token_ids) + answer_length)
    embeddings = count_embeddings(model.network)
    if highest >= embeddings:
        raise KVBenchError(
            f"{prompt.example.id} holds the token {highest} "
            f"({model.tokenizer.convert_ids_to_tokens(highest)!r}), and {model.name} has "
            f"{embeddings:,} embeddings: use the tokenizer that belongs to the model"
        )
    longest = len(prompt.token_ids) + longest_turn
    check_places(prompt.example.id, model.name, longest, longest_sequence(model))
    switch = rotation_switch(model)
    # All that shares a pass switches with its longest sequence, and what is cached stays turned as
    # it was before.
    if switch is not None and len(prompt.token_ids) <= switch < longest:
        raise KVBenchError(
            f"{prompt.example.id} has {len(prompt.token_ids)} tokens, and {longest} with question "
            f"and answer: beyond {switch} {model.name} turns keys by other angles (longrope), and "
            f"the cache is turned by the former; use contexts that end before it with question and "
            "answer, or longer ones (run --context-tokens)"
        )
