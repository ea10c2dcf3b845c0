"""The identity of a run sees what libraries contain, what was put in place of their code, and what
chooses kernels."""

import base64
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from kvpress import AdaKVPress, KnormPress, SnapKVPress

from kvbench.models.libraries import (
    LIBRARIES,
    hash_of_code,
    hash_of_state,
    library_contents,
    replaced_functions,
    replaced_methods,
    switches,
)
from policies.declaration.contents import hash_contents

CPU = torch.device("cpu")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package as pip installs it, with a compiled library."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder, library = tmp_path / "some_library", b"machine code"
    folder.mkdir()
    (folder / "__init__.py").write_text("VALUE = 1\n")
    (folder / "fast.so").write_bytes(library)
    told = tmp_path / "some_library-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: some_library\nVersion: 1.0\n")
    hashed = base64.urlsafe_b64encode(hashlib.sha256(library).digest()).decode().rstrip("=")
    (told / "RECORD").write_text(f"some_library/fast.so,sha256={hashed},{len(library)}\n")
    hash_contents.cache_clear()
    yield folder
    hash_contents.cache_clear()


def hashed(package: Path) -> str:
    hash_contents.cache_clear()
    return hash_contents(package.name)


def test_an_edit_of_the_same_version_is_seen_and_a_text_beside_the_code_is_not(
    package: Path,
) -> None:
    first = hashed(package)
    (package / "README.md").write_text("read me")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.py").write_text("")
    assert hashed(package) == first
    (package / "__init__.py").write_text("VALUE = 2\n")
    second = hashed(package)
    (package / "more.py").write_text("")
    assert len({first, second, hashed(package)}) == 3
    assert hash_contents("no_such_library") == ""


def test_a_compiled_library_is_read_once_it_is_not_as_it_was_installed(package: Path) -> None:
    """Half a gigabyte of torch is taken from the record of its installation, with the same hash as
    from its bytes."""
    first, record = hashed(package), package.parent / "some_library-1.0.dist-info/RECORD"
    later = record.stat().st_mtime + 100
    os.utime(package / "fast.so", (later, later))
    assert hashed(package) == first
    (package / "fast.so").write_bytes(b"machine c0de")
    os.utime(package / "fast.so", (later, later))
    assert hashed(package) != first


def test_every_library_is_seen() -> None:
    contents = library_contents(["peft"])
    assert all(contents[name] for name in (*LIBRARIES, "peft"))
    assert not replaced_functions(), "nothing was replaced in this process"


def test_what_code_from_outside_replaced_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = "transformers.models.llama.modeling_llama.LlamaMLP.forward"

    def other(module: Any, numbers: torch.Tensor) -> torch.Tensor:
        return numbers

    monkeypatch.setattr(forward, other)
    monkeypatch.setattr("torch.nn.functional.silu", lambda numbers: numbers)
    replaced = replaced_functions()
    assert set(replaced) == {forward, "torch.nn.functional.silu"}
    monkeypatch.setattr(forward, lambda module, numbers: 2 * numbers)
    assert replaced_functions()[forward] != replaced[forward]


def test_a_replaced_method_is_told_of_the_presses_that_have_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(KnormPress, "score", lambda *_, **__: torch.zeros(1))
    assert (
        set(replaced_methods(KnormPress()))
        == set(replaced_methods(AdaKVPress(KnormPress())))
        == {"KnormPress.score"}
    )
    assert replaced_methods(SnapKVPress()) == {}
    assert replaced_functions() == {}


def scaled(by: float) -> Any:
    return lambda numbers: numbers * by


def test_values_around_a_function_count_and_its_place_does_not() -> None:
    assert hash_of_code(scaled(1.0)) == hash_of_code(scaled(1.0)) != hash_of_code(scaled(2.0))


def test_the_numbers_that_a_press_holds_are_hashed() -> None:
    press: Any = KnormPress()
    assert hash_of_state(press) == ""
    press.weights = {"layer": torch.ones(2, dtype=torch.bfloat16)}
    first = hash_of_state(AdaKVPress(press))
    press.weights["layer"][0] = 2
    assert len({"", first, hash_of_state(AdaKVPress(press))}) == 3


def test_variables_that_choose_kernels_are_seen_and_those_that_count_threads_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = switches(CPU)
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    monkeypatch.setenv("ONEDNN_VERBOSE", "0")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    assert switches(CPU) == before, "the last one is of GPUs"
    assert switches(torch.device("cuda"))["NVIDIA_TF32_OVERRIDE"] == "1"
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    assert switches(CPU) == before | {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}


def test_settings_that_choose_kernels_are_seen() -> None:
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert switches(CPU)["float32_matmul_precision"] == "medium"
    finally:
        torch.set_float32_matmul_precision(precision)
