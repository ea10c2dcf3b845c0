"""What stands in brackets behind the value of an option: it is read, refused in one line, and
written so that it is read again alike."""

from pathlib import Path

import pytest

from datasets_gen import KNOWN_TASKS, RULER, Task
from kvbench.experiments.arguments import (
    job_values,
    suite_options,
    task_options,
    task_with_options,
    write_suite,
    write_tasks,
)
from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.task_options import options_by_task
from kvbench.store.run_file import EVERY_TASK, Job, TaskOptions
from kvbench.system.errors import KVBenchError

TASKS = "ifeval(data=rows.jsonl,defence=both),prose(data=python),all(depth=0.5)"


def tasks_named(*names: str) -> list[Task]:
    return [KNOWN_TASKS[name] for name in names]


def test_tasks_have_their_own_options_and_all_has_those_of_each() -> None:
    values = task_options(TASKS)
    assert values["tasks"] == "ifeval,prose"
    assert values["task_options"] == {
        "ifeval": TaskOptions(data=Path("rows.jsonl"), defence="both"),
        "prose": TaskOptions(data=Path("python")),
        EVERY_TASK: TaskOptions(depth=0.5),
    }
    by_task = options_by_task(tasks_named("ifeval", "prose", "base"), values["task_options"])
    assert by_task["ifeval"] == TaskOptions(data=Path("rows.jsonl"), defence="both", depth=0.5)
    assert by_task["base"] == TaskOptions(depth=0.5)


def test_all_with_options_alone_leaves_the_tasks_to_the_run() -> None:
    assert task_options("all(prefix=off)")["tasks"] is None
    assert task_options("base, hops") == {"tasks": "base, hops", "task_options": {}}


def test_a_family_gives_an_option_to_those_of_its_tasks_that_take_it() -> None:
    given = {"ruler": TaskOptions(essays=Path("essays.txt"))}
    by_task = options_by_task([*RULER.values(), *tasks_named("base")], given)
    assert set(by_task) < set(RULER)
    assert "niah_single_2" in by_task


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("base(dept=1)", "base has no option dept: did you mean depth? it has data, defence,"),
        ("base(1)", "write options as base"),
        ("base(depth=deep)", "depth=deep: "),
        ("base(depth=0),base(depth=1)", "has base twice with options"),
        ("hops,base(,)", "base(,): nothing stands in the brackets: write base alone"),
        ("base()", "base(): nothing stands in the brackets"),
    ],
)
def test_a_wrong_option_of_a_task_is_one_line(text: str, complaint: str) -> None:
    with pytest.raises(KVBenchError) as error:
        task_options(text)
    assert complaint in str(error.value)


def test_a_suite_a_mode_and_an_executor_with_empty_brackets_are_refused() -> None:
    for text in ("numerics( )", "numerics(,)"):
        with pytest.raises(KVBenchError, match="nothing stands in the brackets: write numerics"):
            suite_options(text)
    with pytest.raises(KVBenchError, match="write both alone"):
        job_values({"mode": "both(,)"})
    with pytest.raises(KVBenchError, match="write ray alone"):
        job_values({"executor": "ray()"})


def test_an_option_that_no_task_takes_and_rows_for_two_tasks_are_refused() -> None:
    rows = TaskOptions(data=Path("rows.jsonl"))
    with pytest.raises(KVBenchError, match="data is for the tasks ifeval, gsm8k, prose, not for"):
        options_by_task(tasks_named("base"), {"base": rows})
    with pytest.raises(KVBenchError, match="give it to one of gsm8k and prose"):
        options_by_task(tasks_named("gsm8k", "prose", "base"), {EVERY_TASK: rows})


@pytest.mark.parametrize(
    "text",
    [
        TASKS,
        "base(limit=40),prose(data=python,limit=119)",
        "base,hops,all(prefix=off)",
        'mine.jsonl(prefix="The answer, in short (""now""), is")',
        'ifeval(data="rows, of (1).jsonl")',
    ],
)
def test_written_options_are_read_again_alike(text: str) -> None:
    job = Job.of(task_options(text))
    written = write_tasks(job)
    assert written is not None
    assert Job.of(task_options(written)) == job


def test_a_suite_is_read_and_written_with_its_options() -> None:
    text = "numerics(dtypes=[fp32,bf16],sampling=greedy,deterministic=no,directions=into_on)"
    values = suite_options(text)
    assert (values["dtypes"], values["deterministic"]) == ("fp32,bf16", False)
    assert write_suite(Job.of(values)) == text
    with pytest.raises(KVBenchError, match="it has dtypes, sampling, deterministic, directions"):
        suite_options("numerics(layers=3)")
    with pytest.raises(KVBenchError, match="faults takes no options"):
        suite_options("faults(rate=1)")


def test_the_job_of_an_earlier_run_has_its_options_where_they_stand_now() -> None:
    earlier = {"tasks": "ifeval", "data": "rows.jsonl", "defence": "both", "answer_prefix": "auto"}
    job = Job.model_validate({**earlier, "depth": None, "essays": None})
    assert job.task_options == {EVERY_TASK: TaskOptions(data=Path("rows.jsonl"), defence="both")}
    assert write_tasks(job) == "ifeval(data=rows.jsonl,defence=both)"
    new = Job.of(task_options("ifeval(data=rows.jsonl,defence=both)"))
    tasks = tasks_named("ifeval")
    both = [options_by_task(tasks, each.task_options) for each in (job, new)]
    assert both[0] == both[1]


def contexts_by_task(tasks: str, limit: int | None = None) -> dict[str, int]:
    grid = build_grid(Job.of({**task_options(tasks), "limit": limit}), lambda text: len(text))
    return {task.name: contexts for task, contexts in grid.tasks}


def test_a_task_has_as_many_contexts_as_its_own_limit_says() -> None:
    assert contexts_by_task("base(limit=4),hops", limit=2) == {"base": 4, "hops": 2}
    assert contexts_by_task("base(limit=4),hops,all(limit=3)") == {"base": 4, "hops": 3}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("base(limit=0)", r"base\(limit=0\) is 1 or more"),
        ("prose(data=python,limit=100000)", r"prose\(limit=100000\): prose has [0-9,]+ contexts"),
    ],
)
def test_a_limit_that_a_task_cannot_have_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(KVBenchError, match=complaint):
        contexts_by_task(text)


def test_commands_of_one_task_refuse_its_limit_in_brackets() -> None:
    with pytest.raises(KVBenchError, match="give --limit instead"):
        task_with_options("base(limit=3)", None, None)
