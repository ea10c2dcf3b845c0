"""The experiment of text F: entries of the cache that hold something else, drawn anew before every pass that reads."""

from collections.abc import Mapping

from leaderboards.claims.declaration import Experiment, Measure, Statistic
from leaderboards.claims.evidence import Evidence

RATES = (0.02, 0.1, 0.3)
TASK = "base"
FRESH = "(unit=value,phase=every_step,persistence=transient)"
GAUSSIAN, ZEROS, DISTRACTOR = (f"{kind}{FRESH}" for kind in ("gaussian", "zeros", "distractor"))
QUARTERS = tuple(f"gaussian(layers=Q{quarter},{FRESH[1:]}" for quarter in (1, 2, 3, 4))

KINDS_OF_NOISE = Experiment(
    name="noise",
    tasks=TASK,
    policies=",".join((GAUSSIAN, ZEROS, DISTRACTOR)),
    levels=(("rate", ",".join(map(str, RATES))),),
    contexts=24,
    repeats=2,
)
BANDS = Experiment(
    name="bands",
    tasks=TASK,
    policies=",".join(QUARTERS),
    levels=(("rate", "0.02"),),
    contexts=24,
    repeats=2,
)


def share_kept(kind: str, rate: float) -> Measure:
    """Measures what a kind of noise leaves of right answers, as a share of the full cache's."""

    def measure(evidence: Mapping[str, Evidence]) -> list[Statistic]:
        records = evidence[KINDS_OF_NOISE.name].of(TASK)
        return [Statistic(records.share_kept(kind, rate), records.contexts)]

    return measure
