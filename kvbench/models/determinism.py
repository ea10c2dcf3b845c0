"""Has torch compute with algorithms alone that give the same bits again."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kvbench.system.errors import KVBenchError

# A buffer for each of cuBLAS's streams. torch reads the variable once, with the first product on a
# GPU.
WORKSPACE, BUFFERS = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
REPRODUCIBLE = (":4096:8", ":16:8")
WITHOUT = '--suite "numerics(deterministic=no)"'
WITHOUT_ONE = re.compile(r"(\S+) does not have a deterministic implementation")


def prepare_determinism(device: torch.device) -> None:
    """Sets how cuBLAS shares its memory, before anything is multiplied there. Raises
    :class:`KVBenchError` where it is too late, or where the variable has another value."""
    if device.type != "cuda" or os.environ.get(WORKSPACE) in REPRODUCIBLE:
        return
    if WORKSPACE in os.environ or torch.cuda.is_initialized():
        raise KVBenchError(
            f"deterministic algorithms need the environment variable {WORKSPACE}={BUFFERS} before "
            f"the GPU is used: start again with it, or give {WITHOUT}"
        )
    os.environ[WORKSPACE] = BUFFERS


@contextmanager
def deterministic(is_wanted: bool) -> Iterator[None]:
    """Allows such algorithms alone inside a ``with`` block. Raises :class:`KVBenchError` with the
    name of an operation that has none."""
    before = torch.are_deterministic_algorithms_enabled()
    # Never less than was asked for outside of the block.
    torch.use_deterministic_algorithms(is_wanted or before)
    try:
        yield
    except RuntimeError as error:
        operation = WITHOUT_ONE.search(str(error))
        if operation is None:
            raise
        raise KVBenchError(
            f"{operation[1]} has no deterministic implementation on this device: give {WITHOUT}"
        ) from error
    finally:
        torch.use_deterministic_algorithms(before)
