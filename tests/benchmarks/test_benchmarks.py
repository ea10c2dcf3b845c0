"""Benchmarks run and measure what they say; how fast anything is, no test asks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from datasets_gen import TASKS
from kvbench.benchmarks.drawing import draw, frame_of
from kvbench.benchmarks.engine import Products, Work, record_products
from kvbench.benchmarks.measurement import Measurement, Report, measurement
from kvbench.benchmarks.memory import peak
from kvbench.benchmarks.profiling import profile_engine
from kvbench.benchmarks.shapes import OF_8_BILLION, OF_100_MILLION, LlamaShape, random_model, random_network, task_of
from kvbench.benchmarks.shapes import TINY as TINY_SHAPE
from kvbench.benchmarks.suite import ON_CPU, ON_GPU, TINY, chosen_rows, run_suite
from kvbench.cli.program import main
from kvbench.documents.pages import BENCH, DOCS
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import build_prompts
from kvbench.system.errors import KVBenchError
from policies import POLICIES
from tests.support.models.runs import CommandLine

CPU = torch.device("cpu")
LARGE = 10**9  # bytes
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU")


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return random_model(TINY_SHAPE, 1000, CPU, torch.float32)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The whole suite on tiny shapes, by the command line, in a process that was large before."""
    large = torch.ones(LARGE // 4)
    assert peak() > large.nbytes
    del large
    out = tmp_path_factory.mktemp("suite") / "bench.json"
    arguments = ["--tiny", "--repeats", "2", "--device", "cpu", "--out", str(out)]
    assert main(["bench", "--suite", *arguments]) == 0
    return Report.model_validate_json(out.read_text())


@pytest.mark.slow
def test_the_suite_measures_every_row_with_its_spread(report: Report) -> None:
    assert [row.name for row in report.results] == list(ON_CPU)
    for row in report.results:
        assert row.lowest <= row.value <= row.highest
        assert row.met is not None
        assert len(row.repeats) == (1 if row.name in ("h2o", "context") else 2)
    assert report.device.startswith("cpu")
    assert set(report.versions) >= {"python", "torch", "transformers", "kvpress"}
    assert report.processor
    assert report.cores >= 1


@pytest.mark.slow
def test_against_the_pipeline_every_generation_is_compared(report: Report) -> None:
    for row, contexts in zip(report.results[:2], (2, 1), strict=True):
        cells = 3  # the full cache, and a policy at two ratios
        assert row.details["compared"] == row.details["equal"] == contexts * 4 * cells
        assert row.details["failed"] == {}
        assert row.value > 0


@pytest.mark.slow
def test_h2o_is_compared_with_eager_and_the_long_context_is_answered(report: Report) -> None:
    rows = {row.name: row for row in report.results}
    error = rows["h2o"].details["largest_relative_error"]
    assert isinstance(error, float)
    assert error < 1e-5
    context = rows["context"]
    assert context.details["failed"] == []
    assert context.details["answered"]
    assert context.value > 0.1, "a process with torch in it takes more than 100 MB"


def test_the_part_for_a_gpu_runs_on_tiny_shapes() -> None:
    for name, measure in ON_GPU.items():
        row = measure(TINY, 1, CPU)
        assert row.name == name
        assert row.details["answered"]
        assert not row.details["failed"]


@gpu
def test_the_suite_runs_on_a_gpu() -> None:  # pragma: no cover
    rows = list(run_suite(chosen_rows(None, TINY, 1, torch.device("cuda")), lambda _: None))
    assert [row.name for row in rows] == list(ON_GPU)
    assert {row.name: row for row in rows}["memory-8b"].value > 0


def test_a_gpu_that_is_not_there_is_told_in_one_line(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "bench.json"
    for arguments in (["bench", "--suite", "--out", str(out)], ["bench"], ["run", "--out", str(tmp_path)]):
        assert cli(*arguments, "--device", "cuda") == 1
        assert cli.complaint.endswith(
            "this machine has no CUDA device: use --device cpu, or install a CUDA build of torch"
        )
    assert not out.exists()


def test_an_unknown_row_is_told_with_what_there_is_and_no_file_is_touched(cli: CommandLine, tmp_path: Path) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("all of it")
    for only, reason in (("rooof", "unknown benchmark 'rooof'"), ("roof", "is no report of this suite")):
        assert reason in cli.error("bench", "--suite", "--tiny", "--only", only, "--out", precious)
        assert precious.read_text() == "all of it"


def test_rows_are_kept_beside_those_of_the_same_machine_alone(tmp_path: Path) -> None:
    """A suite of an hour that ends early has what it measured, and --only adds to it."""
    path, order = tmp_path / "bench.json", ["a", "b", "c"]
    here = Report.on(CPU, tiny=True)

    def row(name: str, value: float) -> Measurement:
        return measurement(name, "what", "times", ">= 2", [value], None)

    assert here.with_rows_of(path).results == []
    first = here.with_row(row("c", 1), order).with_row(row("a", 2), order)
    path.write_text(first.model_dump_json())
    again = here.with_rows_of(path).with_row(row("b", 3), order).with_row(row("a", 4), order)
    assert [(one.name, one.value) for one in again.results] == [("a", 4), ("b", 3), ("c", 1)]
    with pytest.raises(KVBenchError, match="is a report with other tiny: give another file"):
        Report.on(CPU, tiny=False).with_rows_of(path)
    path.write_text(first.model_copy(update={"processor": "another", "cores": 999}).model_dump_json())
    with pytest.raises(KVBenchError, match="is a report with other processor, cores: give another file"):
        here.with_rows_of(path)
    path.write_text("{")
    with pytest.raises(KVBenchError, match="is no report of this suite: give another file"):
        here.with_rows_of(path)


@pytest.mark.slow
def test_the_peak_of_a_process_is_not_that_of_its_parent(report: Report) -> None:
    """As ``ru_maxrss`` would have it on Linux, where a row after a large one would have taken nothing."""
    (context,) = (row for row in report.results if row.name == "context")
    assert context.value * 1e9 < peak() - LARGE / 2


def test_rows_for_a_gpu_do_not_count_what_was_not_answered() -> None:
    """A bound that nothing fits into makes the engine fast and small."""
    for name, measure in ON_GPU.items():
        row = measure(replace(TINY, large_gigabytes=1e-7), 1, CPU)
        assert row.met is False, name


def test_options_of_the_suite_alone_are_one_line(cli: CommandLine) -> None:
    for options in (["--only", "roof"], ["--tiny"], ["--repeats", "2"], ["--out", "there.json"]):
        assert f"{options[0]} needs --suite: add that" in cli.error("bench", *options)
    for options in (["--model", "reference"], ["--ratios", "0.5"], ["--max-kv-gb", "1"], ["--profile"]):
        assert f"{options[0]} does not go with --suite: leave it out" in cli.error("bench", "--suite", *options)


def test_the_median_is_held_against_the_target() -> None:
    row = measurement("x", "what", "times", ">= 2", [9.0, 1.0, 3.0], lambda value: value >= 2, seen=[1])
    assert (row.value, row.lowest, row.highest, row.met) == (3.0, 1.0, 9.0, True)
    assert measurement("x", "what", "times", ">= 2", [1.0, 1.5, 9.0], lambda value: value >= 2).met is False
    assert json.loads(row.model_dump_json())["details"] == {"seen": [1]}


def test_products_are_recorded_with_their_shapes_and_nothing_else_is() -> None:
    first, second, third = torch.randn(3, 5), torch.randn(5, 7), torch.randn(2, 4, 6, 8)

    def work() -> None:
        (first @ second).relu().sum()
        F.scaled_dot_product_attention(third, third, third)

    with torch.inference_mode(), Products() as products:
        work()
    names = [func.overloadpacket.__name__ for func, _, _ in products.calls]
    assert names[0] in ("matmul", "mm")
    assert len(names) == 2
    assert "scaled_dot_product" in names[1]
    assert [shape.size for shape in products.calls[0][1]] == [(3, 5), (5, 7)]
    with torch.inference_mode():
        again = record_products(work)
    with torch.inference_mode(), Products() as repeated:
        again()
    assert [func for func, _, _ in repeated.calls] == [func for func, _, _ in products.calls]


@pytest.mark.parametrize(
    ("shape", "low", "high"), [(OF_100_MILLION, 99e6, 105e6), (OF_8_BILLION, 7.9e9, 8.1e9)], ids=lambda part: str(part)
)
def test_shapes_have_the_parameters_that_they_are_named_for(shape: LlamaShape, low: float, high: float) -> None:
    network = random_network(shape, 1000, torch.device("meta"), torch.bfloat16)
    assert low < network.num_parameters() < high


def test_contexts_have_the_tokens_that_were_asked_for(tiny: LoadedModel) -> None:
    work = Work.of(tiny, task_of(tiny, 400), [POLICIES["full"]])
    assert 380 <= len(work.prompt.token_ids) <= 410  # with the chat template around them
    assert len(work.prompt.questions) == 4


def test_a_branch_that_fails_ends_a_measurement(tiny: LoadedModel) -> None:
    task = TASKS["base"]
    prompt = build_prompts(tiny.tokenizer, task, task.example(0, 0), "agnostic")[0]
    work = Work(tiny, task, prompt, [POLICIES["snapkv"]])
    trace = work.read((0.5,))
    trace.branches[0].error = "snapkv failed"
    with pytest.raises(RuntimeError, match="snapkv failed"):
        work.answer(trace)


def test_the_profile_tells_parts_and_operations(cli: CommandLine, tiny: LoadedModel) -> None:
    spent = profile_engine(Work.of(tiny, TASKS["base"], [POLICIES["full"], POLICIES["knorm"]]), (0.5,))
    assert set(spent.parts) == {"prefill", "scoring and cutting", "decoding"}
    assert any("mm" in name for name in spent.operations)
    assert all(spent.calls[name] > 0 for name in spent.operations)
    assert cli("bench", "--profile", "--policies", "full,knorm", "--ratios", "0.5", "--device", "cpu") == 0
    assert "decoding" in cli.out
    assert "aten::" in cli.out


@pytest.mark.slow
def test_the_picture_has_what_was_measured(report: Report, tmp_path: Path) -> None:
    details = {row.name: row.details for row in report.results}
    rows: Any = details["length"]["rows"]
    frame = frame_of(rows, "tokens", {"engine": "ours", "prefill": "alone"})
    assert len(frame) == 2 * 2 * 2  # of two lengths, both ways, twice
    assert sorted(frame[frame["time of"] == "ours"].seconds) == sorted(s for row in rows for s in row["engine"])
    draw(report, tmp_path / "costs.png")
    assert (tmp_path / "costs.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_on_performance_says_what_the_suite_measured() -> None:
    text = (DOCS / "performance.md").read_text()
    measured_rows = Report.model_validate_json(BENCH.read_text())
    assert not measured_rows.tiny
    assert all(f"| `{row.name}` |" in text for row in measured_rows.results)
    assert (DOCS / "costs.png").is_file()


def test_a_bound_that_no_branch_fits_is_told_and_no_difference(cli: CommandLine) -> None:
    assert cli("bench", "--limit", "1", "--tasks", "base", "--policies", "knorm", "--max-kv-gb", "0.000001") == 1
    assert "generations differ, as some are not there: " in cli.complaint
    assert "--max-kv-gb allows" in cli.complaint
