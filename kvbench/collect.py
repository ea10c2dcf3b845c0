"""From a chunk of examples to records: prefill, treat, decode, score."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from datasets_gen import Example, Task
from kvbench.asking import described
from kvbench.engine.branch import Branch, Trace
from kvbench.engine.decode import check_length, decode
from kvbench.engine.generation import Generation
from kvbench.engine.prefill import prefill
from kvbench.engine.treatment import Scoring, plan
from kvbench.errors import KVBenchError
from kvbench.metrics.routing import (
    Survival,
    eviction_rate,
    eviction_ratio_by_layer,
    global_eviction_ratio,
    kept_shares,
    slot_coverage,
    slot_coverage_by_layer,
)
from kvbench.models import LoadedModel
from kvbench.prompt import INSTRUCTIONS, Ask, Mode, Prompt, build_prompts, decoded
from kvbench.record import Record
from kvbench.score import text_scores
from kvbench.setting import Setting


def collect(model: LoadedModel, task: Task, examples: Sequence[Example], setting: Setting) -> dict[str, list[Record]]:
    """Records of some examples by policy."""
    records: dict[str, list[Record]] = {policy.name: [] for policy in setting.policies}
    for example in examples:
        for prompt in build_prompts(model.tokenizer, task, example, setting.mode):
            check_length(model, prompt, task.max_new_tokens)  # before the work is done
            for trace, generations in _answered(model, task, prompt, setting):
                for record in _records(model, task, trace, generations, setting.mode):
                    records[record.policy].append(record)
    return records


Answered = tuple[Trace, list[Generation]]


def _answered(model: LoadedModel, task: Task, prompt: Prompt, setting: Setting) -> list[Answered]:
    """All policies together; or, where one of them wrote to the model, each alone on the model as it was."""
    together, written = _watched(model, task, prompt, setting)
    if together:
        return [together]
    answered = []
    _restore(model, written)
    for policy in setting.policies:
        own = setting.only([policy])
        alone, written = _watched(model, task, prompt, own)
        if alone is None:
            _restore(model, written)
            alone = _failed(model, prompt, own, f"{policy.name} changed {written} of the model")
        answered.append(alone)
    return answered


def _failed(model: LoadedModel, prompt: Prompt, setting: Setting, reason: str) -> Answered:
    """All treatments of a prompt as failed."""
    treatments = [treatment for scoring in _scorings(prompt, setting) for treatment in scoring.treatments]
    branches = [Branch(treatment, error=reason) for treatment in treatments]
    return replace(prefill(model, prompt, []), branches=branches), []


def _restore(model: LoadedModel, written: str) -> None:
    if not model.pristine.restore():
        raise KVBenchError(f"a press changed {written} of the model: find it with python -m kvbench doctor")


def _watched(model: LoadedModel, task: Task, prompt: Prompt, setting: Setting) -> tuple[Answered | None, str]:
    """What came of the policies; or, if one of them wrote to the model, where."""
    try:
        trace = prefill(model, prompt, _scorings(prompt, setting))
        found = trace, decode(model, trace, task.max_new_tokens, setting.max_kv_bytes)
    except Exception:  # of the model, which a press may have left in pieces
        if written := model.pristine.written():
            return None, written
        raise
    written = model.pristine.written()
    return (None if written else found), written


def _scorings(prompt: Prompt, setting: Setting) -> list[Scoring]:
    return plan(setting.policies, setting.ratios, prompt, setting.seed, setting.patience, setting.budgets)


def _records(
    model: LoadedModel, task: Task, trace: Trace, generations: Sequence[Generation], mode: Mode
) -> list[Record]:
    answers = {(id(generation.branch), generation.ask): generation for generation in generations}
    records = []
    for branch in trace.branches:
        masks = [cache.keep for cache in branch.layers if cache.keep is not None]
        survival = _survival(masks if len(masks) == len(branch.layers) else [])
        for ask in branch.treatment.asks:
            found = answers.get((id(branch), ask))
            if found and found.remains:
                survival = _survival(found.remains.keep or ())
            records.append(_record(model, task, trace, branch, survival, ask, found, mode))
    return records


def _survival(masks: Sequence[torch.Tensor]) -> Survival | None:
    """``None`` without masks: the branch failed, or rewrites what it keeps."""
    return Survival.of(np.stack([mask.cpu().numpy() for mask in masks])) if masks else None


def _record(
    model: LoadedModel,
    task: Task,
    trace: Trace,
    branch: Branch,
    survival: Survival | None,
    ask: int,
    generation: Generation | None,
    mode: Mode,
) -> Record:
    example, asked = trace.prompt.example, trace.prompt.asks[ask]
    question, policy = asked.question, branch.treatment.policy
    values: dict[str, object] = dict.fromkeys(Record.model_fields)
    values |= described(task, example, question)
    values |= {
        "mode": mode,
        "policy": policy.name,
        "ratio": branch.treatment.ratio,
        "budget": branch.treatment.budget,
        "status": "failed" if branch.error else "ok",
        "reason": branch.error,
        "token_ends": np.array(trace.prompt.token_ends, dtype="<u4").tobytes(),
        "press_arguments": json.dumps(branch.arguments, sort_keys=True),
        "context_tokens": trace.length,
        "answer_tokens": len(asked.answer_tokens),
        "evidence_tokens": len(asked.evidence_tokens),
        "prefill_seconds": trace.seconds,
    }
    if survival is not None:
        values |= _routing(trace.prompt, asked, survival)
    if generation is not None:
        values |= _outcome(model, trace, branch, generation)
        values |= text_scores(Record.model_validate(values))
    return Record.model_validate(values)


def _routing(prompt: Prompt, asked: Ask, survival: Survival) -> dict[str, object]:
    """What is left of the evidence of a question, and of the instructions."""
    defence, directives = (prompt.tokens_of(kind) for kind in INSTRUCTIONS)
    return {
        "eviction_rate": eviction_rate(survival, prompt.context_tokens),
        "ger": global_eviction_ratio(survival, asked.answer_tokens),
        "ger_by_layer": eviction_ratio_by_layer(survival, asked.answer_tokens),
        "slot_coverage": slot_coverage(survival, asked.evidence_tokens),
        "token_kept": kept_shares(survival, prompt.context_tokens),
        "defence_kept": slot_coverage(survival, defence),
        "defence_kept_by_layer": slot_coverage_by_layer(survival, defence),
        "directives_kept": slot_coverage(survival, directives),
        "directives_kept_by_layer": slot_coverage_by_layer(survival, directives),
    }


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
        "output_text": decoded(model.tokenizer, ids),
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
