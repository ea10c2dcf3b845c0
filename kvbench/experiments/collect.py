"""Turns examples into rows of the store: prefill, treat, decode, score."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from datasets_gen import Example, Question, Span, Task
from kvbench.engine.decode.answers import check_length, decode
from kvbench.engine.decode.loop import Generation, Observer
from kvbench.engine.treat.branch import Branch, Trace, lazy_donor
from kvbench.engine.treat.keep import LayerCache
from kvbench.engine.treat.plan import plan, with_reference
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.grid import Setting
from kvbench.models.load import LoadedModel
from kvbench.models.snapshot import ModelChangedError
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import INSTRUCTIONS, Prompt, TokenizedQuestion, answer_text, build_prompts
from kvbench.store.scoring import outcome_scores, text_scores
from kvbench.store.tables import (
    CONTEXTS,
    QUESTIONS,
    RECORDS,
    TABLES,
    Record,
    RowsByTable,
    StoredContext,
    StoredQuestion,
)
from kvbench.system.errors import KVBenchError
from leaderboards.metrics import METRICS, Kept, Outcome, Survival
from leaderboards.metrics.judges.obedience import families
from policies import FULL, HeadRows


@dataclass(frozen=True)
class FinishedAnswer:
    """Holds what is known of a finished answer; the rows of a study are made from it (:class:`StoredTable`)."""

    model: LoadedModel
    setting: Setting
    trace: Trace
    branch: Branch
    generation: Generation | None  # none where the branch failed
    full: Generation | None  # of the full cache for the same question, whether or not it is part of the run
    question: StoredQuestion
    context: StoredContext
    record: Record
    observers: Mapping[str, Observer]  # by table, what watched the decoding; none of contexts outside a sample
    decode: Callable[[Sequence[Branch]], list[Generation]]  # answers other branches of the trace in the same way
    max_new_tokens: int  # of an answer

    def scores_of(self, generation: Generation) -> dict[str, object]:
        """Returns the scores of another generation for the same question, of its text and of its likelihood."""
        return self.text_scores_of(generation.token_ids) | {"gold_nll": generation.gold_nll}

    def text_scores_of(self, token_ids: Sequence[int]) -> dict[str, object]:
        """Returns the scores of other tokens as the text of an answer to the same question."""
        return text_scores(self.text_of(token_ids), self.question, self.context)

    def text_of(self, token_ids: Sequence[int]) -> str:
        return answer_text(self.model.tokenizer, list(token_ids))


def collect(
    model: LoadedModel,
    task: Task,
    examples: Sequence[Example],
    setting: Setting,
    donor_of: Callable[[Example], Example] | None = None,
) -> RowsByTable:
    """Collects the rows that a store holds of some examples under a setting. ``donor_of`` makes another example of the
    task, which is read if a policy takes rows of it."""
    rows = RowsByTable()
    for example in examples:
        prompts = build_prompts(model.tokenizer, task, example, setting.mode)
        context = _context(task, example, prompts, setting.mode)
        rows.add(CONTEXTS.name, [context])
        donor = _donor(model, task, example, setting.mode, donor_of)
        for prompt in prompts:
            check_length(model, prompt, task.max_new_tokens)  # before the work is done
            questions = [_question(task, prompt, question) for question in prompt.questions]
            rows.add(QUESTIONS.name, questions)
            observers = _observers(model, prompt, setting.tables)
            trace, generations = _answers(model, task, prompt, setting, list(dict.fromkeys(observers.values())), donor)
            again = partial(_decode_again, model, trace, task.max_new_tokens, setting.max_kv_bytes)
            finished = _finished(model, setting, trace, generations, questions, context, observers, again, task)
            answers = list(finished)
            rows.add(RECORDS.name, [answer.record for answer in answers])
            for name in setting.tables:
                table = TABLES[name]
                for answer in answers:
                    rows.add(name, table.fill(answer) if table.fill else ())
                rows.add(name, table.fill_together(answers) if table.fill_together else ())
    return rows


def _observers(model: LoadedModel, prompt: Prompt, tables: Sequence[str]) -> dict[str, Observer]:
    by_table = {name: observe for name in tables if (observe := TABLES[name].observe)}
    made = {observe: observe(model, prompt) for observe in dict.fromkeys(by_table.values())}
    return {name: observer for name, observe in by_table.items() if (observer := made[observe]) is not None}


def _donor(
    model: LoadedModel, task: Task, example: Example, mode: Mode, donor_of: Callable[[Example], Example] | None
) -> Callable[[], Trace] | None:
    if donor_of is None:
        return None
    return lazy_donor(model, lambda: build_prompts(model.tokenizer, task, donor_of(example), mode)[0])


def _context(task: Task, example: Example, prompts: Sequence[Prompt], mode: Mode) -> StoredContext:
    """Describes a context once: its tokens end at the same places whatever question stands behind it."""
    ends = {prompt.token_ends for prompt in prompts}
    if len(ends) > 1:
        raise KVBenchError(f"the tokenizer splits {example.id} otherwise before another question: use --mode agnostic")
    token_ends = np.array(ends.pop(), dtype="<u4").tobytes()
    return StoredContext.model_validate(described_context(task, example) | {"mode": mode, "token_ends": token_ends})


def _question(task: Task, prompt: Prompt, question: TokenizedQuestion) -> StoredQuestion:
    counts = {
        "context_tokens": len(prompt.token_ids),
        "answer_tokens": len(question.answer_tokens),
        "evidence_tokens": len(question.evidence_tokens),
    }
    return StoredQuestion.model_validate(described_question(task, prompt.example, question.question) | counts)


def _answers(
    model: LoadedModel,
    task: Task,
    prompt: Prompt,
    setting: Setting,
    observers: Sequence[Observer],
    donor: Callable[[], Trace] | None,
) -> tuple[Trace, list[Generation]]:
    """Treats and decodes a prompt; raises :class:`ModelChangedError` if a press wrote to the model meanwhile."""
    scorings = plan(setting.policies, setting.points, prompt, setting.seed, setting.time_limit, donor)
    trace = prefill(model, prompt, with_reference(scorings, prompt))
    generations = decode(model, trace, task.max_new_tokens, setting.max_kv_bytes, observers=observers, gold=True)
    if change := model.snapshot.first_change():
        raise ModelChangedError([policy.name for policy in setting.policies if policy.origin], change)
    return trace, generations


def _decode_again(
    model: LoadedModel, trace: Trace, steps: int, max_kv_bytes: int | None, branches: Sequence[Branch]
) -> list[Generation]:
    return decode(model, replace(trace, branches=list(branches)), steps, max_kv_bytes, gold=True)


def _finished(
    model: LoadedModel,
    setting: Setting,
    trace: Trace,
    generations: Sequence[Generation],
    questions: Sequence[StoredQuestion],
    context: StoredContext,
    observers: Mapping[str, Observer],
    again: Callable[[Sequence[Branch]], list[Generation]],
    task: Task,
) -> Iterator[FinishedAnswer]:
    answers = {(id(generation.branch), generation.question): generation for generation in generations}
    of_full = {one.question: one for one in generations if one.branch.treatment.policy.name == FULL}
    for branch in trace.branches:
        if branch.treatment.reference:
            continue
        layers = _compressed(trace, branch)
        masks = [cache.keep for cache in layers if cache.keep is not None]
        survival = _survival(masks if len(masks) == len(layers) else [])
        for number in branch.treatment.questions:
            generation = answers.get((id(branch), number))
            if generation and generation.final_cache:
                survival = _survival(generation.final_cache.keep or ())
            values = _values(model, trace, branch, survival, number, generation)
            full, question = of_full.get(number), questions[number]
            values |= _against_full(generation, full, is_judged(question))
            values |= {"task": task.name} | text_scores(values["output_text"], question, context)
            record = Record.model_validate(values)
            made = (model, setting, trace, branch, generation, full, question, context, record, observers, again)
            yield FinishedAnswer(*made, task.max_new_tokens)


def _compressed(trace: Trace, branch: Branch) -> list[LayerCache]:
    """Returns what is left of the layers that presses compress; nothing of a branch that failed."""
    return [branch.layers[layer] for layer in trace.compressed] if branch.layers else []


def _survival(masks: Sequence[torch.Tensor]) -> Survival | None:
    """Returns ``None`` without masks: the branch failed, or rewrites what it keeps."""
    return Survival.of(np.stack([mask.cpu().numpy() for mask in masks])) if masks else None


def _values(
    model: LoadedModel,
    trace: Trace,
    branch: Branch,
    survival: Survival | None,
    number: int,
    generation: Generation | None,
) -> dict[str, Any]:
    """Returns the columns of a record without the scores of its text."""
    question, treatment = trace.prompt.questions[number], branch.treatment
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
    if survival is not None:
        values |= _routing(trace.prompt, question, survival)
    if generation is not None:
        values |= _outcome(model, trace, branch, generation)
    return values


def _routing(prompt: Prompt, question: TokenizedQuestion, survival: Survival) -> dict[str, object]:
    """Returns the metrics that follow from the keep masks."""
    defence, directives = (prompt.tokens_of(kind) for kind in INSTRUCTIONS)
    kept = Kept(survival, prompt.context_tokens, question.answer_tokens, question.evidence_tokens, defence, directives)
    return {metric.name: metric.of_kept(kept) for metric in METRICS.values() if metric.of_kept is not None}


def is_judged(question: StoredQuestion) -> bool:
    """Tells whether an answer to a question is judged: behind running text there is none."""
    return bool(question.golds or question.directives or question.protected)


def _against_full(generation: Generation | None, full: Generation | None, judged: bool) -> dict[str, object]:
    """Tells how likely the right answer is, how much less than with the full cache, and what became of its answer."""
    if generation is None:
        return {}
    nll, full_nll = generation.gold_nll, full.gold_nll if full else None
    delta = None if nll is None or full_nll is None else nll - full_nll
    values: dict[str, object] = {"gold_nll": nll, "delta_nll": delta}
    if not judged:
        return values | {"next_token_accuracy": generation.gold.accuracy if generation.gold else None}
    if full is None:
        return values
    return values | outcome_scores(Outcome(generation.token_ids == full.token_ids, generation.ended, generation.finite))


def _digest(branch: Branch, generation: Generation) -> str | None:
    if generation.final_cache:
        return generation.final_cache.digest
    policy = branch.treatment.policy
    return None if policy.corrupts or policy.prefill_treatment or policy.step_treatment else branch.digest


def _stored_bytes(trace: Trace, branch: Branch) -> int:
    """Counts the bytes that an allocator holds for a branch once the context is read, head by head, with the windows of
    sliding layers that presses leave whole."""
    heads, _, size = trace.keys[0].shape
    treatment, number_bytes = branch.treatment, trace.keys[0].element_size()
    stored = treatment.policy.stored_bytes
    if stored is None:
        return 2 * size * number_bytes * sum(cache.held_rows for cache in branch.layers)
    held = [cache.held_rows // heads for cache in branch.layers]  # all heads of a layer hold as many
    return sum(heads * stored(treatment.situation, HeadRows(rows, size, number_bytes)) for rows in held)


def _outcome(model: LoadedModel, trace: Trace, branch: Branch, generation: Generation) -> dict[str, object]:
    """Returns output and costs of a sound branch."""
    heads, length, size = trace.keys[0].shape
    ids, slots = list(generation.token_ids), heads * len(trace.compressed)
    if final := generation.final_cache:
        held = final.rows + heads * sum(min(final.tokens, window - 1) for window in trace.windows if window is not None)
        read, tokens, kv_bytes = float(final.rows), final.tokens, 2 * size * held * trace.keys[0].element_size()
    else:
        read = sum(cache.read_rows * cache.filled for cache in _compressed(trace, branch))
        tokens, kv_bytes = length, _stored_bytes(trace, branch)
    return {
        "output_text": answer_text(model.tokenizer, ids),
        "output_token_ids": ids,
        "ended": generation.ended,
        "cache_digest": _digest(branch, generation),
        "realised_ratio": 1 - read / (slots * tokens),
        "kept_tokens": read / slots,
        "kv_bytes": kv_bytes,
        "compression_seconds": branch.seconds,
        "decode_seconds": generation.seconds,
        "wave_halvings": generation.halvings,
    }


def described_context(task: Task, example: Example) -> dict[str, object]:
    """Returns by column what follows from the example alone: whoever generates it again can compare."""
    return {
        "task": task.name,
        "task_version": task.full_version,
        "example_index": example.index,
        "example_id": example.id,
        "draw_id": example.draw or example.id,
        "arm": example.arm,
        "context": example.context,
        "stated_values": list(example.stated_values),
        "abstentions": list(task.abstentions),
        "answer_marker": task.answer_marker,
        "defence": example.text_of("defence"),
    }


def described_question(task: Task, example: Example, question: Question) -> dict[str, object]:
    """Describes a question by column: what is said of it once."""
    directives = [str(directive) for directive in question.directives]
    return {
        "task": task.name,
        "question_id": question.id,
        "example_index": example.index,
        "question": question.text,
        "golds": list(question.golds),
        "every_gold": question.every_gold,
        "answer_prefix": question.answer_prefix if task.begins_answers else "",
        "target": question.perfect_output,
        "answerable": question.answerable,
        "direction": question.direction,
        "answer_type": question.answer_type,
        "question_type": question.type,
        "hops": question.hops,
        "answer_spans": _characters(span for span in question.spans if span.kind == "answer"),
        "evidence_spans": _characters(span for span in question.spans if span.kind != "answer"),
        "other_values": list(question.others),
        "directives": directives,
        "directive_families": families(directives),
        "protected": question.protected,
    }


def _characters(spans: Iterable[Span]) -> list[int]:
    return [place for span in spans for place in (span.start, span.end)]
