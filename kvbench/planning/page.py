"""A plan as rows and sentences, for the terminal and for docs/scale.md."""

from kvbench.markdown import table
from kvbench.planning.ask import Plan
from kvbench.planning.cost import Cost

MOST_POLICIES = 8  # of those that take longest
SOME_SHARES = 3  # of a context that a branch keeps: the most, one between, the least

Row = tuple[str, str]


def size(number: float) -> str:
    """Bytes, in powers of ten."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= scale:
            return f"{number / scale:,.1f} {unit}"
    return f"{number:.0f} B"


def hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


def rows_of(plan: Plan) -> list[Row]:
    """What there is to know first, then the parts."""
    cost, machine = plan.cost, plan.machine
    shares = list(cost.branch)
    shown = dict.fromkeys([shares[0], shares[len(shares) // 2], shares[-1]][:SOME_SHARES])
    total = sum(cost.seconds.values())
    return [
        ("units", f"{cost.units:,}"),
        ("answers", f"{cost.answers:,.0f}"),
        ("devices of a worker", f"{cost.devices} × {machine.name}"),
        ("device hours", f"{cost.device_hours:,.1f}"),
        ("time of one worker", hours(total)),
        *((f"- {part}", hours(seconds)) for part, seconds in cost.seconds.items()),
        ("store", size(cost.store)),
        ("weights", size(cost.weights)),
        ("cache of the longest context", size(cost.context)),
        *((f"cache of a branch that holds {share} of it", size(cost.branch[share])) for share in shown),
        ("caches of all branches of a context", size(cost.branches)),
        ("held of the branches until they are decoded", size(cost.held)),
        ("room for a wave of branches", size(cost.wave)),
    ]


def longest(cost: Cost) -> list[Row]:
    """The policies whose own work takes most."""
    found = sorted(cost.by_policy.items(), key=lambda item: -item[1])[:MOST_POLICIES]
    return [(name, hours(seconds)) for name, seconds in found if seconds > 0]


def assumptions(plan: Plan) -> list[str]:
    """Everything that the figures rest on, a sentence each."""
    workload, shape, machine, constants, cost = plan.workload, plan.shape, plan.machine, plan.constants, plan.cost
    found = [
        f"The machine, {machine.name}: {machine.source}.",
        f"The model, {shape.name}: {shape.parameters / 1e9:.2f} billion parameters, {shape.layers} layers, "
        f"{shape.heads} query heads and {shape.key_heads} key heads of {shape.head_size}, "
        f"{shape.bytes_per_number} bytes a number in weights and cache.",
        f"What presses cost was measured on {constants.machine} on {constants.date} ({constants.model}), in readings "
        "of the context's cache and, where a press has a prefill of its own, in prefills; another machine is taken to "
        "need as many. A press whose readings grow with the length is taken to look at all pairs of tokens.",
    ]
    found += [
        f"{load.name}: {load.contexts:,} contexts of {load.tokens:,} tokens, {load.questions:.1f} questions of "
        f"{load.question_tokens:.0f} tokens each, {len(load.policies)} policies; every answer is as long as it may be, "
        f"{load.answer_tokens} tokens."
        for load in workload.tasks
    ]
    if cost.devices > 1:
        found.append(
            f"A worker needs {cost.devices} devices for the weights, the cache of one context beside its largest "
            "branch, and the keep masks (--device-map auto, which has not been tried over several GPUs); their layers "
            "work one after the other, so it is as fast as one."
        )
    found.append(
        f"Waves take all the room there is, {size(cost.wave)} (--max-kv-gb). By default a run gives them half of what "
        "is free on its first GPU, or a quarter on a CPU, and a branch that needs more fails."
    )
    if cost.held > cost.wave:
        found.append(
            f"Branches that hold their own keys and values until they are decoded come to {size(cost.held)}, more than "
            "there is room for: run the presses that rewrite the cache or prefill alone at few ratios at a time."
        )
    if cost.unmeasured:
        found.append(f"Not measured, and taken as the median of their kind: {', '.join(cost.unmeasured)}.")
    found.append(
        "Left out: loading the model, making the texts, writing the store, and what workers wait for one another."
    )
    return found


def written(plan: Plan) -> str:
    """As Markdown."""
    named = "\n".join(f"- {line}" for line in assumptions(plan))
    return "\n\n".join(
        [
            table(("what", "how much"), rows_of(plan)),
            "The presses that take longest beside the shared prefill and decoding:",
            table(("policy", "time of one worker"), ((f"`{name}`", taken) for name, taken in longest(plan.cost))),
            "It rests on:",
            named,
        ]
    )
