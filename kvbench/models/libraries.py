"""Tells what answers rest on outside of kvbench: the code of libraries, what was put in its place,
and the switches that choose how numbers are computed."""

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from kvpress import BasePress
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from policies.declaration.contents import hash_contents, list_places
from policies.declaration.foreign_code import OURS, is_library_file

LIBRARIES = ("torch", "transformers", "kvpress", "numpy", "tokenizers", "safetensors", "jinja2")
PATCHABLE = re.compile(
    r"(kvpress|transformers|tokenizers)(\..*)?|torch|torch\.(nn|functional|_tensor|_refs)(\..*)?"
)
# Variables that choose other kernels or types of numbers; those that count threads or write logs
# change no answer.
OF_KERNELS = re.compile(
    r"ATEN_CPU_CAPABILITY|(ONEDNN|DNNL)_(MAX_CPU_ISA|DEFAULT_FPMATH_MODE|CPU_ISA_HINTS)|MKL_(CBWR|ENABLE_INSTRUCTIONS)"
    r"|MKL_DEBUG_CPU_TYPE|OPENBLAS_CORETYPE|TORCH_MKLDNN_MATMUL\w*|USE_HUB_KERNELS|DISABLE_KERNEL_MAPPING"
)
OF_CUDA_KERNELS = re.compile(
    r"NVIDIA_TF32_OVERRIDE|TORCH_ALLOW_TF32_CUBLAS_OVERRIDE|CUBLAS_WORKSPACE_CONFIG|CUBLASLT_WORKSPACE_SIZE"
    r"|TORCH_BLAS_PREFER_\w+|TORCH_LINALG_PREFER_\w+|TORCH_CUDNN_\w+|CUDNN_\w+|PYTORCH_NO_CUDA_MEMORY_CACHING"
)
OFTEN_SILENT = re.compile(r".*(THREADS|VERBOSE|LOG\w*)")
TELLS_ALONE = re.compile(r"(get|is|has)_\w+")  # functions by whose name nothing is computed
# Packages whose functions transformers and torch name as their own.
AROUND = (*OURS, "huggingface_hub", "accelerate", "peft", "typing_extensions")
SIMPLE = (bool, int, float, str, bytes, type(None))


def library_contents(more: Iterable[str] = ()) -> dict[str, str]:
    """Returns a hash for the code of each library, and for each function of theirs that other code
    replaced."""
    names = (*LIBRARIES, *more)
    return {name: hash_contents(name) for name in names} | replaced_functions()


def switches(device: torch.device) -> dict[str, str]:
    """Returns the variables and settings that change how numbers are computed, where they are not
    as torch has them."""
    if device.type == "cuda":
        kinds = [OF_KERNELS, OF_CUDA_KERNELS]
    else:
        kinds = [OF_KERNELS]
    variables = {}
    for name, value in os.environ.items():
        is_switch = any(kind.fullmatch(name) for kind in kinds)
        if is_switch and not OFTEN_SILENT.fullmatch(name):
            variables[name] = value
    settings = {
        "float32_matmul_precision": (torch.get_float32_matmul_precision(), "highest"),
        "default_dtype": (torch.get_default_dtype(), torch.float32),
        "deterministic_algorithms": (torch.are_deterministic_algorithms_enabled(), False),
        "mkldnn": (torch.backends.mkldnn.enabled, True),
        "flash_sdp": (torch.backends.cuda.flash_sdp_enabled(), True),
        "mem_efficient_sdp": (torch.backends.cuda.mem_efficient_sdp_enabled(), True),
        "math_sdp": (torch.backends.cuda.math_sdp_enabled(), True),
    }
    if device.type == "cuda":
        settings["cudnn_tf32"] = (torch.backends.cudnn.allow_tf32, True)
        settings["bf16_reduced_precision"] = (
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
            True,
        )
        settings["fp16_reduced_precision"] = (
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            True,
        )
    else:
        # Vectors of other widths sum in another order. The variable that sets it says what is set,
        # not what is used.
        settings["cpu_capability"] = (torch.backends.cpu.get_cpu_capability(), "")
        variables.pop("ATEN_CPU_CAPABILITY", None)
    for name, (value, usual) in settings.items():
        if value != usual:
            variables[name] = str(value)
    return variables


@cache  # reads the description of every installed package
def cuda_packages() -> dict[str, str]:
    """Returns the versions of the installed packages whose kernels a GPU computes with."""
    names = {}
    for package in distributions():
        if re.match(r"(nvidia|triton)\b", package.name or ""):
            names[package.name] = package.version
    return dict(sorted(names.items()))


def replaced_functions() -> dict[str, str]:
    """Returns a hash of each function that code of no library put into one, as a plug-in or
    ``sitecustomize`` may. What replaces a method of a press is told of the policies that have it
    (:func:`replaced_methods`)."""
    replaced: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType) and PATCHABLE.fullmatch(name):
            for place, function in _foreign_in(module):
                replaced[f"{name}.{place}"] = hash_of_code(function)
    for name, attention in ALL_ATTENTION_FUNCTIONS._global_mapping.items():
        if name in ("sdpa", "eager") and _is_foreign(attention, "kvpress"):
            replaced[f"attention {name}"] = hash_of_code(attention)
    return replaced


def _foreign_in(module: ModuleType) -> Iterator[tuple[str, FunctionType]]:
    for name, value in list(vars(module).items()):
        if (
            isinstance(value, type)
            and value.__module__ == module.__name__
            and not issubclass(value, BasePress)
        ):
            for inner, function in _list_functions(value):
                if _is_foreign(function, module.__name__):
                    yield f"{name}.{inner}", function
        elif _is_foreign(value, module.__name__) and not TELLS_ALONE.fullmatch(name):
            yield name, value


def _list_functions(owner: type) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(owner).items()):
        if isinstance(value, property):
            yield name, value.fget
        else:
            yield name, value.__func__ if isinstance(value, staticmethod | classmethod) else value


def replaced_methods(press: BasePress) -> dict[str, str]:
    """Returns a hash of each method of a press, or of one inside it, that code of another file
    replaced."""
    replaced: dict[str, str] = {}
    # Of every class that the press is made of: a method may be replaced in any of them.
    for owner in type(press).__mro__:
        source = str(getattr(sys.modules.get(owner.__module__), "__file__", ""))
        for name, value in _list_functions(owner):
            if _is_foreign(value, owner.__module__) and value.__code__.co_filename != source:
                replaced[f"{owner.__name__}.{name}"] = hash_of_code(value)
    for inner in _presses_in(press):
        replaced |= replaced_methods(inner)
    return replaced


def _presses_in(press: BasePress) -> list[BasePress]:
    values = list(vars(press).values())
    for value in list(values):
        if isinstance(value, list | tuple):
            values += value
    return [value for value in values if isinstance(value, BasePress)]


@cache
def _libraries() -> tuple[str, ...]:
    """Lists the folders whose code the identity sees by its contents."""
    places: list[Path] = []
    for name in (*LIBRARIES, *OURS):
        places += list_places(name)
    return tuple(f"{place}{os.sep}" for place in places)


def _is_foreign(value: object, module: str) -> bool:
    """Tells whether what a module or a class of it holds is a function that was put there from
    outside. A decorator of another package keeps the name of the module, and what the module
    imports stands in its own text."""
    if not isinstance(value, FunctionType):
        return False
    name = value.__code__.co_filename
    if name.startswith(_libraries()):  # nearly all: a path of each takes a tenth of a small run
        return False
    file = Path(name)
    if not file.is_absolute() or str(file).startswith(
        _libraries()
    ):  # a decorator's code may stand in no file
        return False
    if not is_library_file(file):
        return True
    # A decorator of a builtin names no module.
    package = str(value.__module__ or file.stem).partition(".")[0]
    trusted = (
        value.__module__ == module
        or package in (*LIBRARIES, *AROUND)
        or package in sys.stdlib_module_names
    )
    return not trusted and package not in _source_words(module)


@cache
def _source_words(module: str) -> frozenset[str]:
    """Returns the words in the source of a module."""
    file = Path(str(getattr(sys.modules.get(module), "__file__", "")))
    if file.suffix == ".py" and file.is_file():
        text = file.read_text(encoding="utf-8", errors="replace")
    else:
        text = ""
    return frozenset(re.findall(r"\w+", text))


def hash_of_code(function: Any) -> str:
    """Hashes what a function does: its code, its defaults, and the plain values around it, but not
    where it stands."""
    digest = hashlib.sha256()
    if isinstance(function, FunctionType):
        _add_code(digest, function.__code__)
        values = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        # What a function holds around it decides what it does, as its defaults do.
        values += [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        for value in values:
            if isinstance(value, SIMPLE):
                digest.update(repr(value).encode())
            elif isinstance(value, FunctionType) and value is not function:
                _add_code(digest, value.__code__)
    return digest.hexdigest()[:16]


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _add_code(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(digest, constant)
        else:
            # The order of a frozenset of texts differs from process to process.
            digest.update(
                repr(
                    sorted(constant, key=repr) if isinstance(constant, frozenset) else constant
                ).encode()
            )


def hash_of_state(value: Any) -> str:
    """Hashes the numbers that a press holds, such as weights that it has loaded; an empty text
    where it holds none."""
    digest, count = hashlib.sha256(), 0
    for place, numbers in sorted(_numbers_in(value, "", 0), key=lambda pair: pair[0]):
        digest.update(f"{place} {numbers.dtype} {numbers.shape}".encode())
        digest.update(np.ascontiguousarray(numbers).tobytes())
        count += 1
    return digest.hexdigest()[:16] if count else ""


def _numbers_in(value: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        # numpy has no bfloat16.
        plain = value.detach().cpu()
        yield place, (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield place, value
    elif depth < 4:
        inner: Mapping[Any, Any] = {}
        if isinstance(value, torch.nn.Module):
            inner = value.state_dict()
        elif isinstance(value, BasePress):
            inner = vars(value)
        elif isinstance(value, Mapping):
            inner = value
        elif isinstance(value, list | tuple):
            inner = dict(enumerate(value))
        for name, part in inner.items():
            yield from _numbers_in(part, f"{place}.{name}", depth + 1)
