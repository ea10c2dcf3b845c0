"""Memory that ends: waves are planned within a bound and halved where it was too much; what fits
not at all fails."""

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, log2
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import kvbench.system.memory as memory
from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.columns import Row
from kvbench.engine.decode.waves import Wave, all_rows, count_too_large, in_waves, wave_bytes, waves
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.plan import plan
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt
from kvbench.system.memory import free_bytes, kv_share
from policies import POLICIES, at_ratios
from tests.support.models.toy import PLENTY, STEPS, Answers, answers, by_question, treat

CPU = torch.device("cpu")
CHOSEN = [POLICIES[name] for name in ("full", "knorm", "snapkv", "adakv_snapkv", "think", "oracle")]
RATIOS = (0.2, 0.5, 0.8)


@pytest.fixture(scope="module")
def memory_trace(llama: LoadedModel, prompt: Prompt) -> Trace:
    return treat(llama, CHOSEN, RATIOS, prompt)


@pytest.fixture(scope="module")
def undisturbed(llama: LoadedModel, memory_trace: Trace) -> Answers:
    return answers(llama, memory_trace)


@pytest.fixture
def room_for_rows(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Has memory end in every wave of more than so many rows, in the middle of its decoding; gives
    the rows tried."""
    tried: list[int] = []

    def limit(most: int, policy: str = "") -> list[int]:
        def begin_step(self: Wave) -> None:
            if sum(bundle.rows for bundle in self.bundles) > most:
                raise torch.OutOfMemoryError("CUDA out of memory")
            original(self)

        def init(self: Wave, bundles: Sequence[Sequence[Row[Branch]]], gold: bool) -> None:
            branches = [row.of for bundle in bundles for row in bundle]
            tried.append(len(branches))
            if policy and any(branch.treatment.policy.name == policy for branch in branches):
                raise torch.OutOfMemoryError("CUDA out of memory")
            create(self, bundles, gold)

        original, create = Wave.begin_step, Wave.__init__
        monkeypatch.setattr(Wave, "begin_step", begin_step)
        monkeypatch.setattr(Wave, "__init__", init)
        return tried

    return limit


def treated_cells(branches: Sequence[Branch]) -> set[tuple[str, float, int]]:
    return {
        (b.treatment.policy.name, b.treatment.ratio, number)
        for b in branches
        for number in b.treatment.questions
    }


def test_a_wave_that_finds_no_memory_is_halved_and_every_answer_is_the_same(
    llama: LoadedModel,
    prompt: Prompt,
    undisturbed: Answers,
    room_for_rows: Callable[..., list[int]],
) -> None:
    trace = treat(llama, CHOSEN, RATIOS, prompt)
    tried = room_for_rows(3)
    generations = decode(llama, trace, STEPS, PLENTY)
    assert by_question(generations) == undisturbed
    assert all(branch.error is None for branch in trace.branches)
    assert max(tried) > 3
    assert {generation.halvings > 0 for generation in generations} >= {True}
    failed = [rows for rows in tried if rows > 3]
    assert len(failed) == max(generation.halvings for generation in generations)
    halvings = ceil(log2(max(tried) / 3))
    assert len(failed) <= halvings, (
        "what is left after a failure is halved too, and does not fail again one by one"
    )


def test_a_branch_that_finds_no_memory_alone_fails_and_no_other_notices(
    llama: LoadedModel,
    prompt: Prompt,
    undisturbed: Answers,
    room_for_rows: Callable[..., list[int]],
) -> None:
    trace = treat(llama, CHOSEN, RATIOS, prompt)
    room_for_rows(10**6, policy="knorm")
    found = by_question(decode(llama, trace, STEPS, PLENTY))
    assert found == {cell: ids for cell, ids in undisturbed.items() if cell[0] != "knorm"}
    for branch in trace.branches:
        if branch.treatment.policy.name == "knorm":
            assert str(branch.error).startswith("knorm failed while decoding: out of memory with ")
        else:
            assert branch.error is None


def test_a_branch_larger_than_the_bound_fails_with_what_it_needs_and_the_others_answer(
    llama: LoadedModel, prompt: Prompt, undisturbed: Answers
) -> None:
    trace = treat(llama, CHOSEN, RATIOS, prompt)
    sizes = {id(row.of): row.size for row in all_rows(waves([trace], STEPS, PLENTY))}
    bound = sorted(sizes.values())[len(sizes) // 2]
    found = by_question(decode(llama, trace, STEPS, bound))
    failed = treated_cells([branch for branch in trace.branches if branch.error is not None])
    assert failed == treated_cells(
        [branch for branch in trace.branches if sizes[id(branch)] > bound]
    )
    assert failed
    assert found
    assert found == {cell: ids for cell, ids in undisturbed.items() if cell not in failed}
    reasons = {str(branch.error) for branch in trace.branches if branch.error}
    assert all(
        "its keys and values need 0.00" in reason and "--max-kv-gb" in reason for reason in reasons
    )


@given(
    st.lists(st.tuples(st.integers(1, 3), st.booleans(), st.integers(1, 500)), max_size=40),
    st.integers(1, 20_000),
)
def test_waves_hold_every_row_once_and_no_more_than_the_bound(
    rows: list[tuple[int, bool, int]], bound: int
) -> None:
    made: list[Row[Any]] = [
        Row(number, (0,) * count, even, 40 * n) for number, (count, even, n) in enumerate(rows)
    ]
    planned = in_waves(made, bound, CPU)
    assert sorted(row.of for row in all_rows(planned)) == list(range(len(rows)))
    for wave in planned:
        padded = [max(row.size for row in bundle) * len(bundle) for bundle in wave]
        assert wave_bytes(wave) == sum(padded)
        assert len(all_rows([wave])) == 1 or sum(padded) <= bound
    for before, after in pairwise(planned):
        assert wave_bytes(before) + after[0][0].size > bound, "what comes next would have had room"


def test_a_row_takes_what_its_tensors_take(
    llama: LoadedModel, memory_trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was planned bounds what is allocated, and is not far above it."""
    allocated: list[tuple[int, int]] = []
    create = Wave.__init__

    def init(self: Wave, *arguments: Any) -> None:
        create(self, *arguments)
        held = [part for bundle in self.bundles for part in (*bundle.keys, *bundle.values)]
        allocated.append(
            (sum(bundle.rows for bundle in self.bundles), sum(part.nbytes for part in held))
        )

    monkeypatch.setattr(Wave, "__init__", init)
    decode(llama, memory_trace, STEPS, PLENTY)
    planned = waves([memory_trace], STEPS, PLENTY)
    assert [len(all_rows([wave])) for wave in planned] == [rows for rows, _ in allocated]
    for wave, (_, held) in zip(planned, allocated, strict=True):
        assert 0.7 * wave_bytes(wave) <= held <= wave_bytes(wave)


def test_a_forecast_is_what_comes_and_no_less_where_a_policy_spreads_its_budget(
    llama: LoadedModel, prompt: Prompt
) -> None:
    exact = [POLICIES[name] for name in ("full", "knorm", "snapkv", "oracle", "merging_snapkv")]
    spread = [*CHOSEN, POLICIES["kvzip"], POLICIES["decoding_knorm"]]
    for policies, is_exact in ((exact, True), (spread, False)):
        scorings = plan(policies, at_ratios(RATIOS), prompt, 0)
        sizes = [
            row.size
            for row in all_rows(waves([treat(llama, policies, RATIOS, prompt)], STEPS, PLENTY))
        ]
        for bound in sizes:
            expected = count_too_large(llama, prompt, scorings, STEPS, bound)
            found = sum(size > bound for size in sizes)
            assert expected == found if is_exact else expected >= found


def test_free_memory_is_that_of_the_container_where_it_is_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable: 1000000 kB\n")
    monkeypatch.setattr(memory, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    assert free_bytes(CPU) == 1_024_000_000
    (tmp_path / "memory.current").write_text("600\n")
    (tmp_path / "memory.stat").write_text("anon 600\ninactive_file 0\n")
    for most, free in (
        ("max", 1_024_000_000),
        ("1000", 400),
        ("500", 0),
        ("99000000000", 1_024_000_000),
    ):
        (tmp_path / "memory.max").write_text(f"{most}\n")
        assert free_bytes(CPU) == free
    (tmp_path / "memory.max").write_text("4000600\n")
    assert kv_share(CPU) == 1_000_000
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 500\n")
    assert free_bytes(CPU) == 900, "files that were read are let go when memory is asked for"
