"""From a chunk of examples to rows of the store: prefill, treat, decode, score."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel

from datasets_gen import Example, Task
from kvbench.engine.decode.answers import check_length, decode
from kvbench.engine.decode.generation import Generation
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.plan import plan, with_reference
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.question_fields import described_context, described_question
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel
from kvbench.models.snapshot import ModelChangedError
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import INSTRUCTIONS, Ask, Prompt, answer_text, build_prompts
from kvbench.store.record import Record
from kvbench.store.rows import Rows
from kvbench.store.scoring import text_scores
from kvbench.store.stored_context import StoredContext
from kvbench.store.stored_question import StoredQuestion
from kvbench.store.tables import CONTEXTS, QUESTIONS, RECORDS, TABLES, StoredTable
from kvbench.system.errors import KVBenchError
from leaderboards.metrics import METRICS, Kept, Survival
from policies import FULL


@dataclass(frozen=True)
class FinishedAnswer:
    """What is known of an answer when it is done, which the rows of a study are made from (:class:`StoredTable`)."""

    model: LoadedModel
    trace: Trace
    branch: Branch
    generation: Generation | None  # none where the branch failed
    question: StoredQuestion
    context: StoredContext
    record: Record


def collect(model: LoadedModel, task: Task, examples: Sequence[Example], setting: Setting) -> Rows:
    """What a store holds of some examples under a setting."""
    rows = Rows()
    for example in examples:
        prompts = build_prompts(model.tokenizer, task, example, setting.mode)
        context = _context(task, example, prompts, setting.mode)
        rows.add(CONTEXTS.name, [context])
        for prompt in prompts:
            check_length(model, prompt, task.max_new_tokens)  # before the work is done
            questions = [_question(task, prompt, ask) for ask in prompt.asks]
            rows.add(QUESTIONS.name, questions)
            trace, generations = _answers(model, task, prompt, setting)
            answers = list(_finished(model, trace, generations, questions, context))
            rows.add(RECORDS.name, [answer.record for answer in answers])
            for name in setting.tables:
                rows.add(name, _rows_of_study(TABLES[name], answers))
    return rows


def _rows_of_study(table: StoredTable, answers: Sequence[FinishedAnswer]) -> Iterator[BaseModel]:
    for answer in answers:
        yield from table.fill(answer) if table.fill else ()


def _context(task: Task, example: Example, prompts: Sequence[Prompt], mode: Mode) -> StoredContext:
    """What is said once of a context: its tokens end at the same places whatever question stands behind it."""
    ends = {prompt.token_ends for prompt in prompts}
    if len(ends) > 1:
        raise KVBenchError(f"the tokenizer splits {example.id} otherwise before another question: use --mode agnostic")
    token_ends = np.array(ends.pop(), dtype="<u4").tobytes()
    return StoredContext.model_validate(described_context(task, example) | {"mode": mode, "token_ends": token_ends})


def _question(task: Task, prompt: Prompt, ask: Ask) -> StoredQuestion:
    counts = {
        "context_tokens": len(prompt.token_ids),
        "answer_tokens": len(ask.answer_tokens),
        "evidence_tokens": len(ask.evidence_tokens),
    }
    return StoredQuestion.model_validate(described_question(task, prompt.example, ask.question) | counts)


def _answers(model: LoadedModel, task: Task, prompt: Prompt, setting: Setting) -> tuple[Trace, list[Generation]]:
    """Treats and decodes a prompt; raises :class:`ModelChangedError` if a press wrote to the model meanwhile."""
    scorings = plan(setting.policies, setting.points, prompt, setting.seed, setting.time_limit)
    trace = prefill(model, prompt, with_reference(scorings, prompt))
    generations = decode(model, trace, task.max_new_tokens, setting.max_kv_bytes, gold=True)
    if change := model.snapshot.first_change():
        raise ModelChangedError([policy.name for policy in setting.policies if policy.origin], change)
    return trace, generations


def _finished(
    model: LoadedModel,
    trace: Trace,
    generations: Sequence[Generation],
    questions: Sequence[StoredQuestion],
    context: StoredContext,
) -> Iterator[FinishedAnswer]:
    answers = {(id(generation.branch), generation.question): generation for generation in generations}
    full_nll = {
        generation.question: generation.gold_nll
        for generation in generations
        if generation.branch.treatment.policy.name == FULL
    }
    for branch in trace.branches:
        if branch.treatment.reference:
            continue
        masks = [cache.keep for cache in branch.layers if cache.keep is not None]
        survival = _survival(masks if len(masks) == len(branch.layers) else [])
        for ask in branch.treatment.asks:
            found = answers.get((id(branch), ask))
            if found and found.remains:
                survival = _survival(found.remains.keep or ())
            values = _values(model, trace, branch, survival, ask, found)
            values |= _likelihood(found, full_nll.get(ask))
            values |= {"task": context.task} | text_scores(values["output_text"], questions[ask], context)
            record = Record.model_validate(values)
            yield FinishedAnswer(model, trace, branch, found, questions[ask], context, record)


def _survival(masks: Sequence[torch.Tensor]) -> Survival | None:
    """``None`` without masks: the branch failed, or rewrites what it keeps."""
    return Survival.of(np.stack([mask.cpu().numpy() for mask in masks])) if masks else None


def _values(
    model: LoadedModel,
    trace: Trace,
    branch: Branch,
    survival: Survival | None,
    ask: int,
    generation: Generation | None,
) -> dict[str, Any]:
    """The columns of a record, but for what its text scores."""
    asked, treatment = trace.prompt.asks[ask], branch.treatment
    values: dict[str, Any] = dict.fromkeys(Record.model_fields)
    values |= {
        "question_id": asked.question.id,
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
        values |= _routing(trace.prompt, asked, survival)
    if generation is not None:
        values |= _outcome(model, trace, branch, generation)
    return values


def _routing(prompt: Prompt, asked: Ask, survival: Survival) -> dict[str, object]:
    """The metrics that follow from what is kept."""
    defence, directives = (prompt.tokens_of(kind) for kind in INSTRUCTIONS)
    kept = Kept(survival, prompt.context_tokens, asked.answer_tokens, asked.evidence_tokens, defence, directives)
    return {metric.name: metric.of_kept(kept) for metric in METRICS.values() if metric.of_kept is not None}


def _likelihood(generation: Generation | None, full_nll: float | None) -> dict[str, object]:
    """How likely the right answer is, and how much less than with the full cache."""
    nll = generation.gold_nll if generation else None
    return {"gold_nll": nll, "delta_nll": None if nll is None or full_nll is None else nll - full_nll}


def _outcome(model: LoadedModel, trace: Trace, branch: Branch, generation: Generation) -> dict[str, object]:
    """Output and costs of a sound branch."""
    heads, length, size = trace.keys[0].shape
    ids = list(generation.token_ids)
    row_bytes = 2 * size * trace.keys[0].element_size()
    if remains := generation.remains:
        read, held, tokens = float(remains.rows), remains.rows, remains.tokens
    else:
        read = sum(cache.read_rows * cache.filled for cache in branch.layers)
        held, tokens = sum(cache.held_rows for cache in branch.layers), length
    return {
        "output_text": answer_text(model.tokenizer, ids),
        "output_token_ids": ids,
        "ended": generation.ended,
        "cache_digest": remains.digest if remains else branch.digest,
        "realised_ratio": 1 - read / (len(trace.keys) * heads * tokens),
        "kept_tokens": read / (len(trace.keys) * heads),
        "kv_bytes": held * row_bytes,
        "compression_seconds": branch.seconds,
        "decode_seconds": generation.seconds,
        "wave_halvings": generation.halvings,
    }
