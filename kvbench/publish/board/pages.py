"""Writes the board: a table of all methods, a page for each of them, and examples. It is small enough
to lie in a repository: records are there already, and are no downloads of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pandas import DataFrame

from kvbench.board.pieces import Piece, board_groups, sort_pieces, stale_policies
from kvbench.board.unfit import read_unfit
from kvbench.publish.former_files import announce_files, remove_former_files
from kvbench.publish.method import arguments_used
from kvbench.publish.methods import about_methods, find_left_out, methods_page
from kvbench.publish.parts import Part, list_stores
from kvbench.publish.site import aggregate_groups
from kvbench.publish.site_list import RUN, enlist, find_neighbours, is_listed
from kvbench.store.merging import group_runs
from kvbench.system.files import write_text_atomically
from leaderboards.downloads.sheets import file_name
from leaderboards.pages.examples import EXAMPLE_COLUMNS, build_examples
from leaderboards.pages.front import FRONT
from leaderboards.pages.methods.one_method import build_one_method
from leaderboards.pages.results import Results
from leaderboards.rendering.templating import Neighbours
from leaderboards.studies.parts import examples_page
from policies import FULL

TITLE = "All methods"


def publish_board(
    pieces: Sequence[Piece],
    folder: Path,
    every_task: bool = False,
    tolerance: float | None = None,
) -> Sequence[Path]:
    """Writes the pages of packed runs, whatever code and machine made them, and returns the page to
    begin with. Raises :class:`KVBenchError` where records cannot be aggregated or a file cannot be
    written."""
    return publish_parts(board_parts(pieces, every_task, tolerance), pieces, folder)


def board_parts(
    pieces: Sequence[Piece], every_task: bool = False, tolerance: float | None = None
) -> list[Part]:
    """Aggregates packed runs, a part for each board. What was looked at closer is joined with the
    results of its board. Raises :class:`KVBenchError` where records cannot be aggregated."""
    closer = [piece.store for piece in sort_pieces(pieces).closer]
    closer_groups = group_runs(closer, across_code=True)
    # Policies of one board may have been asked closer of different numbers of contexts.
    closer_results: dict[tuple[str, str, str], list[Results]] = {}
    if closer_groups:
        for part in aggregate_groups(closer_groups, every_task, tolerance):
            of_board = closer_results.setdefault(Piece(part.group.stores[0]).board, [])
            of_board.append(part.results)
    parts = []
    for part in aggregate_groups(board_groups(pieces), every_task, tolerance):
        looked_at: list[Results] = []
        for board in dict.fromkeys(Piece(store).board for store in part.group.stores):
            looked_at += closer_results.get(board, [])
        parts.append(replace(part, results=replace(part.results, closer=looked_at)))
    return parts


def publish_parts(parts: Sequence[Part], pieces: Sequence[Piece], folder: Path) -> Sequence[Path]:
    """Writes the pages of what was aggregated of packed runs, and returns the page to begin with.
    Raises :class:`KVBenchError` where a file cannot be written."""
    neighbours = find_neighbours(folder) if is_listed(folder) else Neighbours()
    neighbours = replace(neighbours, has_method=False, first=TITLE)
    left_out = find_left_out(list_stores([part.group for part in parts]))
    unfinished = sort_pieces(pieces).unfinished
    for piece in pieces:
        if piece.store.folder in unfinished:
            identity = piece.store.identity
            names = ", ".join(task.name for task in identity.tasks)
            place = f"{names} on {identity.model}, {identity.mode}"
            left_out[place] = unfinished[piece.store.folder]
    contents = _methods_pages(parts, stale_policies(pieces), left_out, neighbours)
    examples_of = max(piece.store.run.examples_of or 1 for piece in pieces)
    contents |= _examples_pages(parts, examples_of, neighbours)
    announce_files(folder, contents)
    for page, text in contents.items():
        write_text_atomically(folder / page, text)
    remove_former_files(folder, contents)
    first = [folder / FRONT]
    if is_listed(folder):
        enlist(folder, RUN, first, list_stores([part.group for part in parts]))
    return first


def _methods_pages(
    parts: Sequence[Part],
    stale: dict[str, str],
    left_out: dict[str, str],
    neighbours: Neighbours,
) -> dict[str, str]:
    """Builds the table of all methods and the page of each, by file name."""
    results = [part.results for part in parts]
    stores = list_stores([part.group for part in parts])
    arguments = arguments_used([part.study_input.records for part in parts])
    methods = {}
    for name, about in about_methods(stores, stale).items():
        methods[name] = replace(about, page=f"method-{file_name(name)}.html")
    unfit = read_unfit()
    of_first = replace(neighbours, first="")
    page = methods_page(results, methods, left_out, of_first, unfit=unfit)
    contents = {FRONT: page}
    for name, about in methods.items():
        if name != FULL:
            used = arguments.get(name, "")
            page = build_one_method(name, about, used, results, FRONT, neighbours)
            contents[about.page] = page
    return contents


def _examples_pages(
    parts: Sequence[Part], examples_of: int, neighbours: Neighbours
) -> dict[str, str]:
    """Builds the pages of examples, of the contexts that keep which tokens survive."""
    contents = {}
    for number, part in enumerate(parts, start=1):
        records = part.study_input.records
        kept: DataFrame = records[records["example_index"] % examples_of == 0]
        for task, of_task in kept[[*EXAMPLE_COLUMNS]].groupby("task", sort=False):
            page = build_examples(
                part.study_input.model, str(task), of_task, FRONT, neighbours, TITLE
            )
            contents[examples_page(str(task), number)] = page
    return contents
