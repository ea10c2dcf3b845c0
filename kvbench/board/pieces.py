"""Opens the board: packed runs of this project, and those that others sent."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import leaderboards
from kvbench.board.freshness import Stale
from kvbench.store.merging import RunGroup, group_runs
from kvbench.store.run_file import RUN_FILE
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from policies import composition

PLACE = Path(leaderboards.__file__).parent
RECORDS_FOLDER, ENTRIES_FOLDER = PLACE / "records", PLACE / "entries"


# Of the policies that answered the task of a board that most did. Some tasks are asked of a few
# more than others, as only prompts with instructions can have them protected.
FINISHED = 0.9


@dataclass(frozen=True)
class Piece:
    """A packed run: the answers of some methods."""

    store: Store

    @cached_property
    def stale(self) -> Stale:
        return Stale.of(self.store.identity)

    @property
    def board(self) -> tuple[str, str, str]:
        """Returns what tells its board from others: the model, the mode, and the length of the
        contexts, in words."""
        job, identity = self.store.run.job, self.store.identity
        length = None if job is None else job.context_tokens
        words = "usual length" if length is None else f"{length} tokens"
        return identity.model, identity.mode, words

    @property
    def contexts(self) -> int:
        """Returns how many contexts of a task it has, of the task that has fewest."""
        return min(task.contexts for task in self.store.identity.tasks)

    @property
    def built_in_policies(self) -> set[str]:
        """Names its policies that are no plug-ins. Presses that others sent answer what they chose,
        and say nothing of how many the tasks of a board were to be asked."""
        names = set()
        for policy in self.store.identity.policies:
            if composition.built_in(policy.name) is not None:
                names.add(policy.name)
        return names

    @property
    def places(self) -> list[tuple[str, ...]]:
        """Lists where its answers stand: on its board, in a task, for a policy."""
        places: list[tuple[str, ...]] = []
        for policy in self.store.identity.policies:
            places += [(*self.board, task, policy.name) for task in policy.tasks]
        return places

    @property
    def fresh_policies(self) -> list[str]:
        """Lists the policies none of whose answers are stale."""
        return [
            policy.name
            for policy in self.store.identity.policies
            if not self.stale.why(policy.name, policy.tasks)
        ]


def open_pieces(folder: Path = RECORDS_FOLDER) -> list[Piece]:
    """Opens the packed runs of a folder, by name. Raises :class:`KVBenchError` for one that cannot
    be read."""
    files = sorted(folder.glob(f"*/{RUN_FILE}"))
    return [Piece(Store.open(file.parent)) for file in files]


def open_board() -> list[Piece]:
    """Opens all packed runs: first those of the model and mode that methods answered most, and those
    that others sent last of each. Raises :class:`KVBenchError` where there are none."""
    pieces = [*open_pieces(), *open_pieces(ENTRIES_FOLDER)]
    if not pieces:
        raise KVBenchError(f"{RECORDS_FOLDER} holds no records: make board measures them")
    return most_answered_first(pieces)


def most_answered_first(pieces: Sequence[Piece]) -> list[Piece]:
    """Sorts packed runs by how many methods answered on their model in their mode, to contexts of
    their length, each task counted by itself."""
    answered: Counter[tuple[str, str, str]] = Counter()
    for piece in pieces:
        for policy in piece.store.identity.policies:
            answered[piece.board] += len(policy.tasks)

    def count(piece: Piece) -> int:
        return answered[piece.board]

    return sorted(pieces, key=count, reverse=True)


@dataclass(frozen=True)
class SortedPieces:
    """Holds packed runs by what they are to a board. ``usual``: boards are made of them.
    ``closer``: they asked policies of a board its tasks again, of more contexts. ``unfinished``:
    many policies of the board have not answered their task yet, and would lose their places in the
    mean over tasks."""

    usual: Sequence[Piece]
    closer: Sequence[Piece]
    unfinished: Mapping[Path, str]  # why, by the folder of a piece


def sort_pieces(pieces: Sequence[Piece]) -> SortedPieces:
    """Sorts packed runs by what they are to a board, each kind in their order."""
    of_boards, closer = _split_by_contexts(pieces)
    unfinished = _unfinished_tasks(of_boards)
    usual = [piece for piece in of_boards if piece.store.folder not in unfinished]
    return SortedPieces(usual, closer, unfinished)


def _split_by_contexts(pieces: Sequence[Piece]) -> tuple[list[Piece], list[Piece]]:
    fewest: dict[tuple[str, ...], int] = {}
    for piece in pieces:
        for place in piece.places:
            contexts = fewest.setdefault(place, piece.contexts)
            fewest[place] = min(contexts, piece.contexts)
    usual: list[Piece] = []
    closer: list[Piece] = []
    for piece in pieces:
        # A policy that the board has of no fewer contexts would have no row, so it is of a board.
        is_asked_again = all(piece.contexts > fewest[place] for place in piece.places)
        (closer if is_asked_again else usual).append(piece)
    return usual, closer


def _groups(of_boards: Sequence[Piece]) -> list[RunGroup]:
    """Groups packed runs by the board that they stand on: of one model and mode, with all that
    determines an answer the same. Contexts of a length that few of its methods were asked stand on
    a board of their own, as these alone would have a place on one of all lengths."""
    policies: dict[tuple[str, str, str], set[str]] = {}
    for piece in of_boards:
        policies.setdefault(piece.board, set()).update(piece.built_in_policies)
    highest: Counter[tuple[str, str]] = Counter()
    for (model, mode, _), names in policies.items():
        highest[model, mode] = max(highest[model, mode], len(names))
    boards: dict[tuple[str, str, str], list[Store]] = {}
    for piece in of_boards:
        model, mode, length = piece.board
        asks_few = len(policies[piece.board]) < FINISHED * highest[model, mode]
        boards.setdefault((model, mode, length if asks_few else ""), []).append(piece.store)
    groups = []
    for stores in boards.values():
        groups += group_runs(stores, across_code=True)
    return groups


def _unfinished_tasks(of_boards: Sequence[Piece]) -> dict[Path, str]:
    """Says of pieces whose task too few policies of its board have answered yet, how many have."""
    unfinished: dict[Path, str] = {}
    for group in _groups(of_boards):
        answered: dict[str, set[str]] = {}
        for store in group.stores:
            for task in store.identity.tasks:
                answered.setdefault(task.name, set()).update(Piece(store).built_in_policies)
        highest = max(map(len, answered.values()))
        for store in group.stores:
            # A packed run of the board has one task.
            count = max(len(answered[task.name]) for task in store.identity.tasks)
            if count < FINISHED * highest:
                counted = f"{count} of {highest} policies have answered it so far"
                unfinished[store.folder] = counted
    return unfinished


def board_groups(pieces: Sequence[Piece]) -> list[RunGroup]:
    """Groups packed runs by the board that they stand on, whatever code and machine made them. From
    the first of its model and mode another is told by the length of its contexts, where it differs.
    Those that look closer, or are not finished, are of no board (:func:`sort_pieces`)."""
    groups = _groups(sort_pieces(pieces).usual)
    boards = Counter(_board_and_length(group) for group in groups)
    models: set[tuple[str, str]] = set()
    labelled = []
    for group in groups:
        model, mode, length = _board_and_length(group)
        # Of the same length they have the names of their runs already.
        if boards[model, mode, length] == 1:
            group = replace(group, setting=length if (model, mode) in models else "")
        models.add((model, mode))
        labelled.append(group)
    return labelled


def _board_and_length(group: RunGroup) -> tuple[str, str, str]:
    """Returns model, mode and the length of the contexts, of all runs where they differ."""
    boards = [Piece(store).board for store in group.stores]
    lengths = dict.fromkeys(length for _, _, length in boards)
    model, mode, _ = boards[0]
    return model, mode, " and ".join(lengths)


def stale_policies(pieces: Sequence[Piece]) -> dict[str, str]:
    """Says of each policy with stale answers why they are."""
    reasons: dict[str, str] = {}
    for piece in pieces:
        for policy in piece.store.identity.policies:
            if reason := piece.stale.why(policy.name, policy.tasks):
                reasons.setdefault(policy.name, reason)
    return reasons
