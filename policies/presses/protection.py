"""Wrappers that keep a press from taking the instructions of a prompt first (after arXiv 2510.00231, for any spans)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from kvpress import BasePress, ScorerPress, SnapKVPress, StreamingLLMPress, TOVAPress
from kvpress.utils import compute_n_kept

from policies.declaration.errors import PolicyError

Spans = Sequence[tuple[int, int]]
Scores = Callable[..., torch.Tensor]
# Added to an order of tokens, this many times their number for those that must stay: also the mean of a page of 16
# tokens with one of these is then above that of any other.
MUST_STAY = 64


def check_spans(spans: Spans, length: int) -> list[tuple[int, int]]:
    """Sorts half-open ranges; raises :class:`PolicyError` if one is empty, overlaps another or leaves the context."""
    ordered = sorted(spans)
    ends = [0, *(end for _, end in ordered)]
    for (start, end), before in zip(ordered, ends, strict=False):
        if not before <= start < end <= length:
            raise PolicyError(f"the span {start} to {end} is empty, overlaps another, or leaves the {length} tokens")
    return ordered


def parts_of(spans: Spans, length: int) -> list[tuple[int, int]]:
    """Returns the spans and what lies between them: ranges that make up the whole context, in order."""
    parts = []
    done = 0
    for start, end in check_spans(spans, length):
        parts += [(done, start)] if done < start else []
        parts.append((start, end))
        done = end
    return [*parts, (done, length)] if done < length else parts


def shared_out(total: int, weights: torch.Tensor) -> torch.Tensor:
    """Shares out ``total`` in whole numbers, in proportion to the weights (…, parts), by the largest remainders;
    earlier parts first where those are equal."""
    exact = weights.double() / weights.double().sum(-1, keepdim=True) * total
    counts = exact.floor().long()
    missing = total - counts.sum(-1, keepdim=True)
    rank = (exact - counts).argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
    return counts + (rank < missing)


@dataclass
class Protection(BasePress):
    """A wrapper around a scorer press. ``spans``: half-open ranges of token positions that are to be protected."""

    press: ScorerPress
    spans: Spans = ()

    def __post_init__(self) -> None:
        if not isinstance(self.press, ScorerPress):
            raise PolicyError(f"{type(self).__name__} goes around a ScorerPress, not a {type(self.press).__name__}")

    def post_init_from_model(self, model: Any) -> None:
        self.press.post_init_from_model(model)

    @property
    def compression_ratio(self) -> float:
        ratio: float = self.press.compression_ratio
        return ratio

    @compression_ratio.setter
    def compression_ratio(self, ratio: float) -> None:
        self.press.compression_ratio = ratio

    def compress(
        self,
        module: Any,
        hidden_states: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attentions: torch.Tensor | None,
        kwargs: dict[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keeps as many rows of every head as the press itself would."""
        if self.compression_ratio == 0:
            return keys, values

        def score(start: int, end: int) -> torch.Tensor:
            """Returns the press's own scores of a stretch, (batch, num_kv_heads, end - start), as if it were the
            context."""
            embeddings = tuple(part[:, start:end] for part in kwargs["position_embeddings"])
            of_part = {**kwargs, "hidden_states": hidden_states[:, start:end], "position_embeddings": embeddings}
            parts = hidden_states[:, start:end], keys[:, :, start:end], values[:, :, start:end]
            scores: torch.Tensor = self.press.score(module, *parts, attentions, of_part)
            check_scores(scores, parts[1].shape[:3], self.press)
            return as_order(scores.float(), self.press)

        kept = compute_n_kept(keys.shape[2], self.compression_ratio)
        index = self.positions(score, kept, keys.shape[2])[..., None].expand(-1, -1, -1, keys.shape[-1])
        return keys.gather(2, index).contiguous(), values.gather(2, index).contiguous()

    def positions(self, score: Scores, kept: int, length: int) -> torch.Tensor:
        """Returns the positions of the ``kept`` tokens of each head, (batch, num_kv_heads, kept)."""
        raise NotImplementedError


def check_scores(scores: torch.Tensor, shape: Sequence[int], press: ScorerPress) -> None:
    """Raises for scores with which the press itself would fail."""
    if scores.shape != torch.Size(shape):
        raise PolicyError(f"{type(press).__name__} scored with shape {tuple(scores.shape)} and not {tuple(shape)}")
    if scores.isnan().any():
        raise PolicyError(f"{type(press).__name__} scored with NaN")


def as_order(scores: torch.Tensor, press: ScorerPress) -> torch.Tensor:
    """Turns scores that rank nothing into an order: StreamingLLM scores with 1 and 0 for the ratio that it was asked
    for, which ranks nothing where another number of tokens is to be kept. What it keeps at any ratio are the sinks and
    the most recent: that is an order of all."""
    if not isinstance(press, StreamingLLMPress):
        return scores
    length = scores.shape[-1]
    order = torch.arange(length, device=scores.device, dtype=scores.dtype)
    order[: press.n_sink] += MUST_STAY * length
    return order.expand_as(scores)


@dataclass
class WhitelistPress(Protection):
    """Tokens of the spans are kept first; the rest of the budget goes to the press. Where they are more than the
    budget, those of them that the press scores highest."""

    def positions(self, score: Scores, kept: int, length: int) -> torch.Tensor:
        scores = score(0, length)
        protected = torch.zeros(length, dtype=torch.bool, device=scores.device)
        for start, end in check_spans(self.spans, length):
            protected[start:end] = True
        # Ranks and not scores: a sum of a score and a bonus would lose the order of what is added to.
        rank = scores.argsort(dim=-1, stable=True).argsort(dim=-1)
        return (rank + length * protected).topk(kept, dim=-1).indices


@dataclass
class FairEvictionPress(Protection):
    """Each part of the context, the spans and what lies between them, keeps the same share of its tokens, and the press
    chooses which.

    ``window``: the press looks at positions, and scores each part as if that were the context.
    """

    window: bool = field(default=False, kw_only=True)

    def positions(self, score: Scores, kept: int, length: int) -> torch.Tensor:
        parts = parts_of(self.spans, length)
        whole = score(0, length)
        counts = self.counts(whole, parts, kept)
        positions = []
        for number, (start, end) in enumerate(parts):
            scores = score(start, end) if self.window and end - start > self._shortest_part() else whole[..., start:end]
            rank = scores.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
            positions.append(rank < counts[..., number : number + 1])
        keep = torch.cat(positions, dim=-1)
        # Every head keeps as many: their positions in order are a rectangle.
        return keep.nonzero()[:, -1].view(*keep.shape[:2], kept)

    def counts(self, whole: torch.Tensor, parts: Spans, kept: int) -> torch.Tensor:
        """Counts the tokens that each head keeps of each part, (batch, num_kv_heads, parts). ``whole``: all scores."""
        sizes = torch.tensor([end - start for start, end in parts], device=whole.device)
        return shared_out(kept, sizes).expand(*whole.shape[:2], -1)

    def _shortest_part(self) -> int:
        """Counts the tokens that a part must be longer than for the press to look at it from its own end."""
        return max(int(getattr(self.press, name, 1)) for name in ("window_size", "n_sink"))


@dataclass
class DebiasPress(FairEvictionPress):
    """Each part keeps a number of tokens between what the press would leave it (``strength`` 0) and its fair share
    (1)."""

    strength: float = 0.5

    def counts(self, whole: torch.Tensor, parts: Spans, kept: int) -> torch.Tensor:
        chosen = torch.zeros_like(whole, dtype=torch.long).scatter_(-1, whole.topk(kept, dim=-1).indices, 1)
        unchanged = torch.stack([chosen[..., start:end].sum(-1) for start, end in parts], dim=-1)
        return shared_out(kept, (1 - self.strength) * unchanged + self.strength * super().counts(whole, parts, kept))


# Presses that look back from the last tokens, or, as StreamingLLM, at positions alone: their scores of a whole context
# are all the same in the middle, and rank nothing there.
LOOKING_BACK = (StreamingLLMPress, SnapKVPress, TOVAPress)


def fair(press: ScorerPress, spans: Spans) -> BasePress:
    return FairEvictionPress(press, spans, window=isinstance(press, LOOKING_BACK))


def half_fair(press: ScorerPress, spans: Spans) -> BasePress:
    return DebiasPress(press, spans, 0.5, window=isinstance(press, LOOKING_BACK))
