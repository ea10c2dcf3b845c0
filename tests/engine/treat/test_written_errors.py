"""An error of every row as it enters the cache, beside a plain loop that multiplies what an
unchanged model writes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import GoldTokens
from kvbench.engine.treat.branch import Branch
from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt
from kvbench.system.errors import KVBenchError
from policies import Policy
from policies.faults.counter_based import Distribution
from policies.faults.fault import draw
from policies.faults.registry import FAULT_KINDS, FAULTS
from tests.engine.test_same_answers import Idle
from tests.support.models.engine_paths import SLIDING
from tests.support.models.toy import PLENTY, STEPS, largest_row, model_of, toy_prompt, treat

CLOSE = 5e-4  # nats in float32: the rows of a batch are summed in another order
BEHIND = 10_000  # a position behind all


@dataclass(frozen=True)
class Error:
    """What text E adds to a value, as a share of it: ``shift + scale * draw``."""

    distribution: Distribution
    shift: float
    scale: float
    tensors: Sequence[str] = ("keys", "values")
    layers: Sequence[int] = (0, 1)
    share: float = 1.0  # of the values


EVEN, NORMAL = Error("uniform", -1.0, 2.0), Error("normal", 0.0, 0.5)
ERRORS = {
    "multiplicative_uniform(phase=write,rate=1)": EVEN,
    "multiplicative_uniform(low=0,high=2,tensor=K,phase=write,rate=1)": replace(
        EVEN, shift=0.0, tensors=("keys",)
    ),
    "multiplicative_uniform(tensor=V,phase=write,rate=1)": replace(EVEN, tensors=("values",)),
    "multiplicative_uniform(unit=value,phase=write,rate=0.3)": replace(EVEN, share=0.3),
    "multiplicative_normal(phase=write,rate=1)": NORMAL,
    "multiplicative_normal(std=0.25,tensor=K,phase=write,rate=1)": replace(
        NORMAL, scale=0.25, tensors=("keys",)
    ),
    "multiplicative_normal(mean=0.5,std=0.1,phase=write,rate=1)": replace(
        NORMAL, shift=0.5, scale=0.1
    ),
    "multiplicative_normal(layers=H1,phase=write,rate=1)": replace(NORMAL, layers=(0,)),
    "multiplicative_normal(layers=H2,phase=write,rate=1)": replace(NORMAL, layers=(1,)),
}
# Others in the same batch, which read what the model writes.
OTHERS = ("full", "snapkv", "multiplicative_uniform(rate=1)", "gaussian(phase=every_step,rate=0.1)")


class ErringCache(DynamicCache):
    """A cache of transformers that multiplies each row by 1 + its error when it is written."""

    def __init__(self, error: Error, draws: str) -> None:
        super().__init__()
        self._error, self._draws = error, draws

    def update(
        self, key_states: Any, value_states: Any, layer_idx: int, *others: Any, **more: Any
    ) -> Any:
        first = self.get_seq_length(layer_idx)
        keys = key_states * self._factors("keys", layer_idx, first, key_states)
        values = value_states * self._factors("values", layer_idx, first, value_states)
        return super().update(keys, values, layer_idx, *others, **more)

    def _factors(self, tensor: str, layer: int, first: int, states: torch.Tensor) -> torch.Tensor:
        error, (_, heads, rows, size) = self._error, states.shape
        if tensor not in error.tensors or layer not in error.layers:
            return torch.ones_like(states)
        positions = (first + torch.arange(rows)).expand(heads, -1)
        key = f"{self._draws}/{layer}/0/"
        drawn = draw(error.distribution, key + tensor, positions, BEHIND, size)
        chosen = draw("uniform", f"{key}values of {tensor}", positions, BEHIND, size) < error.share
        return torch.where(chosen, 1 + error.shift + error.scale * drawn, 1.0)


def logits_behind(
    model: LoadedModel, cache: DynamicCache, token_ids: Sequence[int]
) -> torch.Tensor:
    logits: torch.Tensor = model.network(
        input_ids=torch.tensor([token_ids]), past_key_values=cache
    ).logits[0, -1]
    return logits


@torch.inference_mode()
def plain_answer(
    model: LoadedModel,
    prompt: Prompt,
    question: int,
    cache: DynamicCache,
    forced: Sequence[int] = (),
) -> tuple[list[int], list[float]]:
    """Writes an answer, or passes the forced tokens; returns the likeliest tokens, and the nats of
    the forced ones."""
    logits_behind(model, cache, prompt.token_ids)
    logits = logits_behind(model, cache, prompt.questions[question].token_ids)
    likeliest, nats = list[int](), list[float]()
    for step in range(len(forced) or STEPS):
        likeliest.append(int(logits.argmax()))
        if not forced and likeliest[-1] in model.end_tokens():
            break
        following = forced[step] if forced else likeliest[-1]
        nats.append(-float(logits.log_softmax(-1)[following]))
        logits = logits_behind(model, cache, [following])
    return likeliest, nats


def draws_of(branch: Branch) -> str:
    return f"{branch.treatment.situation.seed}/{branch.treatment.situation.example_id}"


@pytest.mark.parametrize("architecture", ["llama", SLIDING])
def test_errors_of_what_is_written_are_those_of_a_plain_loop(architecture: str) -> None:
    model, prompt = model_of(architecture), toy_prompt(questions=3)
    policies = [find_policy(name) for name in (*OTHERS, *ERRORS)]
    errors = {find_policy(name).name: error for name, error in ERRORS.items()}
    trace = treat(model, policies, (0.5,), prompt, repeats=2)
    assert [branch.error for branch in trace.branches if branch.error] == []
    compared = 0
    for generation in decode(model, trace, STEPS, PLENTY, gold=True):
        branch, question = generation.branch, generation.question
        if error := errors.get(branch.treatment.policy.name):
            written, _ = plain_answer(model, prompt, question, ErringCache(error, draws_of(branch)))
            assert list(generation.token_ids) == written, branch.treatment.policy.name
            gold = prompt.questions[question].gold_ids
            likeliest, nats = plain_answer(
                model, prompt, question, ErringCache(error, draws_of(branch)), gold
            )
            assert generation.gold is not None
            assert generation.gold.nats == pytest.approx(nats, rel=1e-5, abs=CLOSE), (
                branch.treatment.policy.name
            )
            assert generation.gold.right == tuple(map(int.__eq__, likeliest, gold)), (
                branch.treatment.policy.name
            )
            compared += 1
    assert compared == len(ERRORS) * 2 * len(prompt.questions)


def golds(
    model: LoadedModel, policies: Sequence[Policy], bound: int = PLENTY
) -> dict[tuple[str, int], tuple[tuple[int, ...], GoldTokens | None]]:
    trace = treat(model, policies, (), toy_prompt(questions=3))
    made = decode(model, trace, STEPS, bound, gold=True)
    return {
        (one.branch.treatment.policy.name, one.question): (one.token_ids, one.gold) for one in made
    }


def test_a_written_error_is_neither_a_resident_one_nor_that_of_the_context_alone(
    llama: LoadedModel,
) -> None:
    """Else the comparison above would prove less than it says."""
    names = [
        f"multiplicative_normal(phase={phase},rate=1)"
        for phase in ("write", "prefill_write", "resident")
    ]
    policies = [find_policy(name) for name in names]
    by_phase = golds(llama, policies)
    for question in range(3):
        nats = {
            round(gold.mean_nats or 0.0, 2)
            for policy in policies
            if (gold := by_phase[policy.name, question][1]) is not None
        }
        assert len(nats) == len(names)


def test_a_row_that_is_copied_for_its_right_answer_is_damaged_as_one_that_is_not(
    llama: LoadedModel,
) -> None:
    """A treatment between steps has each question read in a row that is copied."""
    plain = find_policy("multiplicative_normal(phase=write,rate=1)")
    between_steps = replace(plain.treatment, step_treatment=Idle)
    copied = replace(plain, name="copied", treatment=between_steps)
    answers = golds(llama, [plain, copied])
    for question in range(3):
        (tokens, gold), (tokens_of_copied, gold_of_copied) = (
            answers[one.name, question] for one in (plain, copied)
        )
        assert tokens == tokens_of_copied
        assert gold is not None
        assert gold_of_copied is not None
        assert gold_of_copied.nats == pytest.approx(gold.nats, abs=CLOSE)


def test_rows_that_are_decoded_in_small_waves_have_the_same_errors(llama: LoadedModel) -> None:
    policies = [find_policy(name) for name in (*OTHERS, *ERRORS)]
    bound = largest_row(treat(llama, policies, (), toy_prompt(questions=3)))
    together, alone = golds(llama, policies), golds(llama, policies, bound)
    assert together.keys() == alone.keys()
    for key, (tokens, gold) in together.items():
        assert gold is not None
        assert alone[key][0] == tokens, key
        assert alone[key][1].nats == pytest.approx(gold.nats, abs=CLOSE), key  # type: ignore[union-attr]


def test_errors_of_two_kinds_are_written_one_after_the_other(llama: LoadedModel) -> None:
    """Every sign flips twice, so that nothing is left of it; before, a second press of writing
    replaced the first."""
    flipped = "sign_flip(unit=row,phase=write,rate=1)"
    policies = [find_policy(name) for name in ("full", flipped, f"{flipped}+{flipped}")]
    answers = golds(llama, policies)
    for question in range(3):
        full, once, twice = (answers[policy.name, question] for policy in policies)
        assert full[1] is not None
        assert twice[1] is not None
        assert twice[0] == full[0]
        assert twice[1].nats == pytest.approx(full[1].nats, abs=CLOSE)
        assert once[1] != full[1]


@pytest.mark.parametrize("name", [name for name in FAULTS if FAULT_KINDS[name].reads_other_rows])
def test_a_kind_that_looks_at_other_rows_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(
        KVBenchError, match=f"what {name} makes of a row depends on the others.*phase=prefill_write"
    ):
        find_policy(f"{name}(phase=write)")
