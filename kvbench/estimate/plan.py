"""States what a run would cost: tokens times the speed of a machine, bytes, and the contexts that
show a difference."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from statistics import mean
from typing import TYPE_CHECKING

from kvbench.engine.time_limit import NumericsOptions
from kvbench.estimate import studies
from kvbench.estimate.decoder import DecoderShape, shape_of_network
from kvbench.estimate.loads import PRESSES, Load, PressCost, load_of
from kvbench.estimate.machines import MACHINES, TABLE, Machine, this_machine
from kvbench.estimate.studies import EDGES, Passes, StudyPart
from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.grid import Grid
from kvbench.prompts.context_length import (
    Tokens,
    check_takes_length,
    count_by,
    count_context_tokens,
)
from kvbench.store.observed import SAMPLE
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError
from leaderboards.metrics.declaration import size_text
from leaderboards.statistics.intervals import TOLERATED_LOSS, contexts_that_agree, excluded_by
from leaderboards.statistics.significance import (
    clusters_to_detect,
    fewest_clusters,
    smallest_detectable,
    usual_spread,
)
from leaderboards.statistics.text import count_text, range_text
from policies import LazyModule

if TYPE_CHECKING:
    from kvbench.models.load import LoadedModel

# They need torch, which a mistyped name of a machine does not wait for.
columns = LazyModule("kvbench.engine.decode.columns")
execute = LazyModule("kvbench.execution.execute")
local = LazyModule("kvbench.execution.local")
models = LazyModule("kvbench.models.load")
torch = LazyModule("torch")

USABLE = 0.9  # of the memory
SHARED = 0.75  # of its speed has a process beside others, with which it shares the memory
FEW_NAMES = 3  # tasks that a line names
NOTICEABLE = 20.0  # points of difference between two policies that anybody would want to see
PAGE_SECONDS = 10.0  # that records, statistics and pages of a small run take


@dataclass(frozen=True)
class RunCost:
    """The time and the bytes of a run. A worker has as many devices as it needs, whose layers work
    in turn."""

    loads: Sequence[Load]
    shape: DecoderShape
    machine: Machine
    tables: tuple[str, ...] = ()  # of studies
    numerics: NumericsOptions = field(default_factory=NumericsOptions)

    @property
    def context(self) -> int:
        """Returns the bytes of the cache of the longest context."""
        return max(load.tokens for load in self.loads) * self.shape.token_bytes

    @property
    def other_dtypes(self) -> list[str]:
        """Lists the dtypes in which a study copies the network."""
        is_copied = any(table.startswith("numerics") for table in self.tables)
        return [dtype for dtype in self.numerics.dtypes if is_copied and dtype != self.shape.dtype]

    @property
    def copy_bytes(self) -> int:
        """Counts the bytes of the largest copy of the network: one is held at a time
        (:class:`NetworkCopies`)."""
        return max((self._weight_bytes(dtype) for dtype in self.other_dtypes), default=0)

    def _weight_bytes(self, dtype: str) -> int:
        in_float32 = 4 * self.shape.parameters if dtype in self.machine.emulated else 0
        return self.shape.in_dtype(dtype).weight_bytes + in_float32

    @property
    def held(self) -> int:
        """Returns the bytes of weights, the longest context, and the keep masks of all branches of
        a context: a byte for each token, layer and head."""
        most = max(
            load.tokens * sum(len(shares) for _, shares in load.branches) for load in self.loads
        )
        masks = most * self.shape.layers * self.shape.key_heads
        return self.shape.weight_bytes + self.copy_bytes + self.context + masks

    @property
    def walked(self) -> float:
        """Returns the bytes of the caches that numerics holds at once, in its widest dtype."""
        widest = max(self.shape.in_dtype(dtype).token_bytes for dtype in self.numerics.dtypes)
        return (
            max(studies.cache_tokens(load, self.numerics, self.tables) for load in self.loads)
            * widest
        )

    @property
    def needed(self) -> float:
        """Counts the bytes that a worker needs at least: what it holds, and beside it the largest
        branch, or later the caches of numerics."""
        return self.held + max(self.context, self.walked)

    @property
    def devices(self) -> int:
        return ceil(self.needed / (self.machine.memory * USABLE))

    @cached_property
    def parts(self) -> list[tuple[str, str, float]]:
        """Lists the parts of the work, each with its policy, if it is for one alone, and the
        seconds of one worker."""
        return [
            (name, policy, load.contexts * load.prompts * seconds)
            for load in self.loads
            for name, policy, seconds in self._parts_of(load)
        ]

    @property
    def seconds(self) -> float:
        return sum(seconds for _, _, seconds in self.parts)

    @cached_property
    def study_parts(self) -> list[tuple[StudyPart, float, float]]:
        """Lists the parts of the studies, each with the least and the most seconds of one
        worker."""
        shape, parts = self.shape, []
        for load in self.loads:
            for part in studies.parts_of(
                load, self.numerics, self.tables, shape.layers, shape.heads
            ):
                ends = zip((part.least, part.most), part.host, strict=True)
                least, most = (host + sum(map(self._seconds_of, passes)) for passes, host in ends)
                parts.append((part, least, most))
        return parts

    @property
    def copy_seconds(self) -> float:
        """Counts the time of the copies of the network: a context begins with the copy that the
        last one ended with."""
        copied = [
            self.shape.weight_bytes + self._weight_bytes(dtype) for dtype in self.other_dtypes
        ]
        if not copied:
            return 0.0
        contexts = sum(load.contexts * load.prompts for load in self.loads)
        return (sum(copied) * contexts - mean(copied) * (contexts - 1)) / self.machine.copies

    @property
    def ends(self) -> tuple[float, float]:
        """Returns the least and the most seconds of one worker, studies included."""
        least = sum(least for _, least, _ in self.study_parts)
        most = sum(most for _, _, most in self.study_parts)
        always = self.seconds + self.copy_seconds
        return always + least, always + most

    def _seconds_of(self, passes: Passes) -> float:
        """Returns the time of passes of a study, which are those of transformers' own code."""
        shape = self.shape.in_dtype(passes.dtype or self.shape.dtype)
        weights = shape.weight_bytes
        if passes.dtype in self.machine.emulated:  # then weights in float32 are read
            weights = 4 * shape.parameters
        read = passes.count * weights + passes.cached * shape.token_bytes + passes.read
        passed = passes.count + passes.layers / shape.layers
        layers = passed * shape.layers * self.machine.plain_calls
        operations = shape.operations(passes.tokens, passes.pairs)
        return self.machine.seconds(operations, read, layers, shape.dtype)

    def _seconds(self, tokens: float, pairs: float, passes: float, cached: float = 0) -> float:
        """Returns the time of tokens that attend to others in pairs, where each pass reads all
        weights; ``cached``: tokens of which keys and values are read."""
        read = passes * self.shape.weight_bytes + cached * self.shape.token_bytes
        return self.machine.seconds(
            self.shape.operations(tokens, pairs), read, passes * self.shape.layers
        )

    def _parts_of(self, load: Load) -> Iterator[tuple[str, str, float]]:
        """Yields the parts of the work on one context of a task."""
        size, together = load.tokens, list[float]()
        questions_of_prompt = load.questions / load.prompts  # from one prefill
        prefill = self._seconds(size, size**2 / 2, 1)
        yield "prefill", "", prefill
        for policy, shares in load.branches:
            press = PressCost.of(policy)
            copied = press.readings(size, len(shares)) * size * self.shape.token_bytes
            copies = copied / self.machine.copies
            yield "compression", policy.name, copies + len(shares) * press.prefills * prefill
            if not policy.while_decoding:
                together += shares
                continue
            # Every token of an answer reads weights and cache, and so does the right answer behind
            # the question again.
            tokens = questions_of_prompt * (
                2 * load.question_tokens + load.answer_tokens + load.gold_tokens
            )
            passes, kept = (
                questions_of_prompt * (2 + load.answer_tokens + load.gold_tokens),
                sum(shares) * size,
            )
            seconds = self._seconds(
                len(shares) * tokens, tokens * kept, len(shares) * passes, passes * kept
            )
            yield "answers written alone", policy.name, seconds
        # Each wave reads the weights and its own cache for the start that questions share, for each
        # portion of the questions, for each portion of the right answers, and for each token of the
        # answers.
        kept = sum(together) * size
        waves = ceil(
            kept
            * self.shape.token_bytes
            / (self.machine.memory * USABLE * self.devices - self.held)
        )
        portions = [
            ceil(questions_of_prompt * part / columns.PLACES_AT_ONCE)
            for part in (load.question_tokens, load.gold_tokens)
        ]
        tokens, passes = (
            questions_of_prompt * (load.question_tokens + load.answer_tokens + load.gold_tokens),
            1 + load.answer_tokens,
        )
        passes += sum(portions)
        yield (
            "answers",
            "",
            self._seconds(tokens * len(together), tokens * kept, passes * waves, passes * kept),
        )


def hours(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    return (
        f"{seconds / 60:.1f} min"
        if seconds >= 60
        else f"{seconds:.0f} s"
        if seconds >= 1
        else "below 1 s"
    )


def forecast_of(model: "LoadedModel", grid: Grid) -> str:
    """Says in one line how long a run takes, by the speed of this machine now; nothing of a GPU."""
    if model.device.type != "cpu":
        return ""
    network, threads = model.network, torch.get_num_threads()
    workers = local.Workers(model, sum(contexts for _, contexts in grid.tasks)).count
    torch.set_num_threads(1 if workers > 1 else threads)
    try:
        machine = machine_of_run(
            grid, network.config.get_text_config().hidden_size, model.dtype_name
        )
    finally:
        torch.set_num_threads(threads)
    shape = shape_of_network(model.name, network, model.dtype_name)
    loads = [
        load_of(grid, task, contexts, tokenizer=model.tokenizer) for task, contexts in grid.tasks
    ]
    cost = RunCost(loads, shape, machine, grid.setting.tables, grid.setting.numerics)
    least, most = (
        hours(seconds / workers / (SHARED if workers > 1 else 1.0) + PAGE_SECONDS)
        for seconds in cost.ends
    )
    if cost.study_parts:
        return f"forecast: {least} to {most} on this machine, its studies and the page included"
    return f"forecast: about {most} on this machine, the page included"


def few_contexts_line(contexts: Iterable[tuple[str, int, float]]) -> str:
    """Says that the contexts of some tasks are too few to show any difference; nothing where they
    are not. Each task has its name, its contexts, and its questions about one.

    >>> few_contexts_line([("base", 4, 6.0), ("hops", 4, 5.0), ("vt", 12, 1.0)])
    '4 contexts of base, hops tell no difference, however large: 11 to 13 tell 20 points'
    """
    needed, sentences = fewest_clusters(), []
    # By count, each task with the contexts that are enough.
    few: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for task, count, questions in contexts:
        if count <= needed:
            few[count][task] = clusters_to_detect(NOTICEABLE, usual_spread(questions))
    for count, enough in few.items():
        told = (
            "no difference, however large"
            if count < needed
            else "a difference only where all of them differ"
        )
        names = ", ".join(enough) if len(enough) <= FEW_NAMES else f"each of {len(enough)} tasks"
        these = f"{count_text(count, 'context')} of {names} tell{'s' if count == 1 else ''} {told}"
        sentences.append(
            f"{these}: {range_text(min(enough.values()), max(enough.values()))} tell "
            f"{NOTICEABLE:g} points"
        )
    return "; ".join(sentences)


def few_contexts_of(grid: Grid) -> str:
    """Says :func:`few_contexts_line` of the tasks of a grid, before they are run."""
    return few_contexts_line(
        (task.name, count, grid.questions(task, 0)) for task, count in grid.tasks
    )


def machine_of_run(grid: Grid, hidden_size: int, dtype: str) -> Machine:
    """Measures this machine in the dtypes of a run: that of its model, and those of its studies."""
    is_numerics = any(table.startswith("numerics") for table in grid.setting.tables)
    return this_machine(hidden_size, dtype, grid.setting.numerics.dtypes if is_numerics else ())


def plan_of(
    job: Job, shape: DecoderShape, tokens: Tokens, machine: Machine = MACHINES["h100"]
) -> RunCost:
    """Counts what is to be run; raises :class:`KVBenchError` for what ``run`` refuses. ``tokens``:
    of a context, which the job leaves out, so that no long text is made."""
    if isinstance(tokens, int) and tokens < 1:
        raise KVBenchError(f"--context-tokens is 1 or more, not {tokens}")
    grid = build_grid(job, count_by(job.model))
    if tokens is not None:
        check_takes_length([task for task, _ in grid.tasks])
    tokenizer = models.load_tokenizer(job.model)
    loads = []
    for task, count in grid.tasks:
        length = count_context_tokens(task, tokens, shape.places)
        loads.append(load_of(grid, task, count, length, tokenizer=tokenizer))
    for load in loads:
        models.check_places(f"a context of {load.task}", shape.name, load.tokens, shape.places)
    return RunCost(loads, shape, machine, grid.setting.tables, grid.setting.numerics)


def store_bytes(cost: RunCost) -> float:
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
            files = units * (len(load.branches) if table == "records" else 1)
            total += files * file + count * (row + load.tokens * token)
    return total


def rows_of(cost: RunCost, tolerance: float = TOLERATED_LOSS) -> list[tuple[str, str]]:
    parts, policies = defaultdict[str, float](float), defaultdict[str, float](float)
    for name, policy, seconds in cost.parts:
        parts[name] += cost.devices * seconds
        policies[policy] += cost.devices * seconds if policy else 0.0
    slowest = max(policies, key=lambda name: policies[name])
    shown = []
    for contexts in sorted({load.contexts for load in cost.loads}):
        smallest: dict[str, float] = {}
        for load in cost.loads:
            if load.contexts == contexts:
                points = smallest_detectable(usual_spread(load.questions), contexts)
                if points is not None:
                    smallest[load.task] = points
        differences = "no difference"
        if smallest:
            differences = f"differences from {_range(smallest, 'points')}"
        shown.append((f"{contexts:,} contexts show", differences))
    needed: dict[str, float] = {}
    for load in cost.loads:
        needed[load.task] = float(clusters_to_detect(tolerance, usual_spread(load.questions)))
    fewest = min(load.contexts for load in cost.loads)
    agreeing = f"{contexts_that_agree(tolerance / 100)} if all answers agree"
    excluded = f"{fewest:,} exclude a loss of {ceil(100 * excluded_by(fewest))} at best"
    least, most = (cost.devices * seconds for seconds in cost.ends)
    return [
        ("answers", f"{sum(load.answers for load in cost.loads):,.0f}"),
        *shown,
        (f"contexts that show {tolerance:g} points", _range(needed, "of a task")),
        (f"and a loss below {tolerance:g} (safe)", f"{agreeing}; {excluded}"),
        ("memory of a worker", _memory(cost)),
        ("devices that hold a worker", f"{cost.devices:,} × {cost.machine.name}"),
        ("time of all devices", _from_to(hours(least), hours(most))),
        *((f"- {part}", hours(seconds)) for part, seconds in parts.items()),
        *_study_rows(cost),
        *([(f"of it by {slowest}", hours(policies[slowest]))] if slowest else []),
        ("store", size_text(store_bytes(cost))),
    ]


def _from_to(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


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


def _study_rows(cost: RunCost) -> list[tuple[str, str]]:
    """Writes the time of each part of the studies, with the passes that it takes."""
    ends: dict[str, list[float]] = {}
    for part, least, most in cost.study_parts:
        passes = (sum(group.count for group in passes) for passes in (part.least, part.most))
        times = (cost.devices * seconds for seconds in (least, most))
        sums = ends.setdefault(part.name, [0.0] * 4)
        ends[part.name] = [old + new for old, new in zip(sums, (*times, *passes), strict=True)]
    rows = []
    for name, (least, most, fewest, highest) in ends.items():
        counted = _from_to(f"{fewest:,.0f}", f"{highest:,.0f}")
        rows.append((f"- {name}", f"{_from_to(hours(least), hours(most))}, {counted} passes"))
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
    sizes = {
        f"{name} ({size_text(card.memory)})": card.memory * USABLE
        for name, card in MACHINES.items()
    }
    fits = [name for name, size in sizes.items() if cost.needed <= size]
    others = [name for name in sizes if name not in fits]
    cards = [
        f"{what} {', '.join(names)}"
        for what, names in (("fits one", fits), ("too much for one", others))
        if names
    ]
    unmeasured = sorted(
        {policy.name for load in cost.loads for policy, _ in load.branches} - set(PRESSES)
    )
    copied = "one copy of the network at a time, " if cost.other_dtypes else ""
    walked = "or later the caches of walks, " if cost.walked else ""
    return [
        f"The peak is weights, {copied}the longest context, its largest branch beside it, "
        f"{walked}and keep masks, without activations: {'; '.join(cards)}.",
        f"The machine, {cost.machine.name}: {cost.machine.source}.",
        f"The model, {shape.name}: {shape.parameters / 1e9:.2f} billion parameters, "
        f"{shape.layers} layers of {shape.heads} query heads and {shape.key_heads} key heads, in "
        f"{shape.dtype}, as run loads it.",
        f"Presses were measured {TABLE['measured']}; other machines are assumed to read the cache "
        f"as often. "
        + (f"These cost the median of their kind: {', '.join(unmeasured)}." if unmeasured else ""),
        *_study_assumptions(cost),
        "Not included: loading the model, making the texts, writing the store, waiting for workers"
        + (", and what is done to rows between steps." if _treats_steps(cost) else "."),
    ]


def _study_assumptions(cost: RunCost) -> list[str]:
    """Says what the ends of each range stand for; the passes are counted, their times a
    projection."""
    reasons = {
        "numerics": "Numerics, at least: answers end behind their golds, and both paths choose the same; at most: no "
        "answer ends before its last step, and all paths part.",
        "observed answers": f"Observed answers, of the first {SAMPLE} contexts: the host follows {EDGES[0]:.0f} to "
        f"{EDGES[1]:.0f} edges of attention from each token of a layer, which a model alone can "
        f"tell.",
        "interventions": "Interventions, at least: the full cache is right and no policy loses an answer; at most: "
        "every policy loses all; none where the full cache is wrong.",
    }
    names = dict.fromkeys(part.name for part, _, _ in cost.study_parts)
    projection = [
        "Studies are a projection: their passes are counted from the code, their times were not "
        "measured."
    ]
    return [*(projection if names else []), *(reasons[name] for name in names)]


def _treats_steps(cost: RunCost) -> bool:
    return any(policy.step_treatment for load in cost.loads for policy, _ in load.branches)
