"""Policies of several parts, such as ``snapkv+pages16+int4+zeros(rate=0.01)``: evict pages,
quantise, damage."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from policies.declaration.lazy import LazyMapping, LazyModule, torch
from policies.declaration.levels import LEVEL_KINDS
from policies.declaration.names import PLAIN, PolicyError, plain_and_way
from policies.declaration.policy import (
    FIRST_VERSION,
    Argument,
    CacheTreatment,
    Policy,
    Press,
    Situation,
)
from policies.declaration.shape import ModelShape
from policies.declaration.steps import (
    CacheRows,
    NewRows,
    PrefillTreatment,
    StepTreatment,
    WriteTreatment,
)
from policies.registry import POLICIES
from policies.treatments.deployed import WAYS, deploy, deploy_scorer, simpler
from policies.treatments.options import has_kind

# Most runs treat nothing, and wait for neither package.
damage = LazyModule("policies.faults.fault")
faults = LazyModule("policies.faults.registry")
quantisations = LazyModule("policies.quantisation.registry")
window = LazyModule("policies.quantisation.window")

# The kinds of both registries, in their order: names are known before anything is imported.
QUANTISATION_NAMES = (
    *("int8", "int4", "int3", "int2"),
    *("q8_0", "q5_1", "q5_0", "q4_1", "q4_0"),
    *("fp8_e4m3", "fp8_e5m2", "mantissa"),
)
FAULT_NAMES = (
    *("zeros", "gaussian", "gaussian_matched", "distractor", "stale"),
    *("multiplicative_uniform", "multiplicative_normal", "bias", "sign_flip", "same_sign"),
    "bitflip",
)


def _registered_treatment(name: str) -> Policy:
    if name in FAULT_NAMES:
        registry = faults.FAULTS
    else:
        registry = quantisations.QUANTISATIONS
    policy: Policy = registry[name]
    return policy


# Of what an eviction leaves, and of the full cache.
TREATMENTS = LazyMapping((*QUANTISATION_NAMES, *FAULT_NAMES), _registered_treatment)


@dataclass
class Chain:
    """Calls treatments in order. What acts once is called after the prefill alone."""

    once: Sequence[PrefillTreatment | StepTreatment]
    at_steps: Sequence[StepTreatment]

    def after_prefill(self, cache: CacheRows) -> None:
        for treatment in self.once:
            treatment.after_prefill(cache)

    def after_step(self, cache: CacheRows, step: int) -> None:
        # The latest damage first: it was done to rows that the treatments before it had changed.
        for treatment in reversed(
            self.at_steps
        ):  # before any other reads rows that were damaged for one step
            if isinstance(treatment, damage.FaultTreatment):
                treatment.restore(cache)
        for treatment in self.at_steps:
            treatment.after_step(cache, step)

    def copy_answers(self, copies: Mapping[int, int]) -> None:
        for treatment in self.at_steps:
            treatment.copy_answers(copies)


@dataclass(frozen=True)
class WriteChain:
    """Has treatments change new rows in order."""

    treatments: Sequence[WriteTreatment]

    def on_write(self, new: NewRows) -> "torch.Tensor":
        """Returns what the last treatment makes of the states: shape (answers, num_kv_heads,
        tokens, head_dim)."""
        for treatment in self.treatments:
            new = replace(new, states=treatment.on_write(new))
        return new.states


def followed_by(plain: Policy, way: Policy) -> Policy:
    """Makes the policy that treats what another leaves as ``way`` treats the full cache, named
    ``plain+way``.

    Its level is that of the other. Raises :class:`PolicyError` if the two do not go together.
    """
    name = f"{plain.name}+{way.name}"
    # A cell has one level, which is that of the eviction: the way has to bring its own.
    if way.kinds:
        kind = LEVEL_KINDS[way.kinds[0]]
        example = f"{plain.name}+{way.name.partition('(')[0]}({kind.name}={kind.typical:g})"
        raise PolicyError(f"{name}: say at which {kind.name}, as in {example}")
    if plain.while_decoding and (way.treatment.step_treatment or way.treatment.wrap):
        raise PolicyError(
            f"{name}: {plain.name} decodes alone, and {way.name} acts more than once: leave one out"
        )

    _check_codewords(plain, way, name)
    if plain.treatment.stored_bytes and way.treatment.stored_bytes:
        # What is held would be counted of the second alone, though the first rounds as well.
        raise PolicyError(
            f"{name}: a row is stored in one format, and two are named: keep one, or write the "
            f"types of keys and of values as q8_0/q4_0"
        )

    def build(situation: Situation) -> Press:
        press = plain.build(situation)
        if way.treatment.wrap:
            return way.treatment.wrap(press, situation)
        return press

    def check_model(shape: ModelShape) -> None:
        for policy in (plain, way):
            if policy.needs.check_model:
                policy.needs.check_model(shape)

    needs_donor = plain.needs.donor or way.needs.donor
    return replace(
        plain,
        name=name,
        family=way.family,
        paper=way.paper,
        description=f"{plain.name}, then: {way.description[0].lower()}{way.description[1:]}",
        build=build,
        # What acts while the context is written changes what later layers read: nobody else can use
        # it.
        prefill="private" if way.treatment.wrap else plain.prefill,
        random=plain.random or way.random,
        version=_joined_version(plain, way),
        paper_arguments={**way.paper_arguments, **plain.paper_arguments},
        per_question=plain.per_question or way.per_question,
        same_as=simpler(name),
        baseline=None,
        by_default=False,
        needs=replace(plain.needs, donor=needs_donor, check_model=check_model),
        treatment=_one_after_the_other(plain.treatment, way.treatment, way.name),
    )


def _joined_version(plain: Policy, way: Policy) -> str:
    """Returns a version that is another one where either part gets a new one."""
    if way.version == FIRST_VERSION:
        return plain.version
    return f"{plain.version}+{way.version}"


def _one_after_the_other(
    first: CacheTreatment, second: CacheTreatment, name: str
) -> CacheTreatment:
    """Makes the treatment that acts as the first, and then as the second, which is that of the
    policy ``name``. The press that the second puts around another is built already."""
    chain = partial(_chain, first, second)
    both = CacheTreatment(
        write_treatment=_write_treatment(first, second),
        codeword_bits=second.codeword_bits,  # a fault writes rows without them
        check_codewords=second.check_codewords,
        # Rows are stored as the last quantisation leaves them; a fault says nothing of bytes.
        stored_bytes=second.stored_bytes or first.stored_bytes,
        corrupts=first.corrupts or second.corrupts,
        own_rows=first.own_rows or second.own_rows,
        arguments=_side_by_side(first.arguments, second.arguments, name),
        fitted=lambda situation: _side_by_side(
            first.fitted(situation), second.fitted(situation), name
        ),
    )
    if first.step_treatment or second.step_treatment:
        return replace(both, step_treatment=chain)
    return replace(both, prefill_treatment=chain)


def _chain(
    first: CacheTreatment,
    second: CacheTreatment,
    situations: Sequence[Situation],
    question_ids: Sequence[str] = (),
) -> Chain:
    once: list[PrefillTreatment | StepTreatment] = []
    at_steps: list[StepTreatment] = []
    for treatment in (first, second):
        if treatment.prefill_treatment:
            once.append(treatment.prefill_treatment(situations))
        if treatment.step_treatment:
            at_steps.append(treatment.step_treatment(situations, question_ids))
            # What acts at steps acts on the kept context too, before any question is read.
            once.append(at_steps[-1])
    if second.check_codewords:
        # The quantisation stands at steps, last in a chain of its own; the flips come last of all,
        # whether they act once or at each step.
        stored, flips = _last_treatment(at_steps[0]), once[-1]
        assert isinstance(stored, window.QuantisedRows)
        assert isinstance(flips, damage.FaultTreatment)
        flips.act_on(stored, first.codeword_bits)
    return Chain(once, at_steps)


def _write_treatment(
    first: CacheTreatment, second: CacheTreatment
) -> Callable[[Sequence[Situation]], WriteTreatment] | None:
    builders = []
    for treatment in (first, second):
        if treatment.write_treatment:
            builders.append(treatment.write_treatment)
    if not builders:
        return None
    if len(builders) == 1:
        return builders[0]
    return lambda situations: WriteChain([build(situations) for build in builders])


def _check_codewords(plain: Policy, way: Policy, name: str) -> None:
    """Raises :class:`PolicyError` for a fault of codewords that does not come right behind a
    quantisation, and last."""
    if plain.treatment.check_codewords:
        raise PolicyError(f"{name}: a fault of codewords comes last, and {way.name} follows")
    if not way.treatment.check_codewords:
        return
    if not plain.treatment.codeword_bits:
        before = plain.name.rpartition("+")[2]
        raise PolicyError(
            f"{name}: {before} stores no codewords: put {way.name} right behind a quantisation, as "
            f"int4"
        )
    try:
        way.treatment.check_codewords(plain.treatment.codeword_bits)
    except PolicyError as error:
        raise PolicyError(f"{name}: {error}") from error


def _last_treatment(treatment: StepTreatment) -> StepTreatment:
    """Returns the last treatment of a chain, which may be one of chains."""
    while isinstance(treatment, Chain):
        treatment = treatment.at_steps[-1]
    return treatment


def _side_by_side(
    first: Mapping[str, Argument], second: Mapping[str, Argument], name: str
) -> Mapping[str, Argument]:
    """Joins the arguments of two treatments; one of the second that the first has too stands behind
    its name."""
    kind = name.partition("(")[0]
    arguments = dict(first)
    for key, value in second.items():
        free_key = f"{kind}.{key}" if key in first else key
        arguments[free_key] = value
    return arguments


def is_treatment(name: str) -> bool:
    return has_kind(name, TREATMENTS)


def is_way(name: str) -> bool:
    return has_kind(name, WAYS)


def make_treatment(name: str) -> Policy:
    """Makes the policy that treats the full cache; raises :class:`PolicyError` for options that it
    has not."""
    is_fault = has_kind(name, dict.fromkeys(FAULT_NAMES))
    policy: Policy = faults.make_fault(name) if is_fault else quantisations.make_quantisation(name)
    return policy


def check_alone(policy: Policy) -> Policy:
    """Returns the policy; raises :class:`PolicyError` for one that acts on what a quantisation
    before it stores."""
    if policy.treatment.check_codewords:
        raise PolicyError(
            f"{policy.name} stores no codewords: put a quantisation before it, as "
            f"int4+{policy.name}"
        )
    return policy


def compose(plain: Policy, way: str) -> Policy:
    """Makes ``plain+way``: protects, deploys or treats; raises :class:`PolicyError` if they do not
    go together."""
    if is_way(way):
        return deploy(plain, way)
    return followed_by(plain, make_treatment(way))


def built_in(name: str) -> Policy | None:
    """Finds a policy of this package by any name of a run, building no press; None for others, such
    as a plug-in."""
    if name in POLICIES:
        return POLICIES[name]
    plain_name, way = plain_and_way(name)
    try:
        if way == PLAIN and is_treatment(name):
            return make_treatment(name)
        if way == PLAIN:
            return None
        # Split at the last ``+``: the plain policy may have several parts itself.
        plain = built_in(plain_name)
        if plain is None:
            return None
        if is_way(way):
            return deploy_scorer(plain, way)
        if is_treatment(way):
            return followed_by(plain, make_treatment(way))
        return None
    except PolicyError:
        return None
