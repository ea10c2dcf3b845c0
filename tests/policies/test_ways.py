"""Ways around a scorer (instructions protected, whole pages, shared heads, ends), by hand and
through the engine."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kvpress import StreamingLLMPress
from kvpress.utils import compute_n_kept

from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import LoadedModel
from kvbench.system.errors import KVBenchError
from policies import POLICIES, PolicyError
from policies.composition import compose
from policies.presses.rescoring import (
    DebiasPress,
    EndsPress,
    FairEvictionPress,
    PagesPress,
    SharedPress,
    WhitelistPress,
)
from tests.support.models.toy import KEY_HEADS, LAYERS, ActingScorer, keep_of, toy_prompt, treat

# Eight tokens in pages of two; one head has a high score in a page of low ones, the other prefers
# the middle.
SCORES = torch.tensor([[[9.0, 0, 5, 5, 4, 4, 1, 1], [0, 0, 2, 2, 3, 3, 0, 8]]])
# Ten tokens; one head likes the end, the other the beginning.
ENDS = torch.tensor([[[0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]]])


def scorer(scores: torch.Tensor) -> ActingScorer:
    """Scores a stretch that is shorter as if it were the beginning."""
    return ActingScorer(0.0, lambda module, hidden_states, keys, *_: scores[:, :, : keys.shape[2]])


def kept(
    make: Any, scores: torch.Tensor, ratio: float, *more: Any, **named: Any
) -> list[list[int]]:
    """Positions that each head keeps of a context whose tokens have these scores."""
    return left_by(make(ratio, scorer(scores), *more, **named), scores.shape[1], scores.shape[2])


def left_by(press: Any, heads: int, tokens: int) -> list[list[int]]:
    keys = torch.arange(float(tokens)).expand(1, heads, tokens)[..., None].expand(-1, -1, -1, 4)
    embeddings = {"position_embeddings": (torch.zeros(1, tokens, 4), torch.zeros(1, tokens, 4))}
    module = SimpleNamespace(head_dim=4, layer_idx=0)
    left, _ = press.compress(module, torch.zeros(1, tokens, 8), keys, keys, None, embeddings)
    return [sorted(int(token) for token in head[:, 0]) for head in left[0]]


# --- protection, by hand


def test_a_whitelist_keeps_its_spans_and_the_rest_goes_to_the_press() -> None:
    assert kept(WhitelistPress, ENDS, 0.5, [(2, 4), (5, 6)]) == [[2, 3, 5, 8, 9], [0, 1, 2, 3, 5]]
    assert kept(WhitelistPress, ENDS, 0.7, [(0, 6)]) == [[3, 4, 5], [0, 1, 2]], (
        "more than the budget"
    )


def test_fair_eviction_keeps_the_same_share_of_every_part_and_strength_goes_there() -> None:
    """Parts of 4, 2 and 4 tokens share five kept ones: 2, 1 and 2. The first head alone would keep
    0, 1 and 4; half-way are 1, 1 and 3. A part that is scored as if it were the context has the
    scores of the first tokens."""
    fair = [[2, 3, 5, 8, 9], [0, 1, 4, 6, 7]]
    assert kept(FairEvictionPress, ENDS, 0.5, [(4, 6)]) == fair
    assert kept(FairEvictionPress, ENDS, 0.5, [(4, 6)], window=True) == fair
    assert kept(DebiasPress, ENDS, 0.5, [(4, 6)], strength=0.0) == [
        [5, 6, 7, 8, 9],
        [0, 1, 2, 3, 4],
    ]
    assert kept(DebiasPress, ENDS, 0.5, [(4, 6)], strength=0.5) == [
        [3, 5, 7, 8, 9],
        [0, 1, 2, 4, 6],
    ]
    assert kept(DebiasPress, ENDS, 0.5, [(4, 6)], strength=1.0) == fair
    seen: list[int] = []

    def watched(module: Any, hidden_states: Any, keys: torch.Tensor, *_: Any) -> torch.Tensor:
        seen.append(keys.shape[2])
        return ENDS[:, :, : keys.shape[2]]

    left_by(FairEvictionPress(0.5, ActingScorer(0.5, watched), [(4, 6)], window=True), 2, 10)
    assert seen == [10, 4, 2, 4], "the whole, and each part as if it were the context"


def test_what_a_whitelist_leaves_goes_to_sinks_and_the_most_recent() -> None:
    """Of 100 tokens 70, 40 and 9 stay; 30 of them are protected. StreamingLLM alone scores with 1
    and 0, for the whole budget: by that, sinks were the first to go."""
    expected = {
        0.3: [*range(4), *range(10, 40), *range(64, 100)],
        0.6: [*range(4), *range(10, 40), *range(94, 100)],
        0.9: [*range(31, 40)],  # more than the budget: the most recent of them
    }
    for ratio, tokens in expected.items():
        assert (
            left_by(WhitelistPress(ratio, StreamingLLMPress(ratio, n_sink=4), [(10, 40)]), 2, 100)[
                0
            ]
            == tokens
        )
        plain = StreamingLLMPress(ratio, n_sink=4)
        assert left_by(WhitelistPress(ratio, plain), 2, 100) == left_by(plain, 2, 100), (
            "around nothing"
        )
    fair = FairEvictionPress(0.5, StreamingLLMPress(0.5, n_sink=4), [(10, 40)], window=True)
    assert left_by(fair, 2, 100)[0] == [
        *(*range(4), 9, *range(10, 14), *range(29, 40), *range(40, 44), *range(74, 100))
    ]


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (lambda keys: keys[..., 0] * float("nan"), "ActingScorer scored with NaN"),
        (lambda keys: keys[:, :, 1:, 0], r"scored with shape \(1, 2, 9\) and not \(1, 2, 10\)"),
    ],
)
def test_what_fails_in_a_press_fails_in_its_protected_form(scores: Any, said: str) -> None:
    broken = ActingScorer(0.5, lambda module, hidden_states, keys, *_: scores(keys))
    with pytest.raises(PolicyError, match=said):
        left_by(WhitelistPress(0.5, broken, [(2, 4)]), 2, 10)


# --- deployment, by hand


def test_pages_are_kept_by_the_mean_or_the_highest_of_their_scores_in_each_head() -> None:
    """Means of pages: 4.5, 5, 4 and 1 in the one head, 0, 2, 3 and 4 in the other. Highest of the
    first: 9, 5, 4, 1. Eight tokens are two pages of three and an open one of two; 2 + 3 of the 4
    asked for are nearer than 2."""
    assert kept(PagesPress, SCORES, 0.5, "mean", 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert kept(PagesPress, SCORES, 0.75, "mean", 2) == [[2, 3], [6, 7]]
    assert kept(PagesPress, SCORES, 0.75, "max", 2)[0] == [0, 1]
    assert kept(PagesPress, SCORES, 0.5, "mean", 3) == [[0, 1, 2, 6, 7], [3, 4, 5, 6, 7]]
    assert kept(PagesPress, SCORES, 0.875, "mean", 3) == [[6, 7], [6, 7]], (
        "the last page stays while it is not full"
    )
    assert kept(PagesPress, SCORES, 0.875, "mean", 16) == [list(range(8))] * 2
    assert kept(PagesPress, torch.zeros(1, 1, 8), 0.5, "mean", 2) == [[0, 1, 2, 3]]


def test_all_heads_keep_the_tokens_of_the_highest_mean_or_the_highest_score_of_any_head() -> None:
    """Means over the heads: 4.5, 0, 3.5, 3.5, 3.5, 3.5, 0.5, 4.5."""
    assert kept(SharedPress, SCORES, 0.75) == [[0, 7]] * 2
    scores = torch.tensor([[[5.0, 4, 0, 0], [0, 4, 4.5, 0]]])
    assert kept(SharedPress, scores, 0.5) == [[0, 1]] * 2
    assert kept(SharedPress, scores, 0.5, "max") == [[0, 2]] * 2


def test_the_ends_are_kept_first_and_the_rest_goes_to_the_press() -> None:
    scores = torch.tensor([[[*map(float, range(20))]]])
    assert kept(EndsPress, scores, 0.7) == [[0, 1, 16, 17, 18, 19]]
    assert kept(EndsPress, -scores, 0.7) == [[0, 1, 2, 3, 18, 19]]
    assert kept(EndsPress, scores, 0.88) == [[18, 19]], (
        "of ends that are more than the budget the press chooses"
    )


def test_a_page_of_a_token_that_must_stay_stays() -> None:
    """StreamingLLM scores with 1 and 0, by which the page of four sinks is worth a quarter of a
    recent one."""
    press = PagesPress(0.75, StreamingLLMPress(0.75, n_sink=4))
    assert left_by(press, 2, 128) == [[*range(16), *range(112, 128)]] * 2
    ends = PagesPress(0.5, EndsPress(0.5, scorer(torch.ones(1, 1, 160))))
    assert {0, 159} <= set(left_by(ends, 1, 160)[0])


some_scores = st.tuples(st.integers(1, 3), st.integers(1, 90), st.integers(0, 2**16)).map(
    # Few different numbers, so that there are ties.
    lambda given: torch.randint(
        0, 5, (1, *given[:2]), generator=torch.Generator().manual_seed(given[2])
    ).float()
)


@given(some_scores, st.floats(0.01, 0.99), st.integers(1, 16), st.sampled_from(["mean", "max"]))
def test_what_is_kept_of_any_scores_keeps_its_budget(
    scores: torch.Tensor, ratio: float, size: int, by: Any
) -> None:
    """Whole pages up to one of the budget; the same tokens in all heads; the ends as far as the
    budget reaches."""
    length, asked = scores.shape[2], compute_n_kept(scores.shape[2], ratio)
    left = kept(PagesPress, scores, ratio, by, size)
    for tokens in left:
        assert tokens == [
            token for token in range(length) if token // size in {kept // size for kept in tokens}
        ]
        assert len(tokens) == len(left[0])
        open_page = length % size
        assert abs(len(tokens) - max(asked, open_page)) <= (size / 2 if asked > size / 2 else size)
        assert set(range(length - open_page, length)) <= set(tokens)
    shared = kept(SharedPress, scores, ratio, by)
    assert shared == [shared[0]] * len(shared)
    assert len(shared[0]) == asked
    end = max(1, length // 10)
    ends = {*range(end), *range(length - end, length)}
    for tokens in kept(EndsPress, scores, ratio):
        assert len(tokens) == asked
        assert len(ends & set(tokens)) == min(asked, len(ends))


# --- through the engine

OF_THE_PAPER = ("streaming_llm", "snapkv", "tova", "h2o", "knorm")
OTHERS = ("keydiff", "compactor")
BASES = ("snapkv", "streaming_llm", "random", "compactor", "oracle")


@pytest.mark.parametrize(
    ("base", "ratio"), [*product(OF_THE_PAPER, (0.3, 0.9)), *product(OTHERS, (0.6,))]
)
def test_wrappers_protect_the_instructions_of_a_system_prompt(
    llama: LoadedModel, base: str, ratio: float
) -> None:
    """Those of the paper are registered; around any other press a wrapper is made when it is asked
    for."""
    prompt = toy_prompt(task="instructions")
    budget = compute_n_kept(len(prompt.token_ids), ratio)
    ways = ("whitelist", "fair", "debias0.5")
    made = [POLICIES.get(f"{base}+{way}") or compose(POLICIES[base], way) for way in ways]
    kept_by = dict(
        zip(ways, map(keep_of, treat(llama, made, [ratio], prompt).branches), strict=True)
    )
    assert all((keep.sum(-1) == budget).all() for keep in kept_by.values())
    inside = torch.cat([torch.arange(start, end) for start, end in prompt.protected])
    assert (kept_by["whitelist"][..., inside].sum(-1) == min(budget, len(inside))).all()
    for start, end in prompt.protected:
        share = kept_by["fair"][..., start:end].float().mean(-1)
        assert ((share - budget / len(prompt.token_ids)).abs() < 1 / (end - start)).all()


@pytest.mark.parametrize("base", BASES)
def test_any_policy_of_scores_is_deployed(llama: LoadedModel, base: str) -> None:
    prompt = toy_prompt(questions=2)
    length = len(prompt.token_ids)
    names = [
        f"{base}+{way}"
        for way in ("pages16", "shared", "ends", "shared+pages16(by=max)", "ends+shared")
    ]
    trace = treat(llama, [find_policy(name) for name in names], [0.5], prompt)
    for branch in trace.branches:
        keep, name = keep_of(branch), branch.treatment.policy.name
        assert keep.shape == (LAYERS, KEY_HEADS, length)
        if "pages16" in name:
            whole = keep[..., : length // 16 * 16].unflatten(-1, (-1, 16)).float().mean(-1)
            assert set(whole.unique().tolist()) <= {0.0, 1.0}
            assert (keep.sum(-1) - length // 2).abs().max() <= 8
        else:
            assert (keep.sum(-1) == compute_n_kept(length, 0.5)).all()
        if "shared" in name:
            assert (keep == keep[:, :1]).all()
        if "ends" in name:
            assert keep[..., : length // 10].all()
            assert keep[..., -(length // 10) :].all()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kvzip+fair", "kvzip keeps tokens otherwise than by their scores"),
        ("snapkv+fair+whitelist", r"snapkv\+fair keeps tokens otherwise than by their scores"),
        ("decoding_knorm+pages16", "decoding_knorm keeps tokens otherwise than by their scores"),
        ("knorm+pages16+shared", r"pages come last, as in knorm\+shared\+pages16"),
        ("knorm+int4+pages16", r"evict first, as in knorm\+pages16\+int4"),
        ("knorm+pages16(by=median)", "by=median"),
        ("knorm+ends(by=max)", "ends takes no options: leave by out"),
        ("knorm+ends(3)", r"write options as ends\(NAME=...\)"),
        ("knorm+page16", "did you mean 'pages16'"),
        ("knrom+fair", "unknown policy 'knrom': did you mean 'knorm'"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(name: str, said: str) -> None:
    with pytest.raises(KVBenchError, match=said) as caught:
        find_policy(name)
    assert "\n" not in str(caught.value)
