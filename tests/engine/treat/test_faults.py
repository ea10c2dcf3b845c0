"""Every fault in the batch against a plain loop over a plain cache, and which rows it touches."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from scipy.stats import binomtest
from transformers import DynamicCache

from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import Step
from kvbench.engine.treat.branch import Branch, read_context
from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import LoadedModel, find_decoder
from kvbench.prompts.prompt import Prompt
from kvbench.system.errors import KVBenchError
from policies import POLICIES, Level, Policy, Situation
from policies.declaration.steps import NewRows
from policies.faults.fault import Fault, FaultTreatment, Rows, Site
from policies.faults.options import FaultOptions
from policies.faults.registry import FAULT_KINDS, FAULTS
from policies.treatments.options import kind_in, options_in
from tests.support.models.engine_paths import (
    all_on_one_architecture,
    first_architecture,
    first_of_each_path,
    of_some_questions,
)
from tests.support.models.plain import beside_a_plain_loop, plain_answer
from tests.support.models.toy import LAYERS, PLENTY, STEPS, largest_row, model_of, toy_prompt, treat

CLOSE = 5e-4  # nats in float32
OPTIONS = (
    "tensor=K",
    "tensor=V,unit=value",
    "unit=token",
    "layers=0,heads=1",
    "tokens=evidence",
    "tokens=random",
    "tokens=first4",
    "phase=every_step",
    "phase=every_step,persistence=transient",
    "phase=step,step=2,persistence=transient",
)
KINDS_OPTIONED = (
    "bitflip(rate=0.00001)",
    "bitflip(bits=exponent,rate=0.0001)",
    "bitflip(bits=[0-3,31],unit=value)",
    # Few bits: every bit is drawn for every number at every step.
    "bitflip(bits=21-24,phase=every_step,rate=0.0001)",
    "multiplicative_uniform(low=0,high=2)",
    "stale(page=4,phase=every_step)",
    "bias(shift=-0.5)",
    "distractor(phase=every_step)",
)
COMPOSED = (
    "knorm+zeros(rate=0.2)",
    "adakv_snapkv+zeros(rate=0.2,phase=every_step)",
    "merging_snapkv+zeros(rate=0.2)",
)


def every(seed: int) -> list[Policy]:
    """All kinds; with the first seed their options too."""
    names = (*(f"zeros({options})" for options in OPTIONS), *KINDS_OPTIONED, *COMPOSED)
    return [*FAULTS.values(), *(find_policy(name) for name in names if seed == 0)]


@pytest.mark.parametrize(("architecture", "tries_all"), all_on_one_architecture())
def test_every_fault_is_that_of_a_plain_loop(architecture: str, tries_all: bool) -> None:
    assert_plain(architecture, every(0) if tries_all else first_of_each_path(every(0)), 0, False)


@pytest.mark.parametrize("architecture", first_architecture())
def test_another_draw_of_every_fault_is_that_of_a_plain_loop(architecture: str) -> None:
    assert_plain(architecture, every(1), 1, True)


def assert_plain(
    architecture: str, policies: Sequence[Policy], seed: int, every_question: bool
) -> None:
    model, prompt = model_of(architecture), toy_prompt(questions=2)
    trace = treat(model, policies, (0.5,), prompt, seed, rates=(0.2,))
    generations = decode(model, trace, STEPS, PLENTY, gold=True)
    compared = generations if every_question else of_some_questions(generations)
    for generation, plain_gold in beside_a_plain_loop(
        model, trace, policies, compared, treatment_of
    ):
        branch, (_, nll) = generation.branch, plain_gold()
        if math.isfinite(nll):
            assert generation.gold_nll == pytest.approx(nll, rel=1e-5, abs=CLOSE), (
                branch.treatment.policy.name
            )
        else:
            assert generation.gold_nll is None, branch.treatment.policy.name
            assert not generation.finite, branch.treatment.policy.name


def treatment_of(branch: Branch) -> Any:
    policy, situation = branch.treatment.policy, branch.treatment.situation
    if policy.treatment.step_treatment:
        return policy.treatment.step_treatment([situation], [""])
    assert policy.treatment.prefill_treatment is not None
    return policy.treatment.prefill_treatment([situation])


def test_a_draw_is_the_same_alone_and_in_the_batch_and_another_in_the_next_repeat(
    llama: LoadedModel,
) -> None:
    prompt = toy_prompt(questions=2)
    finite = {**FAULTS, "bitflip": find_policy("bitflip(bits=mantissa)")}
    policies = list(finite.values())
    together = treat(llama, [POLICIES["knorm"], *policies], (0.5,), prompt, rates=(0.2,), repeats=2)
    answers = {
        (g.branch.treatment.policy.name, g.branch.treatment.repeat, g.question): g.gold_nll
        for g in decode(llama, together, STEPS, largest_row(together), gold=True)
    }
    for policy in policies:
        alone = treat(llama, [policy], (), prompt, rates=(0.2,), repeats=2)
        for generation in decode(llama, alone, STEPS, PLENTY, gold=True):
            key = policy.name, generation.branch.treatment.repeat, generation.question
            assert generation.gold_nll == pytest.approx(answers[key], abs=CLOSE)
        assert answers[policy.name, 0, 0] != answers[policy.name, 1, 0]


# --- which rows


class Looking:
    """Keeps the rows that each answer has read when its first token is chosen."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, float, int], list[tuple[torch.Tensor, torch.Tensor]]] = {}

    def see(self, step: Step) -> None:
        if step.number == 0:
            for place, answer in enumerate(step.answers):
                treatment = answer.branch.treatment
                cache = step.cache(place)
                states = [
                    (cache.keys(layer)[0], cache.values(layer)[0]) for layer in range(cache.layers)
                ]
                self.rows[treatment.policy.name, treatment.level.value, answer.question] = states


def changed(
    llama: LoadedModel, prompt: Prompt, names: list[str], rate: float = 1.0
) -> dict[tuple[str, int], Any]:
    """By fault and question, which values of the context differ: bool (layers, 2, heads, tokens,
    size)."""
    looking = Looking()
    policies = [POLICIES["full"], *(find_policy(name) for name in names)]
    decode(
        llama, treat(llama, policies, (), prompt, rates=(rate,)), STEPS, PLENTY, observers=[looking]
    )
    length = len(prompt.token_ids)
    found = {}
    for (name, _, question), states in looking.rows.items():
        found[name, question] = of_context(states, length) != of_context(
            looking.rows["full", 0.0, question], length
        )
    return found


def of_context(states: Any, length: int) -> torch.Tensor:
    return torch.stack([torch.stack(layer)[:, :, :length] for layer in states])


def test_an_aimed_fault_touches_just_the_rows_it_is_aimed_at(
    llama: LoadedModel, prompt: Prompt
) -> None:
    names = [
        f"zeros(tokens={tokens})"
        for tokens in ("evidence", "answer", "other", "random", "first4", "all")
    ]
    found = changed(llama, prompt, [*names[:-1], "zeros"])
    for number, question in enumerate(prompt.questions):
        hit = {name: found[name, number].flatten(0, 2).any(-1) for name in [*names[:-1], "zeros"]}
        for name, by_slot in hit.items():
            assert (by_slot == by_slot[0]).all(), name
        tokens = {name: set(by_slot[0].nonzero()[:, 0].tolist()) for name, by_slot in hit.items()}
        evidence = set(question.evidence_tokens)
        assert tokens["zeros(tokens=evidence)"] == evidence
        assert tokens["zeros(tokens=answer)"] == set(question.answer_tokens) <= evidence
        assert tokens["zeros(tokens=other)"] == set(range(len(prompt.token_ids))) - evidence
        assert tokens["zeros(tokens=first4)"] == {0, 1, 2, 3}
        assert tokens["zeros"] == set(range(len(prompt.token_ids)))
        assert len(tokens["zeros(tokens=random)"]) == len(evidence)
        assert not tokens["zeros(tokens=random)"] & evidence


@pytest.mark.parametrize("unit", ["row", "value", "token"])
@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_as_many_units_are_hit_as_asked_within_binomial_error(
    llama: LoadedModel, prompt: Prompt, unit: str, rate: float
) -> None:
    name = "gaussian" if unit == "row" else f"gaussian(unit={unit})"
    hit = changed(llama, prompt, [name], rate)[name, 0]
    of_unit = {"row": hit[:, 0].any(-1), "value": hit, "token": hit.flatten(0, 2).any(-1).any(0)}[
        unit
    ]
    assert binomtest(int(of_unit.sum()), of_unit.numel(), rate).pvalue > 1e-4
    if unit == "row":
        assert (hit[:, 0].any(-1) == hit[:, 1].any(-1)).all()
    if unit == "token":
        assert (hit.flatten(0, 2).any(-1) == of_unit).all()


# --- while the context is read


class WritingCache(DynamicCache):
    """A plain cache into which a fault writes."""

    def __init__(self, treatment: FaultTreatment) -> None:
        super().__init__()
        self.treatment = treatment

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *others: Any, **more: Any
    ) -> Any:
        first = self.get_seq_length(layer_idx)
        end = first + key_states.shape[2]
        of_layer = partial(
            NewRows,
            layer_idx,
            LAYERS,
            answers=[0],
            positions=torch.arange(first, end)[None],
            end=end,
        )
        keys = self.treatment.on_write(of_layer(tensor="keys", states=key_states))
        values = self.treatment.on_write(of_layer(tensor="values", states=value_states))
        return super().update(keys, values, layer_idx, *others, **more)


WRITTEN = (
    *(f"{name}(phase=prefill_write)" for name in FAULTS if name != "bitflip"),
    "bitflip(phase=prefill_write,rate=0.00001)",
    "bitflip(phase=prefill_write,bits=exponent,rate=0.01)",
    "zeros(phase=prefill_write,layers=0,tensor=V,tokens=evidence)",
)


@pytest.mark.parametrize(("architecture", "tries_all"), all_on_one_architecture())
def test_a_fault_of_writing_is_that_of_a_plain_cache_that_it_writes_into(
    architecture: str, tries_all: bool
) -> None:
    model, prompt, policies = (
        model_of(architecture),
        toy_prompt(questions=2),
        [find_policy(name) for name in WRITTEN],
    )
    trace = treat(
        model, policies if tries_all else first_of_each_path(policies), (), prompt, rates=(0.1,)
    )
    generations = decode(model, trace, STEPS, PLENTY)
    assert [branch.error for branch in trace.branches if branch.error] == []
    for branch in trace.branches:
        press: Any = branch.press
        cache = WritingCache(press.treatment)
        with torch.inference_mode():
            find_decoder(model.network)(
                input_ids=torch.tensor([prompt.token_ids]), past_key_values=cache
            )
        for plain, left, window in zip(cache.layers, branch.layers, trace.windows, strict=True):
            # A sliding layer sees the newest.
            held = slice(None) if window is None else slice(1 - window, None)
            assert left.keep is not None
            assert left.keep[:, held].all()
            if left.keys is not None:
                assert same_bits(plain.keys, left.keys)
                assert same_bits(plain.values, left.values)
        rows = [generation for generation in generations if generation.branch is branch]
        assert len(rows) == len(branch.treatment.questions)
        for generation in rows:
            expected = plain_answer(model, trace, branch, generation.question, STEPS)[0]
            assert list(generation.token_ids) == expected, branch.treatment.policy.name


def same_bits(one: Any, other: Any) -> bool:
    return torch.equal(one[0].contiguous().view(torch.int32), other.contiguous().view(torch.int32))


# --- what it refuses, and what becomes of answers


def parsed(name: str) -> tuple[Fault, FaultOptions]:
    fault = FAULT_KINDS[kind_in(name)]
    return fault, options_in(name, fault)


def test_bits_of_every_dtype_flip_alone() -> None:
    for dtype, exponent in ((torch.float32, 23), (torch.bfloat16, 7), (torch.float16, 10)):
        states = torch.randn(1, 2, 8, 4).to(dtype)
        situation = Situation(0.0, 8, 0, "", level=Level("rate", 1.0))
        for bits, mask in (("sign", 0), ("[0]", 1), (f"{exponent}", 2**exponent)):
            _, options = parsed(f"bitflip(bits={bits})")
            rows = Rows(torch.arange(8).expand(1, 2, -1), 8)
            flipped = FAULT_KINDS["bitflip"].corrupt(
                Site([situation], options, 0, "keys", 0, rows, states, torch.ones(1, 1, 1, 1))
            )
            if bits == "sign":
                assert torch.equal(flipped, -states)
            else:
                whole = torch.int32 if dtype.itemsize == 4 else torch.int16
                assert (flipped.view(whole) ^ states.view(whole)).eq(mask).all()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gausian", r"unknown policy 'gausian': did you mean 'gaussian'\?"),
        ("zeros(tensr=K)", r"zeros has no option tensr: did you mean tensor\?"),
        ("zeros(rate=1.5)", r"rate=1.5: .*less than or equal to 1"),
        ("zeros(unit=bit)", r"unit=bit: only bitflip counts bits"),
        ("bitflip(bits=exponents)", r"bits=exponents: say any, exponent"),
        ("multiplicative_uniform(low=2,high=1)", r"low=2 is above high=1"),
        ("same_sign(rate=0.3)", r"rate=0.3: .*less than 0.25"),
        ("sign_flip(layers=Q5)", r"layers=Q5: give indices"),
        (
            "decoding_knorm+zeros(rate=0.1,phase=every_step)",
            r"decodes alone, and zeros\(phase=every_step,rate=0.1\) acts more than once",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(name: str, message: str) -> None:
    with pytest.raises(KVBenchError, match=message) as refused:
        find_policy(name)
    assert "\n" not in str(refused.value)


def test_a_distractor_holds_the_rows_of_the_donor(llama: LoadedModel, prompt: Prompt) -> None:
    looking, length = Looking(), len(prompt.token_ids)
    trace = treat(llama, [FAULTS["distractor"]], (), prompt, rates=(1.0,))
    decode(llama, trace, STEPS, PLENTY, observers=[looking])
    donor = read_context(llama, toy_prompt(index=prompt.example.index + 1))
    places = torch.arange(length) % donor.length
    for layer, (keys, values) in enumerate(looking.rows["distractor", 1.0, 0]):
        assert torch.equal(keys[:, :length], donor.keys[layer][:, places])
        assert torch.equal(values[:, :length], donor.values[layer][:, places])
