"""Whole pages, one set of tokens for all heads, protected ends: against hand-made scores, and through the engine."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kvpress import KnormPress, StreamingLLMPress
from kvpress.utils import compute_n_kept

from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import LoadedModel
from kvbench.system.errors import KVBenchError
from policies import POLICIES, PolicyError, Situation
from policies.composition import built_in
from policies.presses.deployed import EndsPress, PagesPress, RescoringPress, SharedPress, kept_pages
from policies.treatments.deployed import simpler
from tests.support.models.toy import KEY_HEADS, LAYERS, ActingScorer, keep_of, toy_prompt, treat

# Eight tokens in pages of two; one head has a high score in a page of low ones, the other prefers the middle.
SCORES = torch.tensor([[[9.0, 0, 5, 5, 4, 4, 1, 1], [0, 0, 2, 2, 3, 3, 0, 8]]])


def scorer(scores: torch.Tensor) -> ActingScorer:
    return ActingScorer(0.0, lambda module, hidden_states, keys, *_: scores)


def kept(make: Any, scores: torch.Tensor, ratio: float) -> list[list[int]]:
    """Positions that each head keeps of a context whose tokens have these scores."""
    return left_by(make(ratio, scorer(scores)), scores.shape[1], scores.shape[2])


def left_by(press: Any, heads: int, tokens: int) -> list[list[int]]:
    keys = torch.arange(float(tokens)).expand(1, heads, tokens)[..., None].expand(-1, -1, -1, 4)
    left, _ = press.compress(SimpleNamespace(head_dim=4), torch.zeros(1, tokens, 8), keys, keys, None, {})
    return [sorted(int(token) for token in head[:, 0]) for head in left[0]]


def pages(by: Any = "mean", size: int = 2) -> Any:
    return lambda ratio, press: PagesPress(ratio, press, by, size)


# --- by hand


def test_pages_are_kept_by_the_mean_of_their_scores_in_each_head() -> None:
    """Means of pages: 4.5, 5, 4 and 1 in the one head, 0, 2, 3 and 4 in the other."""
    assert kept(pages(), SCORES, 0.5) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert kept(pages(), SCORES, 0.75) == [[2, 3], [6, 7]]


def test_by_the_highest_score_one_important_token_saves_its_page() -> None:
    """Highest of each page: 9, 5, 4 and 1."""
    assert kept(pages("max"), SCORES, 0.75)[0] == [0, 1]


def test_the_last_page_stays_while_it_is_not_full_whatever_its_score() -> None:
    """Eight tokens are two pages of three and an open one of two; 2 + 3 of the 4 asked for are nearer than 2."""
    assert kept(pages(size=3), SCORES, 0.5) == [[0, 1, 2, 6, 7], [3, 4, 5, 6, 7]]
    assert kept(pages(size=3), SCORES, 0.875) == [[6, 7], [6, 7]]


def test_pages_of_equal_scores_are_kept_whole() -> None:
    assert kept(pages(), torch.zeros(1, 1, 8), 0.5) == [[0, 1, 2, 3]]


def test_a_context_within_an_open_page_is_kept_whole() -> None:
    assert kept(pages(size=16), SCORES, 0.875) == [list(range(8))] * 2


def test_all_heads_keep_the_tokens_of_the_highest_mean_or_the_highest_score_of_any_head() -> None:
    """Means over the heads: 4.5, 0, 3.5, 3.5, 3.5, 3.5, 0.5, 4.5."""
    assert kept(SharedPress, SCORES, 0.75) == [[0, 7]] * 2
    scores = torch.tensor([[[5.0, 4, 0, 0], [0, 4, 4.5, 0]]])
    assert kept(SharedPress, scores, 0.5) == [[0, 1]] * 2
    assert kept(lambda ratio, press: SharedPress(ratio, press, "max"), scores, 0.5) == [[0, 2]] * 2


def test_the_ends_are_kept_first_and_the_rest_goes_to_the_press() -> None:
    scores = torch.tensor([[[*map(float, range(20))]]])
    assert kept(EndsPress, scores, 0.7) == [[0, 1, 16, 17, 18, 19]]
    assert kept(EndsPress, -scores, 0.7) == [[0, 1, 2, 3, 18, 19]]
    assert kept(EndsPress, scores, 0.88) == [[18, 19]], "of ends that are more than the budget the press chooses"


def test_shared_pages_are_the_pages_of_the_shared_scores() -> None:
    """What an engine can free that holds a page for all heads at once. Means of both heads and of pages: 2.25, 3.5,
    3.5 and 2.5."""
    shared_pages = lambda ratio, press: PagesPress(ratio, SharedPress(ratio, press), "mean", 2)  # noqa: E731
    assert kept(shared_pages, SCORES, 0.5) == [[2, 3, 4, 5]] * 2


def test_a_page_of_a_token_that_must_stay_stays() -> None:
    """StreamingLLM scores with 1 and 0, by which the page of four sinks is worth a quarter of a recent one."""
    press = PagesPress(0.75, StreamingLLMPress(0.75, n_sink=4))
    assert left_by(press, 2, 128) == [[*range(16), *range(112, 128)]] * 2
    ends = PagesPress(0.5, EndsPress(0.5, scorer(torch.ones(1, 1, 160))))
    assert {0, 159} <= set(left_by(ends, 1, 160)[0])


@pytest.mark.parametrize(
    ("length", "asked", "expected"),
    [(160, 80, 5), (160, 88, 5), (160, 89, 6), (160, 1, 1), (165, 80, 5), (165, 6, 0), (165, 165, 10), (9, 1, 0)],
)
def test_as_many_pages_are_kept_as_come_nearest(length: int, asked: int, expected: int) -> None:
    assert kept_pages(length, asked, 16) == expected


# --- properties

some_scores = st.tuples(st.integers(1, 3), st.integers(1, 90), st.integers(0, 2**16)).map(
    # Few different numbers, so that there are ties.
    lambda given: torch.randint(0, 5, (1, *given[:2]), generator=torch.Generator().manual_seed(given[2])).float()
)
ratios = st.floats(0.01, 0.99)


@given(some_scores, ratios, st.integers(1, 16), st.sampled_from(["mean", "max"]))
def test_what_is_kept_are_whole_pages_and_the_budget_is_kept_up_to_one(
    scores: torch.Tensor, ratio: float, size: int, by: str
) -> None:
    length = scores.shape[2]
    asked = compute_n_kept(length, ratio)
    left = kept(pages(by, size), scores, ratio)
    for tokens in left:
        assert tokens == [token for token in range(length) if token // size in {kept // size for kept in tokens}]
        assert len(tokens) == len(left[0])
        open_page = length % size
        assert abs(len(tokens) - max(asked, open_page)) <= (size / 2 if asked > size / 2 else size)
        assert set(range(length - open_page, length)) <= set(tokens)


@given(some_scores, ratios, st.sampled_from(["mean", "max"]))
def test_all_heads_keep_the_same_tokens_and_as_many_as_asked(scores: torch.Tensor, ratio: float, by: Any) -> None:
    left = kept(lambda ratio, press: SharedPress(ratio, press, by), scores, ratio)
    assert left == [left[0]] * len(left)
    assert len(left[0]) == compute_n_kept(scores.shape[2], ratio)


@given(some_scores, ratios)
def test_ends_are_kept_as_far_as_the_budget_reaches(scores: torch.Tensor, ratio: float) -> None:
    length, asked = scores.shape[2], compute_n_kept(scores.shape[2], ratio)
    end = max(1, length // 10)
    ends = {*range(end), *range(length - end, length)}
    for tokens in kept(EndsPress, scores, ratio):
        assert len(tokens) == asked
        assert len(ends & set(tokens)) == min(asked, len(ends))


# --- through the engine

BASES = ("snapkv", "knorm", "h2o", "streaming_llm", "random", "tova", "compactor", "oracle")


@pytest.mark.parametrize("base", BASES)
def test_any_policy_of_scores_is_deployed(llama: LoadedModel, base: str) -> None:
    prompt = toy_prompt()
    length = len(prompt.token_ids)
    names = [f"{base}+{way}" for way in ("pages16", "shared", "ends", "shared+pages16(by=max)", "ends+shared")]
    trace = treat(llama, [find_policy(name) for name in names], [0.5], prompt)
    for branch in trace.branches:
        assert branch.error is None
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


def test_deployed_policies_are_quantised_and_protected_too(llama: LoadedModel) -> None:
    policy = find_policy("snapkv+pages16+int4")
    assert policy.step_treatment is not None
    (branch,) = treat(llama, [policy], [0.5], toy_prompt()).branches
    (plain,) = treat(llama, [POLICIES["snapkv+pages16"]], [0.5], toy_prompt()).branches
    assert torch.equal(keep_of(branch), keep_of(plain))
    protected = find_policy("knorm+shared+whitelist")
    (branch,) = treat(llama, [protected], [0.5], toy_prompt(task="instructions")).branches
    assert (keep_of(branch) == keep_of(branch)[:, :1]).all()


@pytest.mark.parametrize("name", ["snapkv+pages16", "knorm+shared(by=max)", "knorm+ends+shared+pages16(by=max)"])
def test_a_name_is_found_with_and_without_building_a_press(name: str) -> None:
    assert find_policy(name).name == name
    known = built_in(name)
    assert known is not None
    assert known.name == name
    assert known.around is not None
    assert known.around.name == name.partition("+")[0]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("adakv_snapkv+pages16", "adakv_snapkv keeps tokens otherwise than by their scores"),
        ("kvzip+shared", "kvzip keeps tokens otherwise than by their scores"),
        ("decoding_knorm+pages16", "decoding_knorm keeps tokens otherwise than by their scores"),
        ("knorm+pages16+shared", r"pages come last, as in knorm\+shared\+pages16"),
        ("knorm+int4+pages16", r"evict first, as in knorm\+pages16\+int4"),
        ("knorm+pages16(by=median)", "by=median"),
        ("knorm+ends(by=max)", "ends has no option by"),
        ("full+shared", "full keeps tokens otherwise than by their scores"),
        ("knorm+page16", "did you mean 'pages16'"),
    ],
)
def test_what_cannot_be_deployed_is_refused_in_one_line(name: str, said: str) -> None:
    with pytest.raises(KVBenchError, match=said) as caught:
        find_policy(name)
    assert "\n" not in str(caught.value)


def test_a_press_that_does_not_score_is_no_press_to_rescore() -> None:
    with pytest.raises(PolicyError, match="SharedPress goes around a ScorerPress, not a PressWithoutScores"):
        SharedPress(0.5, type("PressWithoutScores", (), {})())
    with pytest.raises(NotImplementedError):
        RescoringPress(0.5, KnormPress(0.5)).change_scores(SCORES)


def test_a_policy_says_that_it_may_keep_what_fewer_of_its_ways_keep() -> None:
    assert POLICIES["snapkv+shared+pages16"].same_as == ("snapkv", "snapkv+shared", "snapkv+pages16")
    assert find_policy("tova+shared").same_as == simpler("tova+shared") == ("tova",)
    assert find_policy("tova+shared+int4").same_as == simpler("tova+shared+int4") == ("tova+int4",)
    assert find_policy("tova+int4").same_as == ()
    assert simpler("tova") == simpler("tova+int4") == simpler("file.py:Press") == ()


def test_every_draw_of_the_control_of_ends_is_another() -> None:
    policy = POLICIES["random+ends"]
    assert policy.random
    assert policy.by_default
    presses = [policy.press(Situation(0.5, 160, seed, "example")) for seed in (0, 1)]
    module, keys = SimpleNamespace(head_dim=4, layer_idx=0), torch.arange(160.0).expand(1, 2, 160)[..., None]
    left = [
        press.compress(module, keys, keys.expand(-1, -1, -1, 4), keys.expand(-1, -1, -1, 4), None, {})[0]
        for press in presses
    ]
    assert not torch.equal(*left)
