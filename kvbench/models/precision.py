"""Chooses the device and the type of numbers of a model, and makes the same model in another
type."""

import copy
import time
import timeit
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TypeVar

import torch
from transformers import PreTrainedModel

from kvbench.models.names import OF_CHECKPOINT, REFERENCE_MODELS, model_source
from kvbench.system.errors import KVBenchError, first_line
from policies.declaration.lazy import LazyModule

pretrained = LazyModule("kvbench.models.pretrained")  # which asks here for the dtype of a device

# Rows, columns and what is summed over: a question in a layer of a small model. A processor without
# instructions for bfloat16 takes 0.1 s for it and 2 s for four times a context, as torch then
# converts number by number.
PRODUCT = (64, 512, 1024)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Functions of oneDNN that tell whether this processor multiplies a dtype. They are names, since a
# torch without oneDNN, such as that of macOS on arm64, has none of them: a look at import would end
# every command there.
MULTIPLIED = {"bfloat16": "_is_mkldnn_bf16_supported", "float16": "_is_mkldnn_fp16_supported"}
MOMENT = 1e-9  # seconds: the processor's clock may stand still over a small product
WORTH = 1.5  # times as fast: with instructions for it bfloat16 is 4 to 5 times, without them slower


def multiplies(name: str) -> bool:
    """Tells whether this processor has products of a dtype; of 16 bits a torch without oneDNN has
    none."""
    if name not in MULTIPLIED:
        return True
    is_supported: Callable[[], bool] | None = getattr(torch.ops.mkldnn, MULTIPLIED[name], None)
    return is_supported is not None and is_supported()


def in_dtype(network: PreTrainedModel, name: str) -> PreTrainedModel:
    """Returns the network with its weights in the dtype of a name, as if it had been loaded in it;
    itself where it has that dtype. Buffers stay as they are: the frequencies of positions are
    float32 in every dtype.

    A processor without products of 16 bits converts number by number, which takes four times as
    long. There the layers multiply the same numbers in float32 and round the sums, as a GPU
    does."""
    dtype = getattr(torch, name)
    if network.dtype == dtype:
        return network
    copied = _copied(network, dtype)
    if network.device.type == "cpu" and not multiplies(name):
        for layer in copied.modules():
            if type(layer) is torch.nn.Linear:
                multiply_in_float32(layer)
    return copied


def layer_in_float64(layer: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy of a layer that computes in float64; what transformers computes in float32, as
    norms, it does there too."""
    copied = _copied(layer, torch.float64)
    for inner in copied.modules():
        if type(inner) is torch.nn.Linear:
            # That of a processor without products of 16 bits, which would round.
            vars(inner).pop("forward", None)
    return copied


Copied = TypeVar("Copied", bound=torch.nn.Module)


def _copied(module: Copied, dtype: torch.dtype) -> Copied:
    """Copies a module with its weights in another dtype. The copy finds these in place of the
    weights, so that those are not copied first."""
    # By identity, so that tied weights stay one weight in the copy.
    memo: dict[int, object] = {}
    for weight in module.parameters():
        converted = weight.detach().to(dtype)
        memo[id(weight)] = torch.nn.Parameter(converted, requires_grad=False)
    return copy.deepcopy(module, memo)


def multiply_in_float32(layer: torch.nn.Linear) -> None:
    """Has a layer multiply in float32 and round the sums to its own dtype."""
    bias = None if layer.bias is None else layer.bias.float()
    layer.forward = partial(_rounded, layer.weight.float(), bias)  # type: ignore[method-assign]


class NetworkCopies:
    """Holds a network and at most one copy of it in another dtype.

    Two copies beside the network may be more than a GPU holds, so the last one goes before the next
    is made: whoever asks for a dtype has let go of the network that came before."""

    def __init__(self, network: PreTrainedModel) -> None:
        self._network = network
        self._copy: PreTrainedModel | None = None

    def order(self, names: Sequence[str]) -> list[str]:
        """Orders dtypes so that the fewest copies are made: first those that are in memory."""
        in_memory = []
        for network in (self._network, self._copy):
            if network is not None:
                in_memory.append(network.dtype)
        return sorted(names, key=lambda name: getattr(torch, name) not in in_memory)

    def network_in(self, name: str) -> PreTrainedModel:
        """Returns the network in a dtype (:func:`in_dtype`)."""
        dtype = getattr(torch, name)
        if self._network.dtype == dtype:
            return self._network
        if self._copy is None or self._copy.dtype != dtype:
            self._copy = None
            self._copy = in_dtype(self._network, name)
        return self._copy


def _rounded(weight: torch.Tensor, bias: torch.Tensor | None, inputs: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(inputs.float(), weight, bias).to(inputs.dtype)


@cache
def faster_dtype() -> torch.dtype:
    """Measures once in a process, in milliseconds, whether this processor multiplies bfloat16
    faster than float32."""
    rows, columns, inner = PRODUCT
    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        rows_in, weight = (
            torch.ones(rows, inner, dtype=dtype),
            torch.ones(columns, inner, dtype=dtype),
        )
        # By the call of the layers: torch.mm may be many times slower in bfloat16.
        seconds.append(best_seconds(partial(torch.nn.functional.linear, rows_in, weight)))
    return choose_faster(*seconds)


def choose_faster(float32_seconds: float, bfloat16_seconds: float) -> torch.dtype:
    """Decides by the times of one product. bfloat16 has to be clearly faster: its numbers are
    coarser, a part of the time is not in products, and the decision must be the same whenever it is
    measured."""
    if float32_seconds >= WORTH * bfloat16_seconds:
        return torch.bfloat16
    return torch.float32


def processor_seconds() -> float:
    """Returns the processor time of this process so far; with several threads, of which some wait,
    the clock's."""
    if torch.get_num_threads() == 1:
        return time.process_time()
    return time.perf_counter()


def best_seconds(work: Callable[[], object]) -> float:
    """Times work in its best of five attempts, after one that prepares it."""
    times = timeit.repeat(work, number=1, repeat=6, timer=processor_seconds)
    return max(min(times[1:]), MOMENT)


def check_dtypes(names: Sequence[str], device: torch.device) -> None:
    """Raises :class:`KVBenchError` for the first dtype in which a device cannot multiply or
    attend."""
    for name in names:
        try:
            numbers = torch.ones(1, 1, 2, 8, device=device, dtype=getattr(torch, name))
            torch.nn.functional.scaled_dot_product_attention(
                numbers, numbers, numbers @ torch.ones_like(numbers).mT @ numbers
            )
        except RuntimeError as error:
            reason = f"this {device.type} has no {name} ({first_line(error)})"
            raise KVBenchError(f"numerics(dtypes=...): {reason}: leave it out") from None


def choose_device(name: str) -> torch.device:
    """Returns the device of a name; for ``auto`` a GPU if there is one. Raises
    :class:`KVBenchError` for one that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise KVBenchError(
            "this machine has no CUDA device: use --device cpu, or install a CUDA build of torch"
        )
    if name not in ("cpu", "cuda"):
        raise KVBenchError(f"unknown device '{name}': use auto, cpu or cuda")
    return torch.device(name)


def checkpoint_dtype(model: str) -> torch.dtype:
    """Returns the dtype in which the files of a model hold its weights, by its configuration;
    bfloat16 where that says none, or without a model."""
    if model:
        dtype = pretrained.read_config(model_source(model)).get_text_config().dtype
    else:
        dtype = None
    return next((choice for choice in DTYPES.values() if choice == dtype), torch.bfloat16)


def choose_dtype(name: str, device: torch.device, model: str) -> torch.dtype:
    """Chooses for ``auto`` bfloat16 on a GPU, and on a CPU the faster dtype of the two. A shipped
    model stays in float32 on every CPU: what is published of it must not depend on who runs it.
    :data:`OF_CHECKPOINT` keeps on a GPU what the checkpoint has, of which copies in other types are
    exact; a CPU, which may have no products of 16 bits, loads float32. Raises :class:`KVBenchError`
    for an unknown name."""
    if name == "auto":
        if device.type == "cpu":
            if model in REFERENCE_MODELS:
                return torch.float32
            return faster_dtype()
        return torch.bfloat16
    if name == OF_CHECKPOINT:
        if device.type == "cpu":
            return torch.float32
        return checkpoint_dtype(model)
    if name not in DTYPES:
        raise KVBenchError(f"unknown dtype '{name}': use auto, {', '.join(DTYPES)}")
    return DTYPES[name]
