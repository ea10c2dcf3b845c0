"""The claims of text F: entries of the cache that hold something else, drawn anew before every pass
that reads."""

from functools import partial

import numpy as np

from leaderboards.aggregate.evidence import Evidence, check_same_contexts
from leaderboards.claims.declaration import LARGER, Claim, Experiment, Statistic, Text
from leaderboards.statistics.bootstrap import FloatArray

F = Text("F", "KV Cache is More Robust Than You Think", "Qwen2.5 1.5B and 7B, GSM8K")
TASK = "base"
FRESH = "(unit=value,phase=every_step,persistence=transient)"
GAUSSIAN, ZEROS, DISTRACTOR = (f"{kind}{FRESH}" for kind in ("gaussian", "zeros", "distractor"))
QUARTERS = tuple(f"gaussian(layers=Q{quarter},{FRESH[1:]}" for quarter in (1, 2, 3, 4))
FEW, RATES = 0.02, (0.02, 0.1, 0.3)
LEVELS = (("rate", ",".join(map(str, RATES))),)
NOISE = Experiment(
    "noise", TASK, ",".join((GAUSSIAN, ZEROS, DISTRACTOR)), LEVELS, contexts=24, repeats=2
)
BANDS = Experiment("bands", TASK, ",".join(QUARTERS), (("rate", str(FEW)),), contexts=24, repeats=2)


def _kept(kind: str, rate: float, evidence: Evidence) -> list[Statistic]:
    """Measures what a kind of noise leaves of right answers, as a share of the full cache's."""
    records = evidence.of(TASK)
    kept = records.share_kept(kind, rate)
    return [Statistic(kept, records.contexts)]


def _order(evidence: Evidence) -> list[Statistic]:
    records = evidence.of(TASK)
    distractor = records.area(DISTRACTOR, RATES)
    zeros = records.area(ZEROS, RATES)
    gaussian = records.area(GAUSSIAN, RATES)
    return [
        Statistic(distractor - zeros, records.contexts, "distractor above zeros"),
        Statistic(zeros - gaussian, records.contexts, "zeros above gaussian"),
    ]


def _quarters(evidence: Evidence) -> list[Statistic]:
    """Measures how much more is kept with the best quarter damaged than with the worst."""
    records = evidence.of(TASK)
    kept = [records.share_kept(quarter, FEW) for quarter in QUARTERS]
    shares = [of_quarter[0] for of_quarter in kept]
    # The two as measured, also in each resample: chosen anew there they would be apart by chance
    # alone. That they were chosen as the extremes of four is not in the interval.
    best, worst = kept[int(np.argmax(shares))], kept[int(np.argmin(shares))]
    texts = ", ".join(f"{share:.2f}" for share in shares)
    note = f"kept by the quarter that is damaged, from the input: {texts}"
    return [Statistic(best - worst, records.contexts, note=note)]


def _size_helps(*evidence: Evidence) -> list[Statistic]:
    """Measures how much more of the full cache's right answers a larger model keeps, under either
    kind of noise."""
    small, large = (of_size.of(TASK) for of_size in evidence)
    check_same_contexts(small, large)

    def gain(kind: str, rate: float) -> FloatArray:
        return large.share_kept(kind, rate) - small.share_kept(kind, rate)

    structured, gaussian = gain(DISTRACTOR, RATES[-1]), gain(GAUSSIAN, FEW)
    of_distractor = f"distractor at {RATES[-1]} {structured[0]:+z.2f}"
    note = f"larger less smaller: {of_distractor}, gaussian at {FEW} {gaussian[0]:+z.2f}"
    return [Statistic(structured - gaussian, small.contexts, note=note)]


claim = partial(Claim, text=F, experiments=(NOISE,))
CLAIMS = (
    claim(
        identifier="F1",
        words="A little Gaussian noise is catastrophic.",
        reported="at 2 % of the entries 0.02 of 0.87 (7B) and 0.00 of 0.66 (1.5B) are right",
        statistic="right answers at 2 % of the entries, drawn anew at every step, as a share of "
        "the full cache's",
        holds=("at most", 0.2),
        measure=partial(_kept, GAUSSIAN, FEW),
    ),
    claim(
        identifier="F2",
        words="Structured noise is survivable.",
        reported="with 30 % of the entries from another prompt 0.50 of 0.87 are right (7B), and "
        "0.07 of 0.66 (1.5B)",
        statistic="right answers with 30 % of the entries from another context, as a share of the "
        "full cache's",
        holds=("at least", 0.5),
        measure=partial(_kept, DISTRACTOR, 0.3),
    ),
    claim(
        identifier="F3",
        words="Rows of another prompt hurt least, then zeros, then Gaussian noise.",
        reported="at every rate up to 0.3",
        statistic="difference of the areas under what is kept over rates up to 0.3, same contexts "
        "and draws",
        holds=("above", 0.0),
        measure=_order,
    ),
    claim(
        identifier="F4",
        words="Layers differ: one band is a buffer, another is critical.",
        reported="with 2 % of one quarter damaged, 0.86 of 0.87 in the third quarter and 0.12 in "
        "the last are right",
        statistic="what is kept with noise in one quarter of the layers: the best quarter above "
        "the worst",
        holds=("above", 0.3),
        experiments=(BANDS,),
        measure=_quarters,
    ),
    claim(
        identifier="F5",
        words="Size helps against structured noise and not against Gaussian noise.",
        reported="7B against 1.5B: distractor at 30 % keeps 0.57 against 0.11, Gaussian at 2 % "
        "0.02 against 0.00",
        statistic="how much more the larger model keeps with 30 % of the entries from another "
        "context than the smaller one, less the same with Gaussian noise at 2 %, both on the same "
        "contexts",
        holds=("above", 0.0),
        measure=_size_helps,
        other=LARGER,
    ),
)
