"""Sorts treatments as text E does: fewer bits, uniform and normal errors, biases, and wrong signs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from leaderboards.studies.treatments.damage import Damage, damages
from policies.faults.multiplicative import NormalOptions, UniformOptions
from policies.quantisation.registry import KINDS as FORMATS
from policies.treatments.options import is_one_of, kind_in, name_with, options_in

BOTH = "both"  # keys and values
BITS = "fewer bits"
SORTS = {
    "multiplicative_uniform": "uniform",
    "multiplicative_normal": "normal",
    "bias": "constant",
    "sign_flip": "signs",
    "same_sign": "signs",
}


@dataclass(frozen=True)
class ErrorTreatment:
    """An error of the numbers of the full cache."""

    policy: str
    sort: str
    tensor: str  # K, V or both
    everywhere: str  # the same treatment of keys and values
    spread: float | None = None  # standard deviation of the relative error of each number, where it is noise
    centred: bool = False  # whether the noise is 0 on average


def treatments_among(policies: Sequence[str]) -> list[ErrorTreatment]:
    """Returns the treatments of text E among some policies, in the order of its tables; others are left out."""
    found = [_format(policy) for policy in policies if is_one_of(policy, FORMATS)]
    errors = [one for one in damages(policies) if one.kind in SORTS and one.restricted <= {"tensor"}]
    errors.sort(key=lambda one: list(SORTS.values()).index(SORTS[one.kind]))
    return [*found, *map(_error, errors)]


def _format(policy: str) -> ErrorTreatment:
    kind = FORMATS[kind_in(policy)]
    options = options_in(policy, kind)
    return ErrorTreatment(policy, BITS, options.tensor, name_with(kind, options.model_copy(update={"tensor": BOTH})))


def _error(damage: Damage) -> ErrorTreatment:
    spread, centred = None, False
    if isinstance(damage.options, NormalOptions):
        spread, centred = damage.options.std, damage.options.mean == 0
    elif isinstance(damage.options, UniformOptions):
        low, high = damage.options.low, damage.options.high
        spread, centred = (high - low) / math.sqrt(12), low == -high
    return ErrorTreatment(damage.policy, SORTS[damage.kind], damage.options.tensor, damage.fault, spread, centred)
