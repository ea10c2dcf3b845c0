"""Shows a plan as rows and sentences."""

from kvbench.estimate.machine import MACHINES, USABLE
from kvbench.estimate.plan import Plan
from kvbench.run.resume import CONTEXTS_IN_CHUNK
from leaderboards.metrics.declaration.sizes import size_text
from leaderboards.statistics.subset_means import USUAL_SPREAD, smallest_detectable

MOST_POLICIES = 8

Row = tuple[str, str]


def hours(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s" if seconds >= 1 else "below 1 s"


def seen_with(contexts: int) -> str:
    """Says which difference of two policies so many contexts of a task can show."""
    smallest = smallest_detectable(USUAL_SPREAD, contexts)
    return "no difference" if smallest is None else f"differences from {smallest:.0f} points of right answers"


def rows_of(plan: Plan) -> list[Row]:
    """Lists the figures of a plan; of the shares that branches hold, the largest, one between, and the smallest."""
    shares = sorted({share for load in plan.loads for share in load.shares}, reverse=True)
    counts = sorted({load.contexts for load in plan.loads})
    return [
        (f"units of work, of {CONTEXTS_IN_CHUNK} contexts at most", f"{sum(load.units for load in plan.loads):,}"),
        ("answers", f"{sum(load.answers for load in plan.loads):,.0f}"),
        *((f"{contexts:,} contexts of a task show", seen_with(contexts)) for contexts in counts),
        ("memory of a worker, at least", size_text(plan.needed)),
        ("devices of a worker", f"{plan.devices} × {plan.machine.name}"),
        ("time of all devices", hours(3600 * plan.device_hours)),
        ("time of one worker", hours(sum(plan.seconds.values()))),
        *_without_slowest(plan),
        *((f"- {part}", hours(seconds)) for part, seconds in plan.seconds.items()),
        ("store", size_text(plan.store)),
        ("weights", size_text(plan.shape.weight_bytes)),
        ("cache of the longest context", size_text(plan.context)),
        *(
            (f"cache of a branch that holds {share:.0%} of it", size_text(share * plan.context))
            for share in dict.fromkeys((shares[0], shares[len(shares) // 2], shares[-1]))
        ),
        ("caches of all its branches, held in waves", size_text(plan.branches)),
        ("branches that wait to be decoded", size_text(plan.waiting_bytes)),
        ("room for a wave of branches", size_text(plan.room)),
    ]


def _fits(plan: Plan) -> str:
    """Says which of the known cards hold what a worker needs at its peak."""
    fits = [name for name, card in MACHINES.items() if plan.needed <= card.memory * USABLE]
    others = [name for name in MACHINES if name not in fits]
    told = [f"{what} {', '.join(names)}" for what, names in (("fits", fits), ("too much for", others)) if names]
    return (
        f"A worker needs {size_text(plan.needed)} at least, for weights, the longest context, its largest branch "
        f"beside it, and keep masks: {'; '.join(told)}."
    )


def _without_slowest(plan: Plan) -> list[Row]:
    """Tells the time that is left without the slowest policy, where it takes most of the time by itself."""
    policy, longest = max(plan.policy_seconds.items(), key=lambda item: item[1], default=("", 0.0))
    whole = sum(plan.seconds.values())
    return [(f"- without {policy}", hours(whole - longest))] if 2 * longest > whole else []


def slowest_policies(plan: Plan) -> list[Row]:
    """Lists the policies whose own work takes most time."""
    ordered = sorted(plan.policy_seconds.items(), key=lambda item: -item[1])
    return [(name, hours(seconds)) for name, seconds in ordered[:MOST_POLICIES] if seconds > 0]


def assumptions(plan: Plan) -> list[str]:
    """Says what the figures rest on, a sentence each."""
    shape, constants = plan.shape, plan.constants
    policies = {policy.name for load in plan.loads for policy, _ in load.branches}
    unmeasured = sorted(policies - set(constants.presses))
    sentences = [
        _fits(plan),
        f"The machine, {plan.machine.name}: {plan.machine.source}.",
        f"The model, {shape.name}: {shape.parameters / 1e9:.2f} billion parameters, {shape.layers} layers, "
        f"{shape.heads} query heads and {shape.key_heads} key heads of {shape.head_size}, "
        f"{shape.bytes_per_number} bytes a number in weights and cache.",
        f"The cost of presses was measured on {constants.machine} on {constants.date} ({constants.model}), in readings "
        "of the context's cache and, where a press has a prefill of its own, in prefills. Other machines are assumed "
        "to need as many. A press whose readings grow with the length is assumed to look at all pairs of tokens.",
    ]
    sentences += [
        f"{load.task}: {load.contexts:,} contexts of {load.tokens:,} tokens, {load.questions:.1f} questions of "
        f"{load.question_tokens:.0f} tokens each, {len(load.branches)} policies; every answer is as long as the task "
        f"allows, {load.answer_tokens} tokens; for its likelihood every branch passes the right answer too, "
        f"{load.gold_tokens:.1f} tokens."
        for load in plan.loads
    ]
    sentences.append(
        "A difference of two policies is seen four times in five by one test of 5 %, where it differs by "
        f"{USUAL_SPREAD:.0f} points from context to context: the median on the model reference. Half as large a "
        "difference takes four times as many contexts; corrected over several levels, a third more points are needed."
    )
    sentences.append(
        "The bytes of files and rows were measured with the same model, which has 8 pairs of layer and key head: "
        "few different shares of them keep a token. With hundreds of pairs the tokens of a record take two to three "
        "times as many bytes."
    )
    if plan.devices > 1:
        sentences.append(
            f"A worker needs {plan.devices} devices for the weights, the cache of one context beside its largest "
            "branch, and the keep masks (--device-map auto, which was never tried on several GPUs). Their layers work "
            "one after the other, so it is as fast as one device."
        )
    sentences.append(
        f"Waves take all the room there is, {size_text(plan.room)} (--max-kv-gb). By default a run gives them half of "
        "what is free on its first GPU, or a quarter on a CPU, and a branch that needs more fails."
    )
    if plan.waiting_bytes > plan.room:
        sentences.append(
            f"Branches that wait to be decoded need {size_text(plan.waiting_bytes)}, more than there is room for: "
            "run the presses that rewrite the cache or prefill alone at few ratios at a time."
        )
    if unmeasured:
        sentences.append(f"These were not measured and cost the median of their kind: {', '.join(unmeasured)}.")
    sentences.append("Not included: loading the model, making the texts, writing the store, and waiting for workers.")
    return sentences
