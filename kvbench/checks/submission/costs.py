"""Checks kept tokens, ratios, bytes and times: finds numbers that no run can have."""

import json
import math
from collections.abc import Iterator, Mapping
from itertools import chain

from kvbench.checks.findings import Finding, finding_of
from kvbench.checks.lengths import MOST_OFF
from kvbench.checks.submission.reading import Submission, place_of
from kvbench.checks.submission.routes import faults_of_layers, faults_of_routes, faults_of_spans
from kvbench.prompts.prompt import build_prompts
from kvbench.store.record import Record, StoredAnswer, StoredQuestion
from kvbench.store.tables import NOISE
from policies import FULL, KINDS, HeadRows, Policy, Situation
from policies.composition import built_in
from policies.declaration.shape import ModelShape

RATES = ("realised_ratio", "eviction_rate", "ger", "slot_coverage", "defence_kept", "directives_kept")
RATES_BY_LAYER = ("ger_by_layer", "defence_kept_by_layer", "directives_kept_by_layer")
TIMES = ("prefill_seconds", "compression_seconds", "decode_seconds")
OF_FULL = {"realised_ratio": 0.0, "eviction_rate": 0.0, "ger": 0.0, "slot_coverage": 1.0}
Lengths = Mapping[str, tuple[int, int, int]]


def check_costs(submission: Submission) -> Iterator[Finding]:
    """Checks that rates are shares, that the full cache loses nothing, and that tokens, ratio and bytes of a record
    agree."""
    lengths = _lengths(submission)
    whole = {record.question_id: record for record in submission.records if record.policy == FULL}
    faults = []
    for question, context in submission.questions:
        first = next(chain(_faults_of_counts(question, lengths), faults_of_spans(question, context)), None)
        if first:
            faults.append(f"{question.question_id}: {first}")
    for answer in submission.answers:
        first = next(_faults(answer, whole.get(answer.record.question_id), submission.shape), None)
        if first:
            faults.append(f"{place_of(answer.record)}: {first}")
    yield finding_of("costs", "ratios, tokens, bytes, times and routing metrics are possible", faults)


def _lengths(submission: Submission) -> Lengths:
    """Counts the tokens of context, answer and evidence by question, where tokenizer and generator are at hand."""
    if submission.tokenizer is None:
        return {}
    return {
        question.question.id: (len(prompt.token_ids), len(question.answer_tokens), len(question.evidence_tokens))
        for name, examples in submission.examples.items()
        for example in examples
        for prompt in build_prompts(submission.tokenizer, submission.tasks[name], example, submission.identity.mode)
        for question in prompt.questions
    }


def _faults_of_counts(question: StoredQuestion, lengths: Lengths) -> Iterator[str]:
    counted = (question.context_tokens, question.answer_tokens, question.evidence_tokens)
    expected = lengths.get(question.question_id, counted)
    if counted != expected:
        yield f"context, answer and evidence have {counted} tokens, the tokenizer makes {expected}"


def _faults(answer: StoredAnswer, whole: Record | None, shape: ModelShape | None) -> Iterator[str]:
    record, context_tokens = answer.record, answer.question.context_tokens
    rates = [(name, getattr(record, name)) for name in RATES]
    rates += [(name, value) for name in RATES_BY_LAYER for value in getattr(record, name) or ()]
    for name, value in rates:
        if value is not None and not -NOISE <= value <= 1 + NOISE:
            yield f"{name} is {value}, which is no share"
    for name in TIMES:
        seconds = getattr(record, name)
        if seconds is not None and not 0 <= seconds < math.inf:
            yield f"{name} is {seconds}"
    if record.level_kind not in KINDS:
        yield f"level_kind is {record.level_kind!r:.40}, which is no kind of level"
    elif context_tokens > 0:
        ratio = record.point.level.share(context_tokens)
        if (record.ratio is None) != (ratio is None) or abs((record.ratio or 0.0) - (ratio or 0.0)) > NOISE:
            yield f"ratio is {record.ratio}, {record.point.where} of {context_tokens} tokens is {ratio}"
    if record.status == "ok":
        yield from _faults_of_kept(record, context_tokens, whole, shape)
        yield from faults_of_routes(answer)
        if whole is not None and whole.ger_by_layer is not None:
            yield from faults_of_layers(record, len(whole.ger_by_layer))
        if not _is_object(record.press_arguments):
            yield f"press_arguments are {record.press_arguments!r:.40}, no JSON object"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _faults_of_kept(
    record: Record, context_tokens: int, whole: Record | None, shape: ModelShape | None
) -> Iterator[str]:
    """Compares the three numbers of what is kept: share, tokens and bytes. The windows of sliding layers, which are
    held whatever is kept, are known of a model that is here."""
    realised, kept, size = record.realised_ratio, record.kept_tokens, record.kv_bytes
    if realised is None or kept is None or size is None or context_tokens < 1:
        yield "it has no realised ratio, kept tokens, bytes or context"
        return
    if record.policy == FULL:
        for name, value in OF_FULL.items():
            stored = getattr(record, name)
            if stored is not None and abs(stored - value) > NOISE:
                yield f"{name} is {stored}, under the full cache it is {value}"
    if not 0 <= kept < math.inf or size < 0:
        yield f"{kept} tokens and {size} bytes are kept"
    share = kept / context_tokens
    policy = built_in(record.policy)
    # One that acts while an answer is written is measured with question and answer, and so may be an unknown one.
    if policy and not policy.while_decoding:
        if abs(1 - share - realised) > NOISE:
            yield f"realised_ratio is {realised}, {kept:g} of {context_tokens} tokens are kept"
        windows = _row_bytes(shape) * sum(shape.window_rows(context_tokens)) if shape else 0
        by_shape = _row_bytes(shape) * shape.slots * context_tokens + windows if shape else size
        if record.policy == FULL and size != by_shape:
            yield f"{size} bytes hold the full cache, by the model's shape it takes {by_shape}"
        if policy.stored_bytes:
            yield from _faults_of_stored(policy, record, context_tokens, shape)
        elif whole and whole.kv_bytes is not None:
            held = share if policy.frees else 1.0  # of one that masks, all of it
            blanks = policy.rewrites and policy.counted == "nowhere"  # numbers of what it keeps, which are held
            expected = windows + held * (whole.kv_bytes - windows)
            if not -1 <= size - expected <= (1 if shape and not blanks else whole.kv_bytes):
                yield f"{size} bytes hold {held:.3f} of the {whole.kv_bytes} bytes of the full cache"
        asked = record.point.level.share(context_tokens)
        off = 0.0 if asked is None or policy.counted == "nowhere" else abs(realised - asked)
        if off > max(1 / context_tokens, MOST_OFF):
            yield f"realised_ratio is {realised:.4g}, asked for is {asked:.4g}"
    elif realised < 1 - share - NOISE:
        yield f"realised_ratio is {realised}, and {kept:g} tokens are kept of {context_tokens} or more"


def _row_bytes(shape: ModelShape) -> int:
    """Counts the bytes of a key with its value."""
    return 2 * shape.head_size * shape.number_bytes


def _faults_of_stored(policy: Policy, record: Record, context_tokens: int, shape: ModelShape | None) -> Iterator[str]:
    """Counts codes, scales and zero points again, where all heads of a model that is here keep as many tokens."""
    kept, size = record.kept_tokens, record.kv_bytes
    if policy.stored_bytes is None or shape is None or kept is None or kept != int(kept):
        return
    if policy.counted == "head" and policy.frees and not policy.rewrites:
        level = record.point.level
        situation = Situation(level.share(context_tokens) or 0.0, context_tokens, 0, "", level=level)
        held = [int(kept)] * shape.slots + shape.window_rows(context_tokens)
        of_heads = (HeadRows(rows, shape.head_size, shape.number_bytes) for rows in held)
        expected = sum(policy.stored_bytes(situation, rows) for rows in of_heads)
        if size != expected:
            yield f"{size} bytes hold {kept:g} tokens, {policy.name} stores them in {expected}"
