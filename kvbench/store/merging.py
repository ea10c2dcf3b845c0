"""Uses runs together: groups them for one site, and lends the records of one to another."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import get_origin

import pandas as pd
import pyarrow as pa

from kvbench.store.run_file import RUN_FILE, Identity, PolicyIdentity
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS
from kvbench.system.errors import KVBenchError
from leaderboards.metrics import METRICS
from policies import UNTREATED, Level, Point

KEY = list(RECORDS.key)
SCORES = [
    one.name
    for one in METRICS.values()
    if (one.of_answer or one.of_kept) and get_origin(one.type) is not list
]
ANSWER = ["status", "output_text", "cache_digest", *SCORES]  # equal in equal runs, as times are not


# Fields of an identity that nobody asks for: two runs that differ in these alone look alike.
BELOW_THE_QUESTION = {"source", "packages", "contents", "switches", "date", "device"}


@dataclass(frozen=True)
class RunGroup:
    """Runs whose records may be compared."""

    stores: tuple[Store, ...]
    setting: str = ""  # the names of its runs, where another group has their model and mode

    @property
    def identity(self) -> Identity:
        """Joins the tasks and policies of all runs under the identity of the first."""
        identities = [store.identity for store in self.stores]
        tasks = {task.name: task for identity in identities for task in identity.tasks}
        policies: dict[str, PolicyIdentity] = {}
        for policy in (policy for identity in identities for policy in identity.policies):
            policies[policy.name] = policies.get(policy.name, policy).joined_with(policy)
        return identities[0].model_copy(
            update={"tasks": tuple(tasks.values()), "policies": tuple(policies.values())}
        )

    def records(self) -> pd.DataFrame:
        """Returns the records of all runs, each once; :class:`KVBenchError` where two runs differ."""
        together = self.stores[0].frame()
        for store in self.stores[1:]:
            records = store.frame()
            known = pd.MultiIndex.from_frame(together[KEY])
            twice = pd.MultiIndex.from_frame(records[KEY]).isin(known)
            if fault := _difference(together, records[twice]):
                others = ", ".join(str(other.folder) for other in self.stores if other is not store)
                raise KVBenchError(f"{store.folder} and {others} {fault}: leave one of them out")
            together = pd.concat([together, records[~twice]], ignore_index=True)
        return together


def group_runs(stores: Sequence[Store]) -> list[RunGroup]:
    """Groups runs by the board that they stand on, in the order given. On one board stand runs whose identities differ
    in nothing but tasks and policies, and which have the same contexts of the tasks that they share, the same
    arguments of the policies, and levels of the same kinds."""
    groups: list[list[Store]] = []
    for store in stores:
        for group in groups:
            if all(_comparable(store, other) for other in group):
                group.append(store)
                break
        else:
            groups.append([store])
    boards = [(group[0].identity.model, group[0].identity.mode) for group in groups]
    names = [", ".join(store.folder.name for store in group) for group in groups]
    settings = [
        name if boards.count(board) > 1 else "" for name, board in zip(names, boards, strict=True)
    ]
    return [
        RunGroup(tuple(group), setting) for group, setting in zip(groups, settings, strict=True)
    ]


def _comparable(store: Store, other_store: Store) -> bool:
    one, other = store.identity, other_store.identity
    # One curve cannot have levels of two kinds, the untreated cache's aside.
    kinds, other_kinds = (
        {
            point.level.kind
            for policy in run.policies
            for point in policy.points
            if point.level != UNTREATED
        }
        for run in (one, other)
    )
    return (
        (one.setting, kinds) == (other.setting, other_kinds)
        and all(task == other.task(task.name) for task in one.tasks if other.task(task.name))
        and all(
            policy.treats_like(same)
            for policy in one.policies
            if (same := other.policy(policy.name))
        )
    )


def _difference(known: pd.DataFrame, records: pd.DataFrame) -> str:
    """Names the first question that two runs answer differently; nothing if there is none."""
    joined = records[[*KEY, "example_id", *ANSWER]].merge(
        known[[*KEY, *ANSWER]], on=KEY, suffixes=("", "_known")
    )
    for name in ANSWER:
        mine, theirs = joined[name], joined[f"{name}_known"]
        differing = joined[(mine != theirs) & ~(mine.isna() & theirs.isna())]
        if len(differing):
            first = differing.iloc[0]
            return (
                f"both hold {first['policy']} at {Level(first['level_kind'], first['level']).where} of "
                f"{first['task']} and differ ({name} of {first['question_id']} of {first['example_id']})"
            )
    return ""


def runs_beside(store: Store) -> list[Store]:
    """Opens the other runs in the folder of a run that have its model, code, seed, mode and tables."""
    return [other for other in _all_beside(store) if other.identity.has_answers_for(store.identity)]


def _all_beside(store: Store) -> list[Store]:
    others = []
    for folder in sorted(path.parent for path in store.folder.parent.glob(f"*/{RUN_FILE}")):
        with suppress(KVBenchError):  # of another version, or damaged: its own run says so
            if folder.name != store.folder.name:
                others.append(Store.open(folder))
    return others


def why_not_lent(store: Store) -> str:
    """Says why the latest run beside a run lends nothing although it asked the same; an empty text where none did."""
    for other in sorted(_all_beside(store), key=lambda other: other.run.created, reverse=True):
        differing = set(store.identity.differences(other.identity)) - {"tasks", "policies"}
        if differing and differing <= BELOW_THE_QUESTION:
            return f"{other.folder} lends no answers: {store.identity.described_against(other.identity)}"
    return ""


def borrow(
    store: Store,
    others: Sequence[Store],
    task: str,
    chunk: int,
    policy: str,
    counts: tuple[int, int],
) -> bool:
    """Copies what one of the other runs has of a policy on a chunk of contexts, if it has all levels and draws of it: a
    policy that is added to a finished run costs itself alone. ``counts``: of contexts and of questions."""
    mine, my_task = store.identity.policy(policy), store.identity.task(task)
    for other in others:
        theirs, their_task = other.identity.policy(policy), other.identity.task(task)
        if not (mine and theirs and my_task and their_task):
            continue
        has_all = mine.treats_like(theirs) and set(mine.points) <= set(theirs.points)
        if not has_all or my_task != their_task.model_copy(update={"contexts": my_task.contexts}):
            continue
        with suppress(KVBenchError):  # a damaged file, which is for its own run to complain of
            answers = counts[1] * len(theirs.points)
            if other.has_questions(task, chunk, *counts) and other.has(
                task, chunk, policy, answers
            ):
                read = {
                    table.name: other.read(table, other.path(table, task, chunk, policy))
                    for table in store.tables
                }
                store.write_chunk(
                    task, chunk, {name: _at(rows, mine.points) for name, rows in read.items()}
                )
                return True
    return False


def _at(rows: pa.Table, points: Sequence[Point]) -> pa.Table:
    """Keeps the rows at some levels and draws; rows about contexts and questions are of all."""
    if "level" not in rows.column_names:
        return rows
    wanted = [(point.level.kind, point.level.value, point.repeat) for point in points]
    cells = pd.MultiIndex.from_frame(rows.select(["level_kind", "level", "repeat"]).to_pandas())
    return rows.filter(pa.array(cells.isin(wanted), pa.bool_()))
