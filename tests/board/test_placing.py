"""A press among all methods of the board: where the truth is known, its place is the true one."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import kvbench
from datasets_gen import TASKS
from kvbench.api import placing
from kvbench.api.placing import BoardComparison
from kvbench.board.asked import board_options, choose_length, choose_pieces
from kvbench.board.pieces import Piece, board_groups, open_pieces
from kvbench.checks.submission import examine
from kvbench.experiments.grid import Grid
from kvbench.models.load import load_model
from kvbench.publish.board.pages import publish_board
from kvbench.publish.places import without_places
from kvbench.store.packing import pack, write_run_file
from kvbench.store.run_file import Job, RunFile
from kvbench.store.scoring import SCORES
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS
from kvbench.system.errors import KVBenchError
from leaderboards.pages import comparison
from leaderboards.terminal.placed import GROUPS
from policies import POLICIES, at_ratios
from tests.support.models.runs import CommandLine, execute

METHODS = ("full", "random", "recency", "keydiff", "knorm", "streaming_llm")
RANKED = ("keydiff", "knorm", "streaming_llm")
LIMIT = 6
COPY = """
from kvpress import KnormPress

class CopiedPress(KnormPress):
    "Scores as K-Norm does."

class TurnedPress(KnormPress):
    "Keeps what K-Norm throws away."
    def score(self, *arguments):
        return -super().score(*arguments)
"""


@pytest.fixture(scope="module")
def packed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pieces of a board: six methods on two tasks."""
    folder = tmp_path_factory.mktemp("board")
    model = load_model("reference", "cpu")
    for name in ("base", "knowledge"):
        grid = Grid(
            [(TASKS[name], LIMIT)], [POLICIES[one] for one in METHODS], at_ratios((0.5, 0.75))
        )
        job = Job(suite="board", tasks=name, limit=LIMIT, context_tokens=None)
        store = execute(model, grid, folder / "runs" / name, "a test")
        store.run = store.run.model_copy(update={"job": job})
        pack(store, folder / "records" / f"reference-{name}.1")
    return folder / "records"


@pytest.fixture
def records(packed_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(shutil.copytree(packed_folder, tmp_path / "records"))
    monkeypatch.setattr(placing, "open_board", lambda: open_pieces(folder))
    return folder


@pytest.fixture
def file_of_press(tmp_path: Path) -> Path:
    file = tmp_path / "my.py"
    file.write_text(COPY)
    return file


@pytest.fixture(scope="module")
def place_once(
    packed_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BoardComparison]:
    """A copy of K-Norm among the methods of the board."""
    folder = tmp_path_factory.mktemp("placed")
    (folder / "my.py").write_text(COPY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placing, "open_board", lambda: open_pieces(packed_folder))
        yield place(folder, "CopiedPress", "base,knowledge")


def place(folder: Path, press: str, tasks: str = "base", **options: Any) -> BoardComparison:
    compared = kvbench.compare(
        f"{folder / 'my.py'}:{press}",
        against="board",
        tasks=tasks,
        out=folder / "runs",
        site=folder / "site",
        **options,
    )
    assert isinstance(compared, BoardComparison)
    return compared


def change_answers(records: Path, contexts: set[int]) -> None:
    """Writes other answers, which are wrong, to some contexts of base, as another machine might."""
    store = Store.open(records / "reference-base.1")
    (file,) = store.record_files()
    changed = []
    for row in store.read_rows(RECORDS, file):
        if int(row.question_id.split("/")[-2]) in contexts:
            changes = {"output_text": "another answer", "right": False, "f1": 0.0, "em": 0.0}
            row = row.model_copy(update=changes)
        changed.append(row)
    store.write_rows(RECORDS, file, changed)


def pack_as(folder: Path, run: RunFile, policy: str, name: str) -> None:
    """Leaves of a packed run the answers of one policy, under another name."""
    store = Store.open(folder)
    (file,) = store.record_files()
    rows = [row for row in store.read_rows(RECORDS, file) if row.policy == policy]
    store.write_rows(RECORDS, file, [row.model_copy(update={"policy": name}) for row in rows])
    write_run_file(folder, run)


def test_a_copy_of_a_method_has_its_place(place_once: BoardComparison) -> None:
    places = place_once.tables()["places"]
    assert list(places["task"]) == ["mean of tasks", "base", "knowledge"]
    outcomes = place_once.outcomes().set_index("other")
    assert outcomes.loc["knorm", "difference"] == 0
    assert outcomes.loc["knorm", "verdict"] == "not distinguished"
    assert {*outcomes.index} == {"knorm", "keydiff", "streaming_llm"}
    assert (places["among"] == 4).all()
    assert place_once.place.startswith("CopiedPress: place ")
    assert place_once.place.endswith(" of 4 on reference")


def test_each_answer_of_the_full_cache_is_as_stored(place_once: BoardComparison) -> None:
    questions = LIMIT * TASKS["base"].questions_per_context
    assert (
        f"base: {questions} of {questions} answers of the full cache as stored" in place_once.notes
    )


def test_the_page_has_all_methods_and_a_row_of_the_press(place_once: BoardComparison) -> None:
    text = place_once.board_page.read_text(encoding="utf-8")
    row = text[text.index('class="mine"') :].partition("</tr>")[0]
    assert 'data-name="CopiedPress"' in row
    assert text.count('class="mine"') == 1
    assert 'data-name="keydiff"' in text
    assert place_once.page.read_text(encoding="utf-8").count("CopiedPress")


def test_the_page_against_many_methods_lists_those_of_each_verdict(
    records: Path, file_of_press: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "MOST_NAMED", len(RANKED) - 1)
    compared = place(file_of_press.parent, "CopiedPress")
    page = compared.page.read_text(encoding="utf-8")
    assert f"Is it better than {len(RANKED)} others, and where?" in page
    counted = Counter(compared.outcomes()["verdict"])
    for verdict, words in GROUPS.items():
        assert (f"<b>{words} {counted[verdict]}: " in page) == (verdict in counted)


def test_the_block_for_a_pull_request_has_place_opponents_and_command(
    place_once: BoardComparison,
) -> None:
    lines = place_once.board_page.with_name("board-CopiedPress.md").read_text().splitlines()
    assert len(lines) <= 16
    assert lines[0].startswith("**`CopiedPress`: place ")
    assert any(line.startswith("- not distinguished from") and "`knorm`" in line for line in lines)
    command = "my.py:CopiedPress --against board --model reference --tasks base,knowledge`"
    assert lines[-1].endswith(command)


def findings(folder: Path, press: Path) -> dict[str, str]:
    """What of an entry is wrong, by check, its source trusted and its examples answered again."""
    found = examine(folder, cells=4, trusted_code=[str(press)])
    return {one.check: one.text for one in found if one.outcome == "wrong"}


def test_an_entry_holds_what_the_board_takes(
    place_once: BoardComparison, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = place_once.board_page.with_name("entry-CopiedPress")
    (kept,) = entry.glob("press_sources/*/my.py")
    assert kept.read_text() == COPY
    assert findings(entry, kept) == {}
    taken = shutil.copytree(entry, records / "CopiedPress")
    assert len(board_groups(open_pieces(records))) == 1
    (first,) = publish_board(open_pieces(records), records.parent / "site")
    name = next(piece for piece in open_pieces(records) if piece.store.folder == taken)
    (_, policy) = name.store.identity.policies
    assert f'data-name="{without_places(policy.name)}"' in first.read_text(encoding="utf-8")


def test_an_edited_entry_is_found(place_once: BoardComparison, tmp_path: Path) -> None:
    entry = place_once.board_page.with_name("entry-CopiedPress")
    edited = Path(shutil.copytree(entry, tmp_path / "edited"))
    (kept,) = edited.glob("press_sources/*/my.py")
    store = Store.open(edited)
    (file,) = store.record_files()
    rows = store.read_rows(RECORDS, file)
    full = {row.question_id: row for row in rows if row.policy == "full"}
    forged = []
    for row in rows:
        changes = {"output_text": full[row.question_id].output_text}
        for name in SCORES:
            changes[name] = getattr(full[row.question_id], name)
        forged.append(row if row.policy == "full" else row.model_copy(update=changes))
    store.write_rows(RECORDS, file, forged)
    assert "replay" in findings(edited, kept)


def test_the_place_counts_the_methods_that_have_more_right(
    file_of_press: Path, records: Path
) -> None:
    compared = place(file_of_press.parent, "TurnedPress", ratios="0.5")
    rows = [Store.open(records / "reference-base.1").frame(), compared.run.records()]
    at_half = pd.concat(rows).query("ratio == 0.5 and task == 'base'")
    right = at_half.groupby("policy")["right"].mean()
    mine = next(name for name in right.index if name.endswith("TurnedPress"))
    ahead = [name for name in RANKED if right[name] > right[mine]]
    places = compared.tables()["places"].set_index("task")
    assert places.loc["base", "place"] == 1 + len(ahead)
    assert right.loc[[*RANKED, mine]].nunique() > 1


def test_contexts_that_the_full_cache_answers_in_another_way_are_answered_anew_by_all(
    file_of_press: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored answers of one context are made worthless, of which those of the full cache tell:
    with new ones the copy of a method is not distinguished from it, as with all that are sound."""
    monkeypatch.setattr("kvbench.publish.board.placed.LEAST_REPRODUCED", 0.5)
    sound = place(file_of_press.parent, "CopiedPress", name="sound")
    change_answers(records, {2})
    compared = place(file_of_press.parent, "CopiedPress", name="differing")
    per_context = TASKS["base"].questions_per_context
    left, all_answers = (LIMIT - 1) * per_context, LIMIT * per_context
    note = f"base: {left} of {all_answers} answers of the full cache as stored; 1 context"
    assert any(line.startswith(note) for line in compared.notes)
    columns = ["other", "difference", "verdict"]
    assert compared.outcomes()[columns].equals(sound.outcomes()[columns])
    assert compared.place == sound.place
    (folder,) = (file_of_press.parent / "runs" / "differing" / "anew").iterdir()
    anew = Store.open(folder).frame()
    assert set(anew["example_index"]) == {2}
    assert set(anew["policy"]) == set(METHODS)
    assert set(anew["ratio"]) == {0.0, 0.5, 0.75}
    written = {file: file.stat().st_mtime_ns for file in folder.rglob("*.parquet")}
    place(file_of_press.parent, "CopiedPress", name="differing")
    assert written == {file: file.stat().st_mtime_ns for file in folder.rglob("*.parquet")}


def test_presses_of_others_are_left_out_where_contexts_are_answered_anew(
    file_of_press: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvbench.publish.board.placed.LEAST_REPRODUCED", 0.5)
    change_answers(records, {2})
    other = Path(shutil.copytree(records / "reference-base.1", records / "sent"))
    run = Store.open(other).run
    (keydiff,) = (policy for policy in run.identity.policies if policy.name == "keydiff")
    sent = keydiff.model_copy(update={"name": "sent", "origin": "another"})
    identity = run.identity.model_copy(update={"policies": (sent,)})
    pack_as(other, run.model_copy(update={"identity": identity}), "keydiff", "sent")
    compared = place(file_of_press.parent, "CopiedPress")
    assert any(line.startswith("sent: left out") for line in compared.warnings)
    assert {*compared.outcomes()["other"]} == {"knorm", "keydiff", "streaming_llm"}


def test_a_machine_that_answers_otherwise_has_no_place_to_tell(
    file_of_press: Path, records: Path
) -> None:
    change_answers(records, {0, 1, 2})
    with pytest.raises(KVBenchError, match="does not answer as the board does"):
        place(file_of_press.parent, "CopiedPress")


@pytest.mark.parametrize(("option", "value"), [("seed", 3), ("dtype", "bfloat16"), ("repeats", 2)])
def test_what_the_stored_answers_decide_is_no_option(
    option: str, value: int | str, records: Path, file_of_press: Path
) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(KVBenchError, match=f"--{option}: the answers of the board are stored"):
        place(file_of_press.parent, "CopiedPress", **options)


def test_what_cannot_stand_beside_the_first_pieces_is_left_out_and_named(
    file_of_press: Path, records: Path
) -> None:
    other = Path(shutil.copytree(records / "reference-base.1", records / "reference-base.2"))
    run = Store.open(other).run
    changed = []
    for policy in run.identity.policies:
        is_other = policy.name == "keydiff"
        changed.append(policy.model_copy(update={"origin": "another"}) if is_other else policy)
    identity = run.identity.model_copy(update={"policies": tuple(changed)})
    write_run_file(other, run.model_copy(update={"identity": identity}))
    compared = place(file_of_press.parent, "CopiedPress")
    assert any("reference-base.2: left out" in warning for warning in compared.warnings)
    assert {*compared.outcomes()["other"]} == {"knorm", "keydiff", "streaming_llm"}


def test_a_model_that_is_not_on_the_board_is_told_what_is(records: Path) -> None:
    with pytest.raises(KVBenchError, match=r"it has reference \(base, knowledge\)"):
        choose_pieces(open_pieces(records), "smollm2", "agnostic", None)


def test_contexts_of_one_length_of_the_board_are_chosen(records: Path, file_of_press: Path) -> None:
    longer = Path(shutil.copytree(records / "reference-base.1", records / "a-reference-base.4"))
    run = Store.open(longer).run
    assert run.job is not None
    job = run.job.model_copy(update={"context_tokens": 300})
    write_run_file(longer, run.model_copy(update={"job": job}))
    pieces = open_pieces(records)
    assert [piece.store.folder for piece in choose_length(pieces, 300)] == [longer]
    assert len(choose_length(pieces, None)) == 2
    with pytest.raises(
        KVBenchError, match=r"--context-tokens 400: the board has 300 tokens, usual"
    ):
        place(file_of_press.parent, "CopiedPress", context_tokens=400)
    compared = place(file_of_press.parent, "CopiedPress", context_tokens="native", limit=4)
    block = compared.board_page.with_name("board-CopiedPress.md").read_text()
    assert "--tasks base --context-tokens native --limit 4`" in block


def test_a_press_is_asked_as_the_methods_were(records: Path) -> None:
    pieces = open_pieces(records)
    job = Job(model="reference", tasks="knowledge", difficulty="1", context_tokens=None)
    piece = Piece(
        Store(pieces[1].store.folder, pieces[1].store.run.model_copy(update={"job": job}))
    )
    options = board_options([pieces[0], piece])
    assert (options["tasks"], options["limit"]) == ("base,knowledge", LIMIT)
    assert options["difficulty"] == "knowledge=1"


def test_the_command_says_the_place_first(
    cli: CommandLine, records: Path, file_of_press: Path, tmp_path: Path
) -> None:
    folder = file_of_press.parent
    status = cli(
        *("compare", f"{file_of_press}:CopiedPress", "--against", "board", "--tasks", "base"),
        *("--out", str(folder / "runs"), "--site", str(folder / "site"), "--json"),
    )
    assert status == 0
    told = json.loads(cli.out)
    assert told["verdict"].startswith("CopiedPress: place ")
    assert [row["task"] for row in told["tables"]["places"]] == ["base"]
    assert "knorm" in {row["other"] for row in told["tables"]["outcomes"]}
