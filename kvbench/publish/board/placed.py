"""Places a press on the board: beside all methods whose answers are stored, on the same questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pandas import DataFrame, MultiIndex, concat

from kvbench.board.pieces import Piece, board_groups, stale_policies
from kvbench.board.unfit import read_unfit
from kvbench.execution.report import broken, fails_always
from kvbench.publish.compared import Compared, ComparedRun
from kvbench.publish.comparison import publish_comparison
from kvbench.publish.methods import about_methods, find_left_out, methods_page
from kvbench.publish.parts import list_stores, make_parts
from kvbench.publish.places import without_places
from kvbench.publish.site import summary_rows
from kvbench.publish.site_list import find_neighbours, site_folder
from kvbench.store.merging import RunGroup
from kvbench.store.run_file import choose_tolerance
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from kvbench.system.files import write_text_atomically
from leaderboards.aggregate.leading_measures import reasons_by_task
from leaderboards.aggregate.pairing import with_held
from leaderboards.boards.rank import RANK
from leaderboards.pages.methods.all_methods import METHODS_PAGE
from leaderboards.pages.results import Results
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.rank import RankInterval
from policies import CONTROLS, FULL

CONTEXT, QUESTION = ["task", "example_index"], ["task", "question_id"]
LEAST_REPRODUCED = 0.9  # of the contexts of a task: rounding changes an answer here and there


@dataclass(frozen=True)
class AnsweredAgain:
    """Tells how many answers of the full cache are here as they are stored."""

    task: str
    equal: int
    answers: int
    contexts: tuple[int, ...]  # with another answer, by number

    @property
    def sentence(self) -> str:
        """Says it in words."""
        counted = f"{self.equal} of {self.answers} answers of the full cache as stored"
        if not self.contexts:
            return f"{self.task}: {counted}"
        contexts = "1 context" if len(self.contexts) == 1 else f"{len(self.contexts)} contexts"
        return f"{self.task}: {counted}; {contexts} with another one answered here by all methods"


@dataclass(frozen=True)
class PlacedPress:
    """A press among all methods of the board, as it was published."""

    name: str
    model: str
    compared: ComparedRun
    ranks: Mapping[str, RankInterval | Blank]  # by task, the mean over several tasks first
    again: Sequence[AnsweredAgain]
    page: Path  # of all methods, with a row of the press


@dataclass(frozen=True)
class StoredAnswers:
    """Holds what the methods of one board have answered."""

    pieces: Sequence[Piece]
    group: RunGroup
    records: DataFrame
    warnings: Sequence[str]  # what is left out, and why

    @classmethod
    def of(cls, pieces: Sequence[Piece]) -> Self:
        """Reads the answers of packed runs that stand on the board of the first."""
        group, *others = board_groups(pieces)
        warnings = []
        if apart := [store.folder.name for store in list_stores(others)]:
            reason = "they have a method of the same name with other arguments or another version"
            warnings = [f"{', '.join(apart)}: left out, as {reason}"]
        folders = {store.folder for store in group.stores}
        of_group = [piece for piece in pieces if piece.store.folder in folders]
        return cls(of_group, group, with_held(group.records()), warnings)


def place_press(
    store: Store,
    press: str,
    stored: StoredAnswers,
    again: Sequence[AnsweredAgain],
    answered_here: Sequence[Store],
    site: Path | None,
    warnings: Sequence[str],
) -> PlacedPress:
    """Compares the press of a run with all methods of the board that answered the questions of the
    run, and publishes the page of methods with it and the page of the comparison. ``press``: as
    records name it. ``answered_here``: what the methods answered anew of contexts that this machine
    answers in another way (``again``). Raises :class:`KVBenchError` where the press has no answer,
    and where nothing can be compared."""
    mine = with_held(store.frame())
    if reason := fails_always(mine, press):
        raise KVBenchError(broken(press, reason, press))
    warnings = [*warnings, *stored.warnings]
    of_methods = with_new_answers(stored.records, answered_here)
    records = join_with_board(mine, of_methods, press)
    counts = records.drop_duplicates(CONTEXT)["task"].value_counts().to_dict()
    own_store = with_contexts(store, counts, [press])
    stores = []
    for other in stored.group.stores:
        names = [policy.name for policy in other.identity.policies if policy.name != press]
        stores.append(with_contexts(other, counts, names))
    group = RunGroup((*stores, own_store), across_code=True)
    rows = summary_rows(records, group)
    tolerance = choose_tolerance([store.run.job])
    (part,) = make_parts([group], [records], [rows], tolerance)
    folder = site_folder(site, [store])
    page = folder / METHODS_PAGE
    shown = without_places(press)
    text = methods_page(
        [part.results],
        about_methods(part.group.stores, stale_policies(stored.pieces)),
        find_left_out(stores),
        find_neighbours(folder),
        shown,
        has_examples=False,
        unfit=read_unfit(),
    )
    write_text_atomically(page, text)
    unmastered = reasons_by_task(rows)
    methods = [name for name in records["policy"].unique() if name not in (*CONTROLS, press)]
    published = publish_comparison(store, records, press, methods, site, unmastered, warnings)
    compared = Compared(press, tuple(methods), published, tuple(warnings))
    run = ComparedRun(store, rows, unmastered, [compared])
    ranks = find_ranks(part.results, shown)
    return PlacedPress(shown, part.results.model, run, ranks, again, page)


def compare_full_cache(mine: DataFrame, stored: StoredAnswers) -> list[AnsweredAgain]:
    """Compares the answers of the full cache in records with those that are stored, by task. Raises
    :class:`KVBenchError` where it has none, or where many contexts of a task differ."""
    if reason := fails_always(mine, FULL):
        raise KVBenchError(reason)
    keys = [*QUESTION, *CONTEXT[1:], "output_text"]
    here = mine.loc[mine["policy"] == FULL, keys]
    there = stored.records.loc[stored.records["policy"] == FULL, [*QUESTION, "output_text"]]
    both = here.merge(there, on=QUESTION, suffixes=("", "_stored"))
    if both.empty:
        raise KVBenchError("no question of this run is on the board: give its tasks and length")
    is_equal = both["output_text"].fillna("") == both["output_text_stored"].fillna("")
    both = both.assign(equal=is_equal)
    again: list[AnsweredAgain] = []
    for task, answers in both.groupby("task", sort=False):
        contexts = answers.groupby("example_index")["equal"].all()
        differing = tuple(int(number) for number in contexts[~contexts].index)
        equal = int(answers["equal"].sum())
        again.append(AnsweredAgain(str(task), equal, len(answers), differing))
        if contexts.mean() < LEAST_REPRODUCED:
            counted = f"{task}: {equal} of {len(answers)} answers of the full cache as stored"
            raise KVBenchError(
                f"this machine does not answer as the board does ({counted}): name methods with "
                f"--against, which are then answered here"
            )
    return again


def with_new_answers(stored: DataFrame, answered_here: Sequence[Store]) -> DataFrame:
    """Puts what was answered here in the place of the stored answers to the same contexts: what
    differs between two machines would be taken for a difference between methods."""
    if not answered_here:
        return stored
    anew = concat([answered.frame() for answered in answered_here], ignore_index=True)
    answered_contexts = MultiIndex.from_frame(anew[CONTEXT])
    is_answered = MultiIndex.from_frame(stored[CONTEXT]).isin(answered_contexts)
    return concat([stored[~is_answered], with_held(anew)], ignore_index=True)


def join_with_board(mine: DataFrame, of_methods: DataFrame, press: str) -> DataFrame:
    """Joins the answers of a press with those of the board, on the contexts of both."""
    others = of_methods[of_methods["policy"] != press]
    answers = mine[mine["policy"] == press]
    of_others = MultiIndex.from_frame(others[CONTEXT])
    of_press = MultiIndex.from_frame(answers[CONTEXT])
    shared = [others[of_others.isin(of_press)], answers[of_press.isin(of_others)]]
    return concat(shared, ignore_index=True)


def with_contexts(store: Store, counts: Mapping[str, int], policies: Sequence[str]) -> Store:
    """Returns a run as if it had so many contexts of some tasks, and no other tasks and
    policies."""
    tasks = []
    for task in store.identity.tasks:
        if task.name in counts:
            tasks.append(task.model_copy(update={"contexts": counts[task.name]}))
    kept = []
    for policy in store.identity.policies:
        of_policy = tuple(name for name in policy.tasks if name in counts)
        if of_policy and policy.name in policies:
            kept.append(policy.model_copy(update={"tasks": of_policy}))
    parts = {"tasks": tuple(tasks), "policies": tuple(kept)}
    identity = store.identity.model_copy(update=parts)
    return Store(store.folder, store.run.model_copy(update={"identity": identity}))


def find_ranks(results: Results, press: str) -> dict[str, RankInterval | Blank]:
    """Returns the place of a press in the mean over tasks, if there are several, and in each."""
    ranks: dict[str, RankInterval | Blank] = {}
    for task in results.shown:
        for standing in results.standings.get((results.mode, task), ()):
            if standing.policy == press:
                ranks[task] = standing[RANK]
    return ranks
