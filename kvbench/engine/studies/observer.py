"""Observes what an answer reads: attention, hidden states and routes, while a run is in memory.

It changes nothing of how answers are written. The question, and the first token of its answer, are
passed through the model once more, over the keys and values of the answer's own cache. Tokens are
numbered as in :mod:`leaderboards.routing.reach`: the context, from 0 on, behind it the question and
then the answer. Edges are too many to store: routes are found as soon as a step is seen, and the
edges of the question are held until the first token of its answer has been passed."""

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
from kvbench.models.load import LoadedModel, attention, find_decoder
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
    """Has each watcher compute, and note, the attention of a sequence. States have the shape
    (sequences, heads, tokens, size); the output has (sequences, tokens, heads, size)."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    sequences = zip(watchers, query, key, value, strict=True)
    outputs = [watcher.attend(module.layer_idx, q, k, v, scale) for watcher, q, k, v in sequences]
    return torch.stack(outputs).transpose(1, 2), None


@contextmanager
def observed(model: LoadedModel) -> Iterator[None]:
    """Has the network use this attention inside a ``with`` block; waves may be under way, with one
    of their own."""
    AttentionInterface.register(OBSERVED_ATTENTION, observed_attention)
    # For an attention of this name transformers makes no mask: watchers know what is seen.
    with attention(model.network, OBSERVED_ATTENTION):
        yield


def attention_to(
    query: torch.Tensor, keys: torch.Tensor, seen: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Returns the softmax of queries over the keys that they see, in float32 as transformers' eager
    attention: shape (..., queries, keys).

    ``query``: (..., queries, head_dim). ``keys``: (..., keys, head_dim). ``seen``: bool (...,
    queries, keys)."""
    scores = (query @ keys.mT) * scaling
    seen_scores = scores.masked_fill(~seen, float("-inf"))
    return seen_scores.softmax(-1, dtype=torch.float32)


ROWS_AT_ONCE = 2**16  # of contexts, in one pass
QUESTION, ANSWER = 0, 1  # steps: the question has been read, and the first token of the answer has
MOST = 16  # tokens of the context that are told by layer
POOLED = "answer"  # the span whose values are averaged
# By name, the tokens of the context, such as those of the answer.
Spans = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class LayerReading:
    """Holds what the heads of one layer read.

    ``edges``: of all tokens passed. Of the last of them: ``top``, int (heads,), the token that each
    head attends to most; ``top_weight``, float (heads,), how much; ``shares``, float (heads,
    spans), the attention to each span; ``most`` and ``most_share``, int and float (at most MOST,),
    the tokens of the context that all heads together attend to most, and their share of the
    attention."""

    edges: Edges
    top: npt.NDArray[np.int64]
    top_weight: npt.NDArray[np.float32]
    shares: npt.NDArray[np.float32]
    most: npt.NDArray[np.int64]
    most_share: npt.NDArray[np.float32]


@dataclass(frozen=True)
class TurnReading:
    """Holds what was passed once more: the question, or the first token of its answer.

    ``spans``: the names of the spans. ``states``: float (layers + 1, hidden_size), the last token
    before the first layer and behind each, the last one normalised. ``values``: float (layers,
    num_kv_heads * head_dim), the mean of the values that are left of the span :data:`POOLED`, 0
    where a head holds none: those of the whole context would be the same for all its questions."""

    spans: tuple[str, ...]
    layers: tuple[LayerReading, ...]
    states: npt.NDArray[np.float32]
    values: npt.NDArray[np.float32]


class TurnObserver:
    """Notes in ``readings``, by the branch's id, question and step, what answers read.

    It leaves out branches whose press goes on cutting while an answer is written: what was read is
    gone by then; and answers that are forced. ``spans``: by question. ``left_out``: says of a
    branch why it is left out too, or nothing."""

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
        # Answers with as many tokens make a batch that needs no padding.
        alike: dict[int, list[int]] = defaultdict(list)  # by the number of tokens that are passed
        for place, answer in enumerate(step.answers):
            branch = answer.branch
            gone = answer.forced or branch.press_cache is not None or branch.error is not None
            if gone or self._left_out(branch):
                continue
            passed = 1
            if step.number == QUESTION:
                passed = len(self._prompt.questions[answer.question].token_ids)
            alike[passed].append(place)
        at_once = max(1, ROWS_AT_ONCE // len(self._prompt.token_ids))
        for places in alike.values():
            for first in range(0, len(places), at_once):
                self._read(step, places[first : first + at_once])

    @torch.inference_mode()
    def _read(self, step: Step, places: list[int]) -> None:
        answers = [step.answers[place] for place in places]
        questions = [self._prompt.questions[answer.question].token_ids for answer in answers]
        passed: Sequence[Sequence[int]] = questions
        if step.latest is not None:
            passed = [(token,) for token in step.latest[places].tolist()]
        length = len(self._prompt.token_ids)
        watchers = []
        for place, answer, question in zip(places, answers, questions, strict=True):
            turn = len(question) + step.number
            spans = self._spans[answer.question]
            cache = step.cache(place)
            watchers.append(_TurnWatcher(cache, length, turn, spans, self._model.windows))
        states = self._pass_again(passed, watchers)
        # (answers, layers + 1, hidden_size).
        last = torch.stack([state[:, -1] for state in states], dim=1)
        of_answers = last.float().cpu().numpy()
        for answer, watcher, of_answer in zip(answers, watchers, of_answers, strict=True):
            key = id(answer.branch), answer.question, step.number
            self.readings[key] = TurnReading(
                spans=tuple(watcher.spans),
                layers=tuple(watcher.layers),
                states=of_answer,
                values=np.stack(watcher.values),
            )

    def _pass_again(
        self, passed: Sequence[Sequence[int]], watchers: "Sequence[_TurnWatcher]"
    ) -> Sequence[torch.Tensor]:
        """Passes tokens, as many of each answer, through the model over what their caches hold.

        Returns the hidden states before the first layer and behind each, (answers, tokens,
        hidden_size)."""
        width, device = len(passed[0]), self._model.device
        # The rows of these tokens were written last, and behind the context a row tells its
        # position.
        positions = [watcher.cache.tokens(0)[0, 0, -width:] for watcher in watchers]
        with observed(self._model):
            output = find_decoder(self._model.network)(
                input_ids=torch.tensor(passed, device=device),
                position_ids=torch.stack(positions).to(device),
                # The rows are those of the answer's own cache, which watchers read; nothing is
                # added to it.
                use_cache=False,
                output_hidden_states=True,
                watchers=watchers,
            )
        states: Sequence[torch.Tensor] = output.hidden_states
        return states


class _TurnWatcher:
    """Reads the rows of one answer's cache, layer by layer. ``turn``: the rows behind the context.
    ``windows``: by layer, as :attr:`LoadedModel.windows`."""

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
        tokens = self.cache.tokens(layer)[0]
        keys = self.cache.keys(layer)[0]
        values = self.cache.values(layer)[0]
        heads, passed, size = query.shape
        kv_heads = len(tokens)
        seen = self._seen(layer, tokens, passed)
        # (num_kv_heads, query heads of each, passed, head_dim).
        grouped = query.view(kv_heads, heads // kv_heads, passed, size)
        weights = attention_to(grouped, keys[:, None], seen[:, None], scaling)
        absent = (tokens == ABSENT)[..., None]
        read = values.masked_fill(absent, 0.0)[:, None]  # 0 times NaN is NaN
        output = (weights.to(values.dtype) @ read).view(query.shape)
        columns = self._columns(tokens)
        self._note(columns, weights)
        self._note_values(columns, values)
        return output

    def _seen(self, layer: int, tokens: torch.Tensor, passed: int) -> torch.Tensor:
        """Tells which rows each of the last ``passed`` tokens sees: bool (num_kv_heads, passed,
        rows)."""
        rows = tokens.shape[1]
        places = torch.arange(rows, device=tokens.device)
        before = places <= places[rows - passed :, None]
        window = self._windows[layer]
        if window:  # of a sliding layer, whose rows all have a token
            first = tokens[:, rows - passed :, None] - window
            before = before & (tokens[:, None] > first)
        is_present = tokens != ABSENT
        return before & is_present[:, None]

    def _columns(self, tokens: torch.Tensor) -> torch.Tensor:
        """Numbers the token of each row, int64 (num_kv_heads, rows)."""
        columns = tokens.clone()
        # Behind the context a row tells its position, which a press that renumbers lets begin
        # earlier: here tokens are numbered on from the whole context.
        columns[:, -self._turn :] = torch.arange(
            self.length, self.length + self._turn, device=tokens.device
        )
        return columns.masked_fill(columns < 0, self.length + self._turn)

    def _note(self, columns: torch.Tensor, weights: torch.Tensor) -> None:
        """Notes what tokens attend to. ``columns``: of the rows, as :meth:`_columns` gives them.

        ``weights``: (num_kv_heads, query heads of each, passed, rows).
        """
        kv_heads, groups, passed, _ = weights.shape
        count = len(self._members)
        # (passed, tokens): an edge is as wide as the head that attends most along it.
        strongest = weights.new_zeros(passed, count)
        of_rows = columns.flatten().expand(passed, -1)
        strongest_rows = weights.amax(1).transpose(0, 1).reshape(passed, -1)
        strongest.scatter_reduce_(1, of_rows, strongest_rows, "amax")
        last = weights.new_zeros(kv_heads, groups, count)
        # All rows without a token of their own are added up in the last column.
        last.scatter_add_(2, columns[:, None].expand(kv_heads, groups, -1), weights[:, :, -1])
        last = last.view(kv_heads * groups, -1)

        end = self.length + self._turn
        of_tokens = strongest[:, :end].cpu().numpy()
        top_weight, top = last.max(-1)
        shares = last @ self._members.to(last.device)
        of_context = last[:, : self.length].mean(0)
        most_share, most_read = of_context.topk(min(MOST, self.length))
        reading = LayerReading(
            edges=Edges.of(of_tokens, first_query=end - passed),
            top=top.masked_fill(top == end, UNKNOWN).cpu().numpy(),
            top_weight=top_weight.cpu().numpy(),
            shares=shares.cpu().numpy(),
            most=most_read.cpu().numpy(),
            most_share=most_share.cpu().numpy(),
        )
        self.layers.append(reading)

    def _note_values(self, columns: torch.Tensor, values: torch.Tensor) -> None:
        """Averages the values of each head over the rows of a span that it holds; 0 where it holds
        none."""
        is_pooled = torch.zeros(len(self._members), dtype=torch.bool, device=columns.device)
        is_pooled[list(self.spans.get(POOLED, ()))] = True
        of_span = is_pooled[columns][..., None]
        kept = values.masked_fill(~of_span, 0.0).float()
        count = of_span.sum(1).clamp(min=1)
        mean = kept.sum(1) / count
        self.values.append(mean.flatten().cpu().numpy())


WEIGHTS_AT_ONCE = 2**22  # of one head: 16 MiB in float32


@torch.inference_mode()
def context_edges(model: LoadedModel, prompt: Prompt) -> list[Edges]:
    """Reads a context once more and notes the edges of its attention by layer, of one head and a
    block of queries at a time: no matrix of all tokens by all tokens is held."""
    watcher = _ContextWatcher(model.windows)
    token_ids = torch.tensor([prompt.token_ids], device=model.device)
    with observed(model):
        find_decoder(model.network)(input_ids=token_ids, use_cache=False, watchers=[watcher])
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
        window = self._windows[layer]
        places = torch.arange(tokens, device=query.device)
        output = query.new_empty(query.shape)
        parts = []
        for block in places.split(max(1, WEIGHTS_AT_ONCE // tokens)):
            seen = places <= block[:, None]
            if window:
                seen &= places > block[:, None] - window
            strongest = query.new_zeros(len(block), tokens, dtype=torch.float32)
            for head in range(heads):
                group = head // groups
                weights = attention_to(query[head, block], key[group], seen, scaling)
                output[head, block] = weights.to(value.dtype) @ value[group]
                strongest = torch.maximum(strongest, weights)
            parts.append(Edges.of(strongest.cpu().numpy(), first_query=int(block[0])))
        self.edges.append(joined(parts))
        return output


Key = tuple[int, int]  # the id of a branch, and the number of a question
NO_EDGES = Edges.of(np.zeros((0, 0), dtype=np.float32))


def why_not_observed(branch: Branch) -> str:
    """Says why nothing is observed of a branch, or nothing if something is: routes go through the
    shared prefill, and end in rows whose tokens are known."""
    reason = reason_without_mask(branch)
    if not reason and branch.treatment.policy.prefill != "shared":
        reason = "it has a prefill of its own"
    return reason


class AnswerObserver:
    """Notes ``readings``, by branch, question and step and without edges, and ``routes``, by branch
    and question: how wide the widest path is from each token of the context to the places of the
    answer, float32 (context tokens,). These are the last token of the question, where its first
    token is written, and that first token where it was passed."""

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
        # Read once for all branches: they share one prefill, so that up to the end of the context
        # their edges are the same.
        return context_edges(self._model, self._prompt)

    def _routes(
        self, question: int, answered: int, edges: Sequence[Edges]
    ) -> npt.NDArray[np.float32]:
        length = len(self._prompt.token_ids)
        end = length + len(self._prompt.questions[question].token_ids)
        layers = [joined(parts) for parts in zip(self._context, edges, strict=True)]
        sinks = list(range(end - 1, end + answered))
        widths = widest(layers, end + answered, sinks)[0, :length]
        return widths.astype(np.float32)
