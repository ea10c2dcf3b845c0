"""Fair eviction in the paper's form, against a slow one that reads the whole attention matrix, and
through kvpress."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch

from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt
from policies import POLICIES, Policy, PolicyError
from policies.composition import compose
from policies.presses.fair_as_paper import PaperFairPress, budget_ranges
from tests.support.models.toy import (
    KEY_HEADS,
    STEPS,
    answers,
    keep_of,
    kvpress_answers_branch,
    model_of,
    toy_prompt,
    treat,
)

WAY = "fair(as=paper)"
RATIOS = (0.3, 0.65, 0.9)
# Ten tokens in two ranges of four and six; the first head likes late tokens, the second early ones.
TOKENS = torch.tensor([[[0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]]])


def taken_by() -> list[str]:
    """The names of all registered policies that the way goes around."""
    names = []
    for policy in POLICIES.values():
        try:
            compose(policy, WAY)
        except PolicyError:
            continue
        if not policy.needs.weights and not policy.needs.question:
            names.append(policy.name)
    return names


@cache
def prompt_in_order(defence_first: bool) -> Prompt:
    """A system prompt of a defence and directives, in one order, with facts behind them."""
    prompts = (toy_prompt(task="instructions", index=index, questions=2) for index in range(60))
    kinds = ("defence", "directive") if defence_first else ("directive", "defence")
    return next(
        prompt for prompt in prompts if tuple(stretch.kind for stretch in prompt.stretches) == kinds
    )


# --- ranges and quotas, by hand


def test_two_ranges_reach_to_the_ends_of_the_context_and_a_gap_belongs_to_the_first() -> None:
    assert budget_ranges([(3, 5), (5, 8)], 10) == [(0, 5), (5, 10)]
    assert budget_ranges([(3, 5), (6, 8)], 10) == [(0, 6), (6, 10)]
    assert budget_ranges([(3, 5)], 10) == [(0, 10)], "of a single span"
    assert budget_ranges([], 10) == [(0, 10)]
    assert budget_ranges([(1, 2), (4, 5), (7, 8)], 10) == [(0, 4), (4, 7), (7, 10)]


@pytest.mark.parametrize(
    ("kept", "spans", "counts"),
    [
        (5, [(0, 4), (4, 6)], [2, 3]),  # exactly 2 and 3
        (
            7,
            [(0, 4), (4, 6)],
            [2, 5],
        ),  # of 2.8 and 4.2 the first is rounded down, where ours keeps 3 and 4
        (1, [(0, 4), (4, 6)], [0, 1]),
        (9, [(0, 3), (3, 6), (6, 9), (9, 10)], [2, 3, 3, 1]),  # no more than a range has
    ],
)
def test_the_first_range_has_its_share_rounded_down_and_the_last_the_rest(
    kept: int, spans: Sequence[tuple[int, int]], counts: list[int]
) -> None:
    press = PaperFairPress(0.5, spans=spans)
    assert press.counts(TOKENS, press.parts(10), kept)[0].tolist() == [counts] * 2
    places = press.positions(lambda start, end: TOKENS[..., start:end], kept, 10)
    first, second = places[0].tolist()
    ranges = budget_ranges(spans, 10)
    late: list[int] = []
    early: list[int] = []
    for (start, end), count in zip(ranges, counts, strict=True):
        late += range(end - count, end)
        early += range(start, start + count)
    assert (first, second) == (late, early)


# --- all tokens, against the slow form


def slow_scores(
    base: str, attention: Any, keys: Any, spans: Sequence[tuple[int, int]], window: int
) -> list[list[float]]:
    """Scores each token in each key head, one after the other. ``attention``: (heads, queries,
    keys) of a layer."""
    heads, length, _ = attention.shape
    group = heads // KEY_HEADS
    (first_start, _), (cut, end) = spans
    scores = [[0.0] * length for _ in range(KEY_HEADS)]
    for head in range(KEY_HEADS):
        of_group = range(head * group, (head + 1) * group)
        if base == "knorm":
            scores[head] = [-float(keys[head, token].norm()) for token in range(length)]
        if base == "h2o":
            for token in range(length):
                in_first = first_start <= token < cut
                queries = [
                    query for query in range(length) if not (in_first and cut <= query < end)
                ]
                total = sum(
                    float(attention[one, query, token]) for one in of_group for query in queries
                )
                scores[head][token] = total / group / ((cut if in_first else length) - token)
        if base in ("snapkv", "tova"):
            voters = range(heads) if base == "tova" else of_group
            shares = (1, 1) if base == "tova" else (window // 2, window - window // 2)
            for (start, stop), share in zip(((0, cut), (cut, length)), shares, strict=True):
                before = stop - share
                votes = []
                for one in voters:
                    means = [
                        float(attention[one, before:stop, token].mean())
                        for token in range(start, before)
                    ]
                    pooled = [0.0, 0.0, *means, 0.0, 0.0]
                    smooth = [sum(pooled[place : place + 5]) / 5 for place in range(len(means))]
                    votes.append(means if base == "tova" else smooth)
                for place, token in enumerate(range(start, before)):
                    scores[head][token] = sum(vote[place] for vote in votes) / len(votes)
                for token in range(before, stop):
                    scores[head][token] = max(scores[head][start:before])
    return scores


def slow_kept(scores: Sequence[float], ranges: Sequence[tuple[int, int]], kept: int) -> set[int]:
    (_, cut), (_, length) = ranges
    of_first = kept * cut // length
    tokens: set[int] = set()
    for (start, end), count in zip(ranges, (of_first, kept - of_first), strict=True):
        ordered = sorted(range(start, end), key=lambda token: (-scores[token], token))
        tokens.update(ordered[:count])
    return tokens


def attention_and_keys(
    model: LoadedModel, prompt: Prompt
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What each layer attends to, (heads, queries, keys), and its keys, by transformers' own slow
    attention."""
    network = model.network
    before = network.config._attn_implementation
    network.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            output = network(
                torch.tensor([list(prompt.token_ids)]), output_attentions=True, use_cache=True
            )
    finally:
        network.set_attn_implementation(before)
    layers = output.past_key_values.layers
    return [
        (weights[0], layer.keys[0])
        for weights, layer in zip(output.attentions, layers, strict=True)
    ]


@pytest.mark.parametrize("defence_first", [True, False], ids=["defence-first", "directives-first"])
@pytest.mark.parametrize("base", ["snapkv", "tova", "h2o", "knorm"])
def test_the_same_tokens_are_kept_as_by_the_slow_form(
    llama: LoadedModel, base: str, defence_first: bool
) -> None:
    check_same_tokens(llama, base, defence_first)


@pytest.mark.parametrize("architecture", ["mistral", "phi3", "qwen2", "qwen3", "gemma3"])
def test_so_it_is_on_every_architecture(architecture: str) -> None:
    for base in ("snapkv", "h2o"):
        check_same_tokens(model_of(architecture), base, defence_first=True)


def check_same_tokens(model: LoadedModel, base: str, defence_first: bool) -> None:
    prompt = prompt_in_order(defence_first)
    length = len(prompt.token_ids)
    trace = treat(model, [find_policy(f"{base}+{WAY}")], RATIOS, prompt)
    (first_start, _), (cut, end) = prompt.protected
    window = getattr(trace.branches[0].press.press.press, "window_size", 1)  # type: ignore[union-attr]
    assert base != "snapkv" or 2 <= window < cut, "both halves look back"
    for number, (attention, keys) in enumerate(attention_and_keys(model, prompt)):
        scores = slow_scores(base, attention, keys, ((first_start, cut), (cut, end)), window)
        for branch in trace.branches:
            kept = int(length * (1 - branch.treatment.ratio))
            for head in range(KEY_HEADS):
                tokens = set(keep_of(branch)[number, head].nonzero()[:, 0].tolist())
                assert tokens == slow_kept(scores[head], ((0, cut), (cut, length)), kept), (
                    number,
                    head,
                )


@pytest.mark.parametrize("defence_first", [True, False], ids=["defence-first", "directives-first"])
def test_streaming_llm_keeps_sinks_and_the_highest_of_two_ramps(
    llama: LoadedModel, defence_first: bool
) -> None:
    """Its sinks stand at the beginning of the context alone, and the last tokens of either range
    are kept."""
    prompt = prompt_in_order(defence_first)
    length, cut = len(prompt.token_ids), prompt.protected[1][0]
    for branch in treat(llama, [find_policy(f"streaming_llm+{WAY}")], RATIOS, prompt).branches:
        scores = dict.fromkeys(range(4), 1.0)
        for start, end in ((4, cut), (cut, length)):
            for place, token in enumerate(range(start, end)):
                scores[token] = 0.1 + 0.8 * place / (end - start - 1)
        kept = int(length * (1 - branch.treatment.ratio))
        lowest = sorted(scores.values(), reverse=True)[kept - 1]
        tokens = set(keep_of(branch)[0, 0].nonzero()[:, 0].tolist())
        assert len(tokens) == kept
        assert {token for token, score in scores.items() if score > lowest + 1e-6} <= tokens
        assert all(scores[token] > lowest - 1e-6 for token in tokens), (
            "two may be as high as one another"
        )
        assert (keep_of(branch) == keep_of(branch)[:1, :1]).all()


# --- every press that it goes around


def test_the_presses_of_the_paper_and_others_take_it() -> None:
    names = taken_by()
    assert {
        "streaming_llm",
        "snapkv",
        "tova",
        "h2o",
        "knorm",
        "keydiff",
        "expected_attention",
    } <= set(names)
    assert "kvzip" not in names


@pytest.mark.parametrize("base", taken_by())
def test_it_keeps_what_kvpress_keeps_with_the_same_press(llama: LoadedModel, base: str) -> None:
    """The engine scores once for all ratios; kvpress runs the press for each by itself."""
    policy: Policy = find_policy(f"{base}+{WAY}")
    prompt = prompt_in_order(True)
    trace = treat(llama, [policy], RATIOS, prompt)
    here = answers(llama, trace)
    length = len(prompt.token_ids)
    for branch in trace.branches:
        keep = keep_of(branch)
        kept, cut = int(length * (1 - branch.treatment.ratio)), prompt.protected[1][0]
        assert (keep.sum(-1) == kept).all()
        in_first = keep[..., :cut].sum(-1)
        if base == "streaming_llm":
            assert (in_first - kept * cut // length).abs().max() <= 4, "sinks come first"
        else:
            assert (in_first == kept * cut // length).all()
        theirs = kvpress_answers_branch(llama, prompt, branch, STEPS)
        for number, tokens in zip(branch.treatment.questions, theirs, strict=True):
            assert list(here[policy.name, branch.treatment.ratio, number]) == tokens


@pytest.mark.parametrize("base", ["streaming_llm", "snapkv", "tova", "h2o", "knorm"])
def test_around_a_single_span_it_keeps_what_the_press_keeps(base: str) -> None:
    """And says so: a run does not fail over two names of one method."""
    prompts = (toy_prompt(task="instructions", index=index, questions=1) for index in range(60))
    prompt = next(prompt for prompt in prompts if len(prompt.protected) == 1)
    plain, protected = POLICIES[base], find_policy(f"{base}+{WAY}")
    own, same = treat(model_of("llama"), [plain, protected], [0.5], prompt).branches
    assert torch.equal(keep_of(own), keep_of(same))
    assert {base, f"{base}+fair"} == set(protected.same_as)
    assert not POLICIES[f"{base}+fair"].same_as
