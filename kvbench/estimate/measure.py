"""Measures the constants of this machine with a model of random weights, for ``plan --measure``."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import mean, median

import torch

from datasets_gen import Task
from kvbench.benchmarks.shapes import LlamaShape, random_model, task_of
from kvbench.benchmarks.suite import one_thread
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.estimate.constants import Constants, PressCost, TableBytes
from kvbench.estimate.machine import this_machine
from kvbench.estimate.shape import DecoderShape
from kvbench.experiments.collect import collect
from kvbench.experiments.identify import package_versions
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt, build_prompts
from kvbench.run.resume import CONTEXTS_IN_CHUNK
from kvbench.store.parquet import parquet_bytes
from kvbench.system.process import processor_name
from policies import POLICIES, Policy, at_ratios

CPU = torch.device("cpu")
LENGTHS = (256, 1024)
NETWORK = LlamaShape("random", 512, 1536, 4, 8, 2, 64)
REPEATS = 3
RATIOS = (0.25, 0.45, 0.65)
STORED_RATIOS = tuple(tenths / 10 for tenths in range(1, 10))  # those of a default run
STORED_ANSWER = 4  # tokens of a common answer: random weights end none


class TimedByProcessor(LoadedModel):
    """A model whose clock counts processor time, so that other programs on the machine do not count."""

    def clock(self) -> float:
        return time.process_time()


@one_thread()
def measure(
    progress: Callable[[str], None], policies: Sequence[Policy] | None = None, lengths: tuple[int, int] = LENGTHS
) -> Constants:
    """Measures for minutes. It leaves out policies that need a question, instructions or weights of their own."""
    model, shape = _model()
    progress("copies")
    copied = this_machine(NETWORK.heads * NETWORK.head_size).copied or 1.0
    tasks = [task_of(model, length) for length in lengths]
    prompts = [build_prompts(model.tokenizer, task, task.example(0, 0), "agnostic")[0] for task in tasks]
    prefills = [median(prefill(model, prompt, []).seconds for _ in range(REPEATS)) for prompt in prompts]
    readings = [len(prompt.token_ids) * shape.cache_bytes / copied for prompt in prompts]
    # A norm and a cut: an upper bound of what one more ratio takes once the scores are there.
    cut = (_press_seconds(model, POLICIES["knorm"], prompts[1]) or 0.0) / readings[1]
    presses = {}
    for policy in policies or POLICIES.values():
        if policy.needs_question or policy.needs_spans or policy.weights or not policy.takes_ratios:
            continue
        progress(policy.name)
        seconds = [_press_seconds(model, policy, prompt) for prompt in prompts]
        if None not in seconds:
            presses[policy.name] = _press_cost(policy, [one or 0.0 for one in seconds], readings, prefills[1], cut)
    progress("records")
    return Constants(
        machine=f"one thread of {processor_name()}",
        date=datetime.now(UTC).date().isoformat(),
        packages=package_versions(),
        model=f"Llama of random weights, {shape.parameters / 1e6:.0f} M parameters, float32",
        lengths=lengths,
        presses=presses,
        store=measure_store(model, [task_of(model, length, STORED_ANSWER) for length in lengths]),
    )


def _model() -> tuple[LoadedModel, DecoderShape]:
    model = random_model(NETWORK, 2 * max(LENGTHS), CPU, torch.float32)
    model.network.generation_config.eos_token_id = None  # every answer is as long as it may be
    shape = NETWORK.layers, NETWORK.heads, NETWORK.key_heads, NETWORK.head_size, model.network.num_parameters()
    return TimedByProcessor(**vars(model)), DecoderShape(NETWORK.name, *shape, bytes_per_number=4)


def _press_seconds(model: LoadedModel, policy: Policy, prompt: Prompt) -> float | None:
    """Returns the time of a press at one ratio, as if it ran alone; None if it fails. A press with a prefill of its own
    counts what it takes longer than the shared prefill."""
    ratios = tuple(ratio for ratio in RATIOS if ratio <= policy.highest_ratio)
    seconds = []
    for _ in range(REPEATS):
        branches = prefill(model, prompt, plan([policy], at_ratios(ratios), prompt, 0)).branches
        if any(branch.error for branch in branches):
            return None
        seconds.append(mean(branch.seconds for branch in branches))
    return median(seconds)


def _press_cost(
    policy: Policy, seconds: Sequence[float], readings: Sequence[float], prefill_seconds: float, cut: float
) -> PressCost:
    """Returns the cost of a press. ``seconds``: of the press and of one reading of the cache, at the two lengths;
    ``cut``: the readings for one more ratio once the scores are there."""
    if policy.prefill == "private":
        return PressCost(prefills=1 + seconds[1] / prefill_seconds)
    short, long = (press / reading for press, reading in zip(seconds, readings, strict=True))
    if policy.ratio_free_score:
        return PressCost(readings=(short, long), level_readings=min(long, cut))
    return PressCost(level_readings=max(short, long))


def measure_store(model: LoadedModel, tasks: Sequence[Task]) -> dict[str, TableBytes]:
    """Measures what the tables of a store weigh, from a chunk of each of two tasks that differ in the length of their
    contexts."""
    setting = Setting([POLICIES["knorm"]], at_ratios(STORED_RATIOS))
    short, long = (
        collect(model, task, [task.example(0, index) for index in range(CONTEXTS_IN_CHUNK)], setting) for task in tasks
    )
    more_tokens = long.questions[0].context_tokens - short.questions[0].context_tokens
    tables, weights = (short.to_tables(), long.to_tables()), {}
    for name in tables[0]:
        rows = len(tables[0][name])
        file, whole, longer = (
            len(parquet_bytes(table)) for table in (tables[0][name][:1], *(part[name] for part in tables))
        )
        token = max(0.0, (longer - whole) / rows / more_tokens)
        row = max(0.0, (whole - file) / rows - token * short.questions[0].context_tokens)
        weights[name] = TableBytes(file=file, row=row, token=token)
    return weights
