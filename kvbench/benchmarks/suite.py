"""Measures the rows of the table of targets, on a CPU or on a GPU."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch

from datasets_gen import TASKS
from kvbench.benchmarks import engine, memory, shapes
from kvbench.benchmarks.engine import LONG, QUESTIONS, Work
from kvbench.benchmarks.measurement import Measurement, measurement
from kvbench.benchmarks.pipeline import compare
from kvbench.benchmarks.shapes import LlamaShape, random_model, task_of
from kvbench.engine.decode.answers import decode
from kvbench.experiments.options import choose
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel, load_model
from kvbench.system.process import settle
from policies import POLICIES, Policy, at_ratios

NINE = tuple(tenths / 10 for tenths in range(1, 10))
CPU = torch.device("cpu")


@dataclass(frozen=True)
class BenchmarkSize:
    """The sizes of the measured work."""

    middle: LlamaShape = shapes.OF_100_MILLION
    middle_tokens: int = 1000
    lengths: Sequence[int] = (512, 1024, 2048, 4096, 8192, 16384)
    branches: Sequence[int] = (8, 16, 32, 64, 128)
    small: LlamaShape = shapes.SMALL
    layer: LlamaShape = shapes.OF_8_BILLION
    layer_tokens: int = 32_768
    context_tokens: int = 131_072
    large: LlamaShape = shapes.OF_8_BILLION
    large_tokens: int = 4096
    large_gigabytes: float = 24.0
    policies: int = 10  # how many default policies
    ratios: Sequence[float] = NINE


FULL = BenchmarkSize()
TINY = BenchmarkSize(
    shapes.TINY, 200, (100, 200), (2, 4), shapes.TINY, shapes.TINY, 300, 300, shapes.TINY, 200, 0.5, 2, (0.3, 0.7)
)  # only to see whether all rows run


def default_policies(count: int = 100) -> list[Policy]:
    """Returns the default policies without the oracle, which kvpress does not have: it needs a branch per question."""
    return [policy for policy in POLICIES.values() if policy.by_default and not policy.per_question][:count]


def _against_pipeline(
    name: str,
    model: LoadedModel,
    tokens: int | None,
    size: BenchmarkSize,
    repeats: int,
    target: float,
    bound: int | None = None,
) -> Measurement:
    task = task_of(model, tokens) if tokens else TASKS["base"]
    examples = [task.example(0, index) for index in range(1 if tokens else 2)]
    work = [(task, replace(example, questions=example.questions[:QUESTIONS])) for example in examples]
    policies = default_policies(size.policies)
    setting = Setting(policies, at_ratios(size.ratios), max_kv_bytes=bound, time_limit=LONG)
    comparisons = [compare(model, work, setting, processes=1) for _ in range(repeats)]
    several = compare(model, work, setting).engine_seconds if not tokens else None
    whole = all(one.answered == one.compared and not one.failed for one in comparisons)
    unequal = sorted({str(cell) for one in comparisons for cell in one.unequal})
    exact = model.network.dtype == torch.float32  # in half precision a batch rounds in another way than a row alone
    return measurement(
        name,
        f"kvpress's pipeline, cell by cell / the engine: {model.name}, {len(policies)} policies x {len(size.ratios)} "
        f"ratios x {QUESTIONS} questions, {model.dtype_name}",
        "times",
        f">= {target:g}" + (", all generations equal" if exact else ""),
        [one.speedup for one in comparisons],
        lambda times: times >= target and whole and not (exact and unequal),
        pipeline_seconds=[one.pipeline_seconds for one in comparisons],
        engine_seconds=[one.engine_seconds for one in comparisons],
        seconds_of_the_first_context=[one.first_seconds for one in comparisons],
        engine_seconds_in_a_process_for_each_core=several,
        answered=comparisons[0].answered,
        compared=comparisons[0].compared,
        equal=comparisons[0].equal,
        unequal=unequal[:20],
        failed=comparisons[0].failed,
    )


def _reference() -> LoadedModel:
    return load_model("reference", "cpu", "float32")


def _middle(size: BenchmarkSize) -> LoadedModel:
    return random_model(size.middle, 4 * size.middle_tokens, CPU, torch.float32)


def _middle_work(size: BenchmarkSize) -> Work:
    model = _middle(size)
    return Work.of(model, task_of(model, size.middle_tokens), default_policies(size.policies))


def _reference_work(policies: Sequence[Policy]) -> Work:
    return Work.of(_reference(), TASKS["base"], policies)


@contextmanager
def one_thread() -> Iterator[None]:
    """Uses one thread where processor seconds are measured, because threads that wait spend them too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _length(size: BenchmarkSize, repeats: int) -> Measurement:
    model = random_model(size.small, 4 * max(size.lengths), CPU, torch.float32)
    return engine.cost_of_length(model, default_policies(size.policies), (0.5, 0.9), size.lengths, repeats)


def _on_gpu(size: BenchmarkSize, repeats: int, device: torch.device) -> Measurement:
    """Measures the engine against kvpress's pipeline on a GPU."""
    model = random_model(size.large, 4 * size.large_tokens, device, torch.bfloat16)
    return _against_pipeline(
        "pipeline-8b", model, size.large_tokens, size, repeats, 25, int(size.large_gigabytes * 1e9)
    )


def _memory_on_gpu(size: BenchmarkSize, _: int, device: torch.device) -> Measurement:
    model = random_model(size.large, 4 * size.large_tokens, device, torch.bfloat16)
    work = Work.of(model, task_of(model, size.large_tokens), default_policies(size.policies))
    bound = int(size.large_gigabytes * 1e9)
    held = 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
    trace = work.read(size.ratios)
    answered = len(decode(model, trace, work.task.max_new_tokens, bound))
    failed = [branch.error for branch in trace.branches if branch.error]
    most = torch.cuda.max_memory_allocated(device) - held if device.type == "cuda" else 0
    return measurement(
        "memory-8b",
        f"most memory beside the weights with --max-kv-gb {size.large_gigabytes:g}: waves, context and activations",
        "GB",
        f"<= {size.large_gigabytes:g}",
        [most / 1e9],
        lambda used: used <= size.large_gigabytes and not failed and answered == len(trace.branches) * QUESTIONS,
        answered=answered,
        failed=failed,
    )


ON_ONE_THREAD: dict[str, Callable[[BenchmarkSize, int], Measurement]] = {
    "roof": lambda size, repeats: engine.share_of_roof(
        "roof", _reference_work(default_policies(size.policies)), size.ratios, repeats
    ),
    "roof-100m": lambda size, repeats: engine.share_of_roof("roof-100m", _middle_work(size), size.ratios, repeats),
    "ratios": lambda size, repeats: engine.cost_of_ratios(_middle_work(size), repeats),
    "branches": lambda size, repeats: engine.cost_of_branches(
        _reference_work([POLICIES["knorm"]]), size.branches, repeats
    ),
    "length": _length,
}
ON_CPU: dict[str, Callable[[BenchmarkSize, int], Measurement]] = {
    "pipeline": lambda size, repeats: _against_pipeline("pipeline", _reference(), None, size, repeats, 40),
    "pipeline-100m": lambda size, repeats: _against_pipeline(
        "pipeline-100m", _middle(size), size.middle_tokens, size, repeats, 15
    ),
    **{name: one_thread()(measure) for name, measure in ON_ONE_THREAD.items()},
    "h2o": lambda size, _: memory.h2o_scores(size.layer, size.layer_tokens),
    "context": lambda size, _: memory.long_context(size.small, size.context_tokens),
}
ON_GPU: Mapping[str, Callable[[BenchmarkSize, int, torch.device], Measurement]] = {
    "pipeline-8b": _on_gpu,
    "memory-8b": _memory_on_gpu,
}


def chosen_rows(
    names: str | None, size: BenchmarkSize, repeats: int, device: torch.device
) -> list[tuple[str, Callable[[], Measurement]]]:
    """Returns the named rows of the device's table, or all of them, each with what measures it."""
    known: dict[str, Callable[[], Measurement]] = {
        name: partial(measure, size, repeats, device) for name, measure in ON_GPU.items()
    }
    if device.type == "cpu":
        known = {name: partial(measure, size, repeats) for name, measure in ON_CPU.items()}
    return choose("benchmark", names, {name: (name, measure) for name, measure in known.items()})


def run_suite(
    rows: Sequence[tuple[str, Callable[[], Measurement]]], progress: Callable[[str], None]
) -> Iterator[Measurement]:
    """Measures one row after the other, and reports the name of each to ``progress`` before."""
    settle()
    for name, measure in rows:
        progress(name)
        yield measure()
