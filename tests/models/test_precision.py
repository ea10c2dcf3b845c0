"""What a build of torch may lack is not looked up before it is needed."""

import ast
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

from kvbench.models import precision
from kvbench.models.precision import in_dtype
from tests.support.models.toy import model_of

ROOT = Path(__file__).parents[2]
# Parts of torch whose content depends on the build.
OF_A_BUILD = ("ops", "backends", "cuda", "mps", "xpu", "_C")


@pytest.fixture
def without_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch without functions of oneDNN, as on macOS on arm64."""
    monkeypatch.setattr(torch.ops, "mkldnn", torch.ops.kvbench_library_that_is_not_there)
    with pytest.raises(AttributeError):
        _ = torch.ops.mkldnn._is_mkldnn_bf16_supported


@pytest.mark.usefixtures("without_onednn")
def test_a_torch_without_onednn_imports_and_has_no_products_of_16_bits() -> None:
    specification = spec_from_file_location("precision_once_more", precision.__file__)
    assert specification is not None
    assert specification.loader is not None
    module = module_from_spec(specification)
    specification.loader.exec_module(module)
    answers = {
        name: module.multiplies(name) for name in ("float64", "float32", "bfloat16", "float16")
    }
    assert answers == {"float64": True, "float32": True, "bfloat16": False, "float16": False}


@pytest.mark.usefixtures("without_onednn")
def test_a_torch_without_onednn_computes_in_16_bits() -> None:
    network = in_dtype(model_of("llama").network, "bfloat16")
    with torch.no_grad():
        logits = network(torch.tensor([[11, 42, 7]])).logits
    assert logits.dtype == torch.bfloat16
    assert logits.isfinite().all()


def looked_up_at_import(source: str) -> list[str]:
    """Lists the attributes of such parts of torch that a module looks up outside of functions."""
    chains: list[str] = []
    waiting: list[ast.AST] = [*ast.parse(source).body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith(
            tuple(f"torch.{part}." for part in OF_A_BUILD)
        ):
            chains.append(ast.unparse(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += getattr(node, "decorator_list", [])
        else:
            waiting += ast.iter_child_nodes(node)
    return chains


def test_no_module_looks_up_at_import_what_a_build_may_lack() -> None:
    planted = 'WAYS = {"bfloat16": torch.ops.mkldnn.f}\ndef later(): torch.cuda.synchronize()'
    assert looked_up_at_import(planted) == ["torch.ops.mkldnn.f"]
    paths = [path for package in ("kvbench", "policies") for path in (ROOT / package).rglob("*.py")]
    assert len(paths) > 100
    assert {
        str(path): names for path in paths if (names := looked_up_at_import(path.read_text()))
    } == {}
