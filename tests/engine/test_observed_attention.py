"""What is observed of attention and hidden states, against the eager attention of a plain loop over
a plain cache."""

from typing import Any

import numpy as np
import pytest
import torch

from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.waves import all_rows, waves
from kvbench.engine.studies.observer import (
    ANSWER,
    QUESTION,
    AnswerObserver,
    TurnObserver,
    TurnReading,
    context_edges,
)
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.models.load import LoadedModel, attention, find_decoder
from kvbench.prompts.prompt import Prompt
from leaderboards.routing.reach import EPSILON, Edges, joined, widest
from policies import POLICIES, UNKNOWN
from tests.support.models.plain import PlainRows, masked, plain_rows
from tests.support.models.toy import (
    NETWORKS,
    PLENTY,
    STEPS,
    answers,
    by_question,
    model_of,
    toy_prompt,
    treat,
)

# Whole, evicted alike, evicted by head, by span.
KEEPING = ("full", "knorm", "adakv_snapkv", "oracle")
CLOSE: dict[str, Any] = {"rtol": 2e-3, "atol": 2e-5}


def spans_of(prompt: Prompt) -> list[dict[str, tuple[int, ...]]]:
    return [
        {"answer": asked.answer_tokens, "evidence": asked.evidence_tokens}
        for asked in prompt.questions
    ]


def observe(model: LoadedModel, trace: Trace, bound: int = PLENTY) -> tuple[TurnObserver, Any]:
    observer = TurnObserver(model, trace.prompt, spans_of(trace.prompt))
    return observer, decode(model, trace, STEPS, bound, observers=[observer], gold=True)


def eager(model: LoadedModel, rows: PlainRows, token_ids: Any, position: int) -> Any:
    """One plain pass with transformers' own attention: its weights and hidden states, by layer."""
    with torch.inference_mode(), masked(model, rows), attention(model.network, "eager"):
        return find_decoder(model.network)(
            input_ids=torch.tensor([list(token_ids)]),
            position_ids=torch.arange(position, position + len(token_ids))[None],
            past_key_values=rows.cache,
            output_attentions=True,
            output_hidden_states=True,
        )


def by_token(
    weights: torch.Tensor, tokens: torch.Tensor, length: int, turn: int
) -> np.ndarray[Any, Any]:
    """Puts attention to rows, (heads, queries, rows), at the numbers of their tokens, one by
    one."""
    heads, queries, rows = weights.shape
    groups = heads // len(tokens)
    placed = np.zeros((heads, queries, length + turn))
    for head in range(heads):
        for row in range(rows):
            token = (
                int(tokens[head // groups, row])
                if row < rows - turn
                else length + row - (rows - turn)
            )
            if token >= 0:
                placed[head, :, token] = weights[head, :, row]
    return placed


def check(
    reading: TurnReading, plain: Any, rows: PlainRows, prompt: Prompt, number: int, turn: int
) -> None:
    length = len(prompt.token_ids)
    for layer, seen in enumerate(reading.layers):
        expected = by_token(plain.attentions[layer][0], rows.tokens(layer), length, turn)
        np.testing.assert_allclose(
            expected[range(len(seen.top)), -1, seen.top], expected[:, -1].max(-1), **CLOSE
        )
        np.testing.assert_allclose(seen.top_weight, expected[:, -1].max(-1), **CLOSE)
        for place, span in enumerate(spans_of(prompt)[number].values()):
            np.testing.assert_allclose(
                seen.shares[:, place], expected[:, -1, list(span)].sum(-1), **CLOSE
            )
        same_edges(seen.edges, expected, length + turn - expected.shape[1])
        order = np.argsort(-expected[:, -1, :length].mean(0), kind="stable")[: len(seen.most)]
        np.testing.assert_allclose(seen.most_share, expected[:, -1, order].mean(0), **CLOSE)
        np.testing.assert_allclose(seen.most_share, expected[:, -1, seen.most].mean(0), **CLOSE)
        of_answer = torch.isin(
            rows.tokens(layer)[:, :-turn], torch.tensor(prompt.questions[number].answer_tokens)
        )
        means = [
            values[:-turn][own].mean(0) if bool(own.any()) else torch.zeros(values.shape[1])
            for values, own in zip(rows.values(layer), of_answer, strict=True)
        ]
        np.testing.assert_allclose(reading.values[layer], torch.cat(means), **CLOSE)
    for state, expected_state in zip(reading.states, plain.hidden_states, strict=True):
        np.testing.assert_allclose(state, expected_state[0, -1], rtol=2e-3, atol=1e-3)


def same_edges(edges: Edges, attention: np.ndarray[Any, Any], first_query: int) -> None:
    """Compares edges with matrices of shape (heads, queries, tokens); rounding decides on the
    threshold itself."""
    strongest = attention.max(0)
    matrix = np.zeros(strongest.shape)
    matrix[edges.queries - first_query, edges.keys] = edges.strongest
    clear = np.abs(strongest - EPSILON) > 1e-5
    np.testing.assert_allclose(
        matrix[clear], np.where(strongest >= EPSILON, strongest, 0)[clear], **CLOSE
    )


@pytest.mark.parametrize("architecture", NETWORKS)
def test_it_is_the_eager_attention_of_a_plain_loop(architecture: str) -> None:
    model, prompt = model_of(architecture), toy_prompt(questions=3)
    trace = treat(model, [POLICIES[name] for name in KEEPING], (0.5,), prompt)
    observer, generations = observe(model, trace)
    looked = set()
    for generation in generations:
        branch, number = generation.branch, generation.question
        question, rows = prompt.questions[number].token_ids, plain_rows(trace, branch)
        plain = eager(model, rows, question, branch.next_position)
        check(
            observer.readings[id(branch), number, QUESTION],
            plain,
            rows,
            prompt,
            number,
            len(question),
        )
        looked.add((branch.treatment.policy.name, QUESTION))
        if len(generation.token_ids) > 1:
            plain = eager(
                model, rows, generation.token_ids[:1], branch.next_position + len(question)
            )
            check(
                observer.readings[id(branch), number, ANSWER],
                plain,
                rows,
                prompt,
                number,
                len(question) + 1,
            )
            looked.add((branch.treatment.policy.name, ANSWER))
    assert {name for name, step in looked if step == QUESTION} == {*KEEPING}
    # A toy model may end an answer at once.
    assert len([name for name, step in looked if step == ANSWER]) >= 2


def edges_of(attention: np.ndarray[Any, Any], first_query: int) -> Edges:
    """``attention``: shape (heads, queries, tokens)."""
    return Edges.of(attention.max(0).astype(np.float32), first_query=first_query)


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_routes_are_those_through_the_eager_attention_of_a_plain_loop(architecture: str) -> None:
    model, prompt = model_of(architecture), toy_prompt(questions=3)
    trace = treat(model, [POLICIES[name] for name in KEEPING], (0.5, 0.9), prompt)
    observer = AnswerObserver(model, prompt)
    generations = decode(model, trace, STEPS, PLENTY, observers=[observer], gold=True)
    length = len(prompt.token_ids)
    with torch.inference_mode(), attention(model.network, "eager"):
        context = find_decoder(model.network)(
            input_ids=torch.tensor([prompt.token_ids]), output_attentions=True, use_cache=False
        )
    assert {*observer.routes} == {(id(one.branch), one.question) for one in generations}
    for generation in generations:
        branch, number = generation.branch, generation.question
        question, rows = prompt.questions[number].token_ids, plain_rows(trace, branch)
        turn, position = len(question), branch.next_position
        layers = [[edges_of(of_layer[0].numpy(), 0)] for of_layer in context.attentions]
        sinks, passed = [length + turn - 1], [(question, position, turn)]
        if len(generation.token_ids) > 1:
            sinks.append(length + turn)
            passed.append((generation.token_ids[:1], position + turn, turn + 1))
        for token_ids, at, behind in passed:
            weights = eager(model, rows, token_ids, at).attentions
            for layer, parts in enumerate(layers):
                dense = by_token(weights[layer][0], rows.tokens(layer), length, behind)
                parts.append(edges_of(dense, length + behind - len(token_ids)))
        width = widest([joined(parts) for parts in layers], length + turn + 1, sinks)
        routes = observer.routes[id(branch), number]
        np.testing.assert_allclose(routes, width[0, :length], rtol=2e-3, atol=1e-4)
    assert all(
        not layer.edges.keys.size
        for reading in observer.readings.values()
        for layer in reading.layers
    )


def test_observing_changes_no_answer_however_waves_are_cut(
    llama: LoadedModel, prompt: Prompt
) -> None:
    policies = [POLICIES[name] for name in ("full", "knorm", "adakv_snapkv")]
    trace = treat(llama, policies, (0.5, 0.9), prompt)
    implementation = llama.network.config._attn_implementation
    unobserved = answers(llama, trace)
    observer, generations = observe(llama, trace)
    in_parts, of_parts = observe(
        llama, trace, bound=max(row.size for row in all_rows(waves([trace], STEPS, 1)))
    )
    assert by_question(generations) == by_question(of_parts) == unobserved
    assert observer.readings.keys() == in_parts.readings.keys()
    for key, reading in observer.readings.items():
        np.testing.assert_allclose(
            reading.states, in_parts.readings[key].states, rtol=2e-3, atol=1e-3
        )
    assert llama.network.config._attn_implementation == implementation


def test_rows_that_are_merged_have_no_token(llama: LoadedModel, prompt: Prompt) -> None:
    def merged(branch: Branch) -> bool:
        return all(layer.keep is None for layer in branch.layers)

    trace = treat(llama, [POLICIES["merging_snapkv"]], (0.5,), prompt)
    assert all(map(merged, trace.branches))
    observer, generations = observe(llama, trace)
    length = len(prompt.token_ids)
    for generation in generations:
        reading = observer.readings[id(generation.branch), generation.question, QUESTION]
        for layer in reading.layers:
            assert set(layer.edges.keys.tolist()) <= set(range(length, 10**6))
            assert all(top == UNKNOWN or top >= length for top in layer.top)
            assert not layer.shares.any()


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("at_once", [10**9, 5000])
def test_the_attention_of_a_context_is_the_eager_one(
    architecture: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvbench.engine.studies.observer.WEIGHTS_AT_ONCE", at_once)
    model, prompt = model_of(architecture), toy_prompt()
    found = context_edges(model, prompt)
    with torch.inference_mode(), attention(model.network, "eager"):
        plain = find_decoder(model.network)(
            input_ids=torch.tensor([prompt.token_ids]), output_attentions=True, use_cache=False
        )
    for edges, expected in zip(found, plain.attentions, strict=True):
        same_edges(edges, expected[0].numpy(), 0)
