"""Presses around another that keep what a serving engine can free: whole pages, and the same tokens in all heads."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from kvpress import ScorerPress
from kvpress.utils import compute_n_kept

from policies.declaration.errors import PolicyError
from policies.presses.protection import MUST_STAY, as_order, check_scores

Joined = Literal["mean", "max"]


@dataclass
class RescoringPress(ScorerPress):
    """Keeps the tokens of highest score, as another press scores them and :meth:`change_scores` changes that.

    ``press`` scores the whole context, once, at its own ratio, which is the same.
    """

    press: ScorerPress = field(default_factory=ScorerPress)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.press, ScorerPress):
            raise PolicyError(f"{type(self).__name__} goes around a ScorerPress, not a {type(self.press).__name__}")

    def post_init_from_model(self, model: Any) -> None:
        self.press.post_init_from_model(model)

    def score(self, module: Any, hidden_states: torch.Tensor, keys: torch.Tensor, *others: Any) -> torch.Tensor:
        """Returns scores of shape (batch_size, num_kv_heads, seq_len)."""
        scores: torch.Tensor = self.press.score(module, hidden_states, keys, *others)
        check_scores(scores, keys.shape[:3], self.press)
        return self.change_scores(as_order(scores.float(), self.press))

    def change_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """Changes scores of shape (batch_size, num_kv_heads, seq_len)."""
        raise NotImplementedError


@dataclass
class EndsPress(RescoringPress):
    """Keeps the first and the last ``share`` of a context first; the rest of the budget goes to the press. Where the
    ends are more than the budget, those of their tokens that the press scores highest."""

    share: float = 0.1

    def change_scores(self, scores: torch.Tensor) -> torch.Tensor:
        length = scores.shape[-1]
        end = max(1, int(length * self.share))
        places = torch.arange(length, device=scores.device)
        protected = (places < end) | (places >= length - end)
        rank = scores.argsort(dim=-1, stable=True).argsort(dim=-1)
        return (rank + MUST_STAY * length * protected).float()


@dataclass
class SharedPress(RescoringPress):
    """Keeps the same tokens in all heads of a layer: those of the highest mean score over its heads, or of the highest
    score that any head gives (``by`` max).

    The mean is TOVA's (arXiv 2401.06104). The trap: scores are taken as they are, so that a head whose scores are on a
    larger scale, such as one of long keys under K-norm, decides for all.
    """

    by: Joined = "mean"

    def change_scores(self, scores: torch.Tensor) -> torch.Tensor:
        joined = scores.mean(1, keepdim=True) if self.by == "mean" else scores.amax(1, keepdim=True)
        return joined.expand_as(scores)


@dataclass
class PagesPress(RescoringPress):
    """Keeps whole pages of ``size`` tokens in every head: those of the highest mean score over their tokens, as in
    PagedEviction (arXiv 2509.04377), or of the highest score of any of their tokens (``by`` max).

    Pages are counted from the first token. The last one, if it is not full, always stays: the engine writes the next
    tokens into it. As many full pages are kept as come nearest to the budget, and at least one where none is open.
    The trap of the mean: a page of one important token and 15 others may score below a page of 16 middling ones.
    """

    by: Joined = "mean"
    size: int = 16

    def change_scores(self, scores: torch.Tensor) -> torch.Tensor:
        """Gives each token of a full page the score of the page, and an open page a score above all others."""
        pages = self._pages(scores)
        full = pages.repeat_interleave(self.size, dim=-1)
        above = pages.amax() + 1 if pages.numel() else 0.0
        return torch.nn.functional.pad(full, (0, scores.shape[-1] - full.shape[-1]), value=float(above))

    def _pages(self, scores: torch.Tensor) -> torch.Tensor:
        """Returns the scores of the full pages, shape (batch_size, num_kv_heads, pages)."""
        count = scores.shape[-1] // self.size
        tokens = scores[..., : count * self.size].unflatten(-1, (count, self.size))
        joined: torch.Tensor = tokens.mean(-1) if self.by == "mean" else tokens.amax(-1)
        return joined

    def compress(
        self,
        module: Any,
        hidden_states: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        attentions: torch.Tensor | None,
        kwargs: dict[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keeps as many rows in every head, in order of their tokens."""
        if self.compression_ratio == 0:
            return keys, values
        scores = self.score(module, hidden_states, keys, values, attentions, kwargs)
        count = kept_pages(keys.shape[2], compute_n_kept(keys.shape[2], self.compression_ratio), self.size)
        # By page and not by token: of pages of equal scores, the highest tokens would be parts of several.
        best = scores[..., :: self.size][..., : keys.shape[2] // self.size]
        pages = best.argsort(dim=-1, descending=True, stable=True)[..., :count].sort(dim=-1).values
        tokens = (pages[..., None] * self.size + torch.arange(self.size, device=keys.device)).flatten(-2)
        open_page = torch.arange(keys.shape[2] // self.size * self.size, keys.shape[2], device=keys.device)
        index = torch.cat([tokens, open_page.expand(*tokens.shape[:2], -1)], dim=-1)[..., None]
        index = index.expand(-1, -1, -1, keys.shape[-1])
        return keys.gather(2, index).contiguous(), values.gather(2, index).contiguous()


def kept_pages(length: int, kept: int, size: int) -> int:
    """Counts the full pages that are kept of ``length`` tokens where ``kept`` are asked for: with the tokens of an open
    page, which stays, they come nearest to it, and of two equally near counts it is the lower."""
    full, open_page = divmod(length, size)
    nearest = -(-(2 * (kept - open_page) - size) // (2 * size))
    return min(full, max(nearest, 0 if open_page else 1))
