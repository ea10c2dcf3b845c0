"""Fair eviction in the form of arXiv 2510.00231: the budget is shared between two ranges that make
up the context.

After the code of its authors, Itisalex2/pitfalls-of-kv-cache-compression on GitHub at a6b7555.

The code takes a defence and directives that touch. Here one or several spans may stand anywhere: a
range goes on until the next span begins, and with a single span there is one range, in which a
press keeps what it keeps without this."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from kvpress import ObservedAttentionPress, ScorerPress, SnapKVPress, StreamingLLMPress, TOVAPress
from torch.nn.functional import avg_pool1d

from policies.presses.h2o import Rotation, attention_weights, query_blocks
from policies.presses.rescoring import FairEvictionPress, RescoringPress, Spans, check_spans

RAMP = (0.1, 0.9)  # StreamingLLM's scores of the first and the last token of a range; sinks have 1


def budget_ranges(spans: Spans, length: int) -> list[tuple[int, int]]:
    """Returns the ranges that share the budget: the first begins with the context, each other one
    with its span. Raises :class:`PolicyError` as :func:`check_spans` does."""
    starts = [start for start, _ in check_spans(spans, length)]
    return list(pairwise([0, *starts[1:], length]))


@dataclass(frozen=True)
class _Layer:
    """Holds what the attention of a layer is computed from."""

    module: Any
    hidden_states: torch.Tensor
    keys: torch.Tensor
    rotation: Rotation

    def attention(self, at: slice) -> torch.Tensor:
        """Returns what the queries at some places attend to: the softmax is over all that they see,
        not a range."""
        return attention_weights(self.module, self.hidden_states, self.keys, self.rotation, at)


@dataclass
class PaperScoresPress(RescoringPress):
    """Scores each range by itself: StreamingLLM by a ramp, SnapKV and TOVA from its last tokens,
    H2O from its queries alone; whatever else scores tokens, as K-Norm, scores them as ever."""

    spans: Spans = ()

    def score(
        self,
        module: Any,
        hidden_states: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attentions: torch.Tensor | None,
        kwargs: dict[str, Any],
    ) -> torch.Tensor:
        """Returns scores of shape (batch_size, num_kv_heads, seq_len)."""
        ranges = budget_ranges(self.spans, keys.shape[2])
        layer = _Layer(module, hidden_states, keys, kwargs["position_embeddings"])
        # A case takes derived classes too: our H2O is an ObservedAttentionPress, PyramidKV a
        # SnapKVPress.
        match self.press if len(ranges) > 1 else None:
            case StreamingLLMPress(n_sink=sinks):
                return _ramps(ranges, sinks, keys)
            case SnapKVPress() as press:
                return _by_windows(layer, ranges, press)
            case TOVAPress():
                return _by_anchors(layer, ranges)
            case ObservedAttentionPress():
                return _received(layer, check_spans(self.spans, keys.shape[2]))
        return super().score(module, hidden_states, keys, values, attentions, kwargs)

    def change_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """Returns the scores as they are, shape (batch_size, num_kv_heads, seq_len)."""
        return scores


def _ramps(ranges: Spans, sinks: int, keys: torch.Tensor) -> torch.Tensor:
    """Scores tokens by how late in their range they stand, so that of all the highest are about as
    many of each."""
    scores = torch.ones(keys.shape[2], device=keys.device)
    for start, end in ranges:
        first = max(start, sinks) if start == 0 else start
        scores[first:end] = torch.linspace(*RAMP, steps=max(0, end - first), device=keys.device)
    scores[:sinks] = 1.0
    return scores.expand(keys.shape[:3])


def _by_windows(layer: _Layer, ranges: Spans, press: SnapKVPress) -> torch.Tensor:
    """Has the last tokens of each range vote on the tokens before them there. They share SnapKV's
    window, and a range that has fewer leaves the rest to the last one."""
    left = press.window_size
    scores = []
    for number, (start, end) in enumerate(ranges, start=1):
        share = press.window_size // len(ranges)
        if number == len(ranges):
            share = left
        window = min(max(1, share), end - start)
        left -= window
        # Over the window's queries: (batch, key heads, query heads of each, tokens before the
        # window).
        votes = _votes(layer, start, end, window).mean(-2)
        # Pooling wants one dimension of channels, which here are the query heads.
        heads = votes.flatten(1, 2)
        # A range may be all window, and torch refuses to pool nothing. Else scores are smoothed
        # within the range, and none reaches over its border.
        if heads.shape[-1]:
            size = press.kernel_size
            heads = avg_pool1d(heads, size, padding=size // 2, stride=1)
        of_key_heads = heads.view(votes.shape).mean(2)
        scores.append(_with_window(of_key_heads, window))
    return torch.cat(scores, dim=-1)


def _by_anchors(layer: _Layer, ranges: Spans) -> torch.Tensor:
    """Has the last token of each range vote on those before it there, as the mean over all
    heads."""
    key_heads = layer.keys.shape[1]
    scores = []
    for start, end in ranges:
        # Over all heads, as TOVA has it: (batch, tokens before the last).
        votes = _votes(layer, start, end, 1).mean((1, 2, 3))
        of_heads = votes[:, None].expand(-1, key_heads, -1)
        scores.append(_with_window(of_heads, 1))
    return torch.cat(scores, dim=-1)


def _votes(layer: _Layer, start: int, end: int, window: int) -> torch.Tensor:
    """Returns what the last tokens of a range attend to before them in it."""
    # (batch, key heads, query heads of each, window, tokens before the window).
    return layer.attention(slice(end - window, end))[..., start : end - window]


def _with_window(scores: torch.Tensor, window: int) -> torch.Tensor:
    """Adds the window itself, which is worth as much as the best token that it votes on."""
    highest = scores.new_ones((*scores.shape[:2], 1))
    if scores.shape[-1]:
        highest = scores.amax(-1, keepdim=True)
    return torch.cat([scores, highest.expand(-1, -1, window)], dim=-1)


def _received(layer: _Layer, spans: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Averages the attention that each token gets; those of a span get none from a later one, and
    their sum is divided by the tokens that follow within the span.

    The trap, as in the authors' code: what follows behind the last span is in the sum, and is not
    divided by."""
    length, device = layer.keys.shape[2], layer.keys.device
    touching = _until_the_next(spans)
    last_end = touching[-1][1]
    edges = [touching[0][0]]
    edges += [end for _, end in touching]
    received = torch.zeros(layer.keys.shape[:3], device=device)
    for block in query_blocks(layer.module, layer.keys, edges=edges):
        # No block reaches over an edge: it is all within a span, or all behind it.
        weights = layer.attention(block)
        sums = weights.sum((2, 3)) / weights.shape[2]
        for start, end in touching:
            if end <= block.start < last_end:
                sums[..., start:end] = 0
        received[..., : sums.shape[-1]] += sums
    seen_by = torch.arange(length, 0, -1, device=device)
    for start, end in touching[:-1]:
        seen_by[start:end] = torch.arange(end - start, 0, -1, device=device)
    return received / seen_by


def _until_the_next(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Lets each span go on until the next one begins, so that they touch."""
    starts = [start for start, _ in spans]
    last_end = spans[-1][1]
    return list(pairwise([*starts, last_end]))


@dataclass
class PaperFairPress(FairEvictionPress):
    """Keeps of each range its share of the budget, rounded down, and of the last one what is left
    of it."""

    def parts(self, length: int) -> list[tuple[int, int]]:
        return budget_ranges(self.spans, length)

    def counts(self, whole: torch.Tensor, parts: Spans, kept: int) -> torch.Tensor:
        """Counts the tokens that each head keeps of each part, shape (batch_size, num_kv_heads,
        parts). ``whole``: all scores, shape (batch_size, num_kv_heads, seq_len)."""
        length = whole.shape[-1]
        counts = []
        counted = 0
        for _, end in parts:
            # From running sums: with two ranges this is the rounding of the authors' code, and with
            # more of them no token of the budget is lost.
            up_to_end = kept * end // length
            counts.append(up_to_end - counted)
            counted = up_to_end
        return torch.tensor(counts, device=whole.device).expand(*whole.shape[:2], -1)


def fair_as_paper(ratio: float, press: ScorerPress, spans: Spans) -> RescoringPress:
    scores = PaperScoresPress(ratio, press, spans)
    # StreamingLLM keeps the highest of its ramps, whatever range they stand in: that has no quota
    # in the authors' code.
    if isinstance(press, StreamingLLMPress):
        return scores
    return PaperFairPress(ratio, scores, spans)
