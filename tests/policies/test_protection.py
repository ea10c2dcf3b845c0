"""Wrappers that protect instructions, against hand-made scores."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kvpress import KnormPress, StreamingLLMPress
from kvpress.utils import compute_n_kept

from kvbench.models.load import LoadedModel
from policies import POLICIES, PolicyError, protect
from policies.presses.protection import (
    DebiasPress,
    FairEvictionPress,
    WhitelistPress,
    check_spans,
    parts_of,
    shared_out,
)
from tests.support.models.toy import KEY_HEADS, LAYERS, ActingScorer, keep_of, pressing, toy_prompt, treat

# Ten tokens; one head likes the end, the other the beginning.
SCORES = torch.tensor([[[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]]]).float()


def scores_given(module: Any, hidden_states: Any, keys: torch.Tensor, *_: Any) -> torch.Tensor:
    return SCORES[:, :, : keys.shape[2]] if keys.shape[2] < 10 else SCORES


def kept(press: Any, ratio: float, tokens: int = 10) -> list[list[int]]:
    """Positions that each of two heads keeps."""
    press.press.compression_ratio = ratio
    return left_by(press, tokens)


def left_by(press: Any, tokens: int) -> list[list[int]]:
    keys = torch.arange(float(tokens)).expand(1, 2, tokens)[..., None].expand(-1, -1, -1, 4)
    embeddings = {"position_embeddings": (torch.zeros(1, tokens, 4), torch.zeros(1, tokens, 4))}
    module = SimpleNamespace(head_dim=4)
    left, _ = press.compress(module, torch.zeros(1, tokens, 8), keys, keys, None, embeddings)
    return [sorted(int(token) for token in head[:, 0]) for head in left[0]]


def scorer() -> ActingScorer:
    return ActingScorer(0.0, scores_given)


# --- by hand


def test_a_whitelist_keeps_its_spans_and_the_rest_goes_to_the_press() -> None:
    press = WhitelistPress(scorer(), [(2, 4), (5, 6)])
    assert kept(press, 0.5) == [[2, 3, 5, 8, 9], [0, 1, 2, 3, 5]]


def test_of_a_whitelist_larger_than_the_budget_the_press_chooses() -> None:
    press = WhitelistPress(scorer(), [(0, 6)])
    assert kept(press, 0.7) == [[3, 4, 5], [0, 1, 2]]


def test_fair_eviction_keeps_the_same_share_of_every_part() -> None:
    """Parts of 4, 2 and 4 tokens share five kept ones: 2, 1 and 2, each by the press's order within it."""
    press = FairEvictionPress(scorer(), [(4, 6)])
    assert kept(press, 0.5) == [[2, 3, 5, 8, 9], [0, 1, 4, 6, 7]]


def test_a_part_votes_with_its_own_window_where_the_press_has_one() -> None:
    """Scored as if it were the context, a part of four tokens has the scores of the first four."""
    press = FairEvictionPress(scorer(), [(4, 6)], window=True)
    assert kept(press, 0.5) == [[2, 3, 5, 8, 9], [0, 1, 4, 6, 7]]
    seen: list[int] = []

    def watched(module: Any, hidden_states: Any, keys: torch.Tensor, *others: Any) -> torch.Tensor:
        seen.append(keys.shape[2])
        return scores_given(module, hidden_states, keys)

    kept(FairEvictionPress(ActingScorer(0.0, watched), [(4, 6)], window=True), 0.5)
    assert seen == [10, 4, 2, 4]


def test_strength_goes_from_the_choice_of_the_press_to_the_same_share() -> None:
    """Of parts 0-3, 4-5 and 6-9 the first head alone would keep 0, 1 and 4, and fairly 2, 1 and 2; half-way 1, 1, 3."""
    assert kept(DebiasPress(scorer(), [(4, 6)], 0.0), 0.5) == [[5, 6, 7, 8, 9], [0, 1, 2, 3, 4]]
    assert kept(DebiasPress(scorer(), [(4, 6)], 0.5), 0.5) == [[3, 5, 7, 8, 9], [0, 1, 2, 4, 6]]
    assert kept(DebiasPress(scorer(), [(4, 6)], 1.0), 0.5) == kept(FairEvictionPress(scorer(), [(4, 6)]), 0.5)


@given(st.integers(1, 60), st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_what_is_shared_out_adds_up_and_is_in_proportion(total: int, sizes: list[int]) -> None:
    total = min(total, sum(sizes))
    counts = shared_out(total, torch.tensor(sizes))
    assert int(counts.sum()) == total
    assert all(abs(int(count) - total * size / sum(sizes)) < 1 for count, size in zip(counts, sizes, strict=True))
    assert all(int(count) <= size for count, size in zip(counts, sizes, strict=True))


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_around_nothing_a_whitelist_of_streaming_llm_is_streaming_llm(ratio: float) -> None:
    press = StreamingLLMPress(ratio, n_sink=4)
    plain = left_by(press, 100)
    assert left_by(WhitelistPress(press), 100) == plain
    assert len(plain[0]) == compute_n_kept(100, ratio)


def test_what_a_whitelist_leaves_goes_to_sinks_and_the_most_recent() -> None:
    """Of 100 tokens 70, 40 and 9 stay; 30 of them are protected. StreamingLLM alone scores with 1 and 0, for the whole
    budget: by that, sinks were the first to go."""
    press = WhitelistPress(StreamingLLMPress(0.3, n_sink=4), [(10, 40)])
    assert kept(press, 0.3, 100)[0] == [*range(4), *range(10, 40), *range(64, 100)]
    assert kept(press, 0.6, 100)[0] == [*range(4), *range(10, 40), *range(94, 100)]
    assert kept(press, 0.9, 100)[0] == [*range(31, 40)], "more than the budget: the most recent of them"
    fair = FairEvictionPress(StreamingLLMPress(0.5, n_sink=4), [(10, 40)], window=True)
    assert kept(fair, 0.5, 100)[0] == [*range(4), 9, *range(10, 14), *range(29, 40), *range(40, 44), *range(74, 100)]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (lambda keys: keys[..., 0] * float("nan"), "ActingScorer scored with NaN"),
        (lambda keys: keys[:, :, 1:, 0], r"scored with shape \(1, 2, 9\) and not \(1, 2, 10\)"),
    ],
)
def test_what_fails_in_a_press_fails_in_its_protected_form(scores: Any, said: str) -> None:
    broken = ActingScorer(0.0, lambda module, hidden_states, keys, *_: scores(keys))
    with pytest.raises(PolicyError, match=said):
        kept(WhitelistPress(broken, [(2, 4)]), 0.5)


def test_parts_are_the_spans_and_what_lies_between() -> None:
    assert parts_of([(5, 7), (2, 4)], 10) == [(0, 2), (2, 4), (4, 5), (5, 7), (7, 10)]
    assert parts_of([(0, 10)], 10) == [(0, 10)]
    assert parts_of([], 3) == [(0, 3)]


@pytest.mark.parametrize("spans", [[(3, 3)], [(-1, 2)], [(8, 11)], [(1, 4), (3, 6)]])
def test_spans_that_are_none_are_refused(spans: list[tuple[int, int]]) -> None:
    with pytest.raises(PolicyError, match="is empty, overlaps another, or leaves the 10 tokens"):
        check_spans(spans, 10)


def test_a_wrapper_goes_around_a_scorer_press_alone() -> None:
    with pytest.raises(PolicyError, match="WhitelistPress goes around a ScorerPress, not a WhitelistPress"):
        WhitelistPress(WhitelistPress(KnormPress()))


# --- through the engine


OF_THE_PAPER = ("streaming_llm", "snapkv", "tova", "h2o", "knorm")
OTHERS = ("keydiff", "expected_attention", "lagkv", "leverage", "compactor", "cur", "capkv")


@pytest.mark.parametrize(("base", "ratio"), [*product(OF_THE_PAPER, (0.3, 0.6, 0.9)), *product(OTHERS, (0.6,))])
def test_wrappers_protect_the_instructions_of_a_system_prompt(llama: LoadedModel, base: str, ratio: float) -> None:
    """Those of the paper are registered; around any other press a wrapper is made when it is asked for."""
    prompt = toy_prompt(task="instructions")
    budget = compute_n_kept(len(prompt.token_ids), ratio)
    kept_by = {}
    for way in ("whitelist", "fair", "debias0.5"):
        policy = POLICIES[f"{base}+{way}"] if base in OF_THE_PAPER else protect(POLICIES[base], way)
        (branch,) = treat(llama, [policy], [ratio], prompt).branches
        kept_by[way] = keep_of(branch)
        assert (kept_by[way].sum(-1) == budget).all()
    inside = torch.cat([torch.arange(start, end) for start, end in prompt.protected])
    assert (kept_by["whitelist"][..., inside].sum(-1) == min(budget, len(inside))).all()
    for start, end in prompt.protected:
        share = kept_by["fair"][..., start:end].float().mean(-1)
        assert ((share - budget / len(prompt.token_ids)).abs() < 1 / (end - start)).all()


def test_strength_zero_is_the_press_itself(llama: LoadedModel) -> None:
    prompt = toy_prompt(task="instructions", index=2)
    plain = pressing("plain", lambda s: KnormPress(s.ratio))
    wrapped = pressing("wrapped", lambda s: DebiasPress(KnormPress(s.ratio), s.spans, 0.0))
    one, other = treat(llama, [plain, wrapped], [0.5], prompt).branches
    assert torch.equal(keep_of(one), keep_of(other))
    assert keep_of(one).shape[:2] == (LAYERS, KEY_HEADS)
