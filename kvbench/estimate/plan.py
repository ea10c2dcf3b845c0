"""States what a run would cost: tokens times the speed of a machine, bytes, and the contexts that
show a difference."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Protocol

from kvbench.estimate.cost import USABLE, RunCost
from kvbench.estimate.decoder import DecoderShape, shape_of_network
from kvbench.estimate.loads import PRESSES, Load, count_load
from kvbench.estimate.machines import MACHINES, TABLE, Machine, this_machine
from kvbench.experiments.grid import Grid
from kvbench.prompts.context_length import (
    Tokens,
    check_takes_length,
    count_context_tokens,
)
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError
from leaderboards.metrics.declaration import size_text
from leaderboards.statistics.paired_difference import fewest_clusters
from leaderboards.statistics.power import (
    ALIKE,
    clusters_to_detect,
    smallest_detectable,
    usual_spread,
)
from leaderboards.statistics.safe_ratio import TOLERATED_LOSS, contexts_that_agree, excluded_by
from leaderboards.statistics.text import count_text, range_text
from policies import LazyModule, Policy

if TYPE_CHECKING:
    from kvbench.models.load import LoadedModel

# They need torch, which a mistyped name of a machine does not wait for.
execute = LazyModule("kvbench.execution.execute")
local = LazyModule("kvbench.execution.local")
models = LazyModule("kvbench.models.load")
opening = LazyModule("kvbench.models.opening")
torch = LazyModule("torch")

SHARED = 0.75  # of its speed has a process beside others, with which it shares the memory
FEW_NAMES = 3  # tasks that a line names
NOTICEABLE = 20.0  # points of difference between two policies that anybody would want to see
PAGE_SECONDS = 10.0  # that records, statistics and pages of a small run take


def hours(seconds: float) -> str:
    """Writes a time in the unit in which it is easily read."""
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    if seconds >= 60:
        return f"{seconds / 60:.1f} min"
    if seconds >= 1:
        return f"{seconds:.0f} s"
    return "below 1 s"


def forecast_line(model: "LoadedModel", grid: Grid) -> str:
    """Says in one line how long a run takes, by the speed of this machine now; nothing of a GPU."""
    if model.device.type != "cpu":
        return ""
    contexts_of_all = sum(contexts for _, contexts in grid.tasks)
    workers = local.Workers(model, contexts_of_all).count
    speed = 1.0
    threads = torch.get_num_threads()
    if workers > 1:
        speed = SHARED
        # Measured as a worker of several will compute, which is on one thread.
        torch.set_num_threads(1)
    try:
        hidden_size = model.network.config.get_text_config().hidden_size
        machine = machine_of_run(grid, hidden_size, model.dtype_name)
    finally:
        torch.set_num_threads(threads)
    shape = shape_of_network(model.name, model.network, model.dtype_name)
    loads: list[Load] = []
    for task, contexts in grid.tasks:
        loads.append(count_load(grid, task, contexts, tokenizer=model.tokenizer))
    cost = RunCost(loads, shape, machine, grid.tables, grid.numerics)
    lower_end, upper_end = cost.ends
    upper = hours(upper_end / workers / speed + PAGE_SECONDS)
    if not cost.study_parts:
        return f"forecast: about {upper} on this machine, the page included"
    lower = hours(lower_end / workers / speed + PAGE_SECONDS)
    return f"forecast: {lower} to {upper} on this machine, its studies and the page included"


def few_contexts_line(contexts: Iterable[tuple[str, int, float]]) -> str:
    """Says that the contexts of some tasks are too few to show any difference; nothing where they
    are not. Each task has its name, its contexts, and its questions about one.

    >>> few_contexts_line([("base", 4, 6.0), ("hops", 4, 5.0), ("vt", 12, 1.0)])
    '4 contexts of base, hops tell no difference, however large: 11 to 13 tell 20 points'
    """
    needed = fewest_clusters()
    # By count, each task with the contexts that are enough.
    few: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for task, count, questions in contexts:
        if count <= needed:
            few[count][task] = clusters_to_detect(NOTICEABLE, usual_spread(questions))
    sentences: list[str] = []
    for count, enough in few.items():
        shown = "a difference only where all of them differ"
        if count < needed:
            shown = "no difference, however large"
        names = f"each of {len(enough)} tasks"
        if len(enough) <= FEW_NAMES:
            names = ", ".join(enough)
        verb = "tell"
        if count == 1:
            verb = "tells"
        enough_text = range_text(min(enough.values()), max(enough.values()))
        sentences.append(
            f"{count_text(count, 'context')} of {names} {verb} {shown}: "
            f"{enough_text} tell {NOTICEABLE:g} points"
        )
    return "; ".join(sentences)


def few_contexts_in(grid: Grid) -> str:
    """Says :func:`few_contexts_line` of the tasks of a grid, before they are run."""
    return few_contexts_line(
        (task.name, count, grid.questions(task, 0)) for task, count in grid.tasks
    )


def machine_of_run(grid: Grid, hidden_size: int, dtype: str) -> Machine:
    """Measures this machine in the dtypes of a run: that of its model, and those of its studies."""
    dtypes: Sequence[str] = ()
    if grid.is_numerics:
        dtypes = grid.numerics.dtypes
    return this_machine(hidden_size, dtype, dtypes)


def make_plan(
    job: Job,
    grid: Grid,
    shape: DecoderShape,
    tokens: Tokens,
    machine: Machine = MACHINES["h100"],
) -> RunCost:
    """Counts what is to be run of the grid of a job. Raises :class:`KVBenchError` for lengths that
    ``run`` refuses. ``tokens``: of a context, which the job leaves out, so that no long text is
    made."""
    if isinstance(tokens, int) and tokens < 1:
        raise KVBenchError(f"--context-tokens is 1 or more, not {tokens}")
    if tokens is not None:
        check_takes_length([task for task, _ in grid.tasks])
    tokenizer = opening.open_tokenizer(job.model)
    loads = []
    for task, count in grid.tasks:
        length = count_context_tokens(task, tokens, shape.places)
        loads.append(count_load(grid, task, count, length, tokenizer=tokenizer))
    for load in loads:
        models.check_places(f"a context of {load.task}", shape.name, load.tokens, shape.places)
    return RunCost(loads, shape, machine, grid.tables, grid.numerics)


def store_bytes(cost: RunCost) -> float:
    """Counts the bytes of the tables of a run, without those of studies."""
    total = 0.0
    for load in cost.loads:
        units = len(execute.chunks(load.contexts))
        rows = {
            "contexts": load.contexts,
            "questions": load.contexts * load.questions,
            "records": load.answers,
        }
        for table, count in rows.items():
            file, row, token = TABLE["store"][table]
            files = units
            if table == "records":  # each policy has files of its own
                files = units * len(load.branches)
            total += files * file + count * (row + load.tokens * token)
    return total


def plan_rows(cost: RunCost, tolerance: float = TOLERATED_LOSS) -> list[tuple[str, str]]:
    """Returns the rows of a plan, each with its title and a text; ``tolerance``: in points, the
    loss below which a level is safe."""
    answers = sum(load.answers for load in cost.loads)
    lower, upper = cost.ends
    total_time = _from_to(hours(cost.devices * lower), hours(cost.devices * upper))
    return [
        ("answers", f"{answers:,.0f}"),
        *contexts_rows(cost.loads, tolerance),
        ("memory of a worker", _memory(cost)),
        ("devices that hold a worker", f"{cost.devices:,} × {cost.machine.name}"),
        ("time of all devices", total_time),
        *_time_rows(cost),
        ("store", size_text(store_bytes(cost))),
    ]


class AskedTask(Protocol):
    """Says how much is asked in a task."""

    @property
    def task(self) -> str: ...

    @property
    def contexts(self) -> int: ...

    @property
    def questions(self) -> float:
        """Returns the questions about a context."""


def contexts_rows(tasks: Sequence[AskedTask], tolerance: float) -> list[tuple[str, str]]:
    """Writes which differences the contexts of the tasks show, and how many are needed for a loss
    of so many points."""
    rows: list[tuple[str, str]] = []
    for contexts in sorted({load.contexts for load in tasks}):
        smallest: dict[str, float] = {}
        for load in tasks:
            if load.contexts != contexts:
                continue
            points = smallest_detectable(usual_spread(load.questions), contexts)
            if points is not None:
                smallest[load.task] = points
        differences = "no difference"
        if smallest:
            differences = f"differences from {_range(smallest, 'points')}"
        rows.append((f"{contexts:,} contexts show", differences))
    needed: dict[str, float] = {}
    for load in tasks:
        needed[load.task] = float(clusters_to_detect(tolerance, usual_spread(load.questions)))
    rows.append((f"contexts that show {tolerance:g} points", _range(needed, "of a task")))
    fewest = min(load.contexts for load in tasks)
    agreeing = f"{contexts_that_agree(tolerance / 100)} if all answers agree"
    excluded = f"{fewest:,} exclude a loss of {ceil(100 * excluded_by(fewest))} at best"
    rows.append((f"and a loss below {tolerance:g} (safe)", f"{agreeing}; {excluded}"))
    if any(load.questions > 1 for load in tasks):
        alike = f"answers of one are alike by {ALIKE[0]:g} to {ALIKE[1]:g}, of 1"
        rows.append(("a question more of a context", f"tells nearly as much as a context: {alike}"))
    return rows


def _time_rows(cost: RunCost) -> list[tuple[str, str]]:
    """Writes the time of each part of the work on all devices, and of the slowest policy."""
    seconds_of_parts = defaultdict[str, float](float)
    # Without a name: no policy is the slowest where none takes time for itself alone.
    seconds_of_policies = defaultdict[str, float](float, {"": 0.0})
    for part in cost.parts:
        seconds = cost.devices * part.seconds
        seconds_of_parts[part.name] += seconds
        if part.policy:
            seconds_of_policies[part.policy] += seconds
    rows: list[tuple[str, str]] = []
    for name, seconds in seconds_of_parts.items():
        rows.append((f"- {name}", hours(seconds)))
    rows += _study_rows(cost)
    slowest = max(seconds_of_policies, key=lambda name: seconds_of_policies[name])
    if slowest:
        rows.append((f"of it by {slowest}", hours(seconds_of_policies[slowest])))
    return rows


def _from_to(lower: str, upper: str) -> str:
    if lower == upper:
        return lower
    return f"{lower} to {upper}"


def _memory(cost: RunCost) -> str:
    """Writes what a worker holds: the weights in the dtype in which they are loaded, and what
    studies make of them."""
    parts = [f"weights {size_text(cost.shape.weight_bytes)} ({cost.shape.dtype})"]
    if cost.copy_bytes:
        largest = max(
            cost.other_dtypes, key=lambda dtype: cost.shape.in_dtype(dtype).bytes_per_number
        )
        parts.append(f"a copy {size_text(cost.copy_bytes)} ({largest})")
    parts.append(f"cache {size_text(cost.context)}")
    if cost.walked:
        parts.append(f"caches of walks {size_text(cost.walked)}")
    return f"{' + '.join(parts)}, peak {size_text(cost.needed)}"


@dataclass
class _StudySums:
    """Sums what a part of the studies takes over all tasks, at least and at most."""

    lower_seconds: float = 0.0  # of all devices
    upper_seconds: float = 0.0
    lower_passes: float = 0.0
    upper_passes: float = 0.0


def _study_rows(cost: RunCost) -> list[tuple[str, str]]:
    """Writes the time of each part of the studies, with the passes that it takes."""
    sums_by_name: dict[str, _StudySums] = {}
    for part, lower, upper in cost.study_parts:
        sums = sums_by_name.setdefault(part.name, _StudySums())
        sums.lower_seconds += cost.devices * lower
        sums.upper_seconds += cost.devices * upper
        sums.lower_passes += sum(passes.count for passes in part.lower)
        sums.upper_passes += sum(passes.count for passes in part.upper)
    rows: list[tuple[str, str]] = []
    for name, sums in sums_by_name.items():
        times = _from_to(hours(sums.lower_seconds), hours(sums.upper_seconds))
        counted = _from_to(f"{sums.lower_passes:,.0f}", f"{sums.upper_passes:,.0f}")
        rows.append((f"- {name}", f"{times}, {counted} passes"))
    if cost.copy_seconds:
        rows.append(("- copies of the network", hours(cost.devices * cost.copy_seconds)))
    return rows


def _range(by_task: Mapping[str, float], unit: str) -> str:
    """Writes the lowest and the highest number of some tasks, each with its task; one alone where
    all are alike."""
    if not by_task:
        return ""
    lowest = min(by_task, key=by_task.__getitem__)
    highest = max(by_task, key=by_task.__getitem__)
    low = f"{by_task[lowest]:,.0f}"
    high = f"{by_task[highest]:,.0f}"
    if low == high:
        return f"{low} {unit}"
    return f"{low} ({lowest}) to {high} ({highest}) {unit}"


def assumptions(cost: RunCost) -> list[str]:
    """Says which cards hold a worker, and what the figures rest on, a sentence each."""
    shape = cost.shape
    copied = "one copy of the network at a time, " if cost.other_dtypes else ""
    walked = "or later the caches of walks, " if cost.walked else ""
    presses = (
        f"Presses were measured {TABLE['measured']}; other machines are assumed to read the cache "
        f"as often. "
    )
    policies = _policies_by_name(cost)
    if unmeasured := sorted(set(policies) - set(PRESSES)):
        presses += f"These cost the median of their kind: {', '.join(unmeasured)}."
    left_out = "loading the model, making the texts, writing the store, waiting for workers"
    if any(policy.treatment.step_treatment for policy in policies.values()):
        left_out += ", and what is done to rows between steps"
    return [
        f"The peak is weights, {copied}the longest context, its largest branch beside it, "
        f"{walked}and keep masks, without activations: {_cards(cost)}.",
        f"The machine, {cost.machine.name}: {cost.machine.source}.",
        f"The model, {shape.name}: {shape.parameters / 1e9:.2f} billion parameters, "
        f"{shape.layers} layers of {shape.heads} query heads and {shape.key_heads} key heads, in "
        f"{shape.dtype}, as run loads it.",
        presses,
        *_study_assumptions(cost),
        f"Not included: {left_out}.",
    ]


def _policies_by_name(cost: RunCost) -> dict[str, Policy]:
    policies: dict[str, Policy] = {}
    for load in cost.loads:
        for policy, _ in load.branches:
            policies[policy.name] = policy
    return policies


def _cards(cost: RunCost) -> str:
    """Says which cards hold a worker each, and for which one it needs too much memory."""
    fitting: list[str] = []
    too_small: list[str] = []
    for name, card in MACHINES.items():
        card_text = f"{name} ({size_text(card.memory)})"
        if cost.needed <= card.memory * USABLE:
            fitting.append(card_text)
        else:
            too_small.append(card_text)
    parts: list[str] = []
    if fitting:
        parts.append(f"fits one {', '.join(fitting)}")
    if too_small:
        parts.append(f"too much for one {', '.join(too_small)}")
    return "; ".join(parts)


def _study_assumptions(cost: RunCost) -> list[str]:
    """Says what the ends of each range stand for; the passes are counted, their times a
    projection."""
    assumptions = dict.fromkeys(time.part.assumption for time in cost.study_parts)
    if not assumptions:
        return []
    projection = (
        "Studies are a projection: their passes are counted from the code, their times were not "
        "measured."
    )
    return [projection, *assumptions]
