"""Measures the engine by itself: its share of the roof, and its cost over ratios, branches and lengths."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from datasets_gen import Task
from kvbench.benchmarks.measurement import Measurement, measurement, seconds_of
from kvbench.benchmarks.shapes import task_of
from kvbench.engine.decode.answers import decode
from kvbench.engine.treat.branch import Trace
from kvbench.engine.treat.plan import Scoring, plan
from kvbench.engine.treat.prefill import prefill
from kvbench.engine.treat.time_limit import TimeLimit
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt, build_prompts
from policies import Policy, at_ratios

# Records the matrix products of a piece of work, padding included, and runs them again alone: they are the least that
# the engine must compute.

PRODUCTS = ("linear", "matmul", "mm", "addmm", "bmm", "baddbmm")  # the first two without gradients
ATTENTION = "scaled_dot_product"
IN_TURN = 12  # layers of the reference model
BYTES_IN_TURN = 2**23  # of one shape: more large tensors would fill the memory

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


class Products(TorchDispatchMode):
    """Remembers the shapes of all matrix products, also inside attention."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in PRODUCTS or ATTENTION in name:
            blank = torch.utils._pytree.tree_map_only(torch.Tensor, _Shape, (args, kwargs or {}))
            self.calls.append((func, *blank))
        return func(*args, **(kwargs or {}))


class _Shape:
    """A tensor without its numbers."""

    def __init__(self, like: torch.Tensor) -> None:
        self.size, self.stride = tuple(like.shape), tuple(like.stride())
        self.dtype, self.device = like.dtype, like.device

    @property
    def bytes(self) -> int:
        return max(1, prod(self.size) * self.dtype.itemsize)

    @property
    def key(self) -> tuple[Any, ...]:
        return self.size, self.stride, self.dtype, self.device


def record_products(work: Callable[[], object]) -> Callable[[], None]:
    """Returns a function that runs the products of a piece of work again on other numbers. It takes ``IN_TURN`` tensors
    of a shape in turn, as the layers of a model do, because a single one would stay in the processor's cache. Large
    shapes have fewer tensors, so their measured time is at most the time of the work."""
    with Products() as products:
        work()
    tensors_by_shape: dict[tuple[Any, ...], list[torch.Tensor]] = {}
    uses: Counter[tuple[Any, ...]] = Counter()

    def tensor(shape: _Shape) -> torch.Tensor:
        tensors = tensors_by_shape.setdefault(shape.key, [])
        if len(tensors) < min(IN_TURN, max(1, BYTES_IN_TURN // shape.bytes)):
            blank = torch.empty_strided(shape.size, shape.stride, dtype=shape.dtype, device=shape.device)
            # Zeros are a mask that hides nothing; products are as fast on any numbers but the denormal ones.
            tensors.append(blank.fill_(0.0 if shape.dtype.is_floating_point else 0))
        uses[shape.key] += 1
        return tensors[uses[shape.key] % len(tensors)]

    with torch.inference_mode():  # as the engine computes without gradients
        calls = [
            (func, *torch.utils._pytree.tree_map_only(_Shape, tensor, (args, kwargs)))
            for func, args, kwargs in products.calls
        ]

    def run_calls() -> None:
        with torch.inference_mode():
            for func, args, kwargs in calls:
                func(*args, **kwargs)

    return run_calls


QUESTIONS = 4
LONG = TimeLimit(3600.0)  # seconds: a measurement is never given up


@dataclass(frozen=True)
class Work:
    """One context with its questions and policies."""

    model: LoadedModel
    task: Task
    prompt: Prompt
    policies: Sequence[Policy]

    @classmethod
    def of(cls, model: LoadedModel, task: Task, policies: Sequence[Policy], index: int = 0) -> "Work":
        example = task.example(0, index)
        example = replace(example, questions=example.questions[:QUESTIONS])
        return cls(model, task, build_prompts(model.tokenizer, task, example, "agnostic")[0], policies)

    def plan(self, ratios: Sequence[float]) -> list[Scoring]:
        return plan(self.policies, at_ratios(ratios), self.prompt, 0, LONG)

    def read(self, ratios: Sequence[float]) -> Trace:
        return prefill(self.model, self.prompt, self.plan(ratios))

    def answer(self, trace: Trace) -> None:
        """Decodes all answers; a failed branch ends the measurement, because it would make less work."""
        decode(self.model, trace, self.task.max_new_tokens, None)
        failed = [branch.error for branch in trace.branches if branch.error]
        if failed:
            raise RuntimeError(failed[0])

    def run(self, ratios: Sequence[float]) -> None:
        self.answer(self.read(ratios))


def share_of_roof(name: str, work: Work, ratios: Sequence[float], repeats: int) -> Measurement:
    """Measures one prefill and the decode's matrix products alone, and divides their time by the engine's."""
    device, trace = work.model.device, work.read(ratios)
    again = record_products(lambda: work.answer(trace))
    again()
    shares, parts = [], []
    for _ in range(repeats):
        engine = seconds_of(device, lambda: work.run(ratios))
        alone = seconds_of(device, lambda: prefill(work.model, work.prompt, []))
        products = seconds_of(device, again)
        shares.append((alone + products) / engine)
        parts.append({"engine": engine, "prefill alone": alone, "products alone": products})
    what = f"(prefill + matrix products of the decode, alone) / the engine's time: {work.model.name}"
    return measurement(name, what, "share", ">= 0.6", shares, lambda share: share >= 0.6, seconds=parts)


def cost_of_ratios(work: Work, repeats: int) -> Measurement:
    """Measures prefill and compression of all policies at eleven ratios against one, in turn."""
    device, eleven = work.model.device, tuple(round(0.05 + 0.08 * step, 2) for step in range(11))
    work.read(eleven)
    more, parts = [], []
    for _ in range(repeats):
        one = seconds_of(device, lambda: work.read((0.5,)))
        all_of_them = seconds_of(device, lambda: work.read(eleven))
        more.append(all_of_them / one - 1)
        parts.append({"one ratio": one, "eleven ratios": all_of_them})
    what = "more time in prefill and compression for ten more ratios of every policy"
    return measurement("ratios", what, "share", "< 0.15", more, lambda share: share < 0.15, seconds=parts)


def cost_of_branches(work: Work, counts: Sequence[int], repeats: int) -> Measurement:
    """Measures the decoding of growing counts of branches of one policy: the time that each of the last branches adds,
    against the time of each of the first. Every count keeps half of the tokens on average, so branches are alike."""
    policy = [one for one in work.policies if one.name == "knorm"]
    single = replace(work, policies=policy)
    rows: list[dict[str, Any]] = []
    for count in counts:
        ratios = tuple(0.3 + 0.4 * (step + 0.5) / count for step in range(count))
        seconds = []
        for _ in range(repeats + 1):
            trace = single.read(ratios)
            seconds.append(seconds_of(work.model.device, lambda trace=trace: single.answer(trace)))  # type: ignore[misc]
        rows.append({"branches": count, "seconds": seconds[1:]})
    (first, last), (few, many) = rows[-2:], counts[-2:]
    growth = [
        ((after - before) / (many - few)) / (before / few)
        for before, after in zip(first["seconds"], last["seconds"], strict=True)
    ]
    what = f"decoding time that each of branches {few + 1} to {many} adds, against each of the first {few}"
    return measurement("branches", what, "times", "<= 1.1", growth, lambda times: times <= 1.1, rows=rows)


def cost_of_length(
    model: LoadedModel, policies: Sequence[Policy], ratios: Sequence[float], lengths: Sequence[int], repeats: int
) -> Measurement:
    """Measures how the engine's time grows with the length of the context, against the model's own prefill."""
    rows: list[dict[str, Any]] = []
    for length in lengths:
        work = Work.of(model, task_of(model, length), policies)
        prefill(model, work.prompt, [])
        engine = [seconds_of(model.device, lambda work=work: work.run(ratios)) for _ in range(repeats)]  # type: ignore[misc]
        alone = [
            seconds_of(model.device, lambda work=work: prefill(model, work.prompt, []))  # type: ignore[misc]
            for _ in range(repeats)
        ]
        rows.append({"tokens": len(work.prompt.token_ids), "engine": engine, "prefill": alone})
    pairs = zip(rows[-1]["engine"], rows[0]["engine"], rows[-1]["prefill"], rows[0]["prefill"], strict=True)
    growth = [(long / short) / (prefill_long / prefill_short) for long, short, prefill_long, prefill_short in pairs]
    what = f"growth of the engine's time over that of the model's own prefill, {lengths[0]} to {lengths[-1]} tokens"
    return measurement("length", what, "times", "<= 1", growth, lambda times: times <= 1, rows=rows)
