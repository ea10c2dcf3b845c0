"""Says how far rounding may take a sound run from its replay."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CLOSE = 1e-4  # of all other numbers: they follow from the prefill, which no other branch shares


@dataclass(frozen=True)
class Tolerance:
    """Says how far a sound run may be from its replay."""

    nats: float  # of the likelihood of a right answer
    share: float  # likewise, of the likelihood itself: both together
    tie: float  # nats by which the most likely token may lead one that was written
    rows: float = 0.0  # a share of how many tokens and bytes are kept

    def at_least(self, other: "Tolerance") -> "Tolerance":
        """Returns what either of both allows."""
        return Tolerance(
            max(self.nats, other.nats),
            max(self.share, other.share),
            max(self.tie, other.tie),
            max(self.rows, other.rows),
        )


# Measured on cells of runs at four to six ratios, each answered alone, where its whole context
# would have been exact: base on `reference` (144 answers a dtype) and SmolLM2 (186 in bfloat16).
# Likelihoods of up to 24 nats moved by at most 1.3e-5 in float32, 0.016 in float16 (of 21 nats;
# 0.014 of 10) and 0.29 in bfloat16 (of 8.3; 0.28 of 6.3), in the mean by 9e-7, 0.001 and 0.02. 19
# of the 186 answers parted, none of `reference`; of 24 stored ones that SmolLM2 wrote again alone
# one was behind, by 0.875 nats: a tie is a little wider, and in float16, whose numbers are 8 times
# finer, an eighth of that. A forged answer, that of the full cache under another policy's name, is
# behind by 8.7 nats in the median; the nearest two by 0.78 and 0.94, which are ties themselves.
TOLERANCES: Mapping[str, Tolerance] = {
    "float32": Tolerance(1e-4, 1e-4, 1e-3),
    "float16": Tolerance(0.01, 0.01, 0.125),
    "bfloat16": Tolerance(0.05, 0.05, 1.0),
}
# Of quantised rows: a number at the edge of a step falls on its other side by any rounding, also by
# the same kernels, where a part of a run is answered again and batches are smaller. Measured in
# float32 on 32 parts of the board: a likelihood moved by 0.0004 nats (of 0.07, q4_0), and an answer
# of q8_0(values=q4_0) parted, 0.034 nats behind. A tie is as wide as that of 16 bits, which are no
# coarser.
OF_STEPS = Tolerance(0.005, 0.005, 1.0)
# Where other kernels add in another order, two tokens of nearly the same score change places in a
# cache, and a number at the edge of a quantisation step falls on its other side. Measured with AVX2
# on runs of AVX-512. In float32, 2,243 answers of 32 parts of the board: 5 % had other tokens kept,
# up to 7 % of a context (K-Norm), and up to 0.02 % more or fewer by a threshold; likelihoods moved
# by up to 0.04 nats (of 0.17, q4_0); three answers parted, up to 0.1 nats behind. Of 18 of q4_0 on
# SmolLM2 two more did, one 0.88 behind. In bfloat16, 342 answers of SmolLM2: half had other tokens
# kept, 42 parted, and five were beyond what is allowed here, which some may be. float16 was not
# measured: it stands where its finer numbers put it.
OF_OTHER_KERNELS: Mapping[str, Tolerance] = {
    "float32": Tolerance(0.05, 0.05, 1.0, rows=0.01),
    "float16": Tolerance(0.05, 0.05, 1.0, rows=0.01),
    "bfloat16": Tolerance(0.2, 0.2, 1.0, rows=0.01),
}
OF_LIKELIHOOD = {"gold_nll": 1, "delta_nll": 2}  # how many likelihoods each is made of
OF_ROWS = {"realised_ratio", "kept_tokens", "kv_bytes"}


def is_close(name: str, stored: Any, again: Any, tolerance: Tolerance) -> bool:
    """Tells whether a stored value is the one that was made again, as far as rounding lets it."""
    if times := OF_LIKELIHOOD.get(name, 0):
        return agree(stored, again, times * tolerance.nats, times * tolerance.share)
    if name in OF_ROWS and again is not None:
        return agree(stored, float(again), CLOSE, tolerance.rows)
    return agree(stored, again, CLOSE, CLOSE)


def agree(stored: Any, again: Any, least: float, share: float, nan_agrees: bool = False) -> bool:
    """Tells whether numbers, also in lists, differ by no more than a least amount and a share; all
    else is equal."""
    if isinstance(again, list) and isinstance(stored, list):
        if len(again) != len(stored):
            return False
        for before, after in zip(stored, again, strict=True):
            if not agree(before, after, least, share, nan_agrees):
                return False
        return True
    if not isinstance(again, float) or not isinstance(stored, int | float):
        return bool(stored == again)
    if stored == again:
        return True
    if nan_agrees and math.isnan(stored) and math.isnan(again):
        return True
    allowed = least + share * abs(again)
    return abs(stored - again) <= allowed
