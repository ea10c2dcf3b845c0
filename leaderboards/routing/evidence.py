"""How much of the attention goes to the tokens that an answer needs, and which heads read it."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def attention_shares(attention: npt.NDArray[np.floating], spans: Mapping[str, Sequence[int]]) -> FloatArray:
    """Returns the share of the attention that goes to the tokens of each span, such as answer, subject, bridge and
    distractor.

    ``attention``: shape (layers, heads, tokens), which sums to 1 over the tokens. Returns shape (layers, heads, spans).
    """
    shares = [attention[..., list(tokens)].sum(axis=-1) for tokens in spans.values()]
    return np.stack(shares, axis=-1).astype(np.float64)


def chance_of_share(span: Sequence[int], tokens: int) -> float:
    """Returns the share that a span gets of an attention that is even over all ``tokens``."""
    return len(set(span)) / tokens


def reads_span(top: npt.NDArray[np.integer], span: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Tells which heads have their top token in a span. ``top``: shape (layers, heads), which is returned too."""
    return np.isin(top, list(span))


def retrieval_scores(tops: Sequence[npt.NDArray[np.integer]], answers: Sequence[Sequence[int]]) -> FloatArray:
    """Returns the share of the questions in which the top token of each head is in the answer's span: the heads that
    retrieve have the highest [the copy-paste criterion of W. Wu et al., arXiv 2404.15574, for one place].

    ``tops``: by question, shape (layers, heads). ``answers``: by question, the tokens of the answer. Returns shape
    (layers, heads). Chance: the mean of :func:`chance_of_share`.
    """
    scores: FloatArray = np.mean([reads_span(top, span) for top, span in zip(tops, answers, strict=True)], axis=0)
    return scores
