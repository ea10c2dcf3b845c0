"""The tables of what is observed while answers are written: attention, hidden states and routes.

A run that lists them observes the first :data:`SAMPLE` contexts of each task. They hold what
measures need and no more: edges and raw attention are too large to store, so routes are found in
memory.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kvbench.store.tables import RECORDS, AnswerRow, register_study
from leaderboards.metrics.judges.naming import values_said
from leaderboards.metrics.judges.spoken import plain
from leaderboards.routing.reach import chance_of_reach
from policies import LazyModule

if TYPE_CHECKING:
    from kvbench.experiments.collect import FinishedAnswer
    from kvbench.models.load import LoadedModel
    from kvbench.prompts.prompt import Prompt

agreement = LazyModule("leaderboards.routing.agreement")
# These need torch, and whoever reads a store does not.
masks = LazyModule("kvbench.engine.treat.branch")
observation = LazyModule("kvbench.engine.studies.observer")

SAMPLE = 24  # contexts of each task
STEPS = (0, 1)  # the last token of the question, and the first one of the answer


class Attention(AnswerRow):
    """Holds what the heads of one layer attend to at one step. Lists go by head."""

    step: int  # 0: the last token of the question, 1: the first token of the answer
    layer: int
    before_context: int  # tokens of the chat template before the first one of the context
    # The token attended to most; behind the context stand question and answer; -2 for none that is
    # known.
    top: list[int]
    top_weight: list[float]  # its share of the attention
    most: list[int]  # tokens of the context that all heads together attend to most, not by head
    most_share: list[float]  # their shares, mean over heads
    retrieves: list[bool]  # the token attended to most is one of the gold answer's
    answer: list[float]  # share of the attention to the tokens of the gold answer in the context
    subject: list[float]  # to what the question starts from
    bridge: list[float]  # to the sentences on the way
    fact: list[float]  # to the sentences that state the answer
    distractor: list[float]  # to the other values that the context states
    kept: float  # share of the context's rows that the layer keeps
    # Of the tokens that its heads keep, mean over pairs; none for a single head.
    jaccard: float | None
    kappa: float | None  # of the same; none where all is kept, or nothing


class State(AnswerRow):
    """Holds what stands at the last token of the question. Bytes are little-endian float16."""

    layer: int  # 0: before the first layer
    state: bytes  # the hidden state, shape (hidden_size,); behind the last layer it is normalised
    # Mean of the values left of the answer, shape (num_kv_heads * head_dim,); of layers alone.
    values: bytes | None


class RouteRow(AnswerRow):
    """Says by which routes tokens of the context reach an answer; all is null where nothing was
    observed.

    Widths are the largest smallest attention of any path, 0 where none has 0.01 in each step.
    Without tokens, as those of the evidence of an unanswerable question, all is null too.
    """

    unobserved: str | None  # why nothing was observed
    before_context: int  # tokens of the chat template before the first one of the context
    answer_alive: bool | None  # a row of the gold answer's tokens is left in some layer and head
    answer_width: float | None
    evidence_alive: bool | None  # the same of all the evidence
    evidence_width: float | None
    said_width: float | None  # of the values that the answer states and that are not the gold
    # Share of the context's tokens that are as wide as each of EPSILONS (routing.reach).
    chance: list[float] | None


def _observe(model: "LoadedModel", prompt: "Prompt") -> Any:
    # By its number, so that runs of other modes or policies observe the same contexts.
    if prompt.example.index < SAMPLE:
        return observation.AnswerObserver(model, prompt)
    return None


def _readings(
    answers: "Sequence[FinishedAnswer]", table: str, steps: Sequence[int] = STEPS
) -> "Iterator[tuple[FinishedAnswer, int, Any]]":
    """Yields what was read of each answer at each step."""
    for answer in answers:
        observer: Any = answer.observers.get(table)
        if observer is None or answer.generation is None:
            continue
        for step in steps:
            reading = observer.readings.get((id(answer.branch), answer.number, step))
            if reading:
                yield answer, step, reading


def _keep(answer: "FinishedAnswer") -> Any:
    """Returns which tokens survive, bool (layers, heads, tokens)."""
    return masks.keep_mask(answer.branch).cpu().numpy()


def _attention(answers: "Sequence[FinishedAnswer]") -> Iterator[Attention]:
    for answer, step, reading in _readings(answers, "attention"):
        keep, prompt = _keep(answer), answer.trace.prompt
        kept = keep.mean(axis=(1, 2)).tolist()
        jaccard, kappa = agreement.jaccard(keep), agreement.kappa(keep)
        answer_tokens = prompt.questions[answer.number].answer_tokens
        for number, layer in enumerate(reading.layers):
            # The most read are as many as were asked for, of a share of 0 where a layer reads
            # fewer.
            is_read = layer.most_share > 0
            yield Attention(
                **RECORDS.row_key(answer.record),
                step=step,
                layer=number,
                before_context=prompt.context_tokens[0],
                top=layer.top.tolist(),
                top_weight=layer.top_weight.tolist(),
                most=layer.most[is_read].tolist(),
                most_share=layer.most_share[is_read].tolist(),
                retrieves=agreement.reads_span(layer.top, answer_tokens).tolist(),
                **dict(zip(reading.spans, layer.shares.T.tolist(), strict=True)),
                kept=kept[number],
                jaccard=_number(jaccard[number]),
                kappa=_number(kappa[number]),
            )


def _number(value: Any) -> Any:
    """Returns a number; none where it is not defined."""
    return None if np.isnan(value) else value


def _states(answers: "Sequence[FinishedAnswer]") -> Iterator[State]:
    for answer, _, reading in _readings(answers, "states", (0,)):
        values: list[bytes | None] = [_float16(layer) for layer in reading.values]
        values.append(None)  # behind the last layer
        for number, (state, mean) in enumerate(zip(reading.states, values, strict=True)):
            key = RECORDS.row_key(answer.record)
            yield State(**key, layer=number, state=_float16(state), values=mean)


def _float16(numbers: Any) -> bytes:
    """Writes numbers in 16 bits; what is too large becomes the largest number that there is."""
    largest = float(np.finfo(np.float16).max)
    data: bytes = np.clip(numbers, -largest, largest).astype("<f2").tobytes()
    return data


def _routes(answers: "Sequence[FinishedAnswer]") -> Iterator[RouteRow]:
    for answer in answers:
        observer: Any = answer.observers.get("routes")
        if observer is None:
            continue
        prompt = answer.trace.prompt
        columns: dict[str, Any] = dict.fromkeys(RouteRow.model_fields)
        columns |= RECORDS.row_key(answer.record)
        columns["before_context"] = prompt.context_tokens[0]
        width = observer.routes.get((id(answer.branch), answer.number))
        if width is None:
            reason = observation.why_not_observed(answer.branch)
            columns["unobserved"] = reason or "nothing was read"
            yield RouteRow(**columns)
            continue
        question, keep = prompt.questions[answer.number], _keep(answer)
        columns["chance"] = chance_of_reach(width)
        spans = {"answer": question.answer_tokens, "evidence": question.evidence_tokens}
        for name, tokens in spans.items():
            places = list(tokens)
            if places:
                columns[f"{name}_alive"] = bool(keep[..., places].any())
                columns[f"{name}_width"] = float(width[places].max())
        said = _tokens_said(answer)
        if said:
            columns["said_width"] = float(width[said].max())
        yield RouteRow(**columns)


def _tokens_said(answer: "FinishedAnswer") -> list[int]:
    """Returns the tokens of the stated values that an answer names, but for the golds."""
    stated, question = answer.trace.prompt.stated, answer.question
    others = [value for value in stated if value not in question.golds]
    text = plain(answer.record.output_text or "")
    tokens: set[int] = set()
    for value in values_said(text, others, question.question):
        tokens.update(stated[value])
    return sorted(tokens)


SHARE = (0.0, 1.0)
HEAD_RANGES = {"kept": SHARE, "jaccard": SHARE, "kappa": (-1.0, 1.0)}
ATTENTION = register_study(
    "attention", Attention, ("step", "layer"), 3, _attention, observe=_observe, ranges=HEAD_RANGES
)
# They are large, and random bits to whoever does not know the model.
STATES = register_study(
    "states", State, ("layer",), 1, _states, observe=_observe, is_download=False
)
WIDTHS = dict.fromkeys(("answer_width", "evidence_width", "said_width"), SHARE)
ROUTES = register_study("routes", RouteRow, (), 3, _routes, observe=_observe, ranges=WIDTHS)
