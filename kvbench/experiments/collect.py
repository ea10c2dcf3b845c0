"""Turns examples into rows of the store: prefill, treat, decode, score."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from datasets_gen import Example, Question, Task
from kvbench.engine.decode.answers import check_length, decode, decode_all
from kvbench.engine.decode.loop import Generation, Observer
from kvbench.engine.decode.waves import bytes_per_token
from kvbench.engine.treat.branch import Branch, Trace, lazy_donor
from kvbench.engine.treat.keep import LayerCache
from kvbench.engine.treat.plan import plan, with_reference
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.grid import Setting
from kvbench.models.load import LoadedModel
from kvbench.models.snapshot import ModelChangedError
from kvbench.prompts.mode import Mode
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

# Prompts of few branches are decoded together: a pass over 50 tokens takes twice as long as one
# over 13.
BRANCHES_TOGETHER = 64
# Of the bound on keys and values, the part that full caches may take meanwhile, is one in so many.
HELD_SHARE = 4


@dataclass(frozen=True)
class FinishedAnswer:
    """Holds what is known of a finished answer; the rows of a study are made from it
    (:class:`StoredTable`)."""

    model: LoadedModel
    task: Task
    setting: Setting
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
            self.model, trace, self.task.max_new_tokens, self.setting.max_kv_bytes, gold=True
        )

    def scores_of(self, generation: Generation) -> dict[str, object]:
        """Returns the scores of another generation for the same question, of its text and of its
        likelihood."""
        return self.text_scores_of(generation.token_ids) | {"gold_nll": generation.gold_nll}

    def text_scores_of(self, token_ids: Sequence[int]) -> dict[str, object]:
        return text_scores(self.text_of(token_ids), self.question, self.context)

    def text_of(self, token_ids: Sequence[int]) -> str:
        return answer_text(self.model.tokenizer, list(token_ids))


@dataclass(frozen=True)
class _Asked:
    """A prompt with what the store says of it, and how it is answered."""

    model: LoadedModel
    task: Task
    setting: Setting
    prompt: Prompt
    context: StoredContext
    questions: Sequence[StoredQuestion]
    donor: Callable[[], Trace] | None


def collect(
    model: LoadedModel,
    task: Task,
    examples: Sequence[Example],
    setting: Setting,
    donor_of: Callable[[Example], Example] | None = None,
) -> RowsByTable:
    """Collects the rows of some examples. ``donor_of`` makes another example, whose rows a policy
    may take."""
    rows = RowsByTable()
    asked: list[_Asked] = []
    for example in examples:
        prompts = build_prompts(model.tokenizer, task, example, setting.mode)
        ends = {prompt.token_ends for prompt in prompts}
        if (
            len(ends) > 1
        ):  # a context is described once, and has to be the same whatever question stands behind it
            raise KVBenchError(
                f"the tokenizer splits {example.id} before another question: use --mode agnostic"
            )
        places = {"mode": setting.mode, "token_ends": np.array(ends.pop(), dtype="<u4").tobytes()}
        context = StoredContext.model_validate(described_context(task, example) | places)
        rows.add(CONTEXTS.name, [context])
        donor = _donor(model, task, example, setting.mode, donor_of)
        for prompt in prompts:
            check_length(model, prompt, task.max_new_tokens)  # before the work is done
            questions = [_question(task, prompt, question) for question in prompt.questions]
            rows.add(QUESTIONS.name, questions)
            asked.append(_Asked(model, task, setting, prompt, context, questions, donor))
    for together in _batches(asked):
        for answers in _answer(together):
            rows.add(RECORDS.name, [answer.record for answer in answers])
            for name in setting.tables:
                if fill := TABLES[name].fill:
                    rows.add(name, fill(answers))
    return rows


def _batches(asked: Sequence[_Asked]) -> Iterator[Sequence[_Asked]]:
    """Divides prompts into those that are decoded together. What watches the decoding watches one
    prompt."""
    if not asked:
        return
    model, setting = asked[0].model, asked[0].setting
    branches = sum(len(policy.points_among(setting.points)) for policy in setting.policies)
    longest = max(len(item.prompt.token_ids) for item in asked) * bytes_per_token(model)
    count = min(
        BRANCHES_TOGETHER // max(1, branches),
        setting.kv_bound(model.device) // (HELD_SHARE * longest),
    )
    if any(TABLES[name].observe for name in setting.tables):
        count = 1
    count = max(1, count)
    yield from (asked[start : start + count] for start in range(0, len(asked), count))


def _donor(
    model: LoadedModel,
    task: Task,
    example: Example,
    mode: Mode,
    donor_of: Callable[[Example], Example] | None,
) -> Callable[[], Trace] | None:
    if donor_of is None:
        return None
    return lazy_donor(
        model, lambda: build_prompts(model.tokenizer, task, donor_of(example), mode)[0]
    )


def _question(task: Task, prompt: Prompt, question: TokenizedQuestion) -> StoredQuestion:
    counts = {name: len(getattr(question, name)) for name in ("answer_tokens", "evidence_tokens")}
    counts["context_tokens"] = len(prompt.token_ids)
    return StoredQuestion.model_validate(
        described_question(task, prompt.example, question.question) | counts
    )


def _observers(first: _Asked) -> dict[str, Observer]:
    """Returns by table the observer that fills it; tables that are observed alike share one.

    Where something watches, there is one prompt.
    """
    by_function: dict[Any, Observer | None] = {}
    observers = {}
    for name in first.setting.tables:
        observe = TABLES[name].observe
        if not observe:
            continue
        if observe not in by_function:
            by_function[observe] = observe(first.model, first.prompt)
        observer = by_function[observe]
        if observer is not None:
            observers[name] = observer
    return observers


def _answer(together: Sequence[_Asked]) -> Iterator[list[FinishedAnswer]]:
    """Treats and decodes prompts together and yields the answers of each; raises
    :class:`ModelChangedError` if a press wrote to the model meanwhile."""
    model, task, setting = together[0].model, together[0].task, together[0].setting
    observers = _observers(together[0])
    traces = []
    for asked in together:
        scorings = plan(
            setting.policies,
            setting.points,
            asked.prompt,
            setting.seed,
            setting.time_limit,
            asked.donor,
        )
        traces.append(prefill(model, asked.prompt, with_reference(scorings, asked.prompt)))
    watching = list(dict.fromkeys(observers.values()))
    of_traces = decode_all(
        model, traces, task.max_new_tokens, setting.max_kv_bytes, observers=watching, gold=True
    )
    if change := model.snapshot.first_change():
        raise ModelChangedError(
            [policy.name for policy in setting.policies if policy.origin], change
        )
    for asked, trace, generations in zip(together, traces, of_traces, strict=True):
        yield list(_finished(asked, trace, generations, observers))


def _finished(
    asked: _Asked,
    trace: Trace,
    generations: Sequence[Generation],
    observers: Mapping[str, Observer],
) -> Iterator[FinishedAnswer]:
    answers = {
        (id(generation.branch), generation.question): generation for generation in generations
    }
    of_full = {}
    for finished in generations:
        if finished.branch.treatment.policy.name == FULL:
            of_full[finished.question] = finished
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
            outcome = _outcome(asked.model, trace, branch, generation) if generation else {}
            values = _values(trace, branch, number, survival, outcome)
            full, question = of_full.get(number), asked.questions[number]
            values |= _against_full(
                generation, full, bool(question.golds or question.directives or question.protected)
            )
            values |= {"task": asked.task.name} | text_scores(
                values["output_text"], question, asked.context
            )
            known = (
                asked.model,
                asked.task,
                asked.setting,
                trace,
                branch,
                number,
                generation,
                full,
                question,
            )
            yield FinishedAnswer(*known, asked.context, Record.model_validate(values), observers)


def _compressed(trace: Trace, branch: Branch) -> list[LayerCache]:
    """Returns what is left of the layers that presses compress; nothing of a branch that failed."""
    return [branch.layers[layer] for layer in trace.compressed] if branch.layers else []


def _survival(masks: Sequence[torch.Tensor]) -> Survival | None:
    """Returns ``None`` without masks: the branch failed, or rewrites what it keeps."""
    return Survival.of(np.stack([mask.cpu().numpy() for mask in masks])) if masks else None


def _values(
    trace: Trace, branch: Branch, number: int, survival: Survival | None, outcome: dict[str, object]
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
        prompt = trace.prompt
        protected = (prompt.instruction_tokens(kind) for kind in INSTRUCTIONS)
        kept = Kept(
            survival,
            prompt.context_tokens,
            question.answer_tokens,
            question.evidence_tokens,
            *protected,
        )
        values |= {
            metric.name: metric.of_kept(kept)
            for metric in METRICS.values()
            if metric.of_kept is not None
        }
    return values | outcome


def _against_full(
    generation: Generation | None, full: Generation | None, judged: bool
) -> dict[str, object]:
    """Tells how likely the right answer is, how much less than with the full cache, and what became
    of its answer. ``judged``: whether there is an answer to judge, which there is none behind
    running text."""
    if generation is None:
        return {}
    nll, full_nll = generation.gold_nll, full.gold_nll if full else None
    delta = None if nll is None or full_nll is None else nll - full_nll
    values: dict[str, object] = {"gold_nll": nll, "delta_nll": delta}
    if not judged:
        return values | {
            "next_token_accuracy": generation.gold.accuracy if generation.gold else None
        }
    if full is None:
        return values
    return values | outcome_scores(
        Outcome(generation.token_ids == full.token_ids, generation.ended, generation.finite)
    )


def _stored_bytes(trace: Trace, branch: Branch) -> int:
    """Counts the bytes that an allocator holds for a branch after its prefill, windows that are
    left whole included."""
    heads, _, size = trace.keys[0].shape
    treatment, number_bytes = branch.treatment, trace.keys[0].element_size()
    stored = treatment.policy.stored_bytes
    if stored is None:
        return 2 * size * number_bytes * sum(cache.held_rows for cache in branch.layers)
    # All heads of a layer hold as many.
    held = [cache.held_rows // heads for cache in branch.layers]
    return sum(
        heads * stored(treatment.situation, HeadRows(rows, size, number_bytes)) for rows in held
    )


def _outcome(
    model: LoadedModel, trace: Trace, branch: Branch, generation: Generation
) -> dict[str, object]:
    """Returns output and costs of a sound branch."""
    heads, length, size = trace.keys[0].shape
    ids, slots = list(generation.token_ids), heads * len(trace.compressed)
    if final := generation.final_cache:
        held = final.rows + heads * sum(
            min(final.tokens, window - 1) for window in trace.windows if window is not None
        )
        read, tokens, kv_bytes = (
            float(final.rows),
            final.tokens,
            2 * size * held * trace.keys[0].element_size(),
        )
        digest: str | None = final.digest
    else:
        read = sum(cache.read_rows * cache.filled for cache in _compressed(trace, branch))
        tokens, kv_bytes = length, _stored_bytes(trace, branch)
        policy = branch.treatment.policy
        is_changed = policy.corrupts or policy.prefill_treatment or policy.step_treatment
        digest = None if is_changed else branch.digest
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


def described_context(task: Task, example: Example) -> dict[str, object]:
    """Returns by column what follows from the example alone: whoever generates it again can
    compare."""
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
    same = ("every_gold", "answerable", "direction", "answer_type", "hops", "protected")
    answer, evidence = (
        [
            place
            for span in question.spans
            if (span.kind == "answer") is wanted
            for place in (span.start, span.end)
        ]
        for wanted in (True, False)
    )
    return {name: getattr(question, name) for name in same} | {
        "task": task.name,
        "question_id": question.id,
        "example_index": example.index,
        "question": question.text,
        "golds": list(question.golds),
        "answer_prefix": question.answer_prefix if task.begins_answers else "",
        "target": question.perfect_output,
        "question_type": question.type,
        "answer_spans": answer,
        "evidence_spans": evidence,
        "other_values": list(question.others),
        "directives": directives,
        "directive_families": families(directives),
    }
