"""States what a run would cost, in rows and sentences."""

from collections import defaultdict

from kvbench.estimate.constants import MACHINES, TABLE, USABLE, Machine
from kvbench.estimate.forecast import PRESSES, RunCost, hours, load_of
from kvbench.estimate.shape import DecoderShape
from kvbench.experiments.build_grid import build_grid
from kvbench.models.load import check_places, load_tokenizer
from kvbench.prompts.context_length import Tokens, check_takes_length, count_by, tokens_of
from kvbench.run.resume import chunks
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError
from leaderboards.metrics.declaration.sizes import size_text
from leaderboards.statistics.significance import USUAL_SPREAD, clusters_to_detect, smallest_detectable

POINTS = 5  # of right answers: a difference that many ask for


def plan_of(job: Job, shape: DecoderShape, tokens: Tokens, machine: Machine = MACHINES["h100"]) -> RunCost:
    """Counts what is to be run; raises :class:`KVBenchError` for what ``run`` refuses. ``tokens``: of a context, which
    the job leaves out, so that no long text is made."""
    if isinstance(tokens, int) and tokens < 1:
        raise KVBenchError(f"--context-tokens is 1 or more, not {tokens}")
    grid = build_grid(job, count_by(job.model))
    if tokens is not None:
        check_takes_length([task for task, _ in grid.tasks])
    tokenizer = load_tokenizer(job.model)
    loads = [load_of(grid, task, count, tokens_of(task, tokens), tokenizer=tokenizer) for task, count in grid.tasks]
    for load in loads:
        check_places(f"a context of {load.task}", shape.name, load.tokens, shape.places)
    return RunCost(loads, shape, machine)


def store_bytes(cost: RunCost) -> float:
    total = 0.0
    for load in cost.loads:
        units = len(chunks(load.contexts))
        for table, files, rows in (
            ("contexts", units, load.contexts),
            ("questions", units, load.contexts * load.questions),
            ("records", units * len(load.branches), load.answers),
        ):
            file, row, token = TABLE["store"][table]
            total += files * file + rows * (row + load.tokens * token)
    return total


def rows_of(cost: RunCost) -> list[tuple[str, str]]:
    """Lists the figures of a plan."""
    parts, policies = defaultdict[str, float](float), defaultdict[str, float](float)
    for name, policy, seconds in cost.parts:
        parts[name] += cost.devices * seconds
        policies[policy] += cost.devices * seconds if policy else 0.0
    slowest = max(policies, key=lambda name: policies[name])
    shown = []
    for contexts in sorted({load.contexts for load in cost.loads}):
        smallest = smallest_detectable(USUAL_SPREAD, contexts)
        seen = "no difference" if smallest is None else f"differences from {smallest:.0f} points of right answers"
        shown.append((f"{contexts:,} contexts of a task show", seen))
    weights, context = size_text(cost.shape.weight_bytes), size_text(cost.context)
    return [
        ("answers", f"{sum(load.answers for load in cost.loads):,.0f}"),
        *shown,
        (f"contexts that show {POINTS} points", f"{clusters_to_detect(POINTS):,}"),
        ("memory of a worker", f"weights {weights} + cache {context}, peak {size_text(cost.needed)}"),
        ("devices of a worker", f"{cost.devices:,} × {cost.machine.name}"),
        ("time of all devices", hours(cost.devices * cost.seconds)),
        *((f"- {part}", hours(seconds)) for part, seconds in parts.items()),
        *([(f"of it by {slowest}", hours(policies[slowest]))] if slowest else []),
        ("store", size_text(store_bytes(cost))),
    ]


def assumptions(cost: RunCost) -> list[str]:
    """Says which cards hold a worker, and what the figures rest on, a sentence each."""
    shape = cost.shape
    fits = [name for name, card in MACHINES.items() if cost.needed <= card.memory * USABLE]
    others = [name for name in MACHINES if name not in fits]
    cards = [f"{what} {', '.join(names)}" for what, names in (("fits", fits), ("too much for", others)) if names]
    unmeasured = sorted({policy.name for load in cost.loads for policy, _ in load.branches} - set(PRESSES))
    return [
        "The peak is at least the weights, the longest context, its largest branch beside it, and keep masks: "
        f"{'; '.join(cards)}.",
        f"The machine, {cost.machine.name}: {cost.machine.source}.",
        f"The model, {shape.name}: {shape.parameters / 1e9:.2f} billion parameters, {shape.layers} layers, "
        f"{shape.heads} query heads and {shape.key_heads} key heads of {shape.head_size}, "
        f"{shape.bytes_per_number} bytes a number in weights and cache.",
        *(
            f"{load.task}: {load.contexts:,} contexts of {load.tokens:,} tokens, {load.questions:.0f} questions, "
            f"answers of {load.answer_tokens} tokens."
            for load in cost.loads
        ),
        f"Presses were measured {TABLE['measured']}; other machines are assumed to read the cache as often. "
        + (f"These cost the median of their kind: {', '.join(unmeasured)}." if unmeasured else ""),
        "A difference is seen four times in five by one test of 5 %, where it differs by "
        f"{USUAL_SPREAD:.0f} points from context to context, as on the model reference.",
        "Not included: loading the model, making the texts, writing the store, and waiting for workers.",
    ]
