"""States what a run would cost: tokens times the speed of a machine, bytes, and the contexts that show a difference."""

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from datasets_gen import Task
from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.grid import Grid
from kvbench.models.names import model_source
from kvbench.prompts.context_length import Tokens, check_takes_length, count_by, tokens_of
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.hub import look_for_hub
from kvbench.system.process import processor_name
from leaderboards.metrics.declaration import size_text
from leaderboards.statistics.intervals import contexts_that_agree, excluded_by
from leaderboards.statistics.significance import clusters_to_detect, smallest_detectable, usual_spread
from leaderboards.statistics.text import count_text
from policies import LazyModule, Policy

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from kvbench.models.load import LoadedModel

# They need torch, which a mistyped name of a machine does not wait for.
columns = LazyModule("kvbench.engine.decode.columns")
execute = LazyModule("kvbench.run.execute")
local = LazyModule("kvbench.run.local")
models = LazyModule("kvbench.models.load")
precision = LazyModule("kvbench.models.precision")
pretrained = LazyModule("kvbench.models.pretrained")
prompt = LazyModule("kvbench.prompts.prompt")
torch = LazyModule("torch")
transformers = LazyModule("transformers")

# The costs of presses and the bytes of a store were measured by ``plan --measure`` of revision c6c70ae.
TABLE: dict[str, Any] = json.loads((Path(__file__).parent / "constants.json").read_text(encoding="utf-8"))
COMPUTE_SHARE, READING_SHARE = 0.4, 0.6  # of the data sheet: assumed, not measured
LAYER_SECONDS = 0.3e-3  # of a layer in a pass of PyTorch without graphs, which no faster GPU shortens: assumed
USABLE = 0.9  # of the memory
THIS = "this"
ROWS, FEW_ROWS = 256, 8  # of the measured products: of a prefill, and of decoding, which reads many weights for little
CALLS = 60  # operations of a layer in a pass, each of which costs a call however little it computes
LARGE = 2**24  # numbers, more than caches hold
QUADRATIC = 1.5  # a press looks at all pairs of tokens if its readings grow that much at four times the length
CONTEXTS_READ = 3  # of each generated task, to count their tokens and questions
FILE_READ = 100  # of a file
BEHIND = 12  # tokens that an answer has behind its gold where it ends with its sentence or line: fewer, or all it may
QUIET = 0.9  # of the processor's time that a process gets where nothing else works
SHARED = 0.75  # of its speed has a process beside others, with which it shares the memory
PAGE_SECONDS = 10.0  # that records, statistics and pages of a small run take
STUDIED = (2.5, 8.0)  # times its answers alone: what runs with tables of studies took, as docs/performance.md has them
POINTS = 5  # of right answers: a difference that many ask for


@dataclass(frozen=True)
class Machine:
    """One device, with what of its speed a run reaches."""

    name: str
    flops: float  # operations a second
    bandwidth: float  # bytes of weights and cache a second
    memory: float  # bytes
    source: str  # where the figures are from
    layer_seconds: float = 0.0  # that a layer takes in a pass, however little it computes
    copied: float | None = None  # bytes a second, where copies are faster than products of few rows read

    def seconds(self, operations: float, read: float, layers: float) -> float:
        """Returns the time of work that its operations or the bytes it reads bound, and of the calls of its layers."""
        return max(operations / self.flops, read / self.bandwidth) + layers * self.layer_seconds


BY_DATA_SHEET = (
    f"a projection: {COMPUTE_SHARE:.0%} of the operations and {READING_SHARE:.0%} of the bytes a second of the data "
    "sheet are assumed to be reached; not measured on such a GPU"
)
MACHINES: Mapping[str, Machine] = {
    name: Machine(name, flops * COMPUTE_SHARE, bandwidth * READING_SHARE, memory, BY_DATA_SHEET, LAYER_SECONDS)
    for name, (flops, bandwidth, memory) in TABLE["machines"].items()
}


def this_machine(hidden_size: int, bytes_per_number: int = 4) -> Machine:
    """Measures in a second what products of a model's width, copies and calls take here: their processor time, and the
    share of the processor that this process gets. By the clock a busy machine would seem ten times as slow as it is."""
    spent, started = precision.processor_seconds(), time.perf_counter()  # the first imports what it is in
    dtype = torch.float32 if bytes_per_number > 2 else torch.bfloat16
    left, right = torch.ones(ROWS, hidden_size, dtype=dtype), torch.ones(4 * hidden_size, hidden_size, dtype=dtype)
    weights = torch.ones(LARGE // hidden_size, hidden_size, dtype=dtype)
    target, few = torch.empty_like(weights), torch.ones(FEW_ROWS)
    call = precision.best_seconds(lambda: [few.add_(1) for _ in range(CALLS)])
    product = precision.best_seconds(lambda: torch.nn.functional.linear(left, right))
    reading = precision.best_seconds(lambda: torch.mm(left[:FEW_ROWS], weights.t()))
    copying = precision.best_seconds(lambda: target.copy_(weights))
    share = min(1.0, (precision.processor_seconds() - spent) / (time.perf_counter() - started))
    return Machine(
        THIS,
        share * 2.0 * ROWS * hidden_size * 4 * hidden_size / product,
        share * weights.nbytes / reading,
        float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        f"measured now: {count_text(torch.get_num_threads(), 'thread')} of {processor_name()}"
        + (f", of which other work leaves {share:.0%}" if share < QUIET else ""),
        call / share,
        share * 2 * weights.nbytes / copying,
    )


@dataclass(frozen=True)
class DecoderShape:
    """The numbers of a decoder that its cost depends on. Sliding layers count as full ones."""

    name: str
    layers: int
    heads: int  # query heads of a layer
    key_heads: int  # heads of a layer that have keys and values
    head_size: int
    parameters: int
    bytes_per_number: int  # in weights and cache
    places: int = sys.maxsize  # tokens that the model takes at most

    def __post_init__(self) -> None:
        for field, value in asdict(self).items():
            if field != "name" and value < 1:
                raise KVBenchError(f"a model has 1 or more {field.replace('_', ' ')}, not {value}")
        models.check_heads(self.heads, self.key_heads)

    @property
    def weight_bytes(self) -> int:
        return self.parameters * self.bytes_per_number

    @property
    def token_bytes(self) -> int:
        """Returns the bytes of keys and values of one token."""
        return 2 * self.layers * self.key_heads * self.head_size * self.bytes_per_number

    def operations(self, tokens: float, pairs: float) -> float:
        """Counts two operations for each parameter and token, and two products over all pairs of tokens."""
        return 2.0 * self.parameters * tokens + 4.0 * self.layers * self.heads * self.head_size * pairs


def shape_of(model: str, bytes_per_number: int) -> DecoderShape:
    """Reads the configuration of a reference model, a folder or a hub model, without its weights."""
    source = model_source(model)
    try:
        if not Path(source).exists():
            look_for_hub()
        config = pretrained.read_config(source)
        models.check_architecture(model, config.architectures or [])
        with torch.device("meta"):
            network = transformers.AutoModelForCausalLM.from_config(config)
    except KVBenchError:
        raise
    except Exception as error:  # the hub and damaged files raise anything
        advice = "give --layers, --heads, --key-heads, --head-size and --parameters instead"
        unread = f"the configuration of '{model}' cannot be read ({first_line(error)})"
        raise KVBenchError(f"{unread}: {advice}") from error
    return shape_of_network(model, network, bytes_per_number)


def shape_of_network(name: str, network: "PreTrainedModel", bytes_per_number: int) -> DecoderShape:
    text: Any = network.config.get_text_config()
    heads = text.num_attention_heads
    key_heads = getattr(text, "num_key_value_heads", None) or heads
    sizes = text.num_hidden_layers, heads, key_heads, pretrained.head_size_of(text), network.num_parameters()
    return DecoderShape(name, *sizes, bytes_per_number, models.longest_read(network))


class PressCost(NamedTuple):
    """The cost of a press. Its unit is a reading: the time in which the machine reads the context's cache once."""

    short: float = 0.0  # readings to score a context of the shorter of two lengths
    long: float = 0.0  # and of the longer
    level: float = 0.0  # readings for each ratio
    prefills: float = 0.0  # for each ratio, of a press with a prefill of its own

    def readings(self, tokens: int, levels: int) -> float:
        """Counts the readings of a context: to score it takes as many at any length, or as many as are in proportion to
        the length if the press looks at all pairs of tokens."""
        grows = self.long > QUADRATIC * max(self.short, 1e-9)
        score = self.long * tokens / TABLE["lengths"][1] if grows else max(self.short, self.long)
        return score + levels * self.level

    @classmethod
    def of(cls, policy: Policy) -> Self:
        """Returns the cost of a policy's press: as it was measured, or the median of the presses of its kind."""
        if policy.name in PRESSES:
            return cls(*PRESSES[policy.name])
        kind = [press for press in PRESSES.values() if (press[-1] > 0) == (policy.prefill == "private")]
        return cls(*map(median, zip(*kind, strict=True)))


PRESSES: Mapping[str, Sequence[float]] = TABLE["presses"]


@dataclass(frozen=True)
class Load:
    """The counts of one task."""

    task: str
    contexts: int
    tokens: int  # of a context
    questions: float  # about a context
    question_tokens: float  # of a question
    answer_tokens: int  # of an answer: as long as the task allows, unless it ends with its sentence or line
    gold_tokens: float  # of a right answer that are passed for its likelihood: all but the last
    branches: Sequence[tuple[Policy, Sequence[float]]]  # each policy, and which share of a context each branch holds
    prompts: float = 1.0  # of a context: one, or in mode aware one for each question

    @property
    def answers(self) -> float:
        return self.contexts * self.questions * sum(len(shares) for _, shares in self.branches)


def load_of(
    grid: Grid, task: Task, contexts: int, tokens: int | None = None, *, tokenizer: "PreTrainedTokenizerBase"
) -> Load:
    """Reads a few contexts of a task with the model's tokenizer; ``tokens`` replaces the count of every context."""
    mode = grid.setting.mode
    # Contexts of a file differ in length and in questions as those of a generator do not.
    examples = [grid.example(task, index) for index in range(min(contexts, task.most or CONTEXTS_READ, FILE_READ))]
    prompts = [one for example in examples for one in prompt.build_prompts(tokenizer, task, example, mode)]
    tokenized = [question for one in prompts for question in one.questions]
    golds = mean(max(0, len(question.gold_ids) - 1) for question in tokenized)
    # Where its sentence does not end an answer, a chat model writes on; the lines of a base model end.
    ends_early = (task.begins_answers and task.answer_end == "sentence") or tokenizer.chat_template is None
    tokens = tokens or round(mean(len(one.token_ids) for one in prompts))
    branches = [  # a press that masks frees nothing
        (policy, [1 - (point.level.share(tokens) or 0.0) if policy.frees else 1.0 for point in grid.points(policy)])
        for policy in grid.policies_on(task)
    ]
    questions = len(tokenized) / len(examples)
    return Load(
        task=task.name,
        contexts=contexts,
        tokens=tokens,
        questions=questions,
        question_tokens=mean(len(question.token_ids) for question in tokenized),
        answer_tokens=min(task.max_new_tokens, round(golds) + BEHIND) if ends_early else task.max_new_tokens,
        gold_tokens=golds,
        branches=branches,
        prompts=questions if mode == "aware" else 1.0,
    )


@dataclass(frozen=True)
class RunCost:
    """The time and the bytes of a run. A worker has as many devices as it needs, whose layers work in turn."""

    loads: Sequence[Load]
    shape: DecoderShape
    machine: Machine

    @property
    def context(self) -> int:
        """Returns the bytes of the cache of the longest context."""
        return max(load.tokens for load in self.loads) * self.shape.token_bytes

    @property
    def held(self) -> int:
        """Returns the bytes of weights, the longest context, and the keep masks of all branches of a context: a byte
        for each token, layer and head."""
        most = max(load.tokens * sum(len(shares) for _, shares in load.branches) for load in self.loads)
        return self.shape.weight_bytes + self.context + most * self.shape.layers * self.shape.key_heads

    @property
    def needed(self) -> int:
        """Counts the bytes that a worker needs at least: what it holds, and beside it the largest branch."""
        return self.held + self.context

    @property
    def devices(self) -> int:
        return ceil(self.needed / (self.machine.memory * USABLE))

    @cached_property
    def parts(self) -> list[tuple[str, str, float]]:
        """Lists the parts of the work, each with its policy, if it is for one alone, and the seconds of one worker."""
        return [
            (name, policy, load.contexts * load.prompts * seconds)
            for load in self.loads
            for name, policy, seconds in self._parts_of(load)
        ]

    @property
    def seconds(self) -> float:
        return sum(seconds for _, _, seconds in self.parts)

    def _seconds(self, tokens: float, pairs: float, passes: float, cached: float = 0) -> float:
        """Returns the time of tokens that attend to others in pairs, where each pass reads all weights; ``cached``:
        tokens of which keys and values are read."""
        read = passes * self.shape.weight_bytes + cached * self.shape.token_bytes
        return self.machine.seconds(self.shape.operations(tokens, pairs), read, passes * self.shape.layers)

    def _parts_of(self, load: Load) -> Iterator[tuple[str, str, float]]:
        """Yields the parts of the work on one context of a task."""
        size, together = load.tokens, list[float]()
        asked = load.questions / load.prompts  # from one prefill
        prefill = self._seconds(size, size**2 / 2, 1)
        yield "prefill", "", prefill
        for policy, shares in load.branches:
            press = PressCost.of(policy)
            copied = press.readings(size, len(shares)) * size * self.shape.token_bytes
            copies = copied / (self.machine.copied or self.machine.bandwidth)
            yield "compression", policy.name, copies + len(shares) * press.prefills * prefill
            if not policy.while_decoding:
                together += shares
                continue
            # Every token of an answer reads weights and cache, and so does the right answer behind the question again.
            tokens = asked * (2 * load.question_tokens + load.answer_tokens + load.gold_tokens)
            passes, kept = asked * (2 + load.answer_tokens + load.gold_tokens), sum(shares) * size
            seconds = self._seconds(len(shares) * tokens, tokens * kept, len(shares) * passes, passes * kept)
            yield "answers written alone", policy.name, seconds
        # Each wave reads the weights and its own cache for the start that questions share, for each portion of the
        # questions, for each portion of the right answers, and for each token of the answers.
        kept = sum(together) * size
        waves = ceil(kept * self.shape.token_bytes / (self.machine.memory * USABLE * self.devices - self.held))
        portions = [ceil(asked * part / columns.PLACES_AT_ONCE) for part in (load.question_tokens, load.gold_tokens)]
        tokens, passes = asked * (load.question_tokens + load.answer_tokens + load.gold_tokens), 1 + load.answer_tokens
        passes += sum(portions)
        yield "answers", "", self._seconds(tokens * len(together), tokens * kept, passes * waves, passes * kept)


def hours(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s" if seconds >= 1 else "below 1 s"


def forecast_of(model: "LoadedModel", grid: Grid) -> str:
    """Says in one line how long a run takes, by the speed of this machine now; nothing of a GPU."""
    if model.device.type != "cpu":
        return ""
    network, threads = model.network, torch.get_num_threads()
    workers = local.Workers(model, sum(contexts for _, contexts in grid.tasks)).count
    torch.set_num_threads(1 if workers > 1 else threads)
    try:
        machine = this_machine(network.config.get_text_config().hidden_size, network.dtype.itemsize)
    finally:
        torch.set_num_threads(threads)
    shape = shape_of_network(model.name, network, network.dtype.itemsize)
    loads = [load_of(grid, task, contexts, tokenizer=model.tokenizer) for task, contexts in grid.tasks]
    seconds = RunCost(loads, shape, machine).seconds / workers / (SHARED if workers > 1 else 1.0)
    if grid.setting.tables:
        least, most = (hours(times * seconds + PAGE_SECONDS) for times in STUDIED)
        return f"forecast: {least} to {most} on this machine, its studies and the page included"
    return f"forecast: about {hours(seconds + PAGE_SECONDS)} on this machine, the page included"


def plan_of(job: Job, shape: DecoderShape, tokens: Tokens, machine: Machine = MACHINES["h100"]) -> RunCost:
    """Counts what is to be run; raises :class:`KVBenchError` for what ``run`` refuses. ``tokens``: of a context, which
    the job leaves out, so that no long text is made."""
    if isinstance(tokens, int) and tokens < 1:
        raise KVBenchError(f"--context-tokens is 1 or more, not {tokens}")
    grid = build_grid(job, count_by(job.model))
    if tokens is not None:
        check_takes_length([task for task, _ in grid.tasks])
    tokenizer = models.load_tokenizer(job.model)
    loads = [load_of(grid, task, count, tokens_of(task, tokens), tokenizer=tokenizer) for task, count in grid.tasks]
    for load in loads:
        models.check_places(f"a context of {load.task}", shape.name, load.tokens, shape.places)
    return RunCost(loads, shape, machine)


def store_bytes(cost: RunCost) -> float:
    total = 0.0
    for load in cost.loads:
        units = len(execute.chunks(load.contexts))
        rows = {"contexts": load.contexts, "questions": load.contexts * load.questions, "records": load.answers}
        for table, count in rows.items():
            file, row, token = TABLE["store"][table]
            files = units * (len(load.branches) if table == "records" else 1)
            total += files * file + count * (row + load.tokens * token)
    return total


def rows_of(cost: RunCost, tolerance: float = POINTS) -> list[tuple[str, str]]:
    parts, policies = defaultdict[str, float](float), defaultdict[str, float](float)
    for name, policy, seconds in cost.parts:
        parts[name] += cost.devices * seconds
        policies[policy] += cost.devices * seconds if policy else 0.0
    slowest = max(policies, key=lambda name: policies[name])
    shown = []
    for contexts in sorted({load.contexts for load in cost.loads}):
        of_tasks = {one.task: usual_spread(one.questions) for one in cost.loads if one.contexts == contexts}
        smallest = {task: smallest_detectable(spread, contexts) for task, spread in of_tasks.items()}
        seen = _range({task: points for task, points in smallest.items() if points is not None}, "points")
        shown.append((f"{contexts:,} contexts show", f"differences from {seen}" if seen else "no difference"))
    needed = {load.task: float(clusters_to_detect(tolerance, usual_spread(load.questions))) for load in cost.loads}
    fewest = min(load.contexts for load in cost.loads)
    agreeing = f"{contexts_that_agree(tolerance / 100)} if all answers agree"
    excluded = f"{fewest:,} exclude a loss of {ceil(100 * excluded_by(fewest))} at best"
    weights, context = size_text(cost.shape.weight_bytes), size_text(cost.context)
    return [
        ("answers", f"{sum(load.answers for load in cost.loads):,.0f}"),
        *shown,
        (f"contexts that show {tolerance:g} points", _range(needed, "of a task")),
        (f"and a loss below {tolerance:g} (safe)", f"{agreeing}; {excluded}"),
        ("memory of a worker", f"weights {weights} + cache {context}, peak {size_text(cost.needed)}"),
        ("devices that hold a worker", f"{cost.devices:,} × {cost.machine.name}"),
        ("time of all devices", hours(cost.devices * cost.seconds)),
        *((f"- {part}", hours(seconds)) for part, seconds in parts.items()),
        *([(f"of it by {slowest}", hours(policies[slowest]))] if slowest else []),
        ("store", size_text(store_bytes(cost))),
    ]


def _range(by_task: Mapping[str, float], unit: str) -> str:
    """Writes the lowest and the highest number of some tasks, each with its task; one alone where all are alike."""
    if not by_task:
        return ""
    lowest, highest = (choose(by_task, key=by_task.__getitem__) for choose in (min, max))
    low, high = (f"{by_task[task]:,.0f}" for task in (lowest, highest))
    return f"{low} {unit}" if low == high else f"{low} ({lowest}) to {high} ({highest}) {unit}"


def assumptions(cost: RunCost) -> list[str]:
    """Says which cards hold a worker, and what the figures rest on, a sentence each."""
    shape = cost.shape
    sizes = {f"{name} ({size_text(card.memory)})": card.memory * USABLE for name, card in MACHINES.items()}
    fits = [name for name, size in sizes.items() if cost.needed <= size]
    others = [name for name in sizes if name not in fits]
    cards = [
        f"{what} {', '.join(names)}" for what, names in (("fits one", fits), ("too much for one", others)) if names
    ]
    unmeasured = sorted({policy.name for load in cost.loads for policy, _ in load.branches} - set(PRESSES))
    return [
        f"The peak is weights, the longest context, its largest branch beside it, and keep masks: {'; '.join(cards)}.",
        f"The machine, {cost.machine.name}: {cost.machine.source}.",
        f"The model, {shape.name}: {shape.parameters / 1e9:.2f} billion parameters, {shape.layers} layers of "
        f"{shape.heads} query heads and {shape.key_heads} key heads, {shape.bytes_per_number} bytes a number.",
        f"Presses were measured {TABLE['measured']}; other machines are assumed to read the cache as often. "
        + (f"These cost the median of their kind: {', '.join(unmeasured)}." if unmeasured else ""),
        "Not included: loading the model, making the texts, writing the store, and waiting for workers.",
    ]
