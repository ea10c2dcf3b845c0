"""Which heads read the tokens that an answer needs."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def reads_span(top: npt.NDArray[np.integer], span: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Tells which heads have their top token in a span: where it is the answer's, heads that do so in most questions
    retrieve [the copy-paste criterion of W. Wu et al., arXiv 2404.15574, for one place].

    ``top``: shape (layers, heads), which is returned too. Chance: the span's share of all tokens.
    """
    return np.isin(top, list(span))
