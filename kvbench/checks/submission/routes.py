"""Counts anew what was evicted, from the share of slots that keep each token."""

from collections.abc import Iterator, Sequence

import numpy as np

from kvbench.store.record import Record, StoredAnswer, StoredContext, StoredQuestion
from policies.composition import built_in

EXACT = 1e-6
OF_A_BYTE = 1 / 255  # shares of single tokens are stored in such steps, rounded up


def faults_of_spans(question: StoredQuestion, context: StoredContext) -> Iterator[str]:
    """Finds a number or a span that is cut in two."""
    if len(context.token_ends) % 4 or len(question.answer_spans) % 2 or len(question.evidence_spans) % 2:
        yield "token_ends, answer_spans or evidence_spans hold a part of a number or of a span"


def faults_of_routes(answer: StoredAnswer) -> Iterator[str]:
    """Compares rates with the tokens that are kept. Says nothing of an answer or its evidence if the text does not show
    as many tokens of it as were counted."""
    record, question, context = answer.record, answer.question, answer.context
    if record.token_kept is None or any(faults_of_spans(question, context)):
        return
    kept = np.frombuffer(record.token_kept, dtype=np.uint8) / 255
    ends = np.frombuffer(context.token_ends, dtype="<u4").astype(np.int64)
    if len(kept) != len(ends):
        yield f"token_kept tells of {len(kept)} tokens, token_ends of {len(ends)}"
        return
    policy = built_in(record.policy)
    if policy and not policy.while_decoding and record.kept_tokens is not None:
        # Each share is rounded up to a step; the chat template around the context has no shares.
        least = float(kept.sum()) - len(kept) * OF_A_BYTE - EXACT
        most = float(kept.sum()) + question.context_tokens - len(kept) + EXACT
        if not least <= record.kept_tokens <= most:
            yield f"kept_tokens is {record.kept_tokens:g}, token_kept comes to {least:.4g} to {most:.4g}"
    starts = np.concatenate([[0], ends[:-1]])
    of_answer = _inside(question.answer_spans, starts, ends)
    of_evidence = _inside(question.evidence_spans, starts, ends)
    counted = [("eviction_rate", float(np.mean(kept == 0)), EXACT)]
    if of_answer.sum() == question.answer_tokens > 0:
        counted.append(("ger", float(np.mean(kept[of_answer] == 0)), EXACT))
    if of_evidence.sum() == question.evidence_tokens > 0:
        counted.append(("slot_coverage", float(np.mean(kept[of_evidence])), OF_A_BYTE + EXACT))
    for name, value, slack in counted:
        stored = getattr(record, name)
        if stored is not None and abs(stored - value) > slack:
            yield f"{name} is {stored:.4g}, its tokens come to {value:.4g}"


def faults_of_layers(record: Record, layers: int) -> Iterator[str]:
    """Compares GER with GER by layer. ``layers``: how many the model has, as another record says."""
    ger, by_layer = record.ger, record.ger_by_layer
    if by_layer is not None and len(by_layer) != layers:
        yield f"ger_by_layer tells of {len(by_layer)} layers, others of {layers}"
    elif ger is not None and any(layer < ger - EXACT for layer in by_layer or ()):
        yield f"ger is {ger:.4g}, in a layer alone less"  # what survives nowhere survives in no layer


def _inside(spans: Sequence[int], starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Marks the tokens that overlap any of the spans, which are starts and ends in turn."""
    pairs = zip(spans[::2], spans[1::2], strict=True)
    inside: np.ndarray = np.any([ends < 0, *((starts < end) & (ends > start) for start, end in pairs)], axis=0)
    return inside
