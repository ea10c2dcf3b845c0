"""Turns examples into rows of the store: prefill, treat, decode, score."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from datasets_gen import Example, Task
from kvbench.engine.decode.answers import check_length, decode, decode_all
from kvbench.engine.decode.loop import Generation, Observer
from kvbench.engine.decode.waves import bytes_per_token
from kvbench.engine.treat.branch import Branch, Trace, lazy_donor
from kvbench.engine.treat.keep import LayerCache
from kvbench.engine.treat.plan import plan, with_reference
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.descriptions import described_context, described_question
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.models.snapshot import ModelChangedError
from kvbench.prompts.prompt import (
    INSTRUCTIONS,
    Prompt,
    TokenizedQuestion,
    answer_text,
    build_prompts,
)
from kvbench.store.scoring import outcome_scores, text_scores
from kvbench.store.tables import (
    CONTEXTS,
    QUESTIONS,
    RECORDS,
    Record,
    RowsByTable,
    StoredContext,
    StoredQuestion,
    find_table,
)
from kvbench.system.errors import KVBenchError
from kvbench.system.process import FreedMemory
from leaderboards.metrics import METRICS, Kept, Outcome, Survival
from policies import FULL, HeadRows
from policies.declaration.policy import exact_bytes

# Prompts of few branches are decoded together: a pass over 50 tokens takes twice as long as one
# over 13.
BRANCHES_TOGETHER = 64
# Of the bound on keys and values, the part that full caches may take meanwhile, is one in so many.
HELD_SHARE = 4
_FREED = FreedMemory()  # of this process


@dataclass(frozen=True)
class FinishedAnswer:
    """Holds what is known of a finished answer; the rows of a study are made from it
    (:class:`StoredTable`)."""

    model: LoadedModel
    task: Task
    grid: Grid
    trace: Trace
    branch: Branch
    number: int  # of its question in the prompt
    generation: Generation | None  # none where the branch failed
    # Of the full cache for the same question, whether or not it is part of the run.
    full: Generation | None
    question: StoredQuestion
    context: StoredContext
    record: Record
    # By table, what watched the decoding; none of contexts outside a sample.
    observers: Mapping[str, Observer]
    # What several tables of a study need, computed once.
    shared: dict[str, object] = field(default_factory=dict)

    def decode(self, branches: Sequence[Branch]) -> list[Generation]:
        """Answers other branches of the trace in the same way."""
        trace = replace(self.trace, branches=list(branches))
        return decode(
            self.model, trace, self.task.max_new_tokens, self.grid.max_kv_bytes, gold=True
        )

    def score(self, generation: Generation) -> dict[str, object]:
        """Returns the scores of another generation for the same question, of its text and of its
        likelihood."""
        return self.score_tokens(generation.token_ids) | {"gold_nll": generation.gold_nll}

    def score_tokens(self, token_ids: Sequence[int]) -> dict[str, object]:
        """Returns the scores of the text of other tokens for the same question."""
        return text_scores(self.text_from(token_ids), self.question, self.context)

    def text_from(self, token_ids: Sequence[int]) -> str:
        """Writes the tokens of an answer as text."""
        return answer_text(self.model.tokenizer, list(token_ids))


@dataclass(frozen=True)
class _PromptWork:
    """A prompt with what the store says of it, and how it is answered."""

    model: LoadedModel
    task: Task
    grid: Grid
    prompt: Prompt
    context: StoredContext
    questions: Sequence[StoredQuestion]
    donor: Callable[[], Trace]


def collect(
    model: LoadedModel,
    task: Task,
    examples: Sequence[Example],
    grid: Grid,
) -> RowsByTable:
    """Collects the rows of some examples. Raises :class:`KVBenchError` for a context that cannot be
    stored once for all of its questions."""
    rows = RowsByTable()
    work: list[_PromptWork] = []
    for example in examples:
        prompts = build_prompts(model.tokenizer, task, example, grid.mode)
        ends = {prompt.token_ends for prompt in prompts}
        # A context is described once, and has to be the same whatever question stands behind it.
        if len(ends) > 1:
            raise KVBenchError(
                f"the tokenizer splits {example.id} before another question: use --mode agnostic"
            )
        described = described_context(task, example)
        described["mode"] = grid.mode
        described["token_ends"] = np.array(ends.pop(), dtype="<u4").tobytes()
        context = StoredContext.model_validate(described)
        rows.add(CONTEXTS.name, [context])
        # One for all prompts of the example, which is read when the first of them asks.
        donor = _donor(model, task, example, grid)
        for prompt in prompts:
            check_length(model, prompt, task.max_new_tokens)  # before the work is done
            questions: list[StoredQuestion] = []
            for question in prompt.questions:
                questions.append(_question(task, prompt, question))
            rows.add(QUESTIONS.name, questions)
            work.append(_PromptWork(model, task, grid, prompt, context, questions, donor))
    for together in _batches(work):
        for answers in _answer(together):
            rows.add(RECORDS.name, [answer.record for answer in answers])
            for name in grid.tables:
                if fill := find_table(name).fill:
                    rows.add(name, fill(answers))
        # Not only when all examples are done: five of them on SmolLM2 with 12 formats grew from 1.5
        # to 12.5 GB.
        _FREED.give_back_growth()
    return rows


def _batches(work: Sequence[_PromptWork]) -> Iterator[Sequence[_PromptWork]]:
    """Divides prompts into those that are decoded together. What watches the decoding watches one
    prompt."""
    if not work:
        return
    model, grid = work[0].model, work[0].grid
    branches = sum(len(policy.points_among(grid.points)) for policy in grid.policies)
    longest = max(len(item.prompt.token_ids) for item in work)
    longest_bytes = longest * bytes_per_token(model)
    by_branches = BRANCHES_TOGETHER // max(1, branches)
    by_memory = grid.kv_bound(model.device) // (HELD_SHARE * longest_bytes)
    count = max(1, min(by_branches, by_memory))
    if any(find_table(name).observe for name in grid.tables):
        count = 1
    for start in range(0, len(work), count):
        yield work[start : start + count]


def _donor(model: LoadedModel, task: Task, example: Example, grid: Grid) -> Callable[[], Trace]:
    """Returns what prefills the example whose rows a policy may take, when one asks for it."""

    def donor_prompt() -> Prompt:
        donor = grid.donor(task, example)
        return build_prompts(model.tokenizer, task, donor, grid.mode)[0]

    return lazy_donor(model, donor_prompt)


def _question(task: Task, prompt: Prompt, question: TokenizedQuestion) -> StoredQuestion:
    described = described_question(task, prompt.example, question.question)
    described["answer_tokens"] = len(question.answer_tokens)
    described["evidence_tokens"] = len(question.evidence_tokens)
    described["context_tokens"] = len(prompt.token_ids)
    return StoredQuestion.model_validate(described)


def _observers(first: _PromptWork) -> dict[str, Observer]:
    """Returns by table the observer that fills it; tables that are observed alike share one.

    Where something watches, there is one prompt.
    """
    by_function: dict[Any, Observer | None] = {}
    observers = {}
    for name in first.grid.tables:
        observe = find_table(name).observe
        if not observe:
            continue
        if observe not in by_function:
            by_function[observe] = observe(first.model, first.prompt)
        observer = by_function[observe]
        if observer is not None:
            observers[name] = observer
    return observers


def _answer(together: Sequence[_PromptWork]) -> Iterator[list[FinishedAnswer]]:
    """Treats and decodes prompts together and yields the answers of each; raises
    :class:`ModelChangedError` if a press wrote to the model meanwhile."""
    first = together[0]
    model, task, grid = first.model, first.task, first.grid
    observers = _observers(first)
    traces: list[Trace] = []
    for work in together:
        scorings = plan(
            grid.policies,
            grid.points,
            work.prompt,
            grid.seed,
            grid.time_limit,
            work.donor,
        )
        traces.append(prefill(model, work.prompt, with_reference(scorings, work.prompt)))
    watching = list(dict.fromkeys(observers.values()))
    of_traces = decode_all(
        model, traces, task.max_new_tokens, grid.max_kv_bytes, observers=watching, gold=True
    )
    # By content, once for a batch: a write through .data escapes the counters that are asked at
    # every layer.
    if change := model.snapshot.first_change():
        plug_ins = [policy.name for policy in grid.policies if policy.code.origin]
        raise ModelChangedError(plug_ins, change)
    for work, trace, generations in zip(together, traces, of_traces, strict=True):
        yield list(_finished(work, trace, generations, observers))


def _finished(
    work: _PromptWork,
    trace: Trace,
    generations: Sequence[Generation],
    observers: Mapping[str, Observer],
) -> Iterator[FinishedAnswer]:
    """Yields the answers of all branches of a prompt to its questions, branches that failed
    included."""
    answers: dict[tuple[int, int], Generation] = {}  # by branch and question
    answers_of_full: dict[int, Generation] = {}  # by question
    for finished in generations:
        answers[id(finished.branch), finished.question] = finished
        if finished.branch.treatment.policy.name == FULL:
            answers_of_full[finished.question] = finished
    for branch in trace.branches:
        # It is there for the likelihoods that others are set against, and is no result.
        if branch.treatment.reference:
            continue
        layers = _compressed(trace, branch)
        masks = [cache.keep for cache in layers if cache.keep is not None]
        survival = None
        # A single layer without a mask leaves none: survival is counted over all layers.
        if len(masks) == len(layers):
            survival = _survival(masks)
        for number in branch.treatment.questions:
            generation = answers.get((id(branch), number))
            full = answers_of_full.get(number)
            question = work.questions[number]
            # A press that acts while answers are written leaves another cache behind each of them.
            if generation and generation.final_cache:
                survival = _survival(generation.final_cache.keep or ())
            values = _values(trace, branch, number, survival)
            values["task"] = work.task.name
            if generation:
                # Running text has none of these, and behind it nothing can be right.
                is_judged = bool(question.golds or question.directives or question.protected)
                values |= _outcome(work.model, trace, branch, generation)
                values |= _against_full(generation, full, is_judged)
            values |= text_scores(values["output_text"], question, work.context)
            yield FinishedAnswer(
                work.model,
                work.task,
                work.grid,
                trace,
                branch,
                number,
                generation,
                full,
                question,
                work.context,
                Record.model_validate(values),
                observers,
            )


def _compressed(trace: Trace, branch: Branch) -> list[LayerCache]:
    """Returns what is left of the layers that presses compress; nothing of a branch that failed."""
    if not branch.layers:
        return []
    return [branch.layers[layer] for layer in trace.compressed]


def _survival(masks: Sequence[torch.Tensor]) -> Survival | None:
    """Returns what survives of all layers, by their masks, each of shape (heads, tokens); ``None``
    without masks: the branch failed, or rewrites what it keeps."""
    if not masks:
        return None
    return Survival.of(np.stack([mask.cpu().numpy() for mask in masks]))


def _values(trace: Trace, branch: Branch, number: int, survival: Survival | None) -> dict[str, Any]:
    """Returns the columns of a record without those of its answer, which stay empty."""
    question, treatment = trace.prompt.questions[number], branch.treatment
    # A record has no defaults: every column is named here, also those that stay empty.
    values: dict[str, Any] = dict.fromkeys(Record.model_fields)
    values |= {
        "question_id": question.question.id,
        "policy": treatment.policy.name,
        "level_kind": treatment.level.kind,
        "level": treatment.level.value,
        "repeat": treatment.repeat,
        "ratio": treatment.level.share(trace.length),
        "status": "failed" if branch.error else "ok",
        "reason": branch.error,
        "press_arguments": json.dumps(branch.arguments, sort_keys=True),
        "prefill_seconds": trace.seconds,
    }
    if survival is None:
        return values
    prompt = trace.prompt
    kept = Kept(
        survival,
        prompt.context_tokens,
        question.answer_tokens,
        question.evidence_tokens,
        *(prompt.instruction_tokens(kind) for kind in INSTRUCTIONS),
    )
    for metric in METRICS.values():
        if metric.of_kept is not None:
            values[metric.name] = metric.of_kept(kept)
    return values


def _against_full(
    generation: Generation, full: Generation | None, is_judged: bool
) -> dict[str, object]:
    """Tells how likely the right answer is, how much less than with the full cache, and what became
    of its answer. ``is_judged``: whether there is an answer to judge, which there is none behind
    running text."""
    values: dict[str, object] = {"gold_nll": generation.gold_nll, "delta_nll": None}
    if full and full.gold_nll is not None and generation.gold_nll is not None:
        values["delta_nll"] = generation.gold_nll - full.gold_nll
    if is_judged:
        if full is not None:
            is_same = generation.token_ids == full.token_ids
            values |= outcome_scores(Outcome(is_same, generation.ended, generation.finite))
    elif generation.gold:
        values["next_token_accuracy"] = generation.gold.accuracy
    return values


def _stored_bytes(trace: Trace, branch: Branch) -> int:
    """Counts the bytes that an allocator holds for a branch after its prefill, windows that are
    left whole included."""
    heads, _, size = trace.keys[0].shape
    number_bytes = trace.keys[0].element_size()
    policy, situation = branch.treatment.policy, branch.treatment.situation
    stored = policy.treatment.stored_bytes
    if stored is None:
        rows = sum(cache.held_rows for cache in branch.layers)
        return 2 * rows * size * exact_bytes(number_bytes)
    total = 0
    for layer, cache in enumerate(branch.layers):
        # All heads of a layer hold as many.
        rows = cache.held_rows // heads
        rows_of_head = HeadRows(rows, size, number_bytes, layer, len(branch.layers))
        total += heads * stored(situation, rows_of_head)
    return total


def _outcome(
    model: LoadedModel, trace: Trace, branch: Branch, generation: Generation
) -> dict[str, object]:
    """Returns output and costs of a sound branch."""
    heads, length, size = trace.keys[0].shape
    # Sliding layers that presses leave whole count neither as read nor as evicted.
    slots = heads * len(trace.compressed)
    digest: str | None = None
    if final := generation.final_cache:
        held = final.rows
        # They take memory all the same: what is within the window, question and answer included.
        for window in trace.windows:
            if window is not None:
                held += heads * min(final.tokens, window - 1)
        read = float(final.rows)
        tokens = final.tokens
        kv_bytes = 2 * size * held * exact_bytes(trace.keys[0].element_size())
        digest = final.digest
    else:
        read = 0.0
        for cache in _compressed(trace, branch):
            # Of rows with blank channels only the rest is read.
            read += cache.read_rows * cache.filled
        tokens = length
        kv_bytes = _stored_bytes(trace, branch)
        policy = branch.treatment.policy
        if not policy.treatment.changes_rows:
            digest = branch.digest
    ids = list(generation.token_ids)
    return {
        "output_text": answer_text(model.tokenizer, ids),
        "output_token_ids": ids,
        "ended": generation.ended,
        "cache_digest": digest,
        "realised_ratio": 1 - read / (slots * tokens),
        "kept_tokens": read / slots,
        "kv_bytes": kv_bytes,
        "compression_seconds": branch.seconds,
        "decode_seconds": generation.seconds,
        "wave_halvings": generation.halvings,
    }
