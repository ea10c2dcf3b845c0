"""Routing metrics: what is left in the cache of the answer, the evidence and the instructions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from leaderboards.metrics.declaration import SHARE, Definition, Heading, Measure, Metric, Over
from leaderboards.metrics.inputs import Kept, Survival

ROUTING = "arXiv 2603.01426"


def globally_evicted(survival: Survival, tokens: Sequence[int]) -> float | None:
    """Returns the mean of GlobalEvicted over some tokens [arXiv 2603.01426]; ``None`` if there are
    none.

    Of the answer's tokens that is GER. A union over slots: it looks perfect when each layer holds
    another fragment. Read it beside slot coverage."""
    if not tokens:
        return None
    return float(survival.globally_evicted[list(tokens)].mean())


def slot_coverage(survival: Survival, tokens: Sequence[int]) -> float | None:
    """Returns the mean survival of some tokens over all slots, in [0, 1]; ``None`` if there are
    none."""
    if not tokens:
        return None
    return float(survival.heads[:, list(tokens)].mean())


def by_layer(shares: npt.NDArray[Any], tokens: Sequence[int]) -> list[float] | None:
    """Returns the mean over some tokens of shares, shape (layers, tokens), for each layer that
    presses compress; None if there are none."""
    if not tokens:
        return None
    means: list[float] = shares[:, list(tokens)].mean(axis=1).tolist()
    return means


def kept_shares(survival: Survival, tokens: Sequence[int]) -> bytes:
    """Returns for each token the share of all slots in which it survives, in 255ths: 0 in none, 255
    in all. Rounded up, so that 0 is GlobalEvicted and nothing else."""
    # All layers have as many heads, so that the mean over layers is that over slots.
    shares = survival.heads.mean(axis=0)[list(tokens)]
    parts = np.ceil(255 * shares - 1e-9)  # a sum's noise is no part more
    packed: bytes = parts.astype(np.uint8).tobytes()
    return packed


def shares_at(
    token_ends: bytes, token_kept: bytes, start: int, end: int
) -> npt.NDArray[np.float64]:
    """Returns for each token of the characters ``[start, end)`` of a context the share of all slots
    that keeps it, shape (tokens,). ``token_ends``: where each token of the context ends, as uint32.
    ``token_kept``: of :func:`kept_shares`."""
    ends = np.frombuffer(token_ends, dtype="<u4")
    parts = np.frombuffer(token_kept, dtype=np.uint8)
    # Ends are behind the last character of a token: the first token that ends behind a character
    # holds it.
    first, last = np.searchsorted(ends, (start, end - 1), side="right")
    return parts[first : last + 1] / 255


GER = Definition(
    "GER, the Global Eviction Ratio",
    "The share of the answer’s tokens that survive in no layer and no head. It has no value for a "
    "question without an answer in the context. A union over slots can look perfect while each "
    "layer holds another fragment: hence it is shown beside slot coverage. Slots are those of the "
    "layers that presses compress.",
    "GlobalEvicted(t) = 1 if token t survives in no (layer, head) slot, else 0\n"
    "GER = mean of GlobalEvicted over the answer tokens",
    ROUTING,
    chapter="routes",
)
EVICTION = Definition(
    "Eviction rate",
    "The same over all tokens of the context: how much of it is gone everywhere.",
    "mean of GlobalEvicted over the context tokens",
    ROUTING,
    chapter="routes",
)
COVERAGE = Definition(
    "Slot coverage",
    "How much of the evidence survives on average: the mean survival of the evidence tokens over "
    "all (layer, head) slots.",
    "mean over evidence tokens t, layers l and heads h of [t survives in (l, h)]",
    chapter="routes",
)
BIAS = Definition(
    "Eviction bias",
    "The mean share of the tokens of the defence and of the directives that survives, over layers "
    "and heads, and layer by layer.",
    source="arXiv 2510.00231",
    chapter="instructions",
)
PLACES = Definition(
    "Where in the context",
    "Characters of the context in which answer and evidence stand, first and behind the last, one "
    "span after the other; how many tokens these are; where each token ends (little-endian "
    "uint32), and the share of the slots that keeps it (a byte in 255ths). The digest is equal "
    "where the same is read in every layer and head.",
    chapter="routes",
)


def _survival(
    name: str,
    line: str,
    places: Callable[[Kept], Sequence[int]],
    definition: Definition,
    *measures: Measure,
) -> Metric:
    """Declares a mean survival over all slots."""
    return Metric(
        name=name,
        type=float,
        # What is kept of a defence explains what leaks, and ranks nobody.
        better="higher" if definition is COVERAGE else None,
        line=line,
        definition=definition,
        bounds=(0, 1),
        of_kept=lambda kept: slot_coverage(kept.survival, places(kept)),
        measures=measures,
    )


def _survival_by_layer(name: str, line: str, places: Callable[[Kept], Sequence[int]]) -> Metric:
    """Declares a mean survival over the heads of each layer."""
    return Metric(
        name=name,
        type=list[float],
        line=line,
        definition=BIAS,
        of_kept=lambda kept: by_layer(kept.survival.heads, places(kept)),
        measures=(Measure(field=name, over=Over.CONCERNED, scale=SHARE, by_layer=True),),
    )


def _kept(field: str, title: str) -> Measure:
    """Declares the mean over contexts that have such a span: without a defence nothing of it can be
    kept."""
    unit = "share of its tokens, mean over slots"
    return Measure(
        field=field, title=title, unit=unit, over=Over.CONCERNED, scale=SHARE, has_interval=True
    )


METRICS = (
    Metric(
        name="ger",
        type=float,
        better="lower",
        line="Share of the answer tokens that survive in no (layer, head) slot [2603.01426]",
        definition=GER,
        bounds=(0, 1),
        of_kept=lambda kept: globally_evicted(kept.survival, kept.answer),
        measures=(
            Measure(
                field="ger",
                title="Global Eviction Ratio",
                unit="share of the answer’s tokens",
                over=Over.ANSWERABLE,
                scale=SHARE,
                better="lower",
                curve=True,
                table=True,
                board=Heading("GER", "the answer’s tokens that survive nowhere"),
                heading="GER",
            ),
        ),
    ),
    Metric(
        name="ger_by_layer",
        type=list[float],
        better="lower",
        line="The same within each layer",
        definition=GER,
        of_kept=lambda kept: by_layer(kept.survival.evicted_by_layer, kept.answer),
        measures=(Measure(field="ger_by_layer", over=Over.ANSWERABLE, scale=SHARE, by_layer=True),),
    ),
    _survival(
        "slot_coverage",
        "Mean survival of the evidence tokens over all slots",
        lambda kept: kept.evidence,
        COVERAGE,
        Measure(
            field="slot_coverage",
            title="Slot coverage",
            unit="share of the evidence, mean over slots",
            over=Over.ANSWERABLE,
            scale=SHARE,
            better="higher",
            curve=True,
            heading="slot coverage",
        ),
    ),
    Metric(
        name="eviction_rate",
        type=float,
        line="Share of the context's tokens that survive in no slot",
        definition=EVICTION,
        bounds=(0, 1),
        of_kept=lambda kept: globally_evicted(kept.survival, kept.context),
        measures=(
            Measure(field="eviction_rate", over=Over.CACHE, scale=SHARE, heading="eviction rate"),
        ),
    ),
    Metric(
        name="token_kept",
        type=bytes,
        unit="255ths",
        line="A byte for each token of the context: the share of the slots that keep it",
        definition=PLACES,
        of_kept=lambda kept: kept_shares(kept.survival, kept.context),
    ),
    _survival(
        "defence_kept",
        "Mean survival of the defence's tokens over all slots",
        lambda kept: kept.defence,
        BIAS,
        _kept("defence_kept", "Defence kept"),
    ),
    _survival_by_layer(
        "defence_kept_by_layer", "The same within each layer", lambda kept: kept.defence
    ),
    _survival(
        "directives_kept",
        "Mean survival of the directives' tokens over all slots",
        lambda kept: kept.directives,
        BIAS,
        _kept("directives_kept", "Directives kept"),
    ),
    _survival_by_layer(
        "directives_kept_by_layer", "The same within each layer", lambda kept: kept.directives
    ),
)
