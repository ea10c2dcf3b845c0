"""Pretends a CUDA device in this process: its tensors live in the memory of the host and refuse to
be mixed with the host's.

Every operation is computed on the host, so answers equal those of the CPU, and what would fail on a
card for lack of a ``.to(device)`` fails here. Nothing is shown about time, memory, kernels or
rounding. Autograd, several devices and ``torch.Generator("cuda")`` are not pretended.

Each operation passes through two layers. :class:`_Calls` sees the call as Python writes it, in
which devices are named; :class:`_Operations` sees each operation that torch makes of it, with its
tensors."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

DEVICE = torch.device("cuda", 0)
HOST = torch.device("cpu")
FREE_BYTES, ALL_BYTES = 6 << 30, 8 << 30
MIXED = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
)
# Operations that take tensors from one device to another.
MOVES = {"aten::_to_copy", "aten::copy_", "aten::set_", "aten::_copy_from"}
# CUDA takes indices, and a written value of no dimension, from the host.
READS_BY_INDEX = {"aten::index", "aten::_unsafe_index"}
WRITES_BY_INDEX = {
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_unsafe_index_put",
}
# C++ makes tensors of the host inside of these, where CUDA would not: they are computed as one
# operation.
WHOLE_CALLS = (torch.nn.functional.scaled_dot_product_attention, torch._C._nn.pad_sequence)
NAMES = (str, torch.device)  # of a device
FACTORIES = (torch.tensor, torch.as_tensor, torch.asarray)


class Pretended(torch.Tensor):
    """Holds a tensor of the host and says that it lies on the pretended device."""

    inner: Any  # the tensor of the host

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Pretended":
        wrapper: Pretended = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=HOST,
            requires_grad=False,
        )
        wrapper.inner = inner
        return wrapper

    def __repr__(self, *, tensor_contents: Any = None) -> Any:  # type: ignore[override]  # of an alias in torch
        return f"Pretended({self.inner!r})"

    device = property(lambda self: DEVICE)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    def get_device(self) -> int:
        return 0

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:
        copied: torch.Tensor = self.inner.clone()
        return copied

    def cuda(self, *_: Any, **__: Any) -> "Pretended":
        return self

    def tolist(self) -> Any:
        return self.inner.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy it to the "
            "host first"
        )

    __array__ = numpy

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        operation: Any,
        _: Sequence[type],
        positional: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        return _compute(operation, positional, named or {})


def _wrapped(value: Any) -> Any:
    return (
        Pretended(value)
        if isinstance(value, torch.Tensor) and not isinstance(value, Pretended)
        else value
    )


def _unwrapped(value: Any) -> Any:
    return value.inner if isinstance(value, Pretended) else value


def _is_pretended(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


@contextmanager
def _on_the_host() -> Iterator[None]:
    """Computes without the two layers."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        yield


# torch's own walk over what an operation takes and returns is as slow as twenty operations of a toy
# model: plain lists, tuples and dictionaries are walked here, and what else holds values there.


def _changed_in(value: Any, change: Callable[[Any], Any]) -> Any:
    """Changes each value inside of a list, a tuple or a dictionary, and else the value itself."""
    if isinstance(value, torch.Tensor):
        return change(value)
    kind = type(value)
    if kind is tuple:
        return tuple([_changed_in(inner, change) for inner in value])
    if kind is list:
        return [_changed_in(inner, change) for inner in value]
    if kind is dict:
        return {name: _changed_in(inner, change) for name, inner in value.items()}
    if isinstance(value, tuple | list | dict):
        return tree_map(change, value)
    return change(value)


def _add_tensors(value: Any, tensors: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
    elif isinstance(value, dict):
        for inner in value.values():
            _add_tensors(inner, tensors)
    elif isinstance(value, tuple | list):
        for inner in value:
            _add_tensors(inner, tensors)


def _tensors_in(*values: Any) -> list[torch.Tensor]:
    tensors: list[torch.Tensor] = []
    _add_tensors(values, tensors)
    return tensors


def _check_one_device(
    name: str, positional: Sequence[Any], tensors: Sequence[torch.Tensor]
) -> None:
    """Raises :class:`RuntimeError` where CUDA would not take tensors of the host beside those of
    the device."""
    of_host = [tensor for tensor in tensors if not isinstance(tensor, Pretended)]
    if name in MOVES or len(of_host) in (0, len(tensors)):
        return
    if name in READS_BY_INDEX:
        is_mixed = not isinstance(positional[0], Pretended)
    elif name in WRITES_BY_INDEX:
        target, value = positional[0], positional[2]
        is_mixed = not isinstance(target, Pretended) or (
            not isinstance(value, Pretended) and value.dim() > 0
        )
    else:
        # A number of the host goes with everything.
        is_mixed = any(tensor.dim() > 0 for tensor in of_host)
    if is_mixed:
        raise RuntimeError(
            f"{MIXED} (in {name}, shapes {[tuple(tensor.shape) for tensor in tensors]})"
        )


def _compute(operation: Any, positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Computes one operation on the host. Its result lies where the tensors lie, or where it is
    told to."""
    name = operation._schema.name
    if name == "aten::_fused_sdp_choice":
        return 0  # the plain one
    tensors = _tensors_in(positional, named)
    _check_one_device(name, positional, tensors)
    of_device = [tensor for tensor in tensors if isinstance(tensor, Pretended)]
    device = named.get("device")
    if (
        name == "aten::_to_copy"
    ):  # moves to the host are seen as calls: what arrives here changes the dtype
        is_of_device = bool(of_device) or _is_pretended(device)
    elif device is not None:
        is_of_device = _is_pretended(device)
    elif name in MOVES:
        is_of_device = isinstance(positional[0], Pretended)
    else:
        is_of_device = bool(of_device)
    if is_of_device and named.get("generator") is not None:
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    changed: dict[str, Any] = {"device": HOST} if device is not None else {}
    if "pin_memory" in named:
        changed["pin_memory"] = False
    plain = _changed_in(tuple(positional), _unwrapped)
    plain_named = _changed_in({**named, **changed}, _unwrapped)
    # While the layer of operations computes it is no longer there for what it calls.
    with torch._C.DisableTorchFunction():
        result = operation(*plain, **plain_named)
    if not is_of_device:
        return result
    if operation._schema.is_mutable:  # what was changed in place is returned as the same object
        known = {id(tensor.inner): tensor for tensor in of_device}
        return _changed_in(result, lambda value: known.get(id(value), _wrapped(value)))
    return _changed_in(result, _wrapped)


class _Operations(TorchDispatchMode):
    """Computes operations without a tensor of the device too, such as ``zeros(device="cuda")``."""

    def __torch_dispatch__(
        self,
        operation: Any,
        _: Any,
        positional: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        return _compute(operation, positional, named or {})


def _numbered(value: Any) -> Any:
    """Names the device by its number: without one, torch asks the driver."""
    return DEVICE if isinstance(value, NAMES) and str(value) == "cuda" else value


def _moved(tensor: Pretended, positional: Sequence[Any], named: Mapping[str, Any]) -> torch.Tensor:
    """Does ``tensor.to(...)``."""
    target, dtype = named.get("device"), named.get("dtype")
    for value in positional:
        if isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, torch.Tensor):
            target, dtype = value.device, value.dtype
        elif isinstance(value, str | torch.device):
            target = value
    with _on_the_host():
        if target is not None and not _is_pretended(target):
            on_host: torch.Tensor = (
                tensor.inner.to(dtype, copy=True) if dtype else tensor.inner.clone()
            )
            return on_host
        if dtype is None or dtype == tensor.inner.dtype:
            return Pretended(tensor.inner.clone()) if named.get("copy") else tensor
        return Pretended(tensor.inner.to(dtype))


def _whole(call: Callable[..., Any], positional: Sequence[Any], named: Mapping[str, Any]) -> Any:
    tensors = [tensor for tensor in _tensors_in(positional, named) if tensor.dim() > 0]
    places = {isinstance(tensor, Pretended) for tensor in tensors}
    if len(places) > 1:
        raise RuntimeError(f"{MIXED} (in {call.__name__})")
    if places != {True}:
        return call(*positional, **named)
    with _on_the_host():
        plain = _changed_in(tuple(positional), _unwrapped)
        return _wrapped(call(*plain, **_changed_in(dict(named), _unwrapped)))


class _Calls(TorchFunctionMode):
    """Sees where calls ask for the device by name, which the operations behind them do not tell."""

    def __torch_function__(
        self,
        call: Any,
        _: Any,
        positional: Sequence[Any] = (),
        named: Mapping[str, Any] | None = None,
    ) -> Any:
        if call is torch.device:
            return call(*positional, **(named or {}))
        positional = tuple(map(_numbered, positional))
        named = {name: _numbered(value) for name, value in (named or {}).items()}
        if call is torch.Tensor.cuda:
            return _wrapped(positional[0])
        if call is torch.Tensor.to:
            tensor, *others = positional
            if isinstance(tensor, Pretended):
                return _moved(tensor, others, named)
            like = [value for value in (*others, *named.values()) if isinstance(value, Pretended)]
            if like:
                return _wrapped(tensor.to(like[0].dtype))
        if call in FACTORIES and _is_pretended(named.get("device")):
            if isinstance(positional[0], Pretended):
                return positional[0]
            with _on_the_host():
                return _wrapped(call(*positional, **{**named, "device": HOST}))
        if call in WHOLE_CALLS:
            return _whole(call, positional, named)
        return call(*positional, **named)


class _Event:
    """Notes the host's time: there is no other order of work."""

    def __init__(self, enable_timing: bool = False) -> None:
        self._seconds: float | None = None if enable_timing else float("nan")

    def record(self, _: object = None) -> None:
        self._seconds = time.perf_counter()

    def synchronize(self) -> None:
        assert self._seconds is not None, "an event that was not recorded"

    def query(self) -> bool:
        return self._seconds is not None

    def elapsed_time(self, end: "_Event") -> float:
        """Returns milliseconds."""
        assert self._seconds is not None
        assert end._seconds is not None
        return 1000 * (end._seconds - self._seconds)


LIBRARY: Mapping[str, Any] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "current_stream": lambda *_: None,
    "_lazy_init": lambda: None,
    "synchronize": lambda *_, **__: None,
    "empty_cache": lambda: None,
    "set_device": lambda *_: None,
    "mem_get_info": lambda *_: (FREE_BYTES, ALL_BYTES),
    "get_device_name": lambda *_: "pretended",
    "get_device_capability": lambda *_: (9, 0),
    "is_bf16_supported": lambda *_, **__: True,
    "manual_seed": lambda _: (
        None
    ),  # presses draw from the host's generator, which gets the same seed
    "manual_seed_all": lambda _: None,
    "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
    "set_rng_state": lambda *_, **__: None,
    "max_memory_allocated": lambda *_: 0,
    "memory_allocated": lambda *_: 0,
    "reset_peak_memory_stats": lambda *_: None,
    "device": lambda *_: nullcontext(),
    "Event": _Event,
}


class _NoGradInstead:
    """Replaces the two methods of inference mode: a wrapper cannot be an inference tensor."""

    @staticmethod
    def enter(self: Any) -> None:
        self._gradients_before = torch.is_grad_enabled()
        if self.mode:
            torch._C._set_grad_enabled(False)

    @staticmethod
    def leave(self: Any, *_: object) -> None:
        torch._C._set_grad_enabled(self._gradients_before)


@contextmanager
def pretended_cuda() -> Iterator[None]:
    """Has this process see a CUDA device inside the body. Models are loaded, or moved, inside of
    it."""
    inference_mode = torch.autograd.grad_mode.inference_mode
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    with ExitStack() as stack:
        for name, value in LIBRARY.items():
            stack.enter_context(patch.object(torch.cuda, name, value))
        stack.enter_context(patch.object(inference_mode, "__enter__", _NoGradInstead.enter))
        stack.enter_context(patch.object(inference_mode, "__exit__", _NoGradInstead.leave))
        # A weight cannot become one of the device.
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrites)
        stack.enter_context(_Operations())
        stack.enter_context(_Calls())
        yield
