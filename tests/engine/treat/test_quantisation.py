"""Every quantisation in the batch against a plain loop, and against transformers' own quantised
cache."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import QuantizedCache

from kvbench.engine.decode.answers import decode
from kvbench.engine.treat.branch import Branch
from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import find_decoder
from policies import Level, Policy
from policies.quantisation.registry import QUANTISATIONS
from tests.support.models.engine_paths import (
    all_on_one_architecture,
    first_of_each_path,
    of_some_questions,
)
from tests.support.models.plain import beside_a_plain_loop
from tests.support.models.toy import PLENTY, STEPS, model_of, toy_prompt, treat

# Nats. What is left of the last bits of float32, by which a pass over many branches differs from
# one alone, moves a value of question or answer over the border between two codes now and then.
CLOSE = 5e-3
OPTIONED = (
    "int2(group=16,residual=4)",
    "int4(k_bits=2,v_bits=8,group=48)",
    "int3(scheme=symmetric,k_axis=token,v_axis=channel)",
    "int4(tensor=K,residual=0)",
    "int4(like=transformers,k_axis=token,residual=8)",
    "fp8_e4m3(scale=group,group=48)",
    "mantissa(bits=18,tensor=V)",
    "q8_0(values=int2)",
    "q4_0(layers=0)",
    "int4(layers=1-,rotate=hadamard)",
    "q4_0(outliers=3,rotate=hadamard)",
)
COMPOSED = (
    "snapkv+int4",
    "adakv_snapkv+int2(residual=8)",
    "merging_snapkv+int8",
    "knorm+fair+int4",
    "knorm+int4+zeros(rate=0.1)",
    "int2(residual=4)+zeros(rate=0.2,phase=every_step,persistence=transient)",
    "zeros(rate=0.1)+int2",
    "int4+bitflip(on=codeword,rate=0.01)",
    "q4_1(layers=1-,rotate=hadamard)+bitflip(on=codeword,rate=0.01)",
    "adakv_snapkv+int2(residual=4,scheme=symmetric)+bitflip(on=codeword,unit=value,rate=0.1,phase=every_step)",
    "knorm+fp8_e4m3+bitflip(on=codeword,bits=0-2,rate=0.1,phase=every_step,persistence=transient)",
    "int4(k_bits=3,residual=4)+bitflip(on=codeword,bits=[0,2],rate=0.1,phase=step,step=2)",
    "decoding_knorm+mantissa(bits=0)",
)
LONGER = 12  # tokens of an answer: more than one window of four
BITS = tuple(Level("bits", value) for value in (0.0, 19.0))


def every() -> list[Policy]:
    return [*QUANTISATIONS.values(), *(find_policy(name) for name in (*OPTIONED, *COMPOSED[:-1]))]


@pytest.mark.parametrize(("architecture", "tries_all"), all_on_one_architecture())
def test_every_quantisation_is_that_of_a_plain_loop(architecture: str, tries_all: bool) -> None:
    policies = every() if tries_all else first_of_each_path(every())
    model, prompt = model_of(architecture), toy_prompt(task="instructions", index=0, questions=2)
    trace = treat(model, policies, (0.5,), prompt, levels=BITS)
    generations = decode(model, trace, STEPS, PLENTY, gold=True)
    compared = of_some_questions(generations)
    for generation, plain_gold in beside_a_plain_loop(
        model, trace, policies, compared, treatment_of
    ):
        if not generation.question:
            name = generation.branch.treatment.policy.name
            assert generation.gold_nll == pytest.approx(plain_gold()[1], abs=CLOSE), name


def treatment_of(branch: Branch) -> Any:
    build = branch.treatment.policy.treatment.step_treatment
    assert build
    return build([branch.treatment.situation], [""])


@pytest.fixture
def quanto(monkeypatch: pytest.MonkeyPatch) -> None:
    """optimum-quanto whose codes are unpacked in Python: to compile its few lines of C++ takes a
    minute."""
    # Which a test before may have imported.
    monkeypatch.setenv("SETUPTOOLS_USE_DISTUTILS", "stdlib")
    compiled = pytest.importorskip(
        "optimum.quanto.library.extensions.cpp", reason="not installed: kvbench[quant]"
    )
    monkeypatch.setattr(compiled.ext, "_lib", SimpleNamespace(unpack=unpack))


def unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Takes codes out of bytes: the lowest bits of all bytes come first."""
    return torch.cat([packed >> shift & 2**bits - 1 for shift in range(0, 8, bits)])


@pytest.mark.usefixtures("quanto")
@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("residual", [1, 4, 128])
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_the_quantised_cache_of_transformers_gives_the_same_tokens(
    architecture: str, bits: int, residual: int
) -> None:
    model, prompt = model_of(architecture), toy_prompt()
    policy = find_policy(f"int{bits}(like=transformers,k_axis=token,residual={residual})")
    trace = treat(model, [policy], (), prompt)
    generations = decode(model, trace, LONGER, PLENTY)
    assert len(generations) == len(prompt.questions)
    for generation in generations:
        config = model.network.config.get_text_config()
        cache = QuantizedCache("quanto", config, nbits=bits, residual_length=residual)
        ids, written = list(prompt.token_ids), list[int]()
        with torch.inference_mode():
            find_decoder(model.network)(input_ids=torch.tensor([ids]), past_key_values=cache)
            pending = list(prompt.questions[generation.question].token_ids)
            while len(written) < len(generation.token_ids):
                positions = torch.arange(len(ids), len(ids) + len(pending))[None]
                logits = model.network(
                    input_ids=torch.tensor([pending]), past_key_values=cache, position_ids=positions
                ).logits
                ids += pending
                pending = [int(logits[0, -1].argmax())]
                written += pending
        assert list(generation.token_ids) == written
