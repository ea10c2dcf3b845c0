"""A server is asked, judged and compared as a model of this process is, and its cache is nowhere
claimed to be known."""

import json
import multiprocessing
import os
import re
import shlex
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pandas as pd
import pytest

from kvbench.checks.submission import examine
from kvbench.cli.program import main
from kvbench.served.journal import FILE
from kvbench.store.run_file import read_run_file
from kvbench.store.store import Store
from leaderboards.aggregate.summary import UNSEEN
from tests.support.models.runs import CommandLine
from tests.support.serving.stub import MODEL, Stub, right_answers, running

ROOT = Path(__file__).parents[2]
TASKS, LIMIT = "base", 8
KEY = "sk-of-nobody-1234567890"
ASKED = ["--tasks", TASKS, "--limit", LIMIT, "--context-tokens", "native"]


def words_of_run(stub: Stub, name: str, options: str = "") -> list[str]:
    model = f"{stub.url}({options})" if options else stub.url
    return ["run", "--model", model, "--name", name, *map(str, ASKED)]


def forgets_half(words: str) -> bool:
    return sum(map(ord, words)) % 2 == 0


@pytest.fixture(scope="module")
def known() -> dict[str, str]:
    return right_answers(TASKS, LIMIT)


@pytest.fixture(scope="module")
def stub(known: dict[str, str]) -> Iterator[Stub]:
    with running(Stub(known, key=KEY)) as server:
        yield server


@pytest.fixture(scope="module")
def folder(stub: Stub, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of one server: before, again, and after it has begun to forget."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch, chdir(folder):
        patch.setenv("KVBENCH_API_KEY", KEY)
        patch.setattr("sys.argv", ["kvbench", "run", "--model", stub.url, "--name", "before"])
        assert main(words_of_run(stub, "before")) == 0
        assert main(words_of_run(stub, "again")) == 0
        stub.forgets = forgets_half
        assert main(words_of_run(stub, "after")) == 0
    return folder


def records(folder: Path, name: str) -> pd.DataFrame:
    return Store.open(folder / "runs" / name).frame()


def test_answers_are_judged_and_the_cache_stays_blank(folder: Path) -> None:
    answers = records(folder, "before")
    assert len(answers) == sum(answers["task"] == TASKS) > LIMIT
    assert answers["right"].all()
    assert answers["policy"].unique().tolist() == ["full"]
    for column in ("ger", "realised_ratio", "kv_bytes", "prefill_seconds", "gold_nll"):
        assert answers[column].isna().all(), column
    board = pd.read_csv(folder / "site" / "before" / "data" / "cells.csv")
    assert board["reason"].str.contains(UNSEEN, regex=False).all()
    assert board["ger"].isna().all()
    assert "whose cache is not seen" in page(folder, "before", "index.html")


def page(folder: Path, run: str, name: str) -> str:
    return (folder / "site" / run / name).read_text()


def test_a_server_that_is_asked_twice_is_two_runs(folder: Path, stub: Stub) -> None:
    before = read_run_file(folder / "runs" / "before").identity
    again = read_run_file(folder / "runs" / "again").identity
    assert before.differences(again) == ["begun"]
    assert set(stub.questions.values()) == {3}


def test_a_reader_of_a_run_is_not_sent_for_the_model_of_a_server(folder: Path) -> None:
    findings = examine(folder / "runs" / "before", cells=4)
    (replay,) = [finding for finding in findings if finding.check == "replay"]
    assert replay.outcome == "unchecked"
    assert "a server gave the answers" in replay.text


def test_neither_key_nor_address_nor_a_place_is_stored_or_shown(folder: Path, stub: Stub) -> None:
    host = stub.url.removeprefix("http://").removesuffix("/v1")
    secrets = [KEY, host, "127.0.0.1", str(folder), str(Path(MODEL).parent)]
    files = [path for path in folder.rglob("*") if path.is_file()]
    texts = {}
    for path in files:
        if path.suffix == ".parquet":
            texts[path] = pd.read_parquet(path).to_csv()
        else:
            texts[path] = path.read_text()
    assert len(texts) > 20
    for path, text in texts.items():
        for secret in secrets:
            assert secret not in text, (path, secret)
    run = read_run_file(folder / "runs" / "before")
    assert run.identity.model == "stub-1b.gguf"
    assert run.identity.switches["build_info"] == "stub-1"
    assert "--model http://SERVER/v1" in run.command


def test_every_request_has_the_key_and_few_are_under_way_at_once(folder: Path, stub: Stub) -> None:
    assert folder
    assert all(sent.get("Authorization") == f"Bearer {KEY}" for sent in stub.headers)
    assert 1 <= stub.most_at_once <= 4
    question = stub.bodies[-1]
    assert (question["temperature"], question["seed"], question["stream"]) == (0, 0, False)
    assert question["max_tokens"] == 32


def test_what_was_lost_is_told_and_fails_a_gate(
    folder: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    sides = ("runs/after", "--against", "runs/before")
    assert cli("compare", *sides, "--max-loss", 5, "--beside", "runs/again", "--json") == 3
    tables = json.loads(cli.out)["tables"]
    (outcome,) = tables["outcomes"]
    assert outcome["verdict"] == "worse"
    changed = tables["changed"]
    lost = (~records(folder, "after")["right"].astype(bool)).sum()
    assert len(changed) == lost > 0
    assert {row["outcome"] for row in changed} == {"lost"}
    assert all(row["now"] == "nothing." != row["before"] for row in changed)
    served, noise = tables["beside"]
    assert (served["policy"], served["other"]) == ("full of after", "full of before")
    assert (noise["policy"], noise["other"]) == ("full of again", "full of before")
    assert (served["verdict"], noise["verdict"]) == ("worse", "not distinguished")
    text = page(folder, "after", "compare-full.html")
    assert "Answers that changed, side by side" in text
    assert "full of again" in text
    assert "nothing." in text


def test_a_server_against_itself_is_not_distinguished(
    folder: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert cli("compare", "runs/again", "--against", "runs/before", "--max-loss", 5, "--json") == 0
    result = json.loads(cli.out)
    assert result["tables"]["outcomes"][0]["verdict"] == "not distinguished"
    assert result["tables"]["changed"] == []


def ask_in_a_process_of_its_own(stub: Stub, folder: Path) -> None:
    os.chdir(folder)
    main(words_of_run(stub, "killed", "requests=2"))
    os._exit(0)


def test_after_a_kill_the_rest_is_asked_and_nothing_twice(
    known: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with running(Stub(known, delay=0.03)) as server:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            context = multiprocessing.get_context("fork")
            process = context.Process(target=ask_in_a_process_of_its_own, args=(server, tmp_path))
            process.start()
        ends = time.monotonic() + 600  # other work may hold the processor
        while sum(server.questions.values()) < 20 and time.monotonic() < ends:
            time.sleep(0.005)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        run = tmp_path / "runs" / "killed"
        assert read_run_file(run).status == "started"
        lines = (run / FILE).read_text().splitlines()
        noted = sum(line.endswith("}") for line in lines)  # a kill may cut the last one off
        time.sleep(0.1)  # what was under way at the kill is counted by the server, and lost
        under_way = sum(server.questions.values()) - noted
        assert noted >= 20 - 2
        assert 0 <= under_way <= 2
        monkeypatch.chdir(tmp_path)
        assert main(words_of_run(server, "killed", "requests=2")) == 0
        counts = server.questions
        assert counts.keys() <= known.keys()
        assert sum(counts.values()) == len(counts) + under_way
        assert len(records(tmp_path, "killed")) == len(counts)
        assert not (run / FILE).exists()
        assert read_run_file(run).status == "complete"


def test_another_model_in_the_middle_ends_the_run(
    known: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with running(Stub(known)) as server:
        server.faults.extend(["swap"])
        assert main(words_of_run(server, "swapped")) == 1
        told = capsys.readouterr().err
        assert "the server had stub-1b.gguf when this run began" in told
        assert MODEL not in told
        run = tmp_path / "runs" / "swapped"
        assert list(run.rglob("*.parquet")) == []
        assert not (run / FILE).exists()
        assert main(words_of_run(server, "swapped")) == 1
        assert "belongs to another run" in capsys.readouterr().err


def test_no_line_of_engine_store_and_boards_knows_of_servers() -> None:
    words = re.compile(r"\bservers?\b|kvbench\.served|https?://|httpx|endpoint|\burls?\b", re.I)
    for name in ("kvbench/engine", "kvbench/store", "leaderboards/boards"):
        files = list((ROOT / name).rglob("*.py"))
        assert len(files) > 4
        for path in files:
            assert words.search(path.read_text()) is None, path
    assert words.search((ROOT / "kvbench" / "served" / "executor.py").read_text())


def test_the_command_of_the_page_is_taken_again(folder: Path, stub: Stub) -> None:
    """The command has a word in place of the address, and options that a server takes."""
    text = page(folder, "before", "method.html")
    commands = re.findall(r"python -m kvbench run [^<\n]*", text)
    assert commands
    for command in commands:
        words = shlex.split(command.replace("&#39;", "'").replace("&amp;", "&"))
        assert words[words.index("--model") + 1] == "http://SERVER/v1"
        assert "127.0.0.1" not in command
