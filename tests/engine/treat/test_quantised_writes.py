"""Rows that are quantised when they are written, beside a plain loop over a cache of transformers
that does so, and what such a policy is told apart from."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from kvbench.engine.decode.answers import decode
from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import LoadedModel
from policies.composition import make_treatment
from policies.declaration.names import PolicyError
from policies.declaration.policy import HeadRows, Situation
from policies.declaration.steps import NewRows
from policies.quantisation.around import turn
from policies.quantisation.formats import IntegerFormat
from tests.engine.treat.test_written_errors import plain_answer
from tests.support.models.engine_paths import SLIDING
from tests.support.models.toy import KEY_HEADS, PLENTY, STEPS, model_of, toy_prompt, treat

FOUR = IntegerFormat(4, "token", 8, "signed")
EIGHT = IntegerFormat(8, "token", 8, "symmetric")


class QuantisingCache(DynamicCache):
    """A cache of transformers that quantises each row as it comes."""

    def __init__(self, keys: Any, values: Any, layers: Sequence[int], turned: bool) -> None:
        super().__init__()
        self._formats, self._layers, self._turned = (keys, values), layers, turned

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *others: Any, **more: Any
    ) -> Any:
        written: list[Any] = []
        for form, states in zip(self._formats, (key_states, value_states), strict=True):
            if form and layer_idx in self._layers:
                rows = turn(states[0]) if self._turned else states[0]
                read = form.encode(rows).read()
                states = (turn(read) if self._turned else read)[None]
            written.append(states)
        keys, values = written
        return super().update(keys, values, layer_idx, *others, **more)


# By name: the formats of keys and of values, the layers, and whether rows are turned.
WRITTEN: dict[str, tuple[Any, Any, Sequence[int], bool]] = {
    "q4_0(group=8,phase=write)": (FOUR, FOUR, (0, 1), False),
    "q4_0(group=8,tensor=K,phase=write)": (FOUR, None, (0, 1), False),
    "q8_0(group=8,tensor=V,phase=write,layers=1)": (None, EIGHT, (1,), False),
    "hadamard+q4_0(group=8,phase=write)": (FOUR, FOUR, (0, 1), True),
}
# Others in the same batch, which read what the model writes.
OTHERS = ("full", "q4_0(group=8)", "snapkv")


@pytest.mark.parametrize("architecture", ["llama", SLIDING])
def test_rows_that_are_quantised_as_they_are_written_are_those_of_a_plain_loop(
    architecture: str,
) -> None:
    model, prompt = model_of(architecture), toy_prompt(questions=2)
    by_name = {find_policy(name).name: cache for name, cache in WRITTEN.items()}
    policies = [find_policy(name) for name in (*OTHERS, *WRITTEN)]
    trace = treat(model, policies, (0.5,), prompt)
    assert [branch.error for branch in trace.branches if branch.error] == []
    compared = 0
    for generation in decode(model, trace, STEPS, PLENTY, gold=True):
        name = generation.branch.treatment.policy.name
        if name not in by_name:
            continue
        cache = QuantisingCache(*by_name[name])
        written, _ = plain_answer(model, prompt, generation.question, cache)
        assert list(generation.token_ids) == written, name
        gold = prompt.questions[generation.question].gold_ids
        again = QuantisingCache(*by_name[name])
        _, nats = plain_answer(model, prompt, generation.question, again, gold)
        assert generation.gold is not None
        assert generation.gold.nats == pytest.approx(nats, rel=1e-4, abs=5e-4), name
        compared += 1
    assert compared == len(WRITTEN) * len(prompt.questions)


def test_a_prefill_over_quantised_rows_is_another_one(llama: LoadedModel) -> None:
    """Else the comparison above would prove less than it says."""
    names = ("q4_0(group=8)", "q4_0(group=8,phase=write)")
    trace = treat(llama, [find_policy(name) for name in names], (), toy_prompt(questions=1))
    stored, written = decode(llama, trace, STEPS, PLENTY, gold=True)
    assert stored.gold is not None
    assert written.gold is not None
    assert abs(stored.gold.mean_nats - written.gold.mean_nats) > 1e-3  # type: ignore[operator]


def test_bytes_are_those_of_the_same_format_behind_the_prefill() -> None:
    situation = Situation(ratio=0.0, context_length=100, seed=0, example_id="")
    head = HeadRows(rows=100, size=64, number_bytes=2)
    held = []
    for name in ("q4_0", "q4_0(phase=write)"):
        count = make_treatment(name).treatment.stored_bytes
        assert count is not None
        held.append(count(situation, head))
    # Of 64 numbers a key has two blocks of 16 bytes of codes and a scale of 2; values too.
    assert held == [100 * 2 * 2 * 18] * 2


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("int4(phase=write)", "k_axis=token and residual=0"),
        ("q4_0(residual=8,phase=write)", "residual=0"),
        ("q4_0(outliers=2,phase=write)", "outliers"),
        ("int4(like=transformers,phase=write)", "like=transformers"),
    ],
)
def test_what_stores_several_tokens_together_cannot_be_written_row_by_row(
    name: str, words: str
) -> None:
    with pytest.raises(PolicyError, match=words):
        make_treatment(name)


def test_a_row_means_the_same_whoever_is_written_beside_it() -> None:
    """Two answers of three tokens in one pass are quantised as each token alone."""
    build = make_treatment("q4_0(group=8,phase=write)").treatment.write_treatment
    assert build is not None
    situation = Situation(ratio=0.0, context_length=100, seed=0, example_id="")
    treatment = build([situation, situation])
    states = torch.randn(2, 2, 3, 8, generator=torch.Generator().manual_seed(1))
    positions = torch.arange(3).expand(2, -1)
    together = treatment.on_write(NewRows(0, 1, "keys", (0, 1), states, positions, 3))
    for answer in range(2):
        for token in range(3):
            row = states[answer : answer + 1, :, token : token + 1]
            place = positions[:1, token : token + 1]
            alone = treatment.on_write(NewRows(0, 1, "keys", (answer,), row, place, 3))
            assert torch.equal(alone[0, :, 0], together[answer, :, token])


def test_it_stands_behind_eviction_and_what_is_kept_is_known(llama: LoadedModel) -> None:
    policy = find_policy("knorm+q4_0(group=8,phase=write)")
    trace = treat(llama, [policy], (0.5,), toy_prompt(questions=1))
    (branch,) = trace.branches
    assert not branch.error
    rows = len(trace.prompt.token_ids)
    assert {layer.read_rows for layer in branch.layers} == {KEY_HEADS * (rows - rows // 2)}
