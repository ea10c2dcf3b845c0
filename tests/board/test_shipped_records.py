"""What is shipped of the board: it is read, nothing of it is stale unseen, and it stays small."""

import json
import random
from pathlib import Path

import pytest

from docs.scripts.board import read_plan
from docs.scripts.board_table import ROWS, SITE, core_hours, first_board
from kvbench.board.pieces import RECORDS_FOLDER, Piece, board_groups, open_board
from kvbench.checks.submission import examine
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.grid import arguments_and_origin
from kvbench.models.natural import NATURAL_MODELS
from kvbench.publish.board.pages import board_parts
from kvbench.store.tables import RECORDS
from tests.support.browsing.links import follow_links

MOST_BYTES = 15_000_000


@pytest.fixture(scope="module")
def pieces() -> list[Piece]:
    return open_board()


def test_each_piece_is_of_a_run_of_the_plan(pieces: list[Piece]) -> None:
    planned = {run.name for run in read_plan()}
    assert {piece.store.folder.name.rpartition(".")[0] for piece in pieces} <= planned
    assert all(piece.store.run.status == "complete" for piece in pieces)


def test_no_answer_failed_and_each_has_its_text(pieces: list[Piece]) -> None:
    for piece in pieces:
        records = piece.store.frame(["status", "output_text"])
        assert (records["status"] == "ok").all(), piece.store.folder.name
        assert records["output_text"].notna().all(), piece.store.folder.name


def test_the_smallest_piece_is_scored_again_as_it_is_stored(pieces: list[Piece]) -> None:
    """All of them take a minute: those of the slow test are drawn."""
    smallest = min(pieces, key=lambda piece: piece.store.table(RECORDS, ["policy"]).num_rows)
    findings = list(examine(smallest.store.folder))
    assert [one for one in findings if one.outcome == "wrong"] == []
    assert {"scores", "questions"} <= {one.check for one in findings}


def test_a_method_has_the_arguments_that_its_answers_were_made_with(pieces: list[Piece]) -> None:
    """Whoever changes what a policy does raises its version: then its answers are stale."""
    changed = set()
    for piece in pieces:
        for stored in piece.store.identity.policies:
            policy = find_policy(stored.name)
            if policy.version == stored.version:
                arguments, _ = arguments_and_origin(policy, None)
                if arguments != stored.arguments:
                    changed.add(stored.name)
    assert changed == set(), "raise the version of these policies, then make board"


def test_methods_of_one_task_are_asked_the_same_contexts(pieces: list[Piece]) -> None:
    for group in board_groups(pieces):
        records = group.records()
        counts = records.groupby(["task", "policy", "level"])["question_id"].nunique()
        for task, of_task in counts.groupby("task"):
            assert of_task.nunique() == 1, task
        assert all(task.contexts >= 24 for task in group.identity.tasks)


def test_the_table_of_the_readme_and_the_site_are_those_of_the_records(
    pieces: list[Piece],
) -> None:
    told = json.loads(ROWS.read_text(encoding="utf-8"))
    (first, *_) = board_parts(pieces)
    hours = told.pop("core_hours")
    assert hours == core_hours(pieces)
    assert first_board(first) == told, "python -m docs.scripts.board_table"
    text = (SITE / "index.html").read_text(encoding="utf-8")
    for row in told["rows"]:
        assert f'data-name="{row["method"]}"' in text


def test_no_link_of_its_site_leads_nowhere() -> None:
    pages = sorted(SITE.glob("*.html"))
    assert follow_links(pages) > len(pages)


def test_it_is_small_enough_to_be_shipped() -> None:
    sizes = [file.stat().st_size for file in RECORDS_FOLDER.rglob("*") if file.is_file()]
    assert sum(sizes) < MOST_BYTES
    assert sum(file.stat().st_size for file in SITE.rglob("*") if file.is_file()) < MOST_BYTES


@pytest.mark.slow
def test_a_sample_is_answered_again_as_it_is_stored(pieces: list[Piece]) -> None:
    here = [piece for piece in pieces if _is_here(piece)]
    if not here:
        pytest.skip("no model of the board is here: kvbench fetch smollm2")
    piece = random.SystemRandom().choice(here)
    findings = list(examine(piece.store.folder, cells=1))
    assert [one for one in findings if one.outcome == "wrong"] == []
    assert any("answered again" in one.text for one in findings if one.check == "replay")


def _is_here(piece: Piece) -> bool:
    model = NATURAL_MODELS.get(piece.store.identity.model)
    return model is not None and Path(model.path).is_file()
