"""Pieces of the board: what is stale is shown so and asked again, and nothing else is."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import docs.scripts.board
from datasets_gen import KNOWN_TASKS
from docs.scripts.board import BoardRun, batches, complete, keep, missing_policies, pieces_of
from kvbench.board import freshness
from kvbench.board.asked import choose_pieces
from kvbench.board.pieces import (
    Piece,
    SortedPieces,
    board_groups,
    most_answered_first,
    open_pieces,
    sort_pieces,
    stale_policies,
)
from kvbench.board.unfit import UNFIT_FILE, read_unfit
from kvbench.publish.board import pages
from kvbench.publish.board.pages import board_parts, publish_board
from kvbench.store.packing import write_run_file
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from leaderboards.pages.methods.all_methods import AboutMethod, Elsewhere, methods_table
from leaderboards.pages.methods.one_method import build_one_method
from policies import POLICIES, composition
from policies.declaration.shape import ModelShape
from tests.support.records.small_store import small_store

RUN = BoardRun("toy-hops", ("--model", "reference", "--tasks", "hops"), ("snapkv", "knorm"))
KNORM = AboutMethod(family="scorer", idea="Small keys", paper="arXiv 2406.11430", needs="")
POLICIES_OF_RUN = ["full", "oracle", "random", "recency", "snapkv", "knorm"]


@pytest.fixture
def answered(tmp_path: Path) -> Store:
    store = small_store(tmp_path / "runs" / "one")
    command = (
        "python -m kvbench run --suite board --model reference --tasks hops --policies snapkv,knorm"
    )
    store.run = store.run.model_copy(update={"command": command})
    return store


@pytest.fixture
def records(answered: Store, tmp_path: Path) -> Path:
    """A folder with one piece, of all policies of the run."""
    folder = tmp_path / "records"
    keep(RUN, answered, POLICIES_OF_RUN, folder)
    return folder


def raise_version(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    newer = replace(KNOWN_TASKS[task], version="99.0.0")
    monkeypatch.setattr(freshness, "KNOWN_TASKS", {**KNOWN_TASKS, task: newer})


def raise_version_of_policy(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    newer = replace(POLICIES[name], version="2.0.0")
    monkeypatch.setattr(
        freshness, "built_in", lambda policy: newer if policy == name else POLICIES.get(policy)
    )


def as_of_another_machine(store: Store) -> Store:
    """The same run, as if other code on another machine had made it."""
    identity = store.identity.model_copy(update={"source": "other", "device": "cpu (arm64)"})
    write_run_file(store.folder, store.run.model_copy(update={"identity": identity}))
    return Store.open(store.folder)


def test_a_run_lacks_what_no_piece_has_answered(records: Path, tmp_path: Path) -> None:
    assert RUN.policies == POLICIES_OF_RUN
    assert missing_policies(RUN, pieces_of(RUN, tmp_path / "nowhere")) == POLICIES_OF_RUN
    assert missing_policies(RUN, pieces_of(RUN, records)) == []
    more = replace(RUN, methods=("snapkv", "knorm", "tova"))
    assert missing_policies(more, pieces_of(more, records)) == ["tova"]
    assert missing_policies(replace(RUN, name="toy-base"), []) == POLICIES_OF_RUN
    longer = replace(RUN, options=(*RUN.options, "--context-tokens", "400"))
    assert missing_policies(longer, pieces_of(longer, records)) == POLICIES_OF_RUN


def test_of_a_task_with_a_new_version_everything_is_stale(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_version(monkeypatch, "base")
    assert missing_policies(RUN, pieces_of(RUN, records)) == []
    raise_version(monkeypatch, "hops")
    assert missing_policies(RUN, pieces_of(RUN, records)) == POLICIES_OF_RUN


def test_what_was_asked_with_other_options_or_in_another_type_of_numbers_is_asked_again(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which type is faster differs by machine, and answers of one board are of one."""
    pieces = pieces_of(RUN, records)
    assert not missing_policies(RUN, pieces)
    longer = replace(RUN, options=(*RUN.options, "--context-tokens", "900"))
    assert missing_policies(longer, pieces) == POLICIES_OF_RUN
    monkeypatch.setattr(docs.scripts.board, "DTYPE", "bfloat16")
    assert missing_policies(RUN, pieces) == POLICIES_OF_RUN


def test_of_a_policy_with_a_new_version_its_own_answers_are_stale(
    records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_version_of_policy(monkeypatch, "snapkv")
    pieces = pieces_of(RUN, records)
    assert missing_policies(RUN, pieces) == ["snapkv"]
    reasons = stale_policies(pieces)
    assert list(reasons) == ["snapkv"]
    assert "version 2.0.0 now, these are of 1.0.0" in reasons["snapkv"]


def test_the_page_marks_what_is_stale(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = open_pieces(records)
    for piece in pieces:
        job = piece.store.run.job
        assert job is not None
        of_suite = job.model_copy(update={"suite": "board"})
        write_run_file(piece.store.folder, piece.store.run.model_copy(update={"job": of_suite}))

    def page(name: str) -> str:
        publish_board(open_pieces(records), tmp_path / name)
        return (tmp_path / name / "index.html").read_text(encoding="utf-8")

    assert 'class="stale"' not in page("fresh")
    raise_version_of_policy(monkeypatch, "snapkv")
    text = page("stale")
    assert text.count('class="stale"') == 1
    row = text[: text.index('class="stale"')].rpartition("<tr ")[2]
    assert 'data-name="snapkv"' in row


def test_what_is_asked_again_takes_the_place_of_what_is_stale(
    records: Path, answered: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_version_of_policy(monkeypatch, "snapkv")
    asked: list[Sequence[str]] = []

    def ask(run: BoardRun, policies: Sequence[str]) -> Store:
        asked.append(policies)
        changed = answered.identity.policies
        versions = {"snapkv": "2.0.0"}
        newer = [
            policy.model_copy(update={"version": versions.get(policy.name, policy.version)})
            for policy in changed
        ]
        identity = answered.identity.model_copy(update={"policies": tuple(newer)})
        answered.run = answered.run.model_copy(update={"identity": identity})
        return answered

    monkeypatch.setattr(docs.scripts.board, "ask", ask)
    complete(RUN, records)
    assert asked == [["snapkv"]]
    pieces = open_pieces(records)
    by_piece = [[policy.name for policy in piece.store.identity.policies] for piece in pieces]
    assert sorted(by_piece) == [["full", "oracle", "random", "recency", "knorm"], ["snapkv"]]
    rows = {name for piece in pieces for name in piece.store.frame()["policy"]}
    assert rows == {*POLICIES_OF_RUN}
    complete(RUN, records)
    assert len(asked) == 1
    assert not list(records.glob(".*"))


def test_pieces_of_other_code_and_machines_stand_on_one_board(
    records: Path, answered: Store, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    keep(replace(RUN, name="toy-base"), answered, ["full", "knorm"], other)
    (piece,) = open_pieces(other)
    of_both = [*open_pieces(records), Piece(as_of_another_machine(piece.store))]
    (group,) = board_groups(of_both)
    assert len(group.records()) == sum(len(piece.store.frame()) for piece in of_both[:1])


def test_pieces_of_another_seed_or_model_stand_on_a_board_of_their_own(
    records: Path, answered: Store, tmp_path: Path
) -> None:
    for name, value in (("seed", 7), ("model_fingerprint", "another"), ("dtype", "bfloat16")):
        other = tmp_path / name
        keep(RUN, answered, ["full", "knorm"], other)
        (piece,) = open_pieces(other)
        identity = piece.store.identity.model_copy(update={name: value})
        run = piece.store.run.model_copy(update={"identity": identity})
        write_run_file(piece.store.folder, run)
        assert len(board_groups([*open_pieces(records), *open_pieces(other)])) == 2


def test_boards_of_one_model_are_told_apart_by_the_length_of_their_contexts(
    records: Path, answered: Store, tmp_path: Path
) -> None:
    longer = tmp_path / "longer"
    keep(RUN, answered, ["full", "knorm"], longer)
    (piece,) = open_pieces(longer)
    job = piece.store.run.job
    assert job is not None
    changes = {
        "job": job.model_copy(update={"context_tokens": 4096}),
        "identity": piece.store.identity.model_copy(update={"seed": 7}),
    }
    write_run_file(piece.store.folder, piece.store.run.model_copy(update=changes))
    groups = board_groups([*open_pieces(records), *open_pieces(longer)])
    assert [group.setting for group in groups] == ["", "4096 tokens"]


def keep_longer(answered: Store, policies: Sequence[str], folder: Path) -> Piece:
    """A packed run of the same task, as if its contexts had 4096 tokens."""
    keep(replace(RUN, name="toy-a-long-hops"), answered, policies, folder)
    (piece,) = open_pieces(folder)
    job = piece.store.run.job
    assert job is not None
    (task,) = piece.store.identity.tasks
    long_task = task.model_copy(update={"name": "long_hops"})
    of_task = [
        policy.model_copy(update={"tasks": (long_task.name,)})
        for policy in piece.store.identity.policies
    ]
    changes = {
        "job": job.model_copy(update={"context_tokens": 4096}),
        "identity": piece.store.identity.model_copy(
            update={"tasks": (long_task,), "policies": tuple(of_task)}
        ),
    }
    write_run_file(piece.store.folder, piece.store.run.model_copy(update=changes))
    return Piece(Store.open(piece.store.folder))


def test_a_length_that_few_methods_were_asked_stands_on_a_board_of_its_own(
    records: Path, answered: Store, tmp_path: Path
) -> None:
    (usual,) = open_pieces(records)
    few = keep_longer(answered, ["full", "knorm"], tmp_path / "few")
    pieces = most_answered_first([few, usual])
    assert pieces == [usual, few]
    assert sort_pieces(pieces) == SortedPieces([usual, few], [], {})
    groups = board_groups(pieces)
    assert [group.setting for group in groups] == ["", "4096 tokens"]
    assert choose_pieces(pieces, None, "agnostic", ["hops", "long_hops"]) == [usual]
    assert choose_pieces(pieces, None, "agnostic", ["long_hops"]) == [few]
    many = keep_longer(answered, POLICIES_OF_RUN, tmp_path / "many")
    (group,) = board_groups([usual, many])
    assert group.setting == ""
    assert [task.name for task in group.identity.tasks] == ["hops", "long_hops"]


def keep_first_contexts(piece: Piece, count: int = 1) -> Piece:
    """Takes all but the first contexts of each task from a packed run."""
    folder = piece.store.folder
    for name in ("contexts", "questions"):
        rows = pq.read_table(folder / f"{name}.parquet")
        kept_rows = rows.filter(pc.less(rows["example_index"], count))
        pq.write_table(kept_rows, folder / f"{name}.parquet")
    questions = pq.read_table(folder / "questions.parquet")["question_id"].combine_chunks()
    records = pq.read_table(folder / "records.parquet")
    kept = records.filter(pc.is_in(records["question_id"], questions))
    pq.write_table(kept, folder / "records.parquet")
    identity = piece.store.identity
    tasks = tuple(task.model_copy(update={"contexts": count}) for task in identity.tasks)
    changes = {"identity": identity.model_copy(update={"tasks": tasks})}
    write_run_file(folder, piece.store.run.model_copy(update=changes))
    return Piece(Store.open(folder))


def test_what_a_method_loses_is_told_by_the_most_contexts_and_its_place_by_those_of_all(
    records: Path, answered: Store, tmp_path: Path
) -> None:
    keep(replace(RUN, name="toy-closer-hops"), answered, ["full", "knorm"], tmp_path / "closer")
    (closer,) = open_pieces(tmp_path / "closer")
    (task,) = closer.store.identity.tasks
    usual = keep_first_contexts(open_pieces(records)[0])
    for pieces in ([usual, closer], [closer, usual]):
        assert sort_pieces(pieces) == SortedPieces([usual], [closer], {})
        (group,) = board_groups(pieces)
        assert [store.folder for store in group.stores] == [usual.store.folder]
        assert choose_pieces(pieces, None, "agnostic", ["hops"]) == [usual]
        (part,) = board_parts(pieces)
        assert len(part.results.closer) == 1
        table = methods_table(part.results, "", "", Elsewhere({}, {}))
        cells = {}
        for line in table.methods:
            cells[line.name] = dict(zip(table.columns, line.cells, strict=True))
        assert cells["knorm"]["multi-hop, 0.5"].detail.startswith(f"n {task.contexts} ")
        assert not cells["snapkv"]["multi-hop, 0.5"].detail.startswith("n ")
        assert part.results.standings == board_parts([usual])[0].results.standings
        warned = replace(KNORM, caveat="It has a trap")
        page = build_one_method("knorm", warned, "", [part.results], "index.html")
        assert "<b>Beware</b>: It has a trap." in page
        assert page.count(f"hops, ratio 0.5, {task.contexts} contexts") == 1


def test_methods_may_be_looked_at_closer_each_by_its_own_number_of_contexts(
    records: Path, answered: Store, tmp_path: Path
) -> None:
    usual = keep_first_contexts(open_pieces(records)[0])
    counts = {"knorm": 2, "snapkv": 3}
    pieces = [usual]
    for policy, count in counts.items():
        folder = tmp_path / policy
        keep(replace(RUN, name=f"toy-{policy}-hops"), answered, ["full", policy], folder)
        pieces.append(keep_first_contexts(open_pieces(folder)[0], count))
    for ordered in (pieces, pieces[::-1]):
        (part,) = board_parts(ordered)
        table = methods_table(part.results, "", "", Elsewhere({}, {}))
        details = {line.name: [cell.detail for cell in line.cells] for line in table.methods}
        for policy, count in counts.items():
            assert [detail for detail in details[policy] if detail.startswith(f"n {count} ")]
            page = build_one_method(policy, KNORM, "", [part.results], "index.html")
            assert page.count(f"hops, ratio 0.5, {count} contexts") == 1


def test_a_task_that_many_methods_have_not_answered_yet_costs_nobody_a_place(
    records: Path, answered: Store, tmp_path: Path
) -> None:
    base = replace(RUN, name="toy-base", options=("--model", "reference", "--tasks", "base"))
    keep(base, answered, ["full", "knorm"], records)
    unfinished, whole = open_pieces(records)
    counted = "2 of 6 policies have answered it so far"
    why = {unfinished.store.folder: counted}
    assert sort_pieces([unfinished, whole]) == SortedPieces([whole], [], why)
    publish_board([unfinished, whole], tmp_path / "site")
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "base on reference, agnostic" in page
    assert counted in page
    keep(base, answered, POLICIES_OF_RUN, tmp_path / "all")
    (others,) = open_pieces(tmp_path / "all")
    assert sort_pieces([others, whole]) == SortedPieces([others, whole], [], {})


def test_presses_that_others_sent_make_no_task_unfinished(
    records: Path, answered: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answers what it chose: a task that they left out is not unfinished for it."""
    base = replace(RUN, name="toy-base", options=("--model", "reference", "--tasks", "base"))
    keep(base, answered, POLICIES_OF_RUN[:-1], records)
    less, more = open_pieces(records)
    (reason,) = sort_pieces([less, more]).unfinished.values()
    assert reason == "5 of 6 policies have answered it so far"
    # As if the sixth, which did not answer the other task, had been sent.
    built_in = composition.built_in
    monkeypatch.setattr(
        composition, "built_in", lambda name: None if name == "knorm" else built_in(name)
    )
    assert sort_pieces([less, more]).unfinished == {}


def test_a_method_that_was_asked_of_more_contexts_alone_has_a_row_all_the_same(
    records: Path, answered: Store, tmp_path: Path
) -> None:
    keep(RUN, answered, ["full", "snapkv"], tmp_path / "usual")
    keep(replace(RUN, name="toy-more-hops"), answered, ["full", "knorm"], tmp_path / "more")
    usual = keep_first_contexts(open_pieces(tmp_path / "usual")[0])
    (more,) = open_pieces(tmp_path / "more")
    assert sort_pieces([usual, more]) == SortedPieces([usual, more], [], {})
    titles = [part.results.setting for part in board_parts([usual, more])]
    assert len(titles) == len({*titles}) == 2


def test_what_cannot_run_on_a_model_is_not_asked_of_it_and_the_page_says_why(
    records: Path, answered: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sliding = ModelShape(2, 1, 16, "float32", windows=(64,))
    monkeypatch.setattr(docs.scripts.board, "read_cache_shape", lambda *_: sliding)
    monkeypatch.setattr(docs.scripts.board, "ask", lambda *_: answered)
    with_kvzip = replace(RUN, methods=("knorm", "kvzip"))
    assert with_kvzip.policies == [*POLICIES_OF_RUN[:4], "knorm"]
    complete(with_kvzip, records)
    unfit = read_unfit(records)
    assert list(unfit["reference"]) == ["kvzip"]
    assert "1 of 2 layers of this model slide" in unfit["reference"]["kvzip"]
    monkeypatch.setattr(pages, "read_unfit", lambda: unfit)
    publish_board(open_pieces(records), tmp_path / "site")
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert f"<li>kvzip: {unfit['reference']['kvzip']}" in page
    (records / UNFIT_FILE).write_text("[1]")
    with pytest.raises(KVBenchError, match=r"unfit\.json is damaged"):
        read_unfit(records)


def test_the_model_that_most_methods_answered_comes_first(
    records: Path, answered: Store, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    keep(replace(RUN, name="a-hops"), answered, ["full", "knorm"], other)
    (few,) = open_pieces(other)
    identity = few.store.identity.model_copy(update={"model": "another", "model_fingerprint": "x"})
    write_run_file(few.store.folder, few.store.run.model_copy(update={"identity": identity}))
    (few,) = open_pieces(other)
    (many,) = open_pieces(records)
    assert most_answered_first([few, many]) == [many, few]
    assert [group.identity.model for group in board_groups(most_answered_first([few, many]))] == [
        many.store.identity.model,
        "another",
    ]


def test_controls_are_asked_with_the_first_methods() -> None:
    methods = [f"method{number}" for number in range(20)]
    first, second = batches(["full", "random", *methods])
    assert first == ["full", "random", *methods[:15]]
    assert second == methods[15:]
    assert list(batches(["random"])) == [["random"]]
    assert list(batches([])) == []


def test_the_command_says_how_many_runs_are_whole_and_knows_their_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    completed: list[str] = []
    monkeypatch.setattr(docs.scripts.board, "complete", lambda run: completed.append(run.name))
    docs.scripts.board.main(["qwen-base", "gemma3-base"])
    assert completed == ["qwen-base", "gemma3-base"]
    assert capsys.readouterr().out.splitlines() == [
        "1 of 2 runs are whole: qwen-base",
        "2 of 2 runs are whole: gemma3-base",
    ]
    with pytest.raises(
        SystemExit, match=r"no run is named qwen-hops; .* has smollm2-niah_single_2"
    ):
        docs.scripts.board.main(["qwen-base", "qwen-hops"])
    assert len(completed) == 2
