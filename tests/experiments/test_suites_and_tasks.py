"""Every suite takes every registered task, families and files of questions: a suite is policies,
tables and levels."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from datasets_gen import FAMILIES, FROM_DATA, KNOWN_TASKS
from kvbench.experiments.build_grid import build_grid, check_job
from kvbench.store.run_file import Job, TaskOptions
from kvbench.studies.registry import SUITES
from kvbench.system.errors import KVBenchError
from policies import CONTROLS, FULL
from policies.declaration.names import split_outside_brackets
from tests.support.models.runs import CommandLine
from tests.support.tasks.samples_of_ifeval import changed, written
from tests.support.wording import assert_says

PROBLEMS = Path(__file__).parents[1] / "data" / "gsm8k.jsonl"
OWN = "own.jsonl"
ROWS = [
    {"context": "Anna has a cat. Ben has a dog.", "question": "Who has a dog?", "answers": ["Ben"]},
    {
        "context": "Cleo lives in Oslo. Dan lives in Rome.",
        "question": "Who lives in Rome?",
        "answers": ["Dan"],
    },
]


@pytest.fixture
def benchmark_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Files in the form of the benchmarks, by task, and beside them a file of questions of one's
    own."""
    monkeypatch.chdir(tmp_path)
    Path(OWN).write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    prompts = [changed(key=number) for number in range(2)]
    return {"gsm8k": PROBLEMS, "ifeval": written(tmp_path, *prompts)}


def options_of(task: str, rows: Mapping[str, Path]) -> dict[str, TaskOptions]:
    """Gives a task its rows, if it needs some."""
    return {task: TaskOptions(data=rows[task])} if task in rows else {}


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_takes_every_task(suite: str, benchmark_files: dict[str, Path]) -> None:
    for task in (*KNOWN_TASKS, *FAMILIES, OWN):
        is_of_prompts = task in KNOWN_TASKS and KNOWN_TASKS[task].role == "system"
        job = Job(
            suite=suite,
            tasks=task,
            task_options=options_of(task, benchmark_files),
            compress=None if is_of_prompts else "context",
        )
        grid = build_grid(job, len)
        names = {one.name for one, _ in grid.tasks}
        assert names == ({*FAMILIES[task]} if task in FAMILIES else {Path(task).stem}), (
            suite,
            task,
        )
        assert all(contexts >= 1 for _, contexts in grid.tasks)
        policies = {policy.name for policy in grid.policies}
        asked = set(split_outside_brackets(str(SUITES[suite].policies)))
        # Without a system prompt nothing can be protected; all else of a suite runs on every task.
        runnable = (
            asked
            if is_of_prompts
            else {name for name in asked if not name.endswith(("+whitelist", "+fair"))}
        )
        assert runnable, suite
        assert policies - {*CONTROLS, FULL} >= runnable - {*CONTROLS, FULL}, (suite, task)
        assert grid.tables == SUITES[suite].tables


def test_system_prompts_are_compressed_only_where_a_task_has_some(
    benchmark_files: dict[str, Path],
) -> None:
    for task in ("base", "ruler", "gsm8k", OWN):
        with pytest.raises(KVBenchError, match="has no system prompt: leave it out, or use --mode"):
            build_grid(
                Job(
                    suite="instructions", tasks=task, task_options=options_of(task, benchmark_files)
                ),
                len,
            )


def test_what_a_suite_cannot_mean_on_a_task_is_left_out_with_a_line(
    benchmark_files: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    given = options_of("gsm8k", benchmark_files)
    check_job(Job(suite="instructions", tasks="gsm8k", task_options=given, compress="context"))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("left out: streaming_llm+whitelist, snapkv+whitelist, ")
    assert line.endswith(": it protects instructions, and the contexts of gsm8k have none")
    Path(OWN).write_text(json.dumps(ROWS[0]) + "\n")
    grid = check_job(Job(suite="faults", tasks=OWN))
    said = capsys.readouterr().err
    assert_says(said, "rows of another context", "own")
    assert not any(policy.needs.donor for policy in grid.policies)
    with pytest.raises(
        KVBenchError, match="distractor cannot be run here: it takes rows of another context"
    ):
        build_grid(Job(tasks=OWN, policies="distractor", levels={"rate": "0.1"}), len)


def test_a_mistyped_task_of_a_suite_is_said_with_all_that_are_known() -> None:
    with pytest.raises(KVBenchError, match="unknown task 'gsmk8': did you mean 'gsm8k'") as error:
        build_grid(Job(suite="faults", tasks="gsmk8"), len)
    assert all(name in str(error.value) for name in (*FROM_DATA, "arithmetic", "ruler"))


# Of every suite, the benchmark of its text or another one that it was closed to.
NUMERICS = "numerics(dtypes=bf16,sampling=greedy)"
SAMPLE: Sequence[tuple[str, str, tuple[str, ...]]] = [
    ("faults", "gsm8k", ("--rates", "0,0.1", "--policies", "zeros,distractor")),
    ("errors", "ifeval", ("--rates", "1", "--policies", "int4,multiplicative_normal")),
    ("bytes", "gsm8k", ("--ratios", "0.5", "--policies", "snapkv,int4,snapkv+int4")),
    (
        "bytes",
        OWN,
        ("--ratios", "0.5", "--policies", "snapkv+pages16,knorm+pages16", "--every-task"),
    ),
    ("routing", "ifeval", ("--ratios", "0.5", "--policies", "snapkv")),
    ("routing", "prose", ("--ratios", "0.5", "--policies", "snapkv")),
    ("published", "ifeval", ("--ratios", "0.5", "--policies", "snapkv,knorm")),
    (NUMERICS, "gsm8k", ()),
    (NUMERICS, "ifeval", ()),
    ("instructions", "ifeval", ("--ratios", "0.5", "--policies", "snapkv,snapkv+fair")),
]


@pytest.mark.parametrize(("suite", "task", "options"), SAMPLE)
def test_it_really_runs_and_has_its_page(
    cli: CommandLine,
    benchmark_files: dict[str, Path],
    suite: str,
    task: str,
    options: Sequence[str],
) -> None:
    if task in benchmark_files:
        task = f"{task}(data={benchmark_files[task]})"
    places = ("--model", cli.model, "--out", "runs", "--site", "site/x", "--name", "x")
    small = ("--limit", 2, "--repeats", 1, "--max-new-tokens", 3)
    assert cli("run", "--suite", suite, "--tasks", task, *places, *small, *options) == 0, cli.err
    assert "failed" not in cli.err
    assert Path("site/x/index.html").is_file()
