"""Observes what an answer reads: attention, hidden states and routes, while a run is in memory.

It changes nothing of how answers are written. The question, and the first token of its answer, are passed through the
model once more, over the keys and values of the answer's own cache. Tokens are numbered as in
:mod:`leaderboards.routing.reach`: the context, from 0 on, behind it the question and then the answer. Edges are too
many to store: routes are found as soon as a step is seen, and the edges of the question are held until the first token
of its answer has been passed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import AttentionInterface

from kvbench.engine.decode.loop import Step
from kvbench.engine.treat.branch import Branch, reason_without_mask
from kvbench.models.load import LoadedModel, attention, decoder_of
from kvbench.prompts.prompt import Prompt
from leaderboards.routing.reach import Edges, joined, widest
from policies import ABSENT, UNKNOWN, CacheRows

OBSERVED_ATTENTION = "kvbench_observed"


def observed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    watchers: "Sequence[_TurnWatcher | _ContextWatcher]" = (),
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Has each watcher compute, and note, the attention of a sequence; states are (sequences, heads, tokens, size)."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    sequences = zip(watchers, query, key, value, strict=True)
    outputs = [watcher.attend(module.layer_idx, q, k, v, scale) for watcher, q, k, v in sequences]
    return torch.stack(outputs).transpose(1, 2), None


@contextmanager
def observed(model: LoadedModel) -> Iterator[None]:
    """Has the network use this attention inside a ``with`` block; waves may be under way, with one of their own."""
    AttentionInterface.register(OBSERVED_ATTENTION, observed_attention)
    with attention(model.network, OBSERVED_ATTENTION):
        yield


def weights_of(
    query: torch.Tensor, keys: torch.Tensor, seen: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Returns the softmax of queries over the keys that they see, in float32 as transformers' eager attention: shape
    (..., queries, keys).

    ``query``: (..., queries, head_dim). ``keys``: (..., keys, head_dim). ``seen``: bool (..., queries, keys).
    """
    scores = (query @ keys.mT) * scaling
    return scores.masked_fill(~seen, float("-inf")).softmax(-1, dtype=torch.float32)


ROWS_AT_ONCE = 2**16  # of contexts, in one pass
QUESTION, ANSWER = 0, 1  # steps: the question has been read, and the first token of the answer has
MOST = 16  # tokens of the context that are told by layer
POOLED = "answer"  # the span whose values are averaged
Spans = Mapping[
    str, Sequence[int]
]  # by name, the tokens of the context, such as those of the answer


@dataclass(frozen=True)
class LayerReading:
    """Holds what the heads of one layer read.

    ``edges``: of all tokens passed. Of the last of them: ``top``, int (heads,), the token that each head attends to
    most; ``top_weight``, float (heads,), how much; ``shares``, float (heads, spans), the attention to each span;
    ``most`` and ``most_share``, int and float (at most MOST,), the tokens of the context that all heads together attend
    to most, and their share of the attention.
    """

    edges: Edges
    top: npt.NDArray[np.int64]
    top_weight: npt.NDArray[np.float32]
    shares: npt.NDArray[np.float32]
    most: npt.NDArray[np.int64]
    most_share: npt.NDArray[np.float32]


@dataclass(frozen=True)
class TurnReading:
    """Holds what was passed once more: the question, or the first token of its answer.

    ``spans``: the names of the spans. ``states``: float (layers + 1, hidden_size), the last token before the first
    layer and behind each, the last one normalised. ``values``: float (layers, num_kv_heads * head_dim), the mean of the
    values that are left of the span :data:`POOLED`, 0 where a head holds none: those of the whole context would be the
    same for all its questions.
    """

    spans: tuple[str, ...]
    layers: tuple[LayerReading, ...]
    states: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]


class TurnObserver:
    """Notes in ``readings``, by the branch's id, question and step, what answers read.

    It leaves out branches whose press goes on cutting while an answer is written: what was read is gone by then; and
    answers that are forced. ``spans``: by question. ``left_out``: says of a branch why it is left out too, or nothing.
    """

    def __init__(
        self,
        model: LoadedModel,
        prompt: Prompt,
        spans: Sequence[Spans],
        left_out: Callable[[Branch], str] = lambda _: "",
    ) -> None:
        self.readings: dict[tuple[int, int, int], TurnReading] = {}
        self._model, self._prompt, self._spans, self._left_out = model, prompt, spans, left_out

    def see(self, step: Step) -> None:
        if step.number not in (QUESTION, ANSWER):
            return
        alike: dict[int, list[int]] = defaultdict(list)  # by the number of tokens that are passed
        for place, answer in enumerate(step.answers):
            branch, question = answer.branch, self._prompt.questions[answer.question].token_ids
            gone = answer.forced or branch.press_cache is not None or branch.error is not None
            if not gone and not self._left_out(branch):
                alike[len(question) if step.number == QUESTION else 1].append(place)
        at_once = max(1, ROWS_AT_ONCE // len(self._prompt.token_ids))
        for places in alike.values():
            for first in range(0, len(places), at_once):
                self._read(step, places[first : first + at_once])

    @torch.inference_mode()
    def _read(self, step: Step, places: list[int]) -> None:
        answers = [step.answers[place] for place in places]
        questions = [self._prompt.questions[answer.question].token_ids for answer in answers]
        passed = (
            questions
            if step.latest is None
            else [(token,) for token in step.latest[places].tolist()]
        )
        length, windows = len(self._prompt.token_ids), self._model.windows
        watchers = [
            _TurnWatcher(
                step.cache(place),
                length,
                len(question) + step.number,
                self._spans[answer.question],
                windows,
            )
            for place, answer, question in zip(places, answers, questions, strict=True)
        ]
        width = len(passed[0])
        positions = torch.stack([watcher.cache.tokens(0)[0, 0, -width:] for watcher in watchers])
        with observed(self._model):
            states = decoder_of(self._model.network)(
                input_ids=torch.tensor(passed, device=self._model.device),
                position_ids=positions.to(self._model.device),
                use_cache=False,
                output_hidden_states=True,
                watchers=watchers,
            ).hidden_states
        last = torch.stack([state[:, -1] for state in states], dim=1).float().cpu().numpy()
        for answer, watcher, of_answer in zip(answers, watchers, last, strict=True):
            reading = TurnReading(
                tuple(watcher.spans), tuple(watcher.layers), of_answer, np.stack(watcher.values)
            )
            self.readings[id(answer.branch), answer.question, step.number] = reading


class _TurnWatcher:
    """Reads the rows of one answer's cache, layer by layer. ``turn``: the rows behind the context. ``windows``: by
    layer, as :attr:`LoadedModel.windows`."""

    def __init__(
        self, cache: CacheRows, length: int, turn: int, spans: Spans, windows: Sequence[int | None]
    ) -> None:
        self.cache, self.length, self.spans = cache, length, spans
        self.layers: list[LayerReading] = []
        self.values: list[npt.NDArray[np.float32]] = []
        self._turn, self._windows = turn, windows
        # A last column takes the attention to rows that are no single token.
        self._members = torch.zeros(length + turn + 1, len(spans))
        for number, tokens in enumerate(spans.values()):
            self._members[list(tokens), number] = 1

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
    ) -> torch.Tensor:
        tokens, keys, values = (
            part(layer)[0] for part in (self.cache.tokens, self.cache.keys, self.cache.values)
        )
        heads, passed, size = query.shape
        kv_heads, rows = tokens.shape
        columns, absent = self._columns(tokens), tokens == ABSENT
        places = torch.arange(rows, device=query.device)
        before = places <= places[rows - passed :, None]
        if window := self._windows[layer]:  # of a sliding layer, whose rows all have a token
            before = before & (tokens[:, None] > tokens[:, rows - passed :, None] - window)
        seen = (before & ~absent[:, None])[:, None]
        grouped = query.view(kv_heads, heads // kv_heads, passed, size)
        weights = weights_of(grouped, keys[:, None], seen, scaling)
        read = values.masked_fill(absent[..., None], 0.0)[:, None]  # 0 times NaN is NaN
        output = (weights.to(values.dtype) @ read).view(query.shape)
        strongest = query.new_zeros(passed, len(self._members), dtype=torch.float32)
        last = strongest.new_zeros(*grouped.shape[:2], len(self._members))
        to_tokens = columns.flatten().expand(passed, -1)
        strongest.scatter_reduce_(
            1, to_tokens, weights.amax(1).transpose(0, 1).reshape(passed, -1), "amax"
        )
        last.scatter_add_(2, columns[:, None].expand(*grouped.shape[:2], -1), weights[:, :, -1])
        last = last.view(heads, -1)
        self._note(strongest, last)
        self._note_values(columns, values)
        return output

    def _columns(self, tokens: torch.Tensor) -> torch.Tensor:
        """Numbers the token of each row, int64 (num_kv_heads, rows)."""
        columns = tokens.clone()
        columns[:, -self._turn :] = torch.arange(
            self.length, self.length + self._turn, device=tokens.device
        )
        return columns.masked_fill(columns < 0, self.length + self._turn)

    def _note(self, strongest: torch.Tensor, last: torch.Tensor) -> None:
        end, first = self.length + self._turn, self.length + self._turn - len(strongest)
        edges = Edges.of(strongest[:, :end].cpu().numpy(), first_query=first)
        top_weight, top = last.max(-1)
        most_share, most = last[:, : self.length].mean(0).topk(min(MOST, self.length))
        parts = (
            top.masked_fill(top == end, UNKNOWN),
            top_weight,
            last @ self._members.to(last.device),
            most,
            most_share,
        )
        self.layers.append(LayerReading(edges, *(part.cpu().numpy() for part in parts)))

    def _note_values(self, columns: torch.Tensor, values: torch.Tensor) -> None:
        """Averages the values of each head over the rows of a span that it holds; 0 where it holds none."""
        pooled = torch.zeros(len(self._members), dtype=torch.bool, device=columns.device)
        pooled[list(self.spans.get(POOLED, ()))] = True
        of_span = pooled[columns][..., None]
        kept = values.masked_fill(~of_span, 0.0).float()
        self.values.append((kept.sum(1) / of_span.sum(1).clamp(min=1)).flatten().cpu().numpy())


WEIGHTS_AT_ONCE = 2**22  # of one head: 16 MiB in float32


@torch.inference_mode()
def context_edges(model: LoadedModel, prompt: Prompt) -> list[Edges]:
    """Reads a context once more and notes the edges of its attention by layer, of one head and a block of queries at a
    time: no matrix of all tokens by all tokens is held."""
    watcher = _ContextWatcher(model.windows)
    token_ids = torch.tensor([prompt.token_ids], device=model.device)
    with observed(model):
        decoder_of(model.network)(input_ids=token_ids, use_cache=False, watchers=[watcher])
    return watcher.edges


class _ContextWatcher:
    """Notes edges, layer by layer. ``windows``: as :attr:`LoadedModel.windows`."""

    def __init__(self, windows: Sequence[int | None]) -> None:
        self.edges: list[Edges] = []
        self._windows = windows

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
    ) -> torch.Tensor:
        heads, tokens, _ = query.shape
        groups = heads // key.shape[0]
        places = torch.arange(tokens, device=query.device)
        output = query.new_empty(query.shape)
        parts = []
        for block in places.split(max(1, WEIGHTS_AT_ONCE // tokens)):
            seen = places <= block[:, None]
            if window := self._windows[layer]:
                seen &= places > block[:, None] - window
            strongest = query.new_zeros(len(block), tokens, dtype=torch.float32)
            for head in range(heads):
                weights = weights_of(query[head, block], key[head // groups], seen, scaling)
                output[head, block] = weights.to(value.dtype) @ value[head // groups]
                strongest = torch.maximum(strongest, weights)
            parts.append(Edges.of(strongest.cpu().numpy(), first_query=int(block[0])))
        self.edges.append(joined(parts))
        return output


Key = tuple[int, int]  # the id of a branch, and the number of a question
NO_EDGES = Edges.of(np.zeros((0, 0), dtype=np.float32))


def why_not_observed(branch: Branch) -> str:
    """Says why nothing is observed of a branch, or nothing if something is: routes go through the shared prefill, and
    end in rows whose tokens are known."""
    is_private = branch.treatment.policy.prefill != "shared"
    return reason_without_mask(branch) or ("it has a prefill of its own" if is_private else "")


class AnswerObserver:
    """Notes ``readings``, by branch, question and step and without edges, and ``routes``, by branch and question: how
    wide the widest path is from each token of the context to the places of the answer, float32 (context tokens,). These
    are the last token of the question, where its first token is written, and that first token where it was passed."""

    def __init__(self, model: LoadedModel, prompt: Prompt) -> None:
        self.readings: dict[tuple[int, int, int], TurnReading] = {}
        self.routes: dict[Key, npt.NDArray[np.float32]] = {}
        self._model, self._prompt = model, prompt
        self._turns = TurnObserver(
            model, prompt, [question.spans for question in prompt.questions], why_not_observed
        )
        self._edges_of_questions: dict[Key, list[Edges]] = {}

    def see(self, step: Step) -> None:
        self._turns.see(step)
        for (branch, question, number), reading in self._turns.readings.items():
            edges = [layer.edges for layer in reading.layers]
            key = branch, question
            if number == QUESTION:
                self._edges_of_questions[key] = edges
                self.routes[key] = self._routes(question, 0, edges)
            elif number == ANSWER:
                edges = [
                    joined(parts)
                    for parts in zip(self._edges_of_questions.pop(key), edges, strict=True)
                ]
                self.routes[key] = self._routes(question, 1, edges)
            layers = tuple(replace(layer, edges=NO_EDGES) for layer in reading.layers)
            self.readings[branch, question, number] = replace(reading, layers=layers)
        self._turns.readings.clear()

    @cached_property
    def _context(self) -> list[Edges]:
        return context_edges(self._model, self._prompt)

    def _routes(
        self, question: int, answered: int, edges: Sequence[Edges]
    ) -> npt.NDArray[np.float32]:
        context = len(self._prompt.token_ids)
        end = context + len(self._prompt.questions[question].token_ids)
        layers = [joined(parts) for parts in zip(self._context, edges, strict=True)]
        sinks = list(range(end - 1, end + answered))
        return widest(layers, end + answered, sinks)[0, :context].astype(np.float32)
