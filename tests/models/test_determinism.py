"""Deterministic mode is on where it is wanted and gone behind it, and names an operation that has
none."""

import os
from pathlib import Path

import pytest
import torch

from kvbench.engine.time_limit import BY_TASK, NumericsOptions
from kvbench.models.determinism import BUFFERS, WORKSPACE, deterministic, prepare_determinism
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine, ToyRuns
from tests.support.models.toy import AGNOSTIC, toy_model
from tests.support.wording import assert_says

GPU = torch.device("cuda")


@pytest.mark.parametrize("wanted", [True, False])
def test_it_holds_inside_alone(wanted: bool) -> None:
    with deterministic(wanted):
        assert torch.are_deterministic_algorithms_enabled() == wanted
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_operation_without_such_an_algorithm_is_named() -> None:
    """torch's own message, which a GPU alone gives."""
    words = "cumsum_cuda_kernel does not have a deterministic implementation, but you set 'torch.use_deterministic"
    told = r"^cumsum_cuda_kernel has no deterministic .*numerics\(deterministic=no\)"
    with pytest.raises(KVBenchError, match=told), deterministic(True):
        raise RuntimeError(words)
    with pytest.raises(RuntimeError, match="another"), deterministic(True):
        raise RuntimeError("another")
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_workspace_is_set_before_a_gpu_is_used_or_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(WORKSPACE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    prepare_determinism(torch.device("cpu"))
    assert WORKSPACE not in os.environ
    with pytest.raises(KVBenchError, match=f"{WORKSPACE}={BUFFERS} before the GPU is used"):
        prepare_determinism(GPU)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setenv(WORKSPACE, ":0:0")
    with pytest.raises(KVBenchError, match="start again with it"):
        prepare_determinism(GPU)
    monkeypatch.delenv(WORKSPACE)
    prepare_determinism(GPU)
    assert os.environ[WORKSPACE] == BUFFERS


def test_every_policy_runs_in_it(tmp_path: Path) -> None:
    """On a processor: what has no such algorithm there would be a failed record, which names it."""
    with deterministic(True):
        store = ToyRuns(toy_model(), tmp_path)("run", tuple(AGNOSTIC), contexts=1)
    records = store.frame()
    assert len(set(records["policy"])) > len(AGNOSTIC) / 2
    assert not records["reason"].fillna("").str.contains("deterministic").any()


def test_the_options_of_a_run_hold_it_and_earlier_runs_were_without() -> None:
    texts = NumericsOptions(steps=None).as_texts()
    assert (texts["deterministic"], texts["steps"]) == ("yes", BY_TASK)
    assert NumericsOptions.from_texts(texts) == NumericsOptions()
    earlier = {"dtypes": "float32", "sampling": "greedy", "repeats": "1", "steps": "16"}
    assert NumericsOptions.from_texts(earlier) == NumericsOptions(
        ("float32",), ("greedy",), 1, 16, deterministic=False
    )


def test_it_is_of_the_suite_alone(cli: CommandLine) -> None:
    line = cli.error(
        "run", "--suite", "errors(deterministic=no)", "--model", cli.model, "--policies", "full"
    )
    assert_says(line, "errors takes no options", "deterministic")


@pytest.mark.parametrize(("longest", "steps"), [(1, 16), (63, 16), (64, 128), (512, 128)])
def test_answers_that_are_worked_out_are_walked_over_128_tokens(longest: int, steps: int) -> None:
    assert NumericsOptions().steps_on(longest) == steps
    assert NumericsOptions(steps=5).steps_on(longest) == 5
