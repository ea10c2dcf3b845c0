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
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.grid import Grid, Setting
from kvbench.models.load import LoadedModel, find_decoder, load_model, load_tokenizer, wrap_model
from kvbench.models.natural import NATURAL_MODELS
from kvbench.prompts.context_length import lengthen
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
        made = random_llama("reference", self.sizes.large, "cpu", torch.float32)
        moved: Any = made.network  # whose types do not know that it moves
        return wrap_model("reference", moved.to(torch.device(device)), made.tokenizer, "")

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
    more = [f"and {len(remarks) - 3} more"] if remarks[3:] else []
    return Value(
        row,
        equal / max(1, count),
        None,
        "; ".join([f"{equal:,} of {count:,}", *remarks[:3], *more]),
    )


# Answers beside kvpress's own pipeline.


def beside_pipeline(model: str, dtype: str, seconds: float) -> Part:
    """Compares every answer about one context with kvpress's own pipeline, and the times."""
    equal, times = (
        f"`{model}`, {dtype}: answers equal to kvpress's",
        f"`{model}`, {dtype}: kvpress's time over ours",
    )

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
        yield from _compared(
            loaded, task, Setting(default_policies(), at_ratios((0.5, 0.9))), equal, times
        )

    return Part(f"{model} in {dtype}", seconds, {equal: "share", times: "times"}, measure)


def _compared(
    model: LoadedModel, task: Task, setting: Setting, equal: str, times: str
) -> Iterator[Value]:
    result = compare(model, [(task, task.example(0, 0))], setting)
    remarks = [
        f"{name} failed: {reason}" for name, reason in (result.failed | result.errors).items()
    ]
    remarks += [f"not equal: {policy} at {ratio}" for policy, ratio, _ in result.unequal]
    count = len(result.cells)
    yield share(equal, count - len(result.unequal), count, remarks)
    seconds = ", ".join(f"{name} {taken:.2f} s" for name, taken in result.seconds.items())
    note = (
        f"kvpress: {seconds}; ours, all together: {result.engine_seconds:.2f} s"
        if len(result.seconds) < 4
        else ""
    )
    yield Value(times, sum(result.seconds.values()) / result.engine_seconds, None, note)


def large_beside_pipeline(number: int, seconds: float) -> Part:
    """Times three policies at one ratio in kvpress's pipeline and here, on the large model."""
    tokens = WHOLE.lengths[number]
    equal, times = (
        f"8B at {tokens:,}: {what}"
        for what in ("answers equal to kvpress's", "kvpress's over ours")
    )

    def measure(card: Card) -> Iterator[Value]:
        task = base_task(card.large, card.sizes.lengths[number], card.sizes.answer)
        setting = Setting([POLICIES[name] for name in BESIDE_PIPELINE], at_ratios((0.5,)))
        yield from _compared(card.large, task, setting, equal, times)

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
        failed = [branch.error for branch in self.trace.branches if branch.error]
        remarks = [f"{len(failed)} branches failed: {failed[0]}"] if failed else []
        return "; ".join(
            [f"{len(self.answers):,} answers of {len(self.trace.branches)} branches", *remarks]
        )


def treat(card: Card, task: Task, policies: Sequence[Policy], points: Sequence[Point]) -> Treated:
    model = card.large
    prompt = build_prompts(model.tokenizer, task, task.example(0, 0), "agnostic")[0]
    card.forget_peak()
    start = model.clock()
    trace = prefill(model, prompt, with_reference(plan(policies, points, prompt, 0), prompt))
    read, read_peak = model.clock(), card.peak()
    card.forget_peak()
    begun = model.clock()
    answers = decode(model, trace, task.max_new_tokens, None, gold=True)
    return Treated(trace, answers, read - start, model.clock() - begun, (read_peak, card.peak()))


# Takes no time for anything.
NO_MACHINE = Machine("counts", math.inf, math.inf, 1e15, "counts alone")


def large_model(number: int, seconds: float) -> Part:
    """Reads a context for the default policies at five ratios and answers its six questions, beside
    what ``plan`` says and what the data sheet allows."""
    tokens = WHOLE.lengths[number]
    units = {
        "prefill": "s",
        "presses": "s",
        "answers": "s",
        "peak of reading": "GB",
        "peak of answering": "GB",
    }
    units |= {
        "prefill over the card's operations": "share",
        "answers over the card's bandwidth": "share",
    }
    rows = {what: f"8B at {tokens:,}: {what}" for what in units}

    def measure(card: Card) -> Iterator[Value]:
        policies, points = default_policies(), at_ratios(FIVE)
        # Untimed.
        treat(card, base_task(card.large, card.sizes.warm_up, 2), policies, at_ratios((0.5,)))
        task = base_task(card.large, card.sizes.lengths[number], card.sizes.answer)
        cost = cost_of(card.large, task, policies, points, card.machine or NO_MACHINE)
        planned: Callable[[float], float | None] = lambda value: value if card.machine else None  # noqa: E731
        done = treat(card, task, policies, points)
        yield Value(rows["prefill"], done.trace.seconds, planned(seconds_of(cost, "prefill")))
        yield Value(
            rows["presses"],
            done.reading - done.trace.seconds,
            planned(seconds_of(cost, "compression")),
        )
        yield Value(
            rows["answers"], done.answering, planned(seconds_of(cost, "answers")), done.note
        )
        all_kept = sum(sum(shares) for _, shares in cost.loads[0].branches) * cost.context
        most = min(cost.held + all_kept, USABLE * cost.machine.memory)
        for what, peak, bound in zip(
            ("reading", "answering"), done.peaks, (cost.held, most), strict=True
        ):
            if peak is not None:
                yield Value(rows[f"peak of {what}"], peak, planned(bound / GIGABYTE))
        yield from _shares_of_data_sheet(card, cost, done, rows)

    return Part(
        f"8B at {tokens:,}", seconds, {rows[what]: unit for what, unit in units.items()}, measure
    )


def _shares_of_data_sheet(
    card: Card, cost: RunCost, done: Treated, rows: Mapping[str, str]
) -> Iterator[Value]:
    """Compares the operations of the prefill and the bytes that answers read with what the card
    could do at best, and notes the shares that make ``plan`` right."""
    if (sheet := TABLE["machines"].get(find_card(card.name))) is None:
        return
    flops, _, _, bandwidth, memory = sheet  # in 16 bits, as the model is
    sums = defaultdict[str, float](float)
    inner = sum(weight.numel() for weight in find_decoder(card.large.network).layers.parameters())
    counting = replace(NO_MACHINE, flops=1.0, memory=memory)
    sums["operations"] = seconds_of(replace(cost, machine=counting), "prefill")
    counting = replace(NO_MACHINE, bandwidth=1.0, memory=memory)
    sums["bytes"] = seconds_of(replace(cost, machine=counting), "answers")
    counting = replace(NO_MACHINE, layer_seconds=1.0, memory=memory)
    sums["calls"] = seconds_of(replace(cost, machine=counting), "answers")
    # Embeddings multiply nothing, and behind a context nobody reads its logits.
    outside = 2.0 * (cost.shape.parameters - inner) * cost.loads[0].tokens
    prefill_share = (sums["operations"] - outside) / flops / done.trace.seconds
    yield Value(rows["prefill over the card's operations"], prefill_share)
    yield Value(
        rows["answers over the card's bandwidth"], sums["bytes"] / bandwidth / done.answering
    )
    card.constants["compute_share"] = min(1.0, sums["operations"] / flops / done.trace.seconds)
    if "layer_seconds" in card.constants:
        reading = done.answering - sums["calls"] * card.constants["layer_seconds"]
        least = sums["bytes"] / bandwidth
        card.constants["reading_share"] = least / max(least, reading)


def cost_of(
    model: LoadedModel,
    task: Task,
    policies: Sequence[Policy],
    points: Sequence[Point],
    machine: Machine,
) -> RunCost:
    """Returns what ``plan`` says of one context of a task."""
    load = count_load(
        Grid([(task, 1)], Setting(policies, points)), task, 1, tokenizer=model.tokenizer
    )
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
        yield Value(row, 1000 * taken, 1000 * card.machine.layer_seconds if card.machine else None)

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
    policy, times = find_policy(name), list[float]()
    for count in (2, 2, 2 + card.sizes.answer // 4):  # the first warms up
        trace = prefill(model, prompt, plan([policy], _points_of(policy), prompt, 0))
        start = model.clock()
        answers = decode(model, trace, count, None)
        times.append(model.clock() - start)
        if not answers:
            raise KVBenchError(f"{name} failed: {trace.branches[0].error}")
    return (times[2] - times[1]) / (card.sizes.answer // 4), None, f"{len(answers)} answers"


def _points_of(policy: Policy) -> tuple[Point, ...]:
    return tuple(
        Point(Level(kind, float(AT_EACH[kind]))) for kind in policy.kinds if kind in AT_EACH
    )


# Answers of the card beside those of the CPU.


def as_on_cpu(what: str, seconds: float, jobs: Callable[[Sizes], Iterator[dict[str, Any]]]) -> Part:
    """Compares answers with those of the CPU of the same machine, both in float32."""
    row = f"every {what}: answers equal to the CPU's, float32"

    def measure(card: Card) -> Iterator[Value]:
        models = [card.reference(device) for device in ("cpu", card.device)]
        equal = count = 0
        remarks: list[str] = []
        runs = list(jobs(card.sizes))
        for number, options in enumerate(runs, 1):
            job = {
                "model": "reference",
                "dtype": "float32",
                "limit": 1,
                "repeats": 1,
                "controls": False,
            } | options
            told = ", ".join(str(options.get(name, "")) for name in ("suite", "tasks", "policies"))[
                :60
            ]
            try:
                host, there = (_answers(model, job) for model in models)
            except Exception as error:  # one run is not worth the others
                remarks.append(f"{told} failed: {type(error).__name__}: {first_line(error)}")
            else:
                unequal = [answer for answer in host if host[answer] != there.get(answer)]
                remarks += [f"not equal: {answer}" for answer in unequal]
                equal, count = equal + len(host) - len(unequal), count + len(host)
            # After each run, so that a part which is cut says how far it came.
            yield share(row, equal, count, [f"{number} of {len(runs)} runs", *remarks])

    return Part(f"every {what}", seconds, {row: "share"}, measure)


def _answers(model: LoadedModel, options: Mapping[str, Any]) -> dict[str, Any]:
    """Runs a job on a model that is loaded; returns the tokens of each answer and the rows of each
    table of a study."""
    executor = on_this_machine(Job.model_validate({**options, "device": model.device.type}), model)
    rows = RowsByTable()
    for task, _ in executor.grid.tasks:
        policies = tuple(policy.name for policy in executor.grid.policies_on(task))
        bound = executor.grid.setting.kv_bound(model.device)
        for name, more in rows_of(
            model, executor.grid, Unit(task.name, 0, range(1), policies), bound
        ).tables.items():
            rows.add(name, more)
    answers: dict[str, Any] = {
        f"rows of {name}": len(of_table) for name, of_table in rows.tables.items()
    }
    for one in rows.records:
        answers[f"{one.policy} at {one.point.where}, {one.question_id}"] = (
            one.status,
            one.output_token_ids,
        )
    return answers


def jobs_of_policies(sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Yields jobs that try every policy, fault and quantisation once."""
    ratio = {"ratio": AT_EACH["ratio"]}
    yield {"tasks": "base", "policies": sizes.policies, "levels": ratio}
    by_kind = defaultdict[str, list[str]](list)
    for policy in (TREATMENTS[name] for name in sizes.treatments):
        by_kind[policy.kinds[0] if policy.kinds else ""].append(policy.name)
    for kind, names in by_kind.items():
        yield {
            "tasks": "base",
            "policies": ",".join(names),
            "levels": {kind: AT_EACH[kind]} if kind else {},
        }
    asking = [
        policy.name
        for policy in POLICIES.values()
        if policy.needs.question and not policy.needs.weights
    ]
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
