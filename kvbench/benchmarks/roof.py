"""The matrix products of a piece of work, recorded as they run and run again alone: what this engine cannot do without,
those on padding included."""

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = ("linear", "matmul", "mm", "addmm", "bmm", "baddbmm")  # the first two where nothing asks for gradients
ATTENTION = "scaled_dot_product"
IN_TURN = 12  # layers of the reference model
BYTES_IN_TURN = 2**23  # of one shape: more of the large ones would fill the memory

Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


class Products(TorchDispatchMode):
    """Remembers the shapes of all matrix products, those within attention among them."""

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
    """A tensor of which all but the numbers is known."""

    def __init__(self, like: torch.Tensor) -> None:
        self.size, self.stride = tuple(like.shape), tuple(like.stride())
        self.dtype, self.device = like.dtype, like.device

    @property
    def bytes(self) -> int:
        return max(1, prod(self.size) * self.dtype.itemsize)

    @property
    def key(self) -> tuple[Any, ...]:
        return self.size, self.stride, self.dtype, self.device


def recorded(work: Callable[[], object]) -> Callable[[], None]:
    """The products of a piece of work, ready to be run again on other numbers. Tensors of one shape are ``IN_TURN`` in
    turn, as the layers of a model have their own: a single one would stay in the processor's cache. Of large ones there
    are fewer: what is measured on them is no more than what the work takes."""
    with Products() as products:
        work()
    made: dict[tuple[Any, ...], list[torch.Tensor]] = {}
    asked: Counter[tuple[Any, ...]] = Counter()

    def tensor(shape: _Shape) -> torch.Tensor:
        own = made.setdefault(shape.key, [])
        if len(own) < min(IN_TURN, max(1, BYTES_IN_TURN // shape.bytes)):
            blank = torch.empty_strided(shape.size, shape.stride, dtype=shape.dtype, device=shape.device)
            # Zeros are a mask that hides nothing; products are as fast on any numbers but the denormal ones.
            own.append(blank.fill_(0.0 if shape.dtype.is_floating_point else 0))
        asked[shape.key] += 1
        return own[asked[shape.key] % len(own)]

    with torch.inference_mode():  # as the engine's own, of which nothing asks for gradients
        calls = [
            (func, *torch.utils._pytree.tree_map_only(_Shape, tensor, (args, kwargs)))
            for func, args, kwargs in products.calls
        ]

    def again() -> None:
        with torch.inference_mode():
            for func, args, kwargs in calls:
                func(*args, **kwargs)

    return again
