"""Measures where the engine's time goes, by part and by operation."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch.profiler import ProfilerActivity, profile

from kvbench.benchmarks.engine import Work
from kvbench.benchmarks.measurement import seconds_of
from kvbench.engine.treat.prefill import prefill

SHOWN = 15  # operations


@dataclass(frozen=True)
class ContextProfile:
    """The time of one context."""

    parts: dict[str, float]  # seconds by part of the engine
    operations: dict[str, float]  # seconds by operation
    calls: dict[str, int]  # by operation


def profile_engine(work: Work, ratios: Sequence[float]) -> ContextProfile:
    """Measures one context after a warm-up: its parts without the profiler, its operations with it."""
    work.run(ratios)
    device = work.model.device
    alone = seconds_of(device, lambda: prefill(work.model, work.prompt, []))
    read = seconds_of(device, lambda: work.read(ratios))
    trace = work.read(ratios)
    decoding = seconds_of(device, lambda: work.answer(trace))
    with _profiling(device.type) as profiler:
        work.run(ratios)
    rows = [
        (row.key, (row.self_device_time_total if device.type == "cuda" else row.self_cpu_time_total) / 1e6, row.count)
        for row in profiler.key_averages()
    ]
    rows.sort(key=lambda row: -row[1])
    parts = {"prefill": alone, "scoring and cutting": max(0.0, read - alone), "decoding": decoding}
    return ContextProfile(
        parts, {name: s for name, s, _ in rows[:SHOWN]}, {name: count for name, _, count in rows[:SHOWN]}
    )


@contextmanager
def _profiling(device: str) -> Iterator[profile]:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with profile(activities=activities) as profiler:
        yield profiler
