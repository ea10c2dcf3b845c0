"""A model whose logits are infinite or NaN fails, by its name and with a dtype to try; no press is
blamed for it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kvbench.engine.decode.answers import decode
from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import LoadedModel
from kvbench.store.store import Store
from policies import POLICIES
from tests.support.models.runs import CommandLine
from tests.support.models.toy import (
    PLENTY,
    STEPS,
    ActingPress,
    pressing,
    sizes,
    toy_model,
    toy_prompt,
    treat,
)
from tests.support.wording import assert_says

OVERFLOWS = "are infinite or NaN with the full cache in float32"


def overflowing(where: str) -> LlamaForCausalLM:
    """Finite weights, of which the logits are infinite, or what the second layer is handed."""
    network = LlamaForCausalLM(LlamaConfig(**sizes()))
    weight = (
        network.lm_head.weight
        if where == "logits"
        else network.model.layers[0].mlp.down_proj.weight
    )
    weight.data.clamp_(-1, 1).mul_(3e38)
    return network


@pytest.fixture(scope="module", params=["logits", "activations"])
def model(request: pytest.FixtureRequest) -> LoadedModel:
    return toy_model("llama", lambda: overflowing(request.param))


@pytest.fixture(scope="module")
def overflowing_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model whose activations overflow, on disk."""
    folder = tmp_path_factory.mktemp("overflowing")
    model = toy_model("llama", lambda: overflowing("activations"))
    model.network.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def test_every_policy_fails_for_the_reason_of_the_model(model: LoadedModel) -> None:
    policies = [
        find_policy(name) for name in ("full", "snapkv", "int4", "bitflip", "decoding_knorm")
    ]
    trace = treat(model, policies, (0.5,), toy_prompt(questions=1), rates=(0.2,))
    assert decode(model, trace, STEPS, PLENTY) == []
    assert len(trace.branches) == len(policies)
    assert all(OVERFLOWS in str(branch.error) for branch in trace.branches), [
        one.error for one in trace.branches
    ]


def test_a_press_that_makes_the_logits_infinite_fails_alone(llama: LoadedModel) -> None:
    def enlarges(_: Any, __: Any, keys: torch.Tensor, values: torch.Tensor, *more: Any) -> Any:
        return keys, values * 1e38

    policies = [POLICIES["full"], pressing("enlarging", lambda _: ActingPress(enlarges))]
    trace = treat(llama, policies, (0.5,), toy_prompt(questions=2))
    generations = decode(llama, trace, STEPS, PLENTY)
    assert {one.branch.treatment.policy.name for one in generations} == {"full"}
    assert_says(
        trace.branches[1].error,
        "enlarging failed while decoding",
        "infinite or NaN",
        "float32",
    )


def test_commands_fail_and_name_the_model(cli: CommandLine, overflowing_folder: Path) -> None:
    assert cli(*cli.words("--tasks", "base", model=overflowing_folder)) == 1
    assert_says(
        cli.complaint,
        "full: 6 of 6 answers failed",
        f"the logits of {overflowing_folder} {OVERFLOWS}",
    )
    assert "doctor" not in cli.complaint
    records = Store.open(cli.folder / "runs" / "x").frame()
    assert set(records["status"]) == {"failed"}
    small = ["--model", overflowing_folder, "--tasks", "base", "--limit", 1]
    places = [
        "--out",
        cli.folder / "runs",
        "--site",
        cli.folder / "other",
        "--context-tokens",
        "native",
    ]
    for words in (
        ["compare", "knorm", "--against", "snapkv", "--ratios", "0.5", *small, *places],
        ["doctor", *small],
        ["run", "--difficulty", "auto", *small, *places],
    ):
        assert cli(*words) == 1, words
        error = cli.err.splitlines()[-1]
        assert error.startswith("error: ")
        assert OVERFLOWS in error, words
