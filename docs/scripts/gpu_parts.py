"""Declares what ``make gpu`` measures on a card, in the order of its worth (docs/scripts/gpu.py
runs it).

A large model has the configuration of Llama 3.1 8B and random weights: times and memory do not
depend on what it says."""

import gc
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from datasets_gen import RULER, TASKS, Task
from datasets_gen.tasks.prose import PROSE
from kvbench.checks.against_kvpress import compare
from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import Generation
from kvbench.engine.treat.branch import Trace
from kvbench.engine.treat.plan import plan, with_reference
from kvbench.engine.treat.prefill import prefill
from kvbench.estimate.cost import USABLE, RunCost
from kvbench.estimate.decoder import shape_of_network
from kvbench.estimate.loads import count_load
from kvbench.estimate.machines import MACHINES, TABLE, Machine, find_card
from kvbench.execution.execute import Unit, rows_of
from kvbench.execution.local import on_this_machine
from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel, find_decoder, load_model, load_tokenizer, wrap_model
from kvbench.models.natural import NATURAL_MODELS
from kvbench.prompts.context_length import count_by, lengthen
from kvbench.prompts.prompt import build_prompts
from kvbench.store.run_file import Job
from kvbench.store.tables import RowsByTable
from kvbench.studies.registry import SUITES
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.process import processor_name
from policies import POLICIES, Level, Point, Policy, at_ratios
from policies.composition import TREATMENTS

GIGABYTE = 1e9
FIVE = (0.1, 0.3, 0.5, 0.7, 0.9)
# The one level of each kind where equality is asked for.
AT_EACH = {"ratio": "0.5", "rate": "0.1", "bits": "4"}
BESIDE_PIPELINE = ("streaming_llm", "snapkv", "keydiff")
STEPPED = ("full", "int4", "fp8_e4m3", "zeros(phase=every_step)")
CALLS = 20  # passes over one token
PLACES = 131_072  # tokens that Llama 3.1 takes
ROTATION = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@dataclass(frozen=True)
class Sizes:
    """Holds the sizes of a measurement."""

    lengths: tuple[int, int]  # tokens of the contexts of the large model
    large: Mapping[str, int]  # its configuration
    warm_up: int  # tokens of a context that is read first, untimed
    answer: int  # tokens of an answer
    policies: str  # that evict, as ``--policies`` takes them
    treatments: tuple[str, ...]
    tasks: tuple[str, ...]
    suites: tuple[str, ...]
    # The models of kvbench are measured too; else random weights alone, which take less time.
    shipped: bool = True


LLAMA = {"hidden_size": 4096, "intermediate_size": 14_336, "vocab_size": 128_256}
LLAMA |= {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
LITTLE = {"hidden_size": 128, "intermediate_size": 128, "vocab_size": 4096}
LITTLE |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
WHOLE = Sizes(
    (8192, 32_768), LLAMA, 1024, 32, "all", (*TREATMENTS,), (*TASKS, *RULER, PROSE.name), (*SUITES,)
)
SMALL = Sizes(
    lengths=(192, 256),
    large=LITTLE,
    warm_up=144,
    answer=4,
    policies="snapkv,kvzip,decoding_knorm",
    treatments=("int4", "zeros", "mantissa"),
    tasks=("base", PROSE.name),
    suites=("bytes",),
    shipped=False,
)


@dataclass(frozen=True)
class Value:
    """Holds what was measured for a row, with what ``plan`` says, where it says anything."""

    row: str
    measured: float
    plan: float | None = None
    note: str = ""


@dataclass
class Card:
    """Holds the device, the models that are measured on it, and the constants that ``plan`` may
    take from it."""

    device: str  # cuda or cpu
    sizes: Sizes
    constants: dict[str, float] = field(default_factory=dict)

    @cached_property
    def name(self) -> str:
        return torch.cuda.get_device_name() if self.device == "cuda" else processor_name()

    @cached_property
    def machine(self) -> Machine | None:
        """Returns what ``plan`` knows of the card; None of one that it does not know, and of a
        processor."""
        return MACHINES.get(find_card(self.name))

    @cached_property
    def large(self) -> LoadedModel:
        return random_llama("an 8B model", self.sizes.large, self.device)

    def reference(self, device: str) -> LoadedModel:
        """Returns the reference model in float32, or random weights under its name: the same ones
        on every device."""
        if self.sizes.shipped:
            return load_model("reference", device, "float32")
        torch.manual_seed(0)
        on_host = random_llama("reference", self.sizes.large, "cpu", torch.float32)
        moved: Any = on_host.network  # whose types do not know that it moves
        return wrap_model("reference", moved.to(torch.device(device)), on_host.tokenizer, "")

    def peak(self) -> float | None:
        """Returns the most gigabytes of tensors since :meth:`forget_peak`; None on a CPU, which
        does not count them."""
        return torch.cuda.max_memory_allocated() / GIGABYTE if self.device == "cuda" else None

    def forget_peak(self) -> None:
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def random_llama(
    name: str, sizes: Mapping[str, int], device: str, dtype: torch.dtype = torch.bfloat16
) -> LoadedModel:
    """Makes a network of Llama 3.1's configuration with random weights where it will run: the host
    never holds it."""
    fixed: dict[str, Any] = {"max_position_embeddings": PLACES, "rope_parameters": ROTATION}
    config = LlamaConfig(**fixed, **dict[str, Any](sizes), tie_word_embeddings=False)
    with torch.device(device):
        network = LlamaForCausalLM._from_config(config, dtype=dtype, attn_implementation="sdpa")
    network.generation_config.eos_token_id = None  # every answer is as long as any other
    tokenizer = load_tokenizer("reference")
    tokenizer.model_max_length = PLACES
    return wrap_model(name, network.requires_grad_(False), tokenizer, "")


@dataclass(frozen=True)
class Part:
    """Declares a part: the seconds that it may take, its rows with their units, and how it is
    measured."""

    name: str
    seconds: float
    rows: Mapping[str, str]
    measure: Callable[[Card], Iterator[Value]]


def default_policies() -> list[Policy]:
    return [policy for policy in POLICIES.values() if policy.by_default and not policy.per_question]


def base_task(model: LoadedModel, tokens: int | None, answer: int) -> Task:
    """Returns the task with six questions to a context, at a length."""
    (task,) = lengthen([TASKS["base"]], tokens, None, model.count_tokens, "reference")
    return replace(task, max_new_tokens=answer)


def share(row: str, equal: int, count: int, remarks: Sequence[str]) -> Value:
    """Returns the share of what is equal, with the counts and the first remarks in its note."""
    notes = [f"{equal:,} of {count:,}", *remarks[:3]]
    if len(remarks) > 3:
        notes.append(f"and {len(remarks) - 3} more")
    return Value(row, equal / max(1, count), None, "; ".join(notes))


# Answers beside kvpress's own pipeline.


def beside_pipeline(model: str, dtype: str, seconds: float) -> Part:
    """Compares every answer about one context with kvpress's own pipeline, and the times."""
    equal = f"`{model}`, {dtype}: answers equal to kvpress's"
    times = f"`{model}`, {dtype}: kvpress's time over ours"

    def measure(card: Card) -> Iterator[Value]:
        if model in NATURAL_MODELS and not (card.sizes.shipped and NATURAL_MODELS[model].is_here):
            raise KVBenchError(f"{model} is not in the cache of this machine")
        loaded = (
            card.reference(card.device)
            if model == "reference"
            else load_model(model, card.device, dtype)
        )
        if loaded.dtype_name != dtype:
            network = loaded.network.to(getattr(torch, dtype))
            loaded = wrap_model(model, network, loaded.tokenizer, loaded.fingerprint)
        task = base_task(loaded, None, card.sizes.answer)
        grid = Grid([(task, 1)], default_policies(), at_ratios((0.5, 0.9)))
        yield from _compared(loaded, task, grid, equal, times)

    return Part(f"{model} in {dtype}", seconds, {equal: "share", times: "times"}, measure)


def _compared(
    model: LoadedModel, task: Task, grid: Grid, equal: str, times: str
) -> Iterator[Value]:
    result = compare(model, [(task, task.example(0, 0))], grid)
    remarks = []
    for name, reason in (result.failed | result.errors).items():
        remarks.append(f"{name} failed: {reason}")
    for policy, ratio, _ in result.unequal:
        remarks.append(f"not equal: {policy} at {ratio}")
    count = len(result.cells)
    yield share(equal, count - len(result.unequal), count, remarks)
    note = ""
    if len(result.seconds) < 4:
        seconds = ", ".join(f"{name} {taken:.2f} s" for name, taken in result.seconds.items())
        note = f"kvpress: {seconds}; ours, all together: {result.engine_seconds:.2f} s"
    yield Value(times, sum(result.seconds.values()) / result.engine_seconds, None, note)


def large_beside_pipeline(number: int, seconds: float) -> Part:
    """Times three policies at one ratio in kvpress's pipeline and here, on the large model."""
    tokens = WHOLE.lengths[number]
    equal = f"8B at {tokens:,}: answers equal to kvpress's"
    times = f"8B at {tokens:,}: kvpress's over ours"

    def measure(card: Card) -> Iterator[Value]:
        task = base_task(card.large, card.sizes.lengths[number], card.sizes.answer)
        policies = [POLICIES[name] for name in BESIDE_PIPELINE]
        grid = Grid([(task, 1)], policies, at_ratios((0.5,)))
        yield from _compared(card.large, task, grid, equal, times)

    return Part(f"kvpress, 8B at {tokens:,}", seconds, {equal: "share", times: "times"}, measure)


# Times and memory of a large model.


@dataclass(frozen=True)
class Treated:
    """Holds one context that was read for some policies, and its answers."""

    trace: Trace
    answers: Sequence[Generation]
    reading: float  # seconds, presses included
    answering: float  # seconds
    peaks: tuple[float | None, float | None]  # gigabytes, of both

    @property
    def note(self) -> str:
        branches = self.trace.branches
        note = f"{len(self.answers):,} answers of {len(branches)} branches"
        failed = [branch.error for branch in branches if branch.error]
        if failed:
            note += f"; {len(failed)} branches failed: {failed[0]}"
        return note


def treat(card: Card, task: Task, policies: Sequence[Policy], points: Sequence[Point]) -> Treated:
    """Reads the first context of a task for some policies, and answers its questions."""
    model = card.large
    prompt = build_prompts(model.tokenizer, task, task.example(0, 0), "agnostic")[0]
    card.forget_peak()
    start = model.clock()
    trace = prefill(model, prompt, with_reference(plan(policies, points, prompt, 0), prompt))
    reading, peak_of_reading = model.clock() - start, card.peak()
    card.forget_peak()
    start = model.clock()
    answers = decode(model, trace, task.max_new_tokens, None, gold=True)
    answering, peak_of_answering = model.clock() - start, card.peak()
    return Treated(trace, answers, reading, answering, (peak_of_reading, peak_of_answering))


# Takes no time for anything.
NO_MACHINE = Machine("counts", math.inf, math.inf, 1e15, "counts alone")
UNITS = {  # of the rows of a large model
    "prefill": "s",
    "presses": "s",
    "answers": "s",
    "peak of reading": "GB",
    "peak of answering": "GB",
    "prefill over the card's operations": "share",
    "answers over the card's bandwidth": "share",
}


def large_model(number: int, seconds: float) -> Part:
    """Reads a context for the default policies at five ratios and answers its six questions, beside
    what ``plan`` says and what the data sheet allows."""
    tokens = WHOLE.lengths[number]
    part = f"8B at {tokens:,}"
    rows = {name: f"{part}: {name}" for name in UNITS}

    def measure(card: Card) -> Iterator[Value]:
        policies, points = default_policies(), at_ratios(FIVE)
        # Untimed.
        treat(card, base_task(card.large, card.sizes.warm_up, 2), policies, at_ratios((0.5,)))
        task = base_task(card.large, card.sizes.lengths[number], card.sizes.answer)
        cost = cost_of(card.large, task, policies, points, card.machine or NO_MACHINE)
        planned = _plan_of_large_model(cost) if card.machine else {}
        done = treat(card, task, policies, points)
        pressing = done.reading - done.trace.seconds
        yield Value(rows["prefill"], done.trace.seconds, planned.get("prefill"))
        yield Value(rows["presses"], pressing, planned.get("presses"))
        yield Value(rows["answers"], done.answering, planned.get("answers"), done.note)
        for name, peak in zip(("peak of reading", "peak of answering"), done.peaks, strict=True):
            if peak is not None:
                yield Value(rows[name], peak, planned.get(name))
        yield from _shares_of_data_sheet(card, cost, done, rows)

    units = {rows[name]: unit for name, unit in UNITS.items()}
    return Part(part, seconds, units, measure)


def _plan_of_large_model(cost: RunCost) -> dict[str, float]:
    """Returns the seconds, and the gigabytes at most, that ``plan`` says, by name of the row."""
    all_kept = sum(sum(shares) for _, shares in cost.loads[0].branches) * cost.context
    peak_of_answering = min(cost.held + all_kept, USABLE * cost.machine.memory)
    return {
        "prefill": seconds_of(cost, "prefill"),
        "presses": seconds_of(cost, "compression"),
        "answers": seconds_of(cost, "answers"),
        "peak of reading": cost.held / GIGABYTE,
        "peak of answering": peak_of_answering / GIGABYTE,
    }


def _shares_of_data_sheet(
    card: Card, cost: RunCost, done: Treated, rows: Mapping[str, str]
) -> Iterator[Value]:
    """Compares the operations of the prefill and the bytes that answers read with what the card
    could do at best, and notes the shares that make ``plan`` right."""
    if (sheet := TABLE["machines"].get(find_card(card.name))) is None:
        return
    flops, _, _, bandwidth, memory = sheet  # in 16 bits, as the model is
    # A machine that takes a second for each of one kind, and no time for the others, counts them.
    counting = replace(NO_MACHINE, flops=1.0, memory=memory)
    operations = seconds_of(replace(cost, machine=counting), "prefill")
    counting = replace(NO_MACHINE, bandwidth=1.0, memory=memory)
    bytes_read = seconds_of(replace(cost, machine=counting), "answers")
    counting = replace(NO_MACHINE, layer_seconds=1.0, memory=memory)
    calls = seconds_of(replace(cost, machine=counting), "answers")
    # Embeddings multiply nothing, and behind a context nobody reads its logits.
    inner = sum(weight.numel() for weight in find_decoder(card.large.network).layers.parameters())
    outside = 2.0 * (cost.shape.parameters - inner) * cost.loads[0].tokens
    prefill_share = (operations - outside) / flops / done.trace.seconds
    yield Value(rows["prefill over the card's operations"], prefill_share)
    least = bytes_read / bandwidth  # seconds
    yield Value(rows["answers over the card's bandwidth"], least / done.answering)
    card.constants["compute_share"] = min(1.0, operations / flops / done.trace.seconds)
    if "layer_seconds" in card.constants:
        reading = done.answering - calls * card.constants["layer_seconds"]
        card.constants["reading_share"] = least / max(least, reading)


def cost_of(
    model: LoadedModel,
    task: Task,
    policies: Sequence[Policy],
    points: Sequence[Point],
    machine: Machine,
) -> RunCost:
    """Returns what ``plan`` says of one context of a task."""
    grid = Grid([(task, 1)], policies, points)
    load = count_load(grid, task, 1, tokenizer=model.tokenizer)
    # No answer of random weights ends early.
    load = replace(load, answer_tokens=task.max_new_tokens)
    return RunCost([load], shape_of_network(model.name, model.network, model.dtype_name), machine)


def seconds_of(cost: RunCost, part: str) -> float:
    return sum(seconds for name, _, seconds in cost.parts if name == part)


def calls_of_a_layer(seconds: float) -> Part:
    """Times a layer in a pass over one token, whose operations a card does faster than PyTorch
    calls them."""
    row = "a layer in a pass over one token"

    def measure(card: Card) -> Iterator[Value]:
        model = card.reference(card.device)
        token = torch.zeros(1, 1, dtype=torch.long, device=model.device)
        layers = len(find_decoder(model.network).layers)
        with torch.inference_mode():
            model.network(input_ids=token)  # warms up
            start = model.clock()
            for _ in range(CALLS):
                model.network(input_ids=token)
            taken = (model.clock() - start) / CALLS / layers
        card.constants["layer_seconds"] = taken
        planned = 1000 * card.machine.layer_seconds if card.machine else None
        yield Value(row, 1000 * taken, planned)

    return Part("calls of a layer", seconds, {row: "ms"}, measure)


def steps(seconds: float) -> Part:
    """Times a step of six answers under what acts between steps, by the difference of long and
    short answers."""
    tokens = WHOLE.lengths[0]
    rows = {name: f"8B at {tokens:,}, `{name}`: a step" for name in STEPPED}
    # cuDNN plans each new shape, and the shapes of steps are all new.
    without_cudnn = f"8B at {tokens:,}, `full`: a step without cuDNN's attention"

    def measure(card: Card) -> Iterator[Value]:
        for name, row in rows.items():
            yield Value(row, *_step_of(card, name))
        torch.backends.cuda.enable_cudnn_sdp(False)
        try:
            yield Value(without_cudnn, *_step_of(card, "full"))
        finally:
            torch.backends.cuda.enable_cudnn_sdp(True)

    names = dict.fromkeys((*rows.values(), without_cudnn), "s")
    return Part("steps of treatments", seconds, names, measure)


def _step_of(card: Card, name: str) -> tuple[float, None, str]:
    """Returns the seconds of a step of six answers, no forecast, and a note."""
    model = card.large
    task = base_task(model, card.sizes.lengths[0], card.sizes.answer)
    prompt = build_prompts(model.tokenizer, task, task.example(0, 0), "agnostic")[0]
    policy = find_policy(name)
    points = [Point(Level(kind, float(AT_EACH[kind]))) for kind in policy.kinds if kind in AT_EACH]
    more_steps = card.sizes.answer // 4
    times: list[float] = []
    for count in (2, 2, 2 + more_steps):  # the first warms up
        trace = prefill(model, prompt, plan([policy], points, prompt, 0))
        start = model.clock()
        answers = decode(model, trace, count, None)
        times.append(model.clock() - start)
        if not answers:
            raise KVBenchError(f"{name} failed: {trace.branches[0].error}")
    return (times[2] - times[1]) / more_steps, None, f"{len(answers)} answers"


# Answers of the card beside those of the CPU.

SMALLEST_JOB = {
    "model": "reference",
    "dtype": "float32",
    "limit": 1,
    "repeats": 1,
    "controls": False,
}


def as_on_cpu(kind: str, seconds: float, jobs: Callable[[Sizes], Iterator[dict[str, Any]]]) -> Part:
    """Compares answers with those of the CPU of the same machine, both in float32."""
    row = f"every {kind}: answers equal to the CPU's, float32"

    def measure(card: Card) -> Iterator[Value]:
        models = [card.reference(device) for device in ("cpu", card.device)]
        equal = count = 0
        remarks: list[str] = []
        runs = list(jobs(card.sizes))
        for number, options in enumerate(runs, 1):
            job = SMALLEST_JOB | options
            words = [str(options.get(name, "")) for name in ("suite", "tasks", "policies")]
            shown = ", ".join(words)[:60]
            try:
                host, there = (_answers(model, job) for model in models)
            except Exception as error:  # one run is not worth the others
                remarks.append(f"{shown} failed: {type(error).__name__}: {first_line(error)}")
            else:
                count += len(host)
                for answer, content in host.items():
                    if content == there.get(answer):
                        equal += 1
                    else:
                        remarks.append(f"not equal: {answer}")
            # After each run, so that a part which is cut says how far it came.
            yield share(row, equal, count, [f"{number} of {len(runs)} runs", *remarks])

    return Part(f"every {kind}", seconds, {row: "share"}, measure)


def _answers(model: LoadedModel, options: Mapping[str, Any]) -> dict[str, Any]:
    """Runs a job on a model that is loaded; returns the tokens of each answer and the rows of each
    table of a study."""
    job = Job.model_validate({**options, "device": model.device.type})
    executor = on_this_machine(job, build_grid(job, count_by(job.model)), model)
    rows = RowsByTable()
    for task, _ in executor.grid.tasks:
        policies = tuple(policy.name for policy in executor.grid.policies_on(task))
        bound = executor.grid.kv_bound(model.device)
        for name, more in rows_of(
            model, executor.grid, Unit(task.name, 0, range(1), policies), bound
        ).tables.items():
            rows.add(name, more)
    answers: dict[str, Any] = {}
    for name, of_table in rows.tables.items():
        answers[f"rows of {name}"] = len(of_table)
    for record in rows.records:
        answer = f"{record.policy} at {record.point.where}, {record.question_id}"
        answers[answer] = record.status, record.output_token_ids
    return answers


def jobs_of_policies(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yields jobs that try every policy, fault and quantisation once."""
    ratio = {"ratio": AT_EACH["ratio"]}
    yield {"tasks": "base", "policies": sizes.policies, "levels": ratio}
    by_kind = defaultdict[str, list[str]](list)
    for name in sizes.treatments:
        policy = TREATMENTS[name]
        kind = policy.kinds[0] if policy.kinds else ""
        by_kind[kind].append(policy.name)
    for kind, names in by_kind.items():
        levels = {kind: AT_EACH[kind]} if kind else {}
        yield {"tasks": "base", "policies": ",".join(names), "levels": levels}
    asking = []
    for policy in POLICIES.values():
        if policy.needs.question and not policy.needs.weights:
            asking.append(policy.name)
    yield {"tasks": "base", "policies": ",".join(asking), "levels": ratio, "mode": "aware"}
    yield {
        "tasks": "instructions",
        "policies": "snapkv+whitelist,snapkv+fair,snapkv+pages16",
        "levels": ratio,
    }


def jobs_of_tasks(sizes: Sizes) -> Iterator[dict[str, Any]]:
    for task in sizes.tasks:
        yield {"tasks": task, "policies": "snapkv,int4", "levels": {"ratio": AT_EACH["ratio"]}}


def jobs_of_suites(sizes: Sizes) -> Iterator[dict[str, Any]]:
    for name in sizes.suites:
        levels = {kind: AT_EACH[kind] for kind in SUITES[name].all_levels}
        yield {
            "suite": name,
            "tasks": SUITES[name].tasks[0].name,
            "levels": levels,
            "max_new_tokens": sizes.answer,
        }


PARTS: Sequence[Part] = (
    beside_pipeline("reference", "float32", 60),
    calls_of_a_layer(20),
    large_model(0, 90),
    large_model(1, 110),
    large_beside_pipeline(0, 60),
    steps(70),
    as_on_cpu("policy", 90, jobs_of_policies),
    as_on_cpu("task", 60, jobs_of_tasks),
    large_beside_pipeline(1, 80),
    beside_pipeline("reference", "bfloat16", 30),
    as_on_cpu("suite", 90, jobs_of_suites),
    beside_pipeline("smollm2", "float32", 60),
    beside_pipeline("smollm2", "bfloat16", 60),
)
