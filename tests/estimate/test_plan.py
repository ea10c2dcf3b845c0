"""A plan is arithmetic on named constants: cases by hand, properties, and one line for what cannot
be meant."""

import json
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import kvbench.models.precision
from datasets_gen import TASKS
from kvbench.estimate.cost import RunCost
from kvbench.estimate.decoder import DecoderShape, read_shape
from kvbench.estimate.loads import Load, count_load
from kvbench.estimate.machines import MACHINES, Machine
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel, load_tokenizer
from kvbench.prompts.prompt import build_prompts
from kvbench.store.run_file import Job
from policies import POLICIES, at_ratios
from tests.support.models.runs import CommandLine, planned_cost
from tests.support.wording import assert_says

# One layer, two query heads of size 4 on one key head, 100 parameters, 2 bytes a number: 16 bytes
# of cache a token.
SHAPE = DecoderShape("by hand", 1, 2, 1, 4, 100, "bfloat16")
MACHINE = Machine("by hand", 500.0, 1e3, 1e9, "made up")


def load(*policies: str, tokens: int = 10, contexts: int = 1) -> Load:
    """A task with 2 questions of 3 tokens, answers of 5 tokens and right answers of 4, of which 3
    are passed; every policy but the full cache keeps a half."""
    branches = [(POLICIES[name], [1.0 if name == "full" else 0.5]) for name in policies]
    return Load("base", contexts, tokens, 2.0, 3.0, 5, 3.0, branches)


def plan(
    *policies: str, tokens: int = 10, contexts: int = 1, machine: Machine = MACHINE
) -> RunCost:
    return RunCost([load(*policies, tokens=tokens, contexts=contexts)], SHAPE, machine)


def seconds(cost: RunCost) -> dict[str, float]:
    """The time of each part, and of each policy alone."""
    sums = defaultdict[str, float](float)
    for name, policy, time in cost.parts:
        sums[name] += time
        sums[policy] += time
    return sums


def test_a_prefill_is_two_operations_a_parameter_and_token_and_the_pairs_of_tokens() -> None:
    assert (SHAPE.token_bytes, SHAPE.weight_bytes) == (2 * 1 * 1 * 4 * 2, 200)
    assert SHAPE.operations(10, 10**2 / 2) == 2 * 100 * 10 + 2 * 1 * 2 * 4 * 10**2
    assert seconds(plan("full"))["prefill"] == pytest.approx((2000 + 1600) / 500)


@pytest.mark.parametrize(("memory", "waves"), [(1000.0, 1), (690.0, 2)])
def test_answers_together_read_weights_and_cache_once_for_each_token(
    memory: float, waves: int
) -> None:
    """Two branches of 160 bytes: the shared start, one portion of questions, one of right answers
    and five tokens make eight passes. A wave has what is left of 0.9 of the memory beside weights,
    context and masks."""
    both = replace(load("full"), branches=[(POLICIES["full"], [1.0, 1.0])])
    reading = Machine("reading", 1e12, 1.0, memory, "made up")
    assert seconds(RunCost([both], SHAPE, reading))["answers"] == pytest.approx(
        8 * (waves * 200 + 320)
    )
    computing = replace(reading, flops=1.0, bandwidth=1e12)
    tokens = 2 * (3 + 5 + 3)
    assert seconds(RunCost([both], SHAPE, computing))["answers"] == pytest.approx(
        2 * (2 * 100 * tokens + 4 * 2 * 4 * 1 * tokens * 10)
    )


def test_a_shape_is_read_from_a_configuration_without_weights(
    llama: LoadedModel, toy_folder: Path
) -> None:
    shape = read_shape(str(toy_folder), "float32")
    assert (shape.layers, shape.heads, shape.key_heads, shape.head_size) == (2, 4, 2, 128)
    assert shape.parameters == llama.network.num_parameters()


def test_counts_come_from_the_tasks_and_the_model_themselves(
    toy_folder: Path, llama: LoadedModel
) -> None:
    grid = Grid([(TASKS["base"], 7)], [POLICIES["full"], POLICIES["knorm"]], at_ratios((0.5, 0.9)))
    counts = count_load(grid, TASKS["base"], 7, tokenizer=load_tokenizer("reference"))
    assert (counts.contexts, counts.answer_tokens) == (7, TASKS["base"].max_new_tokens)
    assert (
        counts.questions
        == sum(len(TASKS["base"].example(0, index).questions) for index in range(3)) / 3
    )
    assert counts.answers == 7 * counts.questions * (1 + 2)
    (counts,) = planned_cost(
        Job(model=str(toy_folder), tasks="base", limit=1, policies="knorm"), SHAPE, None
    ).loads
    (prompt,) = build_prompts(
        llama.tokenizer, TASKS["base"], TASKS["base"].example(0, 0), "agnostic"
    )
    assert counts.tokens == len(prompt.token_ids)
    loads = planned_cost(
        Job(tasks="long_context,base", limit=2, policies="knorm"), SHAPE, 32_768
    ).loads
    assert {load.task: load.tokens for load in loads} == {"long_context": 32_768, "base": 32_768}


def test_all_contexts_of_a_file_are_counted(tmp_path: Path) -> None:
    asked = [8, 1, 1, 1, 1]
    rows = [
        {
            "context": f"Number {place} lives in Rome.",
            "questions": [{"question": "Where?", "answers": "Rome"}] * count,
        }
        for place, count in enumerate(asked)
    ]
    file = tmp_path / "uneven.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    (counts,) = planned_cost(Job(tasks=str(file), limit=5, policies="knorm"), SHAPE, None).loads
    assert counts.contexts * counts.questions == sum(asked)


def test_the_command_prints_a_plan(cli: CommandLine) -> None:
    shape = [
        "--layers",
        "80",
        "--heads",
        "64",
        "--key-heads",
        "8",
        "--parameters",
        "70.6",
        "--ratios",
        "0.5",
    ]
    grid = ["--limit", "10", "--context-tokens", "131072", "--policies", "snapkv,random+ends"]
    assert cli("plan", "--tasks", "long_context", *shape, *grid) == 0
    output = " ".join((cli.out + cli.err).split())
    # 131,072 tokens of 327,680 bytes.
    assert_says(output, "141 GB (bfloat16)", "cache 42.9 GB", "peak 228 GB")
    assert "median of their kind: random+ends" in output
    assert re.search(r"without activations: too much for .*rtx3060.*h100", output)


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ((), "weights 16.1 GB (bfloat16)"),  # auto on a GPU
        (("--dtype", "float32"), "weights 32.1 GB (float32)"),
        (("--suite", "bytes"), "weights 16.1 GB (bfloat16)"),  # as a run without a suite
        (
            ("--suite", "numerics", "--dtype", "bfloat16"),
            "weights 16.1 GB (bfloat16) + a copy 32.1 GB (float32)",
        ),
        (("--suite", "numerics(dtypes=bf16)"), "weights 16.1 GB (bfloat16) + cache"),
        (
            ("--suite", "numerics(dtypes=fp32)"),
            "weights 16.1 GB (bfloat16) + a copy 32.1 GB (float32)",
        ),
        (
            ("--suite", "numerics(dtypes=[fp64,fp16])"),
            "weights 16.1 GB (bfloat16) + a copy 64.2 GB (float64)",
        ),
    ],
)
def test_weights_are_of_the_dtype_that_run_loads(
    cli: CommandLine, options: tuple[str, ...], weights: str
) -> None:
    shape = ("--layers", "32", "--heads", "32", "--key-heads", "8", "--parameters", "8.03")
    assert cli("plan", *shape, "--tasks", "base", "--limit", "1", *options) == 0
    assert weights in " ".join(cli.out.split())


def test_on_this_machine_a_shipped_model_is_loaded_in_float32_whatever_is_faster(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvbench.models.precision, "faster_dtype", lambda: torch.bfloat16)
    small = ("--machine", "this", "--tasks", "base", "--limit", "1", "--policies", "knorm")
    assert cli("plan", *small) == 0
    assert "MB (float32)" in " ".join(cli.out.split())
    assert (
        cli(
            "plan",
            *small,
            "--layers",
            "2",
            "--heads",
            "4",
            "--key-heads",
            "2",
            "--parameters",
            "0.005",
        )
        == 0
    )
    assert "10.0 MB (bfloat16)" in " ".join(cli.out.split())


def test_a_card_multiplies_wider_numbers_as_slowly_as_its_data_sheet_says() -> None:
    """An h100 has 989, 67 and 34 TFLOP/s, of which 40 % are assumed to be reached."""
    seconds = [
        MACHINES["h100"].seconds(1e15, 0.0, 0.0, dtype)
        for dtype in ("bfloat16", "float32", "float64")
    ]
    assert seconds == pytest.approx([1000 / (0.4 * 989), 1000 / (0.4 * 67), 1000 / (0.4 * 34)])


def test_this_machine_is_measured(cli: CommandLine) -> None:
    assert (
        cli("plan", "--machine", "this", "--tasks", "base", "--limit", "1", "--policies", "knorm")
        == 0
    )
    assert "1 × this" in cli.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--layers", "2", "--heads", "4", "--key-heads", "2", "--parameters", "nan"],
            "more than 0 billion, not nan",
        ),
        (["--layers", "80"], "a shape needs --heads, --key-heads, --parameters too"),
        (
            ["--layers", "0", "--heads", "4", "--key-heads", "2", "--parameters", "1"],
            "1 or more layers, not 0",
        ),
        (
            ["--layers", "2", "--heads", "5", "--key-heads", "2", "--parameters", "1"],
            "cannot share 2 key heads",
        ),
        (["--machine", "h10"], "unknown machine 'h10': did you mean 'h100'"),
        (["--context-tokens", "0"], "--context-tokens is 1 or more, not 0"),
        (
            ["--context-tokens", "32768", "--model", "reference"],
            "needs 32768 tokens and reference takes",
        ),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    cli: CommandLine, arguments: list[str], message: str
) -> None:
    assert message in cli.error("plan", "--tasks", "base", *arguments)


def test_a_model_that_run_refuses_is_refused_in_the_same_words(
    cli: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(
        '{"model_type": "opt", "architectures": ["OPTForCausalLM"]}'
    )
    refused = [
        cli.error(command, "--model", tmp_path, "--tasks", "base") for command in ("plan", "run")
    ]
    assert "kvpress does not support OPTForCausalLM" in refused[0]
    assert refused[0] == refused[1]
