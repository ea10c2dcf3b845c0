"""Tasks and scorers of one's own: from a file to a page, and their contract."""

import itertools
import json
import random
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import kvbench
from datasets_gen import Scorer, Task
from kvbench.handed import scorers, tasks
from kvbench.handed.tasks import find_task, is_of_user
from kvbench.testing import check_scorer, check_task, find_task_faults
from tests.support.models.runs import SHORT, CommandLine

ROOT = Path(__file__).parents[2]
EXAMPLE = f"{ROOT / 'docs/scripts/log_json.py'}:log_json"
CITIES = ("Breveth", "Orlin", "Tamsal", "Quorin", "Vedra", "Lomare", "Istan", "Pelgar")
counter = itertools.count()


def row(rng: random.Random, **more: Any) -> dict[str, Any]:
    city, keeper = rng.sample(CITIES, 2), rng.randint(100, 999)
    context = f"House {keeper} lies in {city[0]}. The mayor of {city[1]} came by."
    return {"context": context, "question": f"Where is {keeper}?", "answers": city[0], **more}


def twice(rng: random.Random) -> dict[str, Any]:
    drawn = row(rng)
    questions = [drawn.pop("question")] * 2
    return {**drawn, "questions": questions, "answers": [drawn["answers"], "The mayor"]}


def harsh(output: str, gold: str, question: str) -> float:
    return 0.5 * (output == gold)


def boundless(output: str, gold: str, question: str) -> float:
    return float(len(output))


def plain_score(output: str, gold: str, question: str) -> float:
    return float(gold in output)


PLANTED: dict[str, tuple[Callable[[random.Random], dict[str, Any]], dict[str, Any], str]] = {
    "a clock": (
        lambda rng: row(rng, question=f"Where is it, {next(counter)}?"),
        {},
        "another context 0 each time",
    ),
    "no draw": (lambda rng: row(random.Random(3)), {}, "the same context for another seed"),
    "no evidence": (
        lambda rng: row(rng, answers=f"Atlantis {rng.random()}"),
        {},
        "nothing in context 0 carries the answer",
    ),
    "no room": (row, {"max_new_tokens": 1}, "raise max_new_tokens"),
    "two answers": (twice, {}, "is asked twice of one context, with two answers"),
    "a guess": (
        lambda rng: {**row(rng), "context": f"It is Orlin, {rng.random()}.", "answers": "Orlin"},
        {},
        "who always answers 'Orlin' has 100 % right",
    ),
    "a harsh scorer": (row, {"scorers": [kvbench.scorer()(harsh)]}, "gives 0.5 to the gold itself"),
    "a scorer without bounds": (row, {"scorers": [kvbench.scorer()(boundless)]}, "its range is"),
}


def make_task(draw: Any, **options: Any) -> Task:
    return kvbench.task(name="planted", **options)(draw)


def test_a_sound_task_has_no_fault() -> None:
    task = make_task(row, chance=12.5, scorers=[kvbench.scorer()(plain_score)])
    assert find_task_faults(task) == []
    check_task(task, solver=lambda context, _: context.split(" lies in ")[1].split(".")[0])
    with pytest.raises(AssertionError, match="the solver answers"):
        check_task(task, contexts=2, solver=lambda *_: "nowhere")


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault: str) -> None:
    draw, options, sentence = PLANTED[fault]
    faults = find_task_faults(make_task(draw, **options))
    assert any(sentence in found_fault for found_fault in faults), faults
    with pytest.raises(AssertionError, match=sentence):
        check_task(make_task(draw, **options))


def test_a_scorer_that_tells_nothing_apart_is_found() -> None:
    with pytest.raises(AssertionError, match="the same to the gold and to an empty output"):
        check_scorer(Scorer("kind", lambda *_: 1.0), [("Where?", "Orlin")])
    check_scorer(kvbench.scorer()(plain_score), [("Where?", "Orlin")])
    with pytest.raises(kvbench.KVBenchError, match="give a lowest score"):
        kvbench.scorer(low=1, high=0)(plain_score)


def test_the_example_of_the_documents_keeps_the_contract() -> None:
    check_task(find_task(EXAMPLE))
    assert (ROOT / "docs/scripts/log_json.py").read_text(encoding="utf-8").count("\n") < 60
    (scorer,) = find_task(EXAMPLE).scorers
    gold = json.dumps({"level": "ERROR", "code": 3})
    scores = {
        gold: 1.0,
        '{"code": 3, "level": "ERROR"}': 1.0,
        '{"code": 4, "level": "ERROR"}': 0.5,
        '{"code": "3", "level": "ERROR"}': 0.5,
        '{"code": 3, "level": "ERROR", "more": 1}': 0.0,
        "ERROR 3": 0.0,
    }
    assert {output: scorer.score(output, [gold], "") for output in scores} == scores


def test_a_task_of_a_file_with_its_scorer_has_a_page(cli: CommandLine) -> None:
    words = ["--tasks", EXAMPLE, "--limit", 3, "--policies", "knorm", "--ratios", "0.5"]
    options = ["--max-new-tokens", SHORT, "--every-task", "--name", "own"]
    assert cli("run", *cli.places, *words, *options) == 0, cli.err
    page = (cli.folder / "site" / "index.html").read_text(encoding="utf-8")
    assert "json_fields: log_json" in page
    assert "Valid JSON, and the share of keys" in page
    sheet = (cli.folder / "site" / "data" / "scores.csv").read_text(encoding="utf-8")
    assert sheet.splitlines()[0].endswith(
        "task,scorer,policy,level_kind,level,score,score_low,score_high,score_n,loss,loss_low,"
        "loss_high,loss_n,lowest,highest,better"
    )
    assert sum("json_fields,knorm" in line for line in sheet.splitlines()) == 1
    # A stored run that names code does not run it: whoever asks names the code.
    stored = cli.folder / "runs" / "own"
    assert cli("show", stored, "--policy", "knorm") == 0
    assert "cannot be generated here" in cli.out
    complaint = cli.error("compare", "knorm", "--against", stored, *cli.places)
    assert "give --tasks" in complaint


def installed(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, target: object) -> None:
    """Lets an entry point of an installed package bring something."""
    entry = EntryPoint(name, "somewhere:thing", module.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _: target)
    monkeypatch.setattr(module, "entry_points", lambda group: [entry])


def test_installed_packages_bring_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, tasks, "planted", make_task(row))
    assert is_of_user("planted")
    task = find_task("planted")
    assert task.variant.startswith("code.")
    installed(monkeypatch, tasks, "planted", row)
    with pytest.raises(kvbench.KVBenchError, match=r"put @kvbench\.task before"):
        find_task("planted")
    with pytest.raises(kvbench.KVBenchError, match="is no task"):
        kvbench.run(tasks=[row])


def test_installed_packages_bring_scorers(
    monkeypatch: pytest.MonkeyPatch, toy_folder: Path, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"tasks": "base", "policies": "knorm", "observe": "scores"}
    with pytest.raises(kvbench.KVBenchError, match="brings a scorer"):
        kvbench.run(toy_folder, **options)
    installed(monkeypatch, scorers, "plain_score", kvbench.scorer()(plain_score))
    scorers.installed_scorers.cache_clear()
    small: dict[str, Any] = {
        "limit": 1,
        "ratios": 0.5,
        "context_tokens": "native",
        "max_new_tokens": SHORT,
    }
    places: dict[str, Any] = {"out": tmp_path / "runs", "site": tmp_path / "site"}
    result = kvbench.run(toy_folder, **options, **small, **places)
    scorers.installed_scorers.cache_clear()
    assert result.fault == ""
    written = (tmp_path / "site" / "data" / "scores.csv").read_text(encoding="utf-8")
    assert "base,plain_score,knorm" in written
