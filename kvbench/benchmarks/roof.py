"""Records the matrix products of a piece of work, padding included, and runs them again alone: they are the least that
the engine must compute."""

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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
