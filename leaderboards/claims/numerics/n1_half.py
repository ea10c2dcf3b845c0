"""Claim N1: with and without the cache, answers differ in 16 bits."""

from collections.abc import Mapping

from leaderboards.claims.declaration import Claim, Statistic
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.numerics.walked import HALF, WALKED, pairs_of, statistic_of
from leaderboards.claims.texts import N
from leaderboards.studies.numerics.pairs import FREE


def _measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    rows, other = (pairs_of(evidence, FREE, dtype) for dtype in (HALF, "bfloat16"))
    differs, also = rows["flip"].notna(), other["flip"].notna()
    note = f"{differs.sum()} of {len(rows)} pairs; in bfloat16 {also.mean():.2f} of {len(other)}"
    return [statistic_of(evidence, rows, differs, note)]


CLAIM = Claim(
    identifier="N1",
    text=N,
    words="In 16 bits, decoding with the cache gives other tokens than without it, always.",
    reported="in 100 % of cases, in FP16; another text (arXiv 2603.19664) reports none",
    statistic="share of the answers in float16 that have another token with the cache than without it, each going on "
    "from its own tokens, greedy",
    side="at least",
    threshold=0.95,
    experiments=(WALKED,),
    measure=_measure,
    because="Rounding is small beside the distance between the first and the second token. Behind the same tokens, "
    "float16 "
    "moves the distribution by 6e-8 nats and less on `base` and by 4e-6 on running text, 8e-5 at most "
    "(N3). None of 60 answers parts in `reference` and in `reference-small`, and one in `reference-qwen`, on "
    "running text; in bfloat16, whose steps are eight times as wide, 5, 2 and 13 % part, all of them on running "
    "text. Answers of a few tokens that are nearly certain have no boundary near.",
)
