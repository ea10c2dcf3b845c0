"""A model whose sliding layers presses leave whole: what is counted of it, and what a run on it
takes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from datasets_gen import TASKS
from kvbench.checks.submission import examine
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.models.load import load_model, longest_sequence
from kvbench.models.pretrained import read_cache_shape
from kvbench.prompts.prompt import Prompt, build_prompts
from kvbench.store.store import Store
from kvbench.store.tables import Record
from policies import POLICIES, at_ratios
from tests.support.models.runs import CommandLine, by_policy, places
from tests.support.models.toy import (
    HEAD_SIZE,
    KEY_HEADS,
    WINDOW,
    ActingPress,
    model_of,
    pressing,
    toy_tokenizer,
)

TASK = TASKS["base"]
ROW = 2 * HEAD_SIZE * 2  # bytes of a key and its value: float32 computes, and 16 bits are kept


@pytest.fixture(scope="module")
def gemma_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gemma")
    model_of("gemma3_text").network.save_pretrained(folder)
    toy_tokenizer().save_pretrained(folder)
    return folder


def test_it_loads_from_a_folder_and_takes_sequences_longer_than_its_window(
    gemma_folder: Path,
) -> None:
    model = load_model(str(gemma_folder), "cpu", "float32")
    assert model.windows == (WINDOW, None)
    assert longest_sequence(model) == 4096
    shape = read_cache_shape(str(gemma_folder), "cpu", "float32")
    assert shape is not None
    assert (shape.windows, shape.slots) == ((WINDOW,), KEY_HEADS)


# --- what is counted


def keep_first_half(
    module: Any, hidden_states: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any
) -> Any:
    """Loses what the sliding layer still holds."""
    half = keys.shape[2] // 2
    return keys[:, :, :half], values[:, :, :half]


@pytest.fixture(scope="module")
def sliding_prompt() -> Prompt:
    return build_prompts(toy_tokenizer(), TASK, TASK.example(0, 1), "agnostic")[0]


@pytest.fixture(scope="module")
def sliding_records() -> dict[str, list[Record]]:
    chosen = [
        *(POLICIES[name] for name in ("full", "recency", "adakv_snapkv", "decoding_streaming_llm")),
        pressing("first half", lambda _: ActingPress(keep_first_half)),
        find_policy("int4"),
    ]
    grid = Grid([(TASK, 2)], chosen, at_ratios((0.5,)))
    return by_policy(collect(model_of("gemma3_text"), TASK, [TASK.example(0, 1)], grid))


@pytest.mark.parametrize("policy", ["full", "recency", "adakv_snapkv", "first half"])
def test_ratio_and_tokens_are_those_of_the_layers_that_a_press_compresses_and_bytes_those_of_all(
    sliding_records: dict[str, list[Record]], sliding_prompt: Prompt, policy: str
) -> None:
    tokens = len(sliding_prompt.token_ids)
    kept = tokens if policy == "full" else tokens // 2
    # A head-wise press masks and frees nothing.
    held = tokens if policy in ("full", "adakv_snapkv") else kept
    for record in sliding_records[policy]:
        assert record.status == "ok"
        assert record.kept_tokens == pytest.approx(kept, abs=0.5)
        assert record.realised_ratio == pytest.approx(1 - record.kept_tokens / tokens)
        assert record.kv_bytes == ROW * KEY_HEADS * (held + WINDOW - 1)


def test_a_token_that_only_a_window_holds_counts_as_gone(
    sliding_records: dict[str, list[Record]], sliding_prompt: Prompt
) -> None:
    half, shares = len(sliding_prompt.token_ids) // 2, set()
    for policy, kept in (
        ("first half", range(half)),
        ("recency", range(len(sliding_prompt.token_ids) - half, 10**6)),
    ):
        for record, question in zip(sliding_records[policy], sliding_prompt.questions, strict=True):
            lost = [token not in kept for token in question.answer_tokens]
            expected = sum(lost) / len(lost) if lost else None
            assert record.ger == expected
            # Of the one that is compressed.
            assert record.ger_by_layer == (None if expected is None else [expected])
            shares.add(expected)
    assert {0.0, 1.0} <= shares
    inside = range(len(sliding_prompt.token_ids) - WINDOW + 1, len(sliding_prompt.token_ids))
    assert any(
        set(question.answer_tokens) & set(inside) for question in sliding_prompt.questions
    ), "one is in the window"


# --- a run


def sliding_command(folder: Path, cli: CommandLine, *more: object) -> list[object]:
    return [
        "run",
        *places(folder, cli.folder),
        "--tasks",
        "base",
        "--limit",
        1,
        "--ratios",
        0.5,
        "--context-tokens",
        "native",
        *more,
    ]


def test_a_default_run_leaves_out_what_cannot_run_and_a_named_one_is_refused(
    gemma_folder: Path, cli: CommandLine
) -> None:
    assert cli(*sliding_command(gemma_folder, cli, "--name", "x")) == 0
    records = Store.open(cli.folder / "runs" / "x").frame()
    default = {name for name, policy in POLICIES.items() if policy.by_default}
    assert set(records.policy) == default - {"expected_attention"}
    assert set(records.status) == {"ok"}
    assert cli(*sliding_command(gemma_folder, cli, "--name", "x")) == 0, "the same run goes on"
    assert [
        finding for finding in examine(cli.folder / "runs" / "x") if finding.outcome == "wrong"
    ] == []
    reason = "expected_attention: 1 of 2 layers of this model slide, and its press takes the rotation of keys to be the"
    for name in ("expected_attention", "expected_attention+int4"):
        assert reason in cli.error(
            *sliding_command(gemma_folder, cli, "--name", "y", "--policies", name)
        ).replace("+int4", "")
