"""A plan is arithmetic on named constants: cases by hand, properties, and one line for what cannot be meant."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen import TASKS
from kvbench.cli import main
from kvbench.errors import KVBenchError
from kvbench.grid import Grid
from kvbench.models import LoadedModel
from kvbench.planning.ask import Plan
from kvbench.planning.constants import Constants, PressCost, measured_constants
from kvbench.planning.cost import Cost, cost_of, seconds_together
from kvbench.planning.machine import MACHINES, Machine
from kvbench.planning.page import assumptions, hours, size
from kvbench.planning.shape import Shape, shape_of
from kvbench.planning.workload import TaskLoad, Workload, workload_of
from kvbench.readme import PLANS, SCALE, filled
from kvbench.setting import Setting
from policies import POLICIES

# One layer, two query heads of size 4 on one key head, 100 parameters, 2 bytes a number: 16 bytes of cache a token.
SHAPE = Shape("by hand", 1, 2, 1, 4, 100, 2)
MACHINE = Machine("by hand", 1e3, 1e3, 1e9, 0.5, 1.0, "made up")
CONSTANTS = Constants(
    machine="by hand",
    date="2026-01-01",
    packages={},
    model="none",
    lengths=(10, 100),
    flops=1e3,
    bandwidth=1e3,
    prefill_share=1.0,
    decode_share=1.0,
    presses={
        "full": PressCost(),
        "knorm": PressCost(readings=(3.0, 3.0), level_readings=0.5),
        "h2o": PressCost(readings=(1.0, 10.0)),
        "kvzip": PressCost(prefills=2.0),
        "decoding_knorm": PressCost(prefills=1.0),
    },
    record_bytes=(1000.0, 2.0),
)


def load(*policies: str, tokens: int = 10, contexts: int = 1) -> Workload:
    chosen = tuple(POLICIES[name] for name in policies)
    return Workload((TaskLoad("base", contexts, 1, tokens, 2.0, 3.0, 5, chosen),), (0.5,), ())


def test_a_prefill_is_two_operations_a_parameter_and_token_and_the_pairs_of_tokens() -> None:
    assert SHAPE.cache_bytes == 2 * 1 * 1 * 4 * 2
    assert SHAPE.weight_bytes == 200
    assert SHAPE.prefill_flops(10) == 2 * 100 * 10 + 2 * 1 * 2 * 4 * 10**2
    cost = cost_of(load("full"), SHAPE, MACHINE, CONSTANTS)
    assert cost.seconds["prefill"] == pytest.approx((2000 + 1600) / (1e3 * 0.5))


def test_presses_cost_readings_of_the_cache_or_prefills() -> None:
    cost = cost_of(load("knorm", "kvzip"), SHAPE, MACHINE, CONSTANTS)
    assert cost.seconds["compression"] == pytest.approx((3.0 + 0.5) * 160 / 1e3)
    assert cost.seconds["private prefills"] == pytest.approx(2.0 * 7.2)
    assert cost.by_policy == {"knorm": pytest.approx(0.56), "kvzip": pytest.approx(14.4)}


def test_a_press_that_looks_at_all_pairs_costs_more_readings_of_a_longer_context() -> None:
    lengths = CONSTANTS.lengths
    assert CONSTANTS.presses["knorm"].readings_at(1000, lengths) == 3.0
    assert CONSTANTS.presses["h2o"].readings_at(1000, lengths) == 100.0
    assert CONSTANTS.presses["h2o"].readings_at(100, lengths) == 10.0


def test_answers_together_read_weights_and_cache_once_for_each_token() -> None:
    """Two branches of 160 and 80 bytes in one wave: the shared start, one portion of questions, five tokens."""
    machine = replace(MACHINE, flops=1e12)
    one_wave = seconds_together(load("full").tasks[0], SHAPE, machine, [160.0, 80.0], 1000)
    assert one_wave == pytest.approx(7 * (200 + 240) / 1e3)
    two_waves = seconds_together(load("full").tasks[0], SHAPE, machine, [160.0, 80.0], 160)
    assert two_waves == pytest.approx(7 * (2 * 200 + 240) / 1e3)


def test_answers_written_alone_read_the_weights_for_each_question() -> None:
    machine = replace(MACHINE, flops=1e12)
    cost = cost_of(load("decoding_knorm"), SHAPE, machine, CONSTANTS)
    assert cost.seconds["answers written alone"] == pytest.approx(2 * 6 * (200 + 0.5 * 160) / 1e3)


def test_counts_and_bytes_add_up() -> None:
    cost = cost_of(load("full", "knorm", contexts=7), SHAPE, MACHINE, CONSTANTS)
    assert (cost.units, cost.answers, cost.devices) == (1, 7 * 2 * 2, 1)
    assert cost.store == 7 * 2 * 2 * (1000 + 2 * 10)
    assert (cost.weights, cost.context, cost.branch) == (200, 160, {"100%": 160, "50%": 80})
    assert cost.branches == 160 + 80
    assert cost.held == 2 * 10  # keep masks: one layer, one head, ten tokens
    assert cost.device_hours == pytest.approx(sum(cost.seconds.values()) / 3600)


def test_a_model_larger_than_one_device_takes_several_that_work_one_after_the_other() -> None:
    small = replace(MACHINE, memory=300.0)
    one, several = (cost_of(load("full"), SHAPE, machine, CONSTANTS) for machine in (MACHINE, small))
    assert several.devices == 2  # 200 of weights, 2 * 160 of cache and 10 of masks in 270 each
    assert several.seconds["prefill"] == one.seconds["prefill"]
    assert several.device_hours == pytest.approx(2 * sum(several.seconds.values()) / 3600)
    with pytest.raises(KVBenchError, match=r"a worker would need .* devices"):
        cost_of(load("full"), SHAPE, replace(MACHINE, memory=0.1), CONSTANTS)


def test_a_policy_that_was_not_measured_is_named_and_costs_the_median_of_its_kind() -> None:
    workload = load("full", "snapkv", "kvgrad")
    cost = cost_of(workload, SHAPE, MACHINE, CONSTANTS)
    assert cost.unmeasured == ["kvgrad", "snapkv"]
    assert cost.seconds["private prefills"] == pytest.approx(1.5 * 7.2)
    lines = assumptions(Plan(workload, SHAPE, MACHINE, CONSTANTS, cost))
    assert "Not measured, and taken as the median of their kind: kvgrad, snapkv." in lines


@given(tokens=st.integers(16, 10**5), more=st.integers(1, 10**5), contexts=st.integers(1, 50))
def test_more_of_anything_costs_more(tokens: int, more: int, contexts: int) -> None:
    def cost(*policies: str, length: int = tokens, count: int = contexts) -> Cost:
        return cost_of(load(*policies, tokens=length, contexts=count), SHAPE, MACHINE, CONSTANTS)

    plain = cost("full", "knorm")
    for larger in (
        cost("full", "knorm", length=tokens + more),
        cost("full", "knorm", count=contexts + 1),
        cost("full", "knorm", "kvzip"),
    ):
        assert larger.device_hours > plain.device_hours
        assert larger.store > plain.store


def test_a_shape_is_read_from_a_configuration_without_weights(llama: LoadedModel, toy_folder: Path) -> None:
    shape = shape_of(str(toy_folder), 4)
    assert (shape.layers, shape.heads, shape.key_heads, shape.head_size) == (2, 4, 2, 128)
    assert shape.parameters == llama.network.num_parameters()


def test_counts_come_from_the_tasks_themselves() -> None:
    grid = Grid([(TASKS["base"], 7)], Setting([POLICIES["full"], POLICIES["knorm"]], (0.5, 0.9)))
    (own,) = workload_of(grid, None, None).tasks
    assert (own.contexts, own.units, own.answer_tokens) == (7, 2, TASKS["base"].max_new_tokens)
    assert own.questions == sum(len(TASKS["base"].example(0, index).questions) for index in range(3)) / 3
    assert workload_of(grid, 5000, 4).answers == 7 * 4 * (1 + 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"flops": 0}, "flops: Input should be greater than 0"),
        ({"bandwidth": -1}, "bandwidth: Input should be greater than 0"),
        ({"lengths": [0, 0]}, "lengths.0: Input should be greater than 0"),
        ({"presses": {}}, "presses: Dictionary should have at least 1 item"),
    ],
)
def test_constants_that_no_machine_has_are_named(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = tmp_path / "constants.json"
    path.write_text(json.dumps(measured_constants().model_dump(mode="json") | change))
    with pytest.raises(KVBenchError, match=re.escape(f"holds no measured constants ({said}")):
        Constants.read(path)
    with pytest.raises(KVBenchError, match="cannot be read"):
        Constants.read(tmp_path / "gone.json")


@pytest.mark.parametrize(
    "options",
    [
        ["--bytes-per-number", "-2"],
        ["--bytes-per-number", "0"],
        ["--layers", "2", "--heads", "4", "--key-heads", "2", "--parameters", "nan"],
        ["--layers", "2", "--heads", "4", "--key-heads", "2", "--parameters", "inf"],
        ["--questions", "inf"],
        ["--machine", "measured", "--memory-gb", "0"],
        ["--machine", "measured", "--memory-gb", "nan"],
    ],
)
def test_a_number_that_cannot_be_meant_is_one_line(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--tasks", "base", "--policies", "knorm", *options]) == 1
    told = capsys.readouterr().err
    assert "unexpected" not in told
    assert "more" in told


def test_the_constants_that_come_with_the_package_say_where_they_are_from() -> None:
    constants = measured_constants()
    assert constants.machine
    assert constants.date >= "2026-01-01"
    assert {"full", "snapkv", "h2o", "kvzip"} <= set(constants.presses)
    assert set(constants.presses) <= set(POLICIES)
    assert 0 < constants.prefill_share <= 1
    assert 0 < constants.decode_share <= 1
    assert constants.presses["kvzip"].prefills > 1 > constants.presses["full"].prefills


def test_figures_of_a_gpu_are_told_to_be_projections() -> None:
    for machine in MACHINES.values():
        assert "a projection" in machine.source
        assert "not measured on such a GPU" in machine.source


def test_sizes_and_times_are_read_at_a_glance() -> None:
    assert [size(n) for n in (12, 3.2e6, 141.2e9, 2.5e12)] == ["12 B", "3.2 MB", "141.2 GB", "2.5 TB"]
    assert [hours(s) for s in (90, 7200)] == ["1.5 min", "2.0 h"]


def test_the_command_tells_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--layers", "80", "--heads", "64", "--key-heads", "8", "--parameters", "70.6"]
    grid = ["--tasks", "long_context", "--limit", "10", "--context-tokens", "131072", "--policies", "snapkv"]
    assert main(["plan", *shape, *grid, "--ratios", "0.5"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "device hours" in told
    assert "141.2 GB" in told  # weights
    assert "42.9 GB" in told  # 131,072 tokens of 327,680 bytes
    assert "a projection" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layers", "80"], "a shape needs --heads, --key-heads, --parameters too"),
        (["--layers", "0", "--heads", "4", "--key-heads", "2", "--parameters", "1"], "1 or more layers, not 0"),
        (["--layers", "2", "--heads", "5", "--key-heads", "2", "--parameters", "1"], "cannot share 2 key heads"),
        (["--machine", "h10"], "unknown machine 'h10': did you mean 'h100'"),
        (["--context-tokens", "0"], "--context-tokens is 1 or more, not 0"),
        (["--questions", "nan"], "--questions is 1 or more, not nan"),
        (["--constants", "/nowhere.json"], "/nowhere.json cannot be read"),
        (["--model", "/nowhere"], "there is no model at /nowhere"),
    ],
)
def test_what_cannot_be_planned_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--tasks", "base", *arguments]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line]
    assert line.startswith("error: ")
    assert message in line


def test_the_page_on_scale_says_what_the_plan_says() -> None:
    assert filled(SCALE.read_text(), PLANS, SCALE.name) == SCALE.read_text(), "docs/scale.md has drifted: make readme"
    with pytest.raises(KVBenchError, match=r"scale.md has no block 'full catalogue'"):
        filled("", PLANS, SCALE.name)
