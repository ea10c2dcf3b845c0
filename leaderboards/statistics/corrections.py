"""Corrects p-values where several are tested together.

Boards and pages correct their verdicts by Holm's method. Texts correct their p-values by Bonferroni
or by Benjamini and Hochberg: a table that repeats the test of a text has the corrections of that
text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from leaderboards.statistics.intervals import ALPHA
from policies.declaration.lazy import LazyModule

stats = LazyModule("scipy.stats")  # its import takes half a second, and few pages need it

Name = TypeVar("Name")


@dataclass(frozen=True)
class Corrected:
    """A p-value of a family, corrected for how many there are. ``alpha``: the level at which it is
    tested; an interval of this level leaves out 0 exactly where ``p`` is below 0.05."""

    p: float
    alpha: float


def holm(p_values: Mapping[Name, float]) -> dict[Name, Corrected]:
    """Corrects the p-values of a family, which bounds the chance of any false claim [S. Holm,
    Scandinavian Journal of Statistics 6 (1979)]: the levels are 0.05 over the number of those not
    yet rejected, and from the first that is not, the level of that one."""
    # By hand, as statsmodels' multipletests collects garbage at each call: half a second where
    # torch is loaded, and a comparison has hundreds of families.
    family = np.array(list(p_values.values()))
    order = np.argsort(family, kind="stable")
    ordered = family[order]
    remaining = np.arange(len(family), 0, -1)  # tests not yet rejected
    levels = ALPHA / remaining
    # Holm's method stops at the first that is not rejected. All behind it keep its level, also
    # where a later p is below the level that it would have had.
    kept = np.flatnonzero(ordered >= levels)
    if len(kept):
        levels[kept[0] :] = levels[kept[0]]
    adjusted = np.empty(len(family))
    # So no corrected p is below that of a smaller p, which would turn the order of the tests round.
    adjusted[order] = np.minimum(np.maximum.accumulate(ordered * remaining), 1)
    alphas = np.empty(len(family))
    alphas[order] = levels
    corrected = {}
    for name, p, alpha in zip(p_values, adjusted.tolist(), alphas.tolist(), strict=True):
        corrected[name] = Corrected(p, alpha)
    return corrected


@dataclass(frozen=True)
class PValue:
    """A p-value, corrected in two ways over its family; all are None where there was nothing to
    test."""

    p: float | None = None
    # At most 0.05: that any test of the family is wrong is no likelier than that.
    p_bonferroni: float | None = None
    # At most 0.05: of all tests that say so, one in twenty is wrong on average.
    p_bh: float | None = None


def as_family(p_values: Sequence[float | None]) -> list[PValue]:
    """Corrects the p-values of one family. What could not be tested (None) counts for nothing.

    Y. Benjamini and Y. Hochberg, Journal of the Royal Statistical Society B 57 (1995), 289-300."""
    corrected = [PValue() for _ in p_values]
    tested = [place for place, p in enumerate(p_values) if p is not None]
    if not tested:
        return corrected
    family = np.array([p_values[place] for place in tested], dtype=np.float64)
    controlled = stats.false_discovery_control(family, method="bh")
    bonferroni = np.minimum(1.0, family * len(family))
    numbers = zip(tested, family.tolist(), bonferroni.tolist(), controlled.tolist(), strict=True)
    for place, p, p_bonferroni, p_bh in numbers:
        corrected[place] = PValue(p, p_bonferroni, p_bh)
    return corrected
