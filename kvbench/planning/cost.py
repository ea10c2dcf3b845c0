"""The cost of a workload on a machine, part by part."""

from collections import defaultdict
from dataclasses import dataclass, field
from math import ceil
from statistics import median

from kvbench.engine.columns import PLACES_AT_ONCE
from kvbench.errors import KVBenchError
from kvbench.planning.constants import Constants, PressCost
from kvbench.planning.machine import USABLE, Machine
from kvbench.planning.shape import Shape
from kvbench.planning.workload import TaskLoad, Workload
from policies import Policy

MOST_DEVICES = 1024


@dataclass
class Cost:
    """``seconds``: of a worker, by what it does then; ``by_policy``: of these, what each policy alone is for.
    ``devices``: of a worker. Bytes: of one branch at each share that is kept (``branch``), of all the branches of one
    context (``branches``), of what is held of branches until they are decoded (``held``), of one wave (``wave``)."""

    units: int = 0
    answers: float = 0.0
    devices: int = 1
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    by_policy: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    weights: int = 0
    context: int = 0
    branch: dict[str, float] = field(default_factory=dict)
    branches: float = 0.0
    held: float = 0.0
    wave: float = 0.0
    store: float = 0.0
    unmeasured: list[str] = field(default_factory=list)

    @property
    def device_hours(self) -> float:
        return self.devices * sum(self.seconds.values()) / 3600


def cost_of(workload: Workload, shape: Shape, machine: Machine, constants: Constants) -> Cost:
    """All contexts of all tasks. A worker holds the weights, and has as many devices as that takes; their layers work
    one after the other."""
    cost = Cost(weights=shape.weight_bytes, answers=workload.answers)
    policies = {policy.name: policy for load in workload.tasks for policy in load.policies}
    cost.unmeasured = sorted(name for name in policies if name not in constants.presses)
    presses = {name: constants.presses.get(name) or _usual(policy, constants) for name, policy in policies.items()}
    longest = max(load.tokens for load in workload.tasks)
    cost.context = longest * shape.cache_bytes
    cost.devices = _devices(cost.weights + 2 * cost.context + _masks(workload, shape, longest), machine)
    cost.wave = machine.memory * USABLE * cost.devices - cost.weights - cost.context - _masks(workload, shape, longest)
    for load in workload.tasks:
        cost.units += load.units
        cost.store += _stored(workload, load, constants)
        for part, seconds in _seconds(workload, load, shape, machine, presses, constants, cost).items():
            cost.seconds[part] += load.contexts * seconds
    kept = sorted({share for policy in policies.values() for share in workload.kept(policy, longest)}, reverse=True)
    cost.branch = {f"{share:.0%}": share * cost.context for share in kept}
    for policy in policies.values():
        shares = workload.kept(policy, longest)
        cost.branches += sum(shares) * cost.context
        own = policy.rewrites or policy.prefill == "private"
        cost.held += sum(shares) * cost.context if own else len(shares) * _mask_bytes(shape, longest)
    return cost


def _seconds(
    workload: Workload,
    load: TaskLoad,
    shape: Shape,
    machine: Machine,
    presses: dict[str, PressCost],
    constants: Constants,
    cost: Cost,
) -> dict[str, float]:
    """Of one context of a task."""
    cache = load.tokens * shape.cache_bytes
    prefill = machine.seconds(shape.prefill_flops(load.tokens), shape.weight_bytes)
    once = machine.seconds(0, cache)  # reading the cache
    parts = {"prefill": prefill, "private prefills": 0.0, "compression": 0.0, "answers written alone": 0.0}
    together: list[float] = []
    for policy in load.policies:
        shares, press = workload.kept(policy, load.tokens), presses[policy.name]
        private = len(shares) * press.prefills * prefill
        scoring = press.readings_at(load.tokens, constants.lengths) + len(shares) * press.level_readings
        alone = 0.0
        if policy.while_decoding:
            alone = sum(load.questions * _alone(load, shape, machine, share * cache) for share in shares)
        else:
            together += shares
        parts["private prefills"] += private
        parts["compression"] += scoring * once
        parts["answers written alone"] += alone
        cost.by_policy[policy.name] += load.contexts * (private + scoring * once + alone)
    parts["answers written together"] = seconds_together(
        load, shape, machine, [share * cache for share in together], cost.wave
    )
    return parts


def seconds_together(load: TaskLoad, shape: Shape, machine: Machine, branches: list[float], bound: float) -> float:
    """The branches in as few waves as the bound allows: each wave reads the weights and its own cache for each portion
    of the questions and for each token of the answers."""
    size = sum(branches)
    passes = 1 + ceil(load.questions * load.question_tokens / PLACES_AT_ONCE) + load.answer_tokens
    places = len(branches) * load.questions * (load.question_tokens + load.answer_tokens)
    flops = 2.0 * shape.parameters * places
    scored = flops + 4.0 * shape.heads * shape.head_size * shape.layers * places * size / max(
        len(branches) * shape.cache_bytes, 1
    )
    return machine.seconds(scored, passes * (ceil(size / bound) * shape.weight_bytes + size))


def _alone(load: TaskLoad, shape: Shape, machine: Machine, branch: float) -> float:
    """One answer: every token of it reads the weights and the cache."""
    places = load.question_tokens + load.answer_tokens
    return machine.seconds(2.0 * shape.parameters * places, (1 + load.answer_tokens) * (shape.weight_bytes + branch))


def _usual(policy: Policy, constants: Constants) -> PressCost:
    """The median of those of its kind that were measured."""
    kind = [press for press in constants.presses.values() if (press.prefills > 0) == (policy.prefill == "private")]
    return PressCost(
        readings=(median(press.readings[0] for press in kind), median(press.readings[1] for press in kind)),
        level_readings=median(press.level_readings for press in kind),
        prefills=median(press.prefills for press in kind),
    )


def _stored(workload: Workload, load: TaskLoad, constants: Constants) -> float:
    fixed, per_token = constants.record_bytes
    answers = sum(len(workload.kept(policy, load.tokens)) for policy in load.policies) * load.questions * load.contexts
    return answers * (fixed + per_token * load.tokens)


def _mask_bytes(shape: Shape, tokens: int) -> int:
    """What a branch keeps, a byte for each layer, head and token."""
    return shape.layers * shape.key_heads * tokens


def _masks(workload: Workload, shape: Shape, tokens: int) -> float:
    """Of all branches of one context, which wait for it to be read."""
    policies = max((load.policies for load in workload.tasks), key=len)
    return sum(len(workload.kept(policy, tokens)) for policy in policies) * _mask_bytes(shape, tokens)


def _devices(needed: float, machine: Machine) -> int:
    devices = ceil(needed / (machine.memory * USABLE))
    if devices > MOST_DEVICES:
        raise KVBenchError(f"a worker would need {devices:,} devices of {machine.name}: ask for less at once")
    return devices
