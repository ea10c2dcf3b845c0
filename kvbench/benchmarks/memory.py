"""Measures peak memory, each in a new process, because the peak of a process never falls."""

import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch
from kvpress import ObservedAttentionPress
from transformers import DynamicCache, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

from kvbench.benchmarks.engine import LONG
from kvbench.benchmarks.measurement import Measurement, measurement
from kvbench.benchmarks.shapes import LlamaShape, random_model, task_of
from kvbench.experiments.collect import collect
from kvbench.experiments.setting import Setting
from kvbench.system.process import die_with_parent, settle
from policies import POLICIES, at_ratios
from policies.presses.h2o import H2OPress

Result = TypeVar("Result")
RATIOS = (0.5, 0.9)
CPU = torch.device("cpu")
STATUS = Path("/proc/self/status")


def apart(work: Callable[..., Result], *arguments: Any) -> Result:
    """Runs work in a new process, with as many threads as this one has.

    It is a copy of a server that has imported this module and done nothing: libraries are imported once for all such
    processes, and the memory of this one is not theirs.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with ProcessPoolExecutor(1, context, _begin, (torch.get_num_threads(),)) as executor:
        return executor.submit(work, *arguments).result()


def _begin(threads: int) -> None:
    die_with_parent(os.getppid())  # the server, which ends with the process that asked for it
    torch.set_num_threads(threads)


def peak() -> int:
    """Returns the most bytes of this process that were in memory at once. It does not use ``ru_maxrss`` on Linux, where
    a new process begins with the peak of its parent."""
    if STATUS.is_file():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def h2o_scores(shape: LlamaShape, length: int) -> Measurement:
    extra, seconds, error = apart(_h2o, shape, length)
    what = f"H2O scores of {length:,} tokens, one layer of {shape.name} in bfloat16: memory beside the layer's own"
    return measurement(
        "h2o", what, "GB", "< 1, and 1e-5 relative to eager", [extra / 1e9],
        lambda size: size < 1 and error < 1e-5, seconds=seconds, largest_relative_error=error,
    )  # fmt: skip


def _h2o(shape: LlamaShape, length: int) -> tuple[int, float, float]:
    return *_h2o_extra(shape, length), _h2o_error(shape, min(length, 512))


def _h2o_extra(shape: LlamaShape, length: int) -> tuple[int, float]:
    with torch.inference_mode():
        module, hidden, keys, kwargs = _layer(shape, length, torch.bfloat16, "sdpa")
        press = H2OPress(0.5)
        short = {"position_embeddings": tuple(part[:, :64] for part in kwargs["position_embeddings"])}
        press.score(module, hidden[:, :64], keys[:, :, :64], keys[:, :, :64], None, short)  # libraries, loaded once
        before, started = peak(), time.perf_counter()
        press.score(module, hidden, keys, keys, None, kwargs)
        return peak() - before, time.perf_counter() - started


def _h2o_error(shape: LlamaShape, length: int) -> float:
    """Returns the largest relative difference to kvpress's press on the weights of the eager attention, in float32."""
    with torch.inference_mode():
        module, hidden, keys, kwargs = _layer(shape, length, torch.float32, "eager")
        causal = torch.full((length, length), float("-inf")).triu(1)[None, None]
        cache = DynamicCache()
        _, weights = module(hidden, kwargs["position_embeddings"], causal, cache)
        read = cache.layers[0].keys
        assert read is not None
        keys = read
        theirs = ObservedAttentionPress(0.5).score(module, hidden, keys, keys, weights, kwargs)
        ours = H2OPress(0.5).score(module, hidden, keys, keys, None, kwargs)
        return float(((ours - theirs).abs() / theirs.abs()).max())


def _layer(
    shape: LlamaShape, length: int, dtype: torch.dtype, implementation: str
) -> tuple[Any, torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Makes an attention layer with random weights, its input, keys of a context, and the arguments of a press."""
    config = LlamaConfig(
        hidden_size=shape.hidden,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        head_dim=shape.head_size,
        max_position_embeddings=length,
    )
    config._attn_implementation = implementation
    torch.manual_seed(0)
    module = LlamaAttention(config, 0).to(dtype)
    hidden = torch.randn(1, length, shape.hidden, dtype=dtype)
    keys = torch.randn(1, shape.key_heads, length, shape.head_size, dtype=dtype)
    rotary = LlamaRotaryEmbedding(config)(hidden, torch.arange(length)[None])
    return module, hidden, keys, {"position_embeddings": rotary}


def long_context(shape: LlamaShape, length: int) -> Measurement:
    size, seconds, tokens, answered, failed = apart(_long_context, shape, length)
    what = f"peak memory of the process, {length:,} tokens, {shape.name}, default policies at two ratios, on a CPU"
    return measurement(
        "context", what, "GB", "< 8", [size / 1e9], lambda gigabytes: gigabytes < 8 and not failed,
        seconds=seconds, context_tokens=tokens, answered=answered, failed=failed,
    )  # fmt: skip


def _long_context(shape: LlamaShape, length: int) -> tuple[int, float, int, int, list[str]]:
    settle()
    model = random_model(shape, 2 * length, CPU, torch.float32)
    task = task_of(model, length, answer=8)
    policies = [policy for policy in POLICIES.values() if policy.by_default]
    setting = Setting(policies, at_ratios(RATIOS), max_kv_bytes=2 * 10**9, time_limit=LONG)
    started = time.perf_counter()
    rows = collect(model, task, [task.example(0, 0)], setting)
    seconds = time.perf_counter() - started
    failed = [str(record.reason) for record in rows.records if record.status != "ok"]
    return peak(), seconds, rows.questions[0].context_tokens, len(rows.records) - len(failed), failed
