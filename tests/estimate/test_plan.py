"""A plan is arithmetic on named constants: cases by hand, properties, and one line for what cannot be meant."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen import TASKS
from kvbench.engine.decode.answers import decode
from kvbench.engine.treat.plan import plan as make_plan
from kvbench.engine.treat.prefill import prefill
from kvbench.estimate import measure as measuring
from kvbench.estimate.constants import Constants, PressCost, TableBytes
from kvbench.estimate.load import Load, load_of
from kvbench.estimate.machine import MACHINES, Machine, this_machine
from kvbench.estimate.page import assumptions, hours, rows_of, seen_with
from kvbench.estimate.plan import Plan, answers_together, parts_of
from kvbench.estimate.request import PlanRequest
from kvbench.estimate.shape import DecoderShape, shape_of
from kvbench.experiments.grid import Grid
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel, load_tokenizer
from kvbench.prompts.prompt import build_prompts
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError
from policies import POLICIES, at_ratios
from tests.support.models.runs import CommandLine

# One layer, two query heads of size 4 on one key head, 100 parameters, 2 bytes a number: 16 bytes of cache a token.
SHAPE = DecoderShape("by hand", 1, 2, 1, 4, 100, 2)
MACHINE = Machine("by hand", 500.0, 1e3, 1e9, "made up")
CONSTANTS = Constants(
    machine="by hand",
    date="2026-01-01",
    packages={},
    model="none",
    lengths=(10, 100),
    presses={
        "full": PressCost(),
        "knorm": PressCost(readings=(3.0, 3.0), level_readings=0.5),
        "h2o": PressCost(readings=(1.0, 10.0)),
        "kvzip": PressCost(prefills=2.0),
        "decoding_knorm": PressCost(prefills=1.0),
    },
    store={
        "contexts": TableBytes(file=500.0, row=10.0, token=3.0),
        "questions": TableBytes(file=400.0, row=20.0, token=0.0),
        "records": TableBytes(file=1000.0, row=30.0, token=2.0),
    },
)


def load(*policies: str, tokens: int = 10, contexts: int = 1) -> Load:
    """A task with 2 questions of 3 tokens, answers of 5 tokens and right answers of 4, of which 3 are passed; every
    policy but the full cache keeps a half."""
    branches = [(POLICIES[name], [1.0 if name == "full" else 0.5]) for name in policies]
    return Load("base", contexts, 1, tokens, 2.0, 3.0, 5, 3.0, branches)


def plan(*policies: str, tokens: int = 10, contexts: int = 1, machine: Machine = MACHINE) -> Plan:
    return Plan([load(*policies, tokens=tokens, contexts=contexts)], SHAPE, machine, CONSTANTS)


def test_a_prefill_is_two_operations_a_parameter_and_token_and_the_pairs_of_tokens() -> None:
    assert SHAPE.cache_bytes == 2 * 1 * 1 * 4 * 2
    assert SHAPE.weight_bytes == 200
    assert SHAPE.operations(10, 10**2 / 2) == 2 * 100 * 10 + 2 * 1 * 2 * 4 * 10**2
    assert plan("full").seconds["prefill"] == pytest.approx((2000 + 1600) / 500)


def test_every_layer_takes_its_time_of_every_pass() -> None:
    calling = replace(MACHINE, layer_seconds=2.0)
    with_calls, without = plan("full", machine=calling).seconds, plan("full").seconds
    assert with_calls["prefill"] - without["prefill"] == pytest.approx(2.0)
    assert with_calls["answers written together"] - without["answers written together"] == pytest.approx(7 * 2.0)


def test_presses_cost_readings_of_the_cache_or_prefills() -> None:
    costs = plan("knorm", "kvzip")
    assert costs.seconds["compression"] == pytest.approx((3.0 + 0.5) * 160 / 1e3)
    assert costs.seconds["private prefills"] == pytest.approx(2.0 * 7.2)
    assert costs.policy_seconds == {"knorm": pytest.approx(0.56), "kvzip": pytest.approx(14.4)}


def test_a_press_that_looks_at_all_pairs_costs_more_readings_of_a_longer_context() -> None:
    lengths = CONSTANTS.lengths
    assert CONSTANTS.presses["knorm"].readings_at(1000, lengths) == 3.0
    assert CONSTANTS.presses["h2o"].readings_at(1000, lengths) == 100.0
    assert CONSTANTS.presses["h2o"].readings_at(100, lengths) == 10.0


@pytest.mark.parametrize(("room", "waves"), [(1000, 1), (160, 2)])
def test_answers_together_read_weights_and_cache_once_for_each_token(room: float, waves: int) -> None:
    """Branches of 160 and 80 bytes: the shared start, one portion of questions and five tokens make seven passes, and
    one portion of right answers another."""
    answers, likelihood = answers_together(load("full"), SHAPE, [1.0, 0.5], room)
    assert answers.read == 7 * (waves * 200 + 240)
    assert likelihood.read == waves * 200 + 240
    for part, places in ((answers, 2 * (3 + 5)), (likelihood, 2 * 3)):  # of one branch
        assert part.tokens == 2 * places
        assert part.operations == 2 * 100 * places * 2 + 4 * 2 * 4 * 1 * places * (10 + 5)


def test_answers_written_alone_read_the_weights_for_each_question() -> None:
    costs = plan("decoding_knorm", machine=replace(MACHINE, flops=1e12))
    assert costs.seconds["answers written alone"] == pytest.approx(2 * 6 * (200 + 0.5 * 160) / 1e3)
    assert costs.seconds["likelihood alone"] == pytest.approx(2 * 4 * (200 + 0.5 * 160) / 1e3)


def test_counts_and_bytes_add_up() -> None:
    costs = plan("full", "knorm", contexts=7)
    assert (costs.loads[0].answers, costs.devices) == (7 * 2 * 2, 1)
    contexts, questions, records = 500 + 7 * (10 + 3 * 10), 400 + 14 * 20, 2 * 1000 + 28 * (30 + 2 * 10)
    assert costs.store == contexts + questions + records
    assert (costs.context, costs.branches) == (160, 160 + 80)
    assert costs.waiting_bytes == costs.masks == 2 * 10  # one layer, one head, ten tokens
    assert plan("full", "kvzip").waiting_bytes == 10 + 0.5 * 160
    assert costs.device_hours == pytest.approx(sum(costs.seconds.values()) / 3600)


def test_sliding_layers_hold_their_window_of_a_long_context_and_all_of_a_short_one() -> None:
    """One of two layers slides over 10 tokens."""
    sliding = replace(SHAPE, layers=2, sliding=1, window=10)
    assert [sliding.at(tokens).cache_bytes * tokens for tokens in (5, 10, 40)] == [2 * 5 * 16, 2 * 10 * 16, 50 * 16]
    assert Plan([load("full", tokens=40)], sliding, MACHINE, CONSTANTS).context == 50 * 16


def test_a_model_larger_than_one_device_takes_several_that_work_one_after_the_other() -> None:
    one, several = plan("full"), plan("full", machine=replace(MACHINE, memory=300.0))
    assert several.devices == 2  # 200 of weights, 2 * 160 of cache and 10 of masks in 270 each
    assert several.room == 2 * 270 - 200 - 160 - 10
    assert several.seconds["prefill"] == one.seconds["prefill"]
    assert several.device_hours == pytest.approx(2 * sum(several.seconds.values()) / 3600)
    with pytest.raises(KVBenchError, match=r"a worker would need .* devices"):
        plan("full", machine=replace(MACHINE, memory=0.1)).device_hours  # noqa: B018


def test_a_policy_that_was_not_measured_is_named_and_costs_the_median_of_its_kind() -> None:
    costs = plan("full", "snapkv", "kvgrad")
    assert costs.seconds["private prefills"] == pytest.approx(1.5 * 7.2)
    assert "These were not measured and cost the median of their kind: kvgrad, snapkv." in assumptions(costs)


@given(tokens=st.integers(16, 10**5), more=st.integers(1, 10**5), contexts=st.integers(1, 50))
def test_more_of_anything_costs_more(tokens: int, more: int, contexts: int) -> None:
    small = plan("full", "knorm", tokens=tokens, contexts=contexts)
    for larger in (
        plan("full", "knorm", tokens=tokens + more, contexts=contexts),
        plan("full", "knorm", tokens=tokens, contexts=contexts + 1),
        plan("full", "knorm", "kvzip", tokens=tokens, contexts=contexts),
    ):
        assert larger.device_hours > small.device_hours
        assert larger.store > small.store


def test_a_shape_is_read_from_a_configuration_without_weights(llama: LoadedModel, toy_folder: Path) -> None:
    shape = shape_of(str(toy_folder), 4)
    assert (shape.layers, shape.heads, shape.key_heads, shape.head_size) == (2, 4, 2, 128)
    assert shape.parameters == llama.network.num_parameters()


def test_counts_come_from_the_tasks_themselves() -> None:
    grid = Grid([(TASKS["base"], 7)], Setting([POLICIES["full"], POLICIES["knorm"]], at_ratios((0.5, 0.9))))
    counts = load_of(grid, TASKS["base"], 7, tokenizer=load_tokenizer("reference"))
    assert (counts.contexts, counts.units, counts.answer_tokens) == (7, 2, TASKS["base"].max_new_tokens)
    assert counts.questions == sum(len(TASKS["base"].example(0, index).questions) for index in range(3)) / 3
    assert load_of(grid, TASKS["base"], 7, 5000, 4, tokenizer=load_tokenizer("reference")).answers == 7 * 4 * (1 + 2)


def test_the_likelihood_costs_the_tokens_that_a_real_run_passes(llama: LoadedModel) -> None:
    """Of every branch, whether its answers are written together or alone."""
    policies = [POLICIES[name] for name in ("full", "knorm", "decoding_knorm")]
    grid = Grid([(TASKS["base"], 1)], Setting(policies, at_ratios((0.3, 0.6))))
    counts = load_of(grid, TASKS["base"], 1, tokenizer=llama.tokenizer)
    parts = parts_of(counts, SHAPE, CONSTANTS, 1e9)
    planned = sum(part.tokens for part in parts if part.name.startswith("likelihood"))
    (prompt,) = build_prompts(llama.tokenizer, TASKS["base"], grid.example(TASKS["base"], 0), "agnostic")
    passed: dict[bool, int] = {}
    for gold in (False, True):
        trace = prefill(llama, prompt, make_plan(policies, at_ratios((0.3, 0.6)), prompt, 0))
        sizes: list[int] = []
        embedding = llama.network.get_input_embeddings()
        hook = embedding.register_forward_hook(lambda _, inputs, __, sizes=sizes: sizes.append(inputs[0].numel()))
        try:
            decode(llama, trace, 1, None, gold=gold)
        finally:
            hook.remove()
        passed[gold] = sum(sizes)
    assert planned == pytest.approx(passed[True] - passed[False])
    assert planned > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": [0, 0]}, "lengths.0: Input should be greater than 0"),
        ({"presses": {}}, "presses: Dictionary should have at least 1 item"),
    ],
)
def test_constants_that_no_machine_has_are_named(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "constants.json"
    path.write_text(json.dumps(Constants.read().model_dump(mode="json") | change))
    with pytest.raises(KVBenchError, match=re.escape(f"holds no measured constants ({message}")):
        Constants.read(path)
    with pytest.raises(KVBenchError, match="cannot be read"):
        Constants.read(tmp_path / "gone.json")


def test_the_constants_that_come_with_the_package_say_where_they_are_from() -> None:
    constants = Constants.read()
    assert constants.machine
    assert constants.date >= "2026-01-01"
    assert {"full", "snapkv", "h2o", "kvzip"} <= set(constants.presses)
    assert set(constants.presses) <= set(POLICIES)
    assert constants.presses["kvzip"].prefills > 1 > constants.presses["full"].prefills


def test_constants_of_this_machine_are_measured_and_make_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "REPEATS", 1)
    monkeypatch.setattr(measuring, "STORED_RATIOS", (0.3, 0.7))
    monkeypatch.setattr(measuring, "CONTEXTS_IN_CHUNK", 2)
    policies = [POLICIES[name] for name in ("full", "knorm", "finch", "kvzip")]  # finch needs a question
    constants = measuring.measure(lambda _: None, policies, (224, 320))
    path = tmp_path / "constants.json"
    path.write_text(constants.model_dump_json())
    assert Constants.read(path) == constants
    assert set(constants.presses) == {"full", "knorm", "kvzip"}
    assert constants.presses["kvzip"].prefills > 1
    assert all(table.file > 1000 > table.row for table in constants.store.values())
    assert constants.store["contexts"].token > constants.store["records"].token > 0
    assert Plan([load("full", "knorm")], SHAPE, this_machine(64), constants).device_hours > 0


def test_figures_of_a_gpu_are_called_projections() -> None:
    for machine in MACHINES.values():
        assert "a projection" in machine.source
        assert "not measured on such a GPU" in machine.source


def test_times_are_read_at_a_glance() -> None:
    assert [hours(seconds) for seconds in (90, 7200, 59, 0.2)] == ["1.5 min", "2.0 h", "59 s", "below 1 s"]


def test_a_plan_says_what_so_many_contexts_can_show() -> None:
    """Four are too few for any test of two sides at 5 %; four times as many see half."""
    assert seen_with(4) == "no difference"
    told = [f"differences from {points} points of right answers" for points in (11, 5)]
    assert [seen_with(20), seen_with(80)] == told
    assert ("10 contexts of a task show", seen_with(10)) in rows_of(plan("full", contexts=10))


def test_the_command_prints_a_plan(cli: CommandLine) -> None:
    shape = ["--layers", "80", "--heads", "64", "--key-heads", "8", "--parameters", "70.6"]
    grid = ["--tasks", "long_context", "--limit", "10", "--context-tokens", "131072", "--policies", "snapkv"]
    assert cli("plan", *shape, *grid, "--ratios", "0.5") == 0
    output = " ".join(cli.out.split())
    assert "time of all devices" in output
    assert "141 GB" in output  # weights
    assert "42.9 GB" in output  # 131,072 tokens of 327,680 bytes
    assert "a projection" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bytes-per-number", "0"], "1 or more bytes per number, not 0"),
        (["--layers", "2", "--heads", "4", "--key-heads", "2", "--parameters", "nan"], "more than 0 billion, not nan"),
        (["--layers", "2", "--heads", "4", "--key-heads", "2", "--parameters", "inf"], "more than 0 billion, not inf"),
        (["--questions", "inf"], "--questions is 1 or more, not inf"),
        (["--layers", "80"], "a shape needs --heads, --key-heads, --parameters too"),
        (["--layers", "0", "--heads", "4", "--key-heads", "2", "--parameters", "1"], "1 or more layers, not 0"),
        (["--layers", "2", "--heads", "5", "--key-heads", "2", "--parameters", "1"], "cannot share 2 key heads"),
        (["--machine", "h10"], "unknown machine 'h10': did you mean 'h100'"),
        (["--context-tokens", "0"], "--context-tokens is 1 or more, not 0"),
        (["--questions", "nan"], "--questions is 1 or more, not nan"),
        (["--constants", "/nowhere.json"], "/nowhere.json cannot be read"),
        (["--model", "/nowhere"], "there is no model at /nowhere"),
        (["--context-tokens", "32768", "--model", "reference"], "needs 32768 tokens and reference takes"),
    ],
)
def test_what_cannot_be_planned_is_one_line(cli: CommandLine, arguments: list[str], message: str) -> None:
    assert message in cli.error("plan", "--tasks", "base", *arguments)


def test_a_chosen_length_is_that_of_every_context() -> None:
    job = Job(tasks="long_context,base", limit=2, policies="knorm")
    loads = PlanRequest(SHAPE, job, 32_768).plan(CONSTANTS).loads
    assert {load.task: load.tokens for load in loads} == {"long_context": 32_768, "base": 32_768}


def test_tokens_are_counted_as_the_model_counts_them(toy_folder: Path, llama: LoadedModel) -> None:
    job = Job(model=str(toy_folder), tasks="base", limit=1, policies="knorm")
    (counts,) = PlanRequest(SHAPE, job).plan(CONSTANTS).loads
    (prompt,) = build_prompts(llama.tokenizer, TASKS["base"], TASKS["base"].example(0, 0), "agnostic")
    assert counts.tokens == len(prompt.token_ids)


def test_a_model_that_run_refuses_is_refused_in_the_same_words(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "opt", "architectures": ["OPTForCausalLM"]}')
    refused = [cli.error(command, "--model", tmp_path, "--tasks", "base") for command in ("plan", "run")]
    assert "kvpress does not support OPTForCausalLM" in refused[0]
    assert refused[0] == refused[1]


def test_a_plan_names_the_cards_that_hold_a_worker(cli: CommandLine) -> None:
    shape = ("--layers", "32", "--heads", "32", "--key-heads", "8", "--parameters", "8")
    assert cli("plan", "--tasks", "base", *shape) == 0
    whole = " ".join((cli.out + cli.err).split())
    assert re.search(r"memory of a worker, at least 16\.\d+ GB", whole)
    assert "keep masks: fits rtx4090, l40s, a100, h100, h200; too much for rtx3060, rtx4080" in whole
