"""A press of my own: loud values stay, and so do the first tokens, which all heads lean on."""

from dataclasses import dataclass

from kvpress import ScorerPress


@dataclass
class LoudValuesPress(ScorerPress):
    """Scores each token of each head by the norm of its value; the lowest scores are evicted."""

    n_sink: int = 4

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        scores = values.norm(dim=-1)  # (1, key heads, tokens)
        scores[..., : self.n_sink] = scores.max() + 1
        return scores
