"""Presses around another that scores tokens: they protect spans (after arXiv 2510.00231) or ends of
a context, and keep what a serving engine can free: whole pages, and the same tokens in all
heads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from kvpress import ScorerPress, SnapKVPress, StreamingLLMPress, TOVAPress
from kvpress.utils import compute_n_kept

from policies.declaration.names import PolicyError

Spans = Sequence[tuple[int, int]]  # half-open ranges of token positions
# Of a stretch of the context, (batch, num_kv_heads, end - start).
Scores = Callable[[int, int], torch.Tensor]
Joined = Literal["mean", "max"]
# Added to an order of tokens, this many times their number for those that must stay: also the mean
# of a page of 16 tokens with one of these is then above that of any other.
MUST_STAY = 64


def check_spans(spans: Spans, length: int) -> list[tuple[int, int]]:
    """Sorts half-open ranges of token positions in a context of ``length`` tokens.

    Raises :class:`PolicyError` if one is empty, overlaps another or leaves the context.
    """
    ordered = sorted(spans)
    end_before = 0
    for start, end in ordered:
        if not end_before <= start < end <= length:
            raise PolicyError(
                f"the span {start} to {end} is empty, overlaps another, or leaves the {length} "
                f"tokens"
            )
        end_before = end
    return ordered


def split_at_spans(spans: Spans, length: int) -> list[tuple[int, int]]:
    """Returns the spans and what lies between them: ranges that make up the whole context, in
    order.

    Raises :class:`PolicyError` for spans that :func:`check_spans` refuses.
    """
    parts = []
    end_before = 0
    for start, end in check_spans(spans, length):
        if end_before < start:
            parts.append((end_before, start))
        parts.append((start, end))
        end_before = end
    if end_before < length:
        parts.append((end_before, length))
    return parts


def shared_out(total: int, weights: torch.Tensor) -> torch.Tensor:
    """Shares out ``total`` in whole numbers, in proportion to the weights, by the largest
    remainders.

    Of equal remainders earlier parts come first. ``weights``: shape (…, parts). Returns int64 of
    the same shape.
    """
    # Float32 has two decimals left for the remainder of a count near 100,000.
    weights = weights.double()
    exact = weights / weights.sum(-1, keepdim=True) * total
    counts = exact.floor().long()
    missing = total - counts.sum(-1, keepdim=True)
    remainders = exact - counts
    rank = _rank_from_highest(remainders)
    return counts + (rank < missing)


def _rank_from_highest(numbers: torch.Tensor) -> torch.Tensor:
    """Ranks numbers along the last dimension: 0 for the highest, and of equal ones for the
    first."""
    # Stable, as devices break ties differently; the order of an order is the rank of each number.
    order = numbers.argsort(dim=-1, descending=True, stable=True)
    return order.argsort(dim=-1)


@dataclass
class RescoringPress(ScorerPress):
    """Keeps the tokens of highest score, as another press scores them and :meth:`change_scores`
    changes that.

    ``press`` scores the whole context, once, at its own ratio, which is the same.
    """

    press: ScorerPress = field(default_factory=ScorerPress)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.press, ScorerPress):
            raise PolicyError(
                f"{type(self).__name__} goes around a ScorerPress, not a "
                f"{type(self.press).__name__}"
            )

    def post_init_from_model(self, model: Any) -> None:
        self.press.post_init_from_model(model)

    def score(
        self, module: Any, hidden_states: torch.Tensor, keys: torch.Tensor, *others: Any
    ) -> torch.Tensor:
        """Returns scores of shape (batch_size, num_kv_heads, seq_len). Raises :class:`PolicyError`
        for those that :func:`checked` refuses, and for spans that do not fit the context."""
        scores: torch.Tensor = self.press.score(module, hidden_states, keys, *others)
        return self.change_scores(checked(scores, keys.shape[:3], self.press))

    def change_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """Changes scores, shape (batch_size, num_kv_heads, seq_len). Raises
        ``NotImplementedError`` where a class derived from this one does not say how."""
        raise NotImplementedError


def checked(scores: torch.Tensor, shape: Sequence[int], press: ScorerPress) -> torch.Tensor:
    """Returns the scores of a press, of this shape, as an order of tokens: float32.

    Raises :class:`PolicyError` for another shape and for NaN, with which the press itself would
    fail.

    StreamingLLM scores with 1 and 0 for the ratio that it was asked for, which ranks nothing where
    another number of tokens is to be kept. What it keeps at any ratio are the sinks and the most
    recent: that is an order of all.
    """
    name = type(press).__name__
    if scores.shape != torch.Size(shape):
        raise PolicyError(f"{name} scored with shape {tuple(scores.shape)} and not {tuple(shape)}")
    if scores.isnan().any():
        raise PolicyError(f"{name} scored with NaN")
    if not isinstance(press, StreamingLLMPress):
        return scores.float()
    length = scores.shape[-1]
    order = torch.arange(length, device=scores.device, dtype=torch.float32)
    order[: press.n_sink] += MUST_STAY * length
    return order.expand(scores.shape)


def kept_first(scores: torch.Tensor, protected: torch.Tensor) -> torch.Tensor:
    """Returns an order in which the protected tokens, bool (seq_len,), stand above all others.

    ``scores``, and what is returned: (batch_size, num_kv_heads, seq_len).
    """
    # Ranks and not scores: a sum of a score and a bonus would lose the order of what is added to.
    order = scores.argsort(dim=-1, stable=True)
    rank = order.argsort(dim=-1)
    # Exact in float32 up to 258,000 tokens: a rank and its bonus stay below 2**24.
    bonus = MUST_STAY * scores.shape[-1]
    return (rank + bonus * protected).float()


@dataclass
class EndsPress(RescoringPress):
    """Keeps the first and the last ``share`` of a context first; the rest of the budget goes to the
    press. Where the ends are more than the budget, those of their tokens that the press scores
    highest."""

    share: float = 0.1

    def change_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """Puts both ends above all others: shape (batch_size, num_kv_heads, seq_len)."""
        length = scores.shape[-1]
        end = max(1, int(length * self.share))
        places = torch.arange(length, device=scores.device)
        protected = (places < end) | (places >= length - end)
        return kept_first(scores, protected)


@dataclass
class WhitelistPress(RescoringPress):
    """Keeps tokens of the spans first, and those that the press scores highest where they exceed
    the budget."""

    spans: Spans = ()

    def change_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """Puts the spans above all others: shape (batch_size, num_kv_heads, seq_len). Raises
        :class:`PolicyError` as :func:`check_spans` does."""
        length = scores.shape[-1]
        protected = torch.zeros(length, dtype=torch.bool, device=scores.device)
        for start, end in check_spans(self.spans, length):
            protected[start:end] = True
        return kept_first(scores, protected)


@dataclass
class SharedPress(RescoringPress):
    """Keeps the same tokens in all heads of a layer: those of the highest mean score over its
    heads, or of the highest score that any head gives (``by`` max).

    The mean is TOVA's (arXiv 2401.06104). The trap: scores are taken as they are, so that a head
    whose scores are on a larger scale, such as one of long keys under K-norm, decides for all."""

    by: Joined = "mean"

    def change_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """Gives all heads of a layer the same scores: shape (batch_size, num_kv_heads, seq_len)."""
        if self.by == "mean":
            return scores.mean(1, keepdim=True).expand_as(scores)
        return scores.amax(1, keepdim=True).expand_as(scores)


@dataclass
class PagesPress(RescoringPress):
    """Keeps whole pages of ``size`` tokens in every head: those of the highest mean score over
    their tokens, as in PagedEviction (arXiv 2509.04377), or of the highest score of any of their
    tokens (``by`` max).

    Pages are counted from the first token. The last one, if it is not full, always stays: the
    engine writes the next tokens into it. As many full pages are kept as come nearest to the
    budget, and at least one where none is open. The trap of the mean: a page of one important token
    and 15 others may score below a page of 16 middling ones."""

    by: Joined = "mean"
    size: int = 16

    def change_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """Gives each token of a full page the score of the page, and an open page a score above all
        others. Takes and returns shape (batch_size, num_kv_heads, seq_len)."""
        length = scores.shape[-1]
        count = length // self.size
        tokens = scores[..., : count * self.size].unflatten(-1, (count, self.size))
        pages = tokens.mean(-1) if self.by == "mean" else tokens.amax(-1)
        full = pages.repeat_interleave(self.size, dim=-1)
        highest = 0.0
        if count:
            highest = float(pages.amax() + 1)
        missing = length - full.shape[-1]
        return torch.nn.functional.pad(full, (0, missing), value=highest)

    def compress(
        self,
        module: Any,
        hidden_states: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        *others: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keeps as many rows in every head, in order of their tokens.

        ``keys``, ``values`` and what is returned: (batch_size, num_kv_heads, tokens, head_dim).
        """
        if self.compression_ratio == 0:
            return keys, values
        scores = self.score(module, hidden_states, keys, values, *others)
        length = keys.shape[2]
        full_pages = length // self.size
        kept = compute_n_kept(length, self.compression_ratio)
        count = kept_pages(length, kept, self.size)
        # By page and not by token: of pages of equal scores, the highest tokens would be parts of
        # several.
        of_pages = scores[..., :: self.size][..., :full_pages]
        order = of_pages.argsort(dim=-1, descending=True, stable=True)
        pages = order[..., :count].sort(dim=-1).values
        places = torch.arange(self.size, device=keys.device)
        # (batch, heads, pages, size) to (batch, heads, tokens).
        tokens = (pages[..., None] * self.size + places).flatten(-2)
        open_page = torch.arange(full_pages * self.size, length, device=keys.device)
        positions = torch.cat([tokens, open_page.expand(*tokens.shape[:2], -1)], dim=-1)
        return rows_at(positions, keys, values)


def kept_pages(length: int, kept: int, size: int) -> int:
    """Counts the full pages of ``size`` tokens that are kept of ``length`` tokens where ``kept``
    are asked for.

    With the tokens of an open page, which stays, they come nearest to it, and of two equally near
    counts it is the lower.
    """
    full, open_page = divmod(length, size)
    least = 0 if open_page else 1
    # Half a page less, rounded up.
    nearest = -(-(2 * (kept - open_page) - size) // (2 * size))
    return min(full, max(nearest, least))


def rows_at(
    positions: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the rows of each head at these positions, int64 (batch_size, num_kv_heads, kept).

    ``keys`` and ``values``: (batch_size, num_kv_heads, tokens, head_dim).
    """
    index = positions[..., None].expand(-1, -1, -1, keys.shape[-1])
    return keys.gather(2, index).contiguous(), values.gather(2, index).contiguous()


@dataclass
class FairEvictionPress(RescoringPress):
    """Each part of the context, the spans and what lies between them, keeps the same share of its
    tokens, and the press chooses which.

    ``window``: the press looks at positions, and scores each part as if that were the context.
    """

    spans: Spans = ()
    window: bool = field(default=False, kw_only=True)

    def compress(
        self,
        module: Any,
        hidden_states: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        *others: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keeps as many rows of every head as the press itself would.

        ``keys``, ``values`` and what is returned: (batch_size, num_kv_heads, tokens, head_dim).
        Raises :class:`PolicyError` for spans that :func:`check_spans` refuses, and scores that
        :func:`checked` does."""
        if self.compression_ratio == 0:
            return keys, values
        attentions, kwargs = others

        def score(start: int, end: int) -> torch.Tensor:
            # Turned as in the whole context: a part keeps the positions that its tokens have there.
            cos, sin = kwargs["position_embeddings"]
            hidden_part = hidden_states[:, start:end]
            key_part = keys[:, :, start:end]
            value_part = values[:, :, start:end]
            # Cut in both forms in which a press may take them: by place, and by name as from the
            # layer. There are no attention weights to be cut, as all presses share the fused
            # attention.
            arguments = {
                **kwargs,
                "hidden_states": hidden_part,
                "position_embeddings": (cos[:, start:end], sin[:, start:end]),
            }
            scores: torch.Tensor = self.press.score(
                module, hidden_part, key_part, value_part, attentions, arguments
            )
            return checked(scores, key_part.shape[:3], self.press)

        length = keys.shape[2]
        kept = compute_n_kept(length, self.compression_ratio)
        return rows_at(self.positions(score, kept, length), keys, values)

    def positions(self, score: Scores, kept: int, length: int) -> torch.Tensor:
        """Returns the positions of the ``kept`` tokens of each head, (batch, num_kv_heads,
        kept)."""
        parts = self.parts(length)
        whole = score(0, length)
        # In a part that is not longer, a press cannot look back from the end.
        shortest = 1
        for name in ("window_size", "n_sink"):
            shortest = max(shortest, int(getattr(self.press, name, 1)))
        counts = self.counts(whole, parts, kept)
        keeps = []
        for number, (start, end) in enumerate(parts):
            scores = whole[..., start:end]
            if self.window and end - start > shortest:
                scores = score(start, end)
            count = counts[..., number : number + 1]
            keeps.append(_rank_from_highest(scores) < count)
        keep = torch.cat(keeps, dim=-1)
        # Every head keeps as many: their positions in order are a rectangle.
        return keep.nonzero()[:, -1].view(*keep.shape[:2], kept)

    def parts(self, length: int) -> list[tuple[int, int]]:
        """Returns the ranges that make up the context, in order."""
        return split_at_spans(self.spans, length)

    def counts(self, whole: torch.Tensor, parts: Spans, kept: int) -> torch.Tensor:
        """Counts the tokens that each head keeps of each part, shape (batch_size, num_kv_heads,
        parts). ``whole``: all scores, shape (batch_size, num_kv_heads, seq_len)."""
        sizes = torch.tensor([end - start for start, end in parts], device=whole.device)
        shares = shared_out(kept, sizes)
        return shares.expand(*whole.shape[:2], -1)


@dataclass
class DebiasPress(FairEvictionPress):
    """Each part keeps between what the press would leave it (``strength`` 0) and its fair share
    (1)."""

    strength: float = field(default=0.5, kw_only=True)

    def counts(self, whole: torch.Tensor, parts: Spans, kept: int) -> torch.Tensor:
        """Counts between what the press keeps and the fair shares, shape (batch_size, num_kv_heads,
        parts). ``whole``: all scores, shape (batch_size, num_kv_heads, seq_len)."""
        chosen = torch.zeros_like(whole, dtype=torch.long)
        # By topk, as kvpress's own compress chooses, whatever that makes of ties.
        chosen.scatter_(-1, whole.topk(kept, dim=-1).indices, 1)
        of_parts = [chosen[..., start:end].sum(-1) for start, end in parts]
        unchanged = torch.stack(of_parts, dim=-1)
        fair_counts = super().counts(whole, parts, kept)
        blend = (1 - self.strength) * unchanged + self.strength * fair_counts
        return shared_out(kept, blend)


# Presses that look back from the last tokens, or, as StreamingLLM, at positions alone: their scores
# of a whole context are all the same in the middle, and rank nothing there.
LOOKING_BACK = (StreamingLLMPress, SnapKVPress, TOVAPress)


def fair(ratio: float, press: ScorerPress, spans: Spans) -> FairEvictionPress:
    return FairEvictionPress(ratio, press, spans, window=isinstance(press, LOOKING_BACK))


def half_fair(ratio: float, press: ScorerPress, spans: Spans) -> FairEvictionPress:
    return DebiasPress(ratio, press, spans, strength=0.5, window=isinstance(press, LOOKING_BACK))
