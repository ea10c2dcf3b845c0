"""The registry of faults: what each kind makes of the rows that it hits, and the policy that a name
stands for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from pydantic import Field, model_validator

from policies.declaration.lazy import torch
from policies.declaration.levels import RATE
from policies.declaration.names import PolicyError, by_name
from policies.declaration.policy import CacheTreatment, LevelRange, Policy, Situation
from policies.declaration.steps import ABSENT, StepTreatment, WriteTreatment
from policies.eviction.controls import ANY_LENGTH, of_full_cache
from policies.faults.bitflip import BITFLIP
from policies.faults.fault import EFFECT_OF_ERROR, MORE_ROBUST, Fault, FaultTreatment, Site
from policies.faults.options import AIMED, WRITING, FaultOptions
from policies.treatments.options import kind_in, name_with, option_text, options_in
from policies.treatments.writes import change_writes

EVERYWHERE = "0,1"  # the text damages all values
UP_TO_A_FIFTH = "0,0.01,0.02,0.05,0.1,0.2"


class GaussianOptions(FaultOptions):
    std: float = Field(1.0, ge=0, le=1e6)  # the spread of the noise


class StaleOptions(FaultOptions):
    page: int = Field(16, ge=1, le=4096)  # rows of a page of the cache


class UniformOptions(FaultOptions):
    low: float = Field(-1.0, ge=-1e3, le=1e3)  # the least error, as a share of the value
    high: float = Field(1.0, ge=-1e3, le=1e3)  # the largest one

    @model_validator(mode="after")
    def _in_order(self) -> "UniformOptions":
        if self.low > self.high:
            raise ValueError(f"low={self.low:g} is above high={self.high:g}")
        return self


class NormalOptions(FaultOptions):
    mean: float = Field(0.0, ge=-1e3, le=1e3)  # of the error, as a share of the value
    std: float = Field(0.5, ge=0, le=1e3)


class BiasOptions(FaultOptions):
    shift: float = Field(1.0, ge=-1e3, le=1e3)  # in spreads of the layer and tensor


class SignOptions(FaultOptions):
    unit: Literal["row", "value", "token"] = "value"


class SameSignOptions(FaultOptions):
    unit: Literal["value"] = "value"  # the rate is that of the sign flips whose error it has
    rate: float | None = Field(None, ge=0, lt=0.25)


def _matched(site: Site) -> "torch.Tensor":
    """Takes mean and spread over all rows of the layer and tensor: the noise looks like the layer
    and says nothing."""
    mean, spread = site.mean_and_spread
    noise = site.draw_like("normal").float() * spread + mean
    return noise.to(site.states.dtype)


def _rows_of_donor(site: Site) -> "torch.Tensor":
    """Gives each row that of the same layer, head and position in the donor; behind its end a donor
    begins again.

    Raises :class:`PolicyError` for a situation without a donor.
    """
    rows = []
    for situation, positions in zip(site.situations, site.rows.positions, strict=True):
        if situation.donor is None:
            raise PolicyError(
                "distractor needs the rows of another context, and there is none here"
            )
        layers = getattr(situation.donor(), site.tensor)
        donor: torch.Tensor = layers[site.layer].to(site.states.device)
        index = (positions % donor.shape[1])[..., None]
        rows.append(donor.gather(1, index.expand_as(site.states[0])))
    return torch.stack(rows)


def _stale(site: Site) -> "torch.Tensor":
    """Gives each row what stands one page before it in the same head; the first page was never
    filled and holds zeros.

    In a full cache that is the row of the token one page before, with the position that it was
    turned to; behind a press, the row one page before among those that the head keeps."""
    page = site.options.page
    last = site.states.shape[2] - page
    before = torch.zeros_like(site.states)
    if last > 0:
        # What stands in absent rows means nothing: in front of the first row there are zeros.
        present = site.rows.tokens[..., :last] != ABSENT
        earlier = site.states[:, :, :last]
        before[:, :, page:] = torch.where(present[..., None], earlier, 0.0)
    return before


def _uniform(site: Site) -> "torch.Tensor":
    """Changes every value by a share of itself, as a coarse code does: it is multiplied by 1 + an
    error."""
    low, high = float(site.options.low), float(site.options.high)
    width = high - low
    return site.states * (1 + low + width * site.draw_like("uniform"))


def _shifted(site: Site) -> "torch.Tensor":
    """Shifts all values in one direction, as a wrong zero point does."""
    _, spread = site.mean_and_spread
    shifted = site.states.float() + float(site.options.shift) * spread
    return shifted.to(site.states.dtype)


def _same_sign(site: Site) -> "torch.Tensor":
    """Multiplies each value x by 1 + 2√s or 1 − 2√s, as it is drawn, for sign flips of a share s.

    A flip is an error of −2x, so that flips of a share s come to a root mean square of 2√s of the
    values. The same spread evenly over all values, and centred, changes no sign while 2√s < 1."""
    up = site.draw_like("uniform") < 0.5
    error = 2 * site.rates.sqrt()
    factors = torch.where(up, 1 + error, 1 - error)
    return site.states * factors.to(site.states.dtype)


# Gaps to both texts: the first damages the cache at every step of decoding, the second every row as
# it enters (``phase=write``). By default both act here once on the context, after an exact prefill.
robust, effect = partial(Fault, paper=MORE_ROBUST), partial(Fault, paper=EFFECT_OF_ERROR)
FAULT_KINDS: Mapping[str, Fault] = by_name(
    "faults",
    (
        robust(
            name="zeros",
            description="Rows of zeros, as of a page that was never filled",
            corrupt=lambda site: torch.zeros_like(site.states),
        ),
        robust(
            # In the model's numbers, as the text says of no spread; the next kind has that of the
            # layer.
            name="gaussian",
            description="Gaussian noise of a given spread instead of the rows",
            corrupt=lambda site: site.draw_like("normal") * site.options.std,
            options=GaussianOptions,
        ),
        robust(
            name="gaussian_matched",
            description="Gaussian noise of the mean and spread of the layer",
            corrupt=_matched,
            reads_other_rows=True,
        ),
        robust(
            name="distractor",
            description="Rows of another context of the task, same positions",
            corrupt=_rows_of_donor,
            needs_donor=True,
        ),
        robust(
            name="stale",
            description="Rows of the page of 16 before, as if not overwritten",
            corrupt=_stale,
            reads_other_rows=True,
            options=StaleOptions,
        ),
        effect(
            name="multiplicative_uniform",
            description="Each value times 1 + an error, uniform in two bounds",
            corrupt=_uniform,
            options=UniformOptions,
            default_rates=EVERYWHERE,
        ),
        effect(
            name="multiplicative_normal",
            description="Each value times 1 + an error of a normal distribution",
            corrupt=lambda site: (
                site.states * (1 + site.options.mean + site.options.std * site.draw_like("normal"))
            ),
            options=NormalOptions,
            default_rates=EVERYWHERE,
        ),
        effect(
            name="bias",
            description="Each value plus a constant, in spreads of its layer",
            corrupt=_shifted,
            reads_other_rows=True,
            options=BiasOptions,
        ),
        effect(
            name="sign_flip",
            description="Values of the wrong sign",
            corrupt=lambda site: -site.states,
            options=SignOptions,
            default_rates=UP_TO_A_FIFTH,
        ),
        effect(
            name="same_sign",
            description="As much error as sign flips, but no sign changes",
            corrupt=_same_sign,
            options=SameSignOptions,
            hits_all=True,
            rates_below=0.25,
            default_rates=UP_TO_A_FIFTH,
        ),
        BITFLIP,
    ),
    PolicyError,
)


def make_fault(name: str) -> Policy:
    """Makes the policy of a name such as ``zeros(tokens=evidence)``; raises :class:`PolicyError`
    for other options."""
    fault = FAULT_KINDS[kind_in(name)]
    options = options_in(name, fault)
    if fault.reads_other_rows and options.phase == "write":
        raise PolicyError(
            f"{name}: what {fault.name} makes of a row depends on the others, which are not all "
            f"written yet: say phase=prefill_write, which damages the context alone, or leave "
            "phase out"
        )

    def treat(situations: Sequence[Situation], question_ids: Sequence[str] = ()) -> StepTreatment:
        return FaultTreatment(fault, options, situations)

    def treat_writing(situations: Sequence[Situation]) -> WriteTreatment:
        return FaultTreatment(fault, options, situations)

    levels = LevelRange(
        below={} if fault.rates_below is None else {RATE.name: fault.rates_below},
        defaults={RATE.name: fault.default_rates},
    )
    treatment = CacheTreatment(
        corrupts=True,
        own_rows=options.may_overflow,
        arguments={option: option_text(value) for option, value in options},
        check_codewords=options.check_codewords if options.on_codewords else None,
    )
    policy = of_full_cache(
        name=name_with(fault, options),
        family="fault",
        paper=fault.paper,
        description=fault.description,
        kinds=(RATE.name,) if options.rate is None else (),
        random=True,
        per_question=options.tokens in AIMED,
        needs=replace(ANY_LENGTH, donor=fault.needs_donor, check_model=options.check_model),
        levels=levels,
        treatment=treatment,
    )
    if options.phase in WRITING:
        return change_writes(policy, treat_writing, context_alone=options.phase != "write")
    if _acts_once(options):
        return replace(policy, treatment=replace(treatment, prefill_treatment=treat))
    return replace(policy, treatment=replace(treatment, step_treatment=treat))


def _acts_once(options: FaultOptions) -> bool:
    """Tells whether it acts on the context alone, before any question is read, and for good."""
    is_at_first = options.phase == "resident" or (options.phase == "step" and options.step == 0)
    return is_at_first and options.persistence == "persistent"


FAULTS: Mapping[str, Policy] = {name: make_fault(name) for name in FAULT_KINDS}
