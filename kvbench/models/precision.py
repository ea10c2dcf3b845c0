"""Makes the same model in another type of numbers, and tells which types a device has."""

import copy
import os
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from kvbench.system.errors import KVBenchError, first_line


def in_dtype(network: PreTrainedModel, name: str) -> PreTrainedModel:
    """Returns the network with its weights in the dtype of a name, as if it had been loaded in it; itself where it has
    that dtype. Buffers stay as they are: the frequencies of positions are float32 in every dtype."""
    dtype = getattr(torch, name)
    if network.dtype == dtype:
        return network
    # The copy finds these in place of the weights, so that those are not copied first.
    memo: dict[int, object] = {
        id(weight): torch.nn.Parameter(weight.detach().to(dtype), requires_grad=False)
        for weight in network.parameters()
    }
    return copy.deepcopy(network, memo)


def with_same_weights(network: PreTrainedModel) -> PreTrainedModel:
    """Returns a copy whose modules may be changed; the weights are the network's own."""
    return copy.deepcopy(network, {id(weight): weight for weight in network.parameters()})


def use_deterministic_algorithms() -> None:
    """Makes torch, in this process from here on, add up in one order, and raise an error where an operation cannot."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it is first used
    torch.use_deterministic_algorithms(True)


def check_dtypes(names: Sequence[str], device: torch.device) -> None:
    """Raises :class:`KVBenchError` for the first dtype in which a device cannot multiply or attend."""
    for name in names:
        try:
            numbers = torch.ones(1, 1, 2, 8, device=device, dtype=getattr(torch, name))
            torch.nn.functional.scaled_dot_product_attention(
                numbers, numbers, numbers @ torch.ones_like(numbers).mT @ numbers
            )
        except RuntimeError as error:
            raise KVBenchError(
                f"--dtypes: this {device.type} has no {name} ({first_line(error)}): leave it out"
            ) from None
