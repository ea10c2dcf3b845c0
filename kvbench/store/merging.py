"""Uses runs together: groups them for one site, and lends the records of one to another."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

import pandas as pd
import pyarrow as pa

from kvbench.store.run_file import RUN_FILE, Identity, PolicyIdentity
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS
from kvbench.system.errors import KVBenchError
from leaderboards.metrics import METRICS
from policies import UNTREATED, Level, Point

KEY = list(RECORDS.key)
SCORES = [one.name for one in METRICS.values() if (one.of_answer or one.of_kept) and get_origin(one.type) is not list]
ANSWER = ["status", "output_text", "cache_digest", *SCORES]  # equal in equal runs, as times are not
HASHED = 8  # letters of a hash that are enough to tell it from others


@dataclass(frozen=True)
class RunGroup:
    """Runs whose records may be compared."""

    stores: tuple[Store, ...]
    setting: str = ""  # tells them from other groups of their model and mode; empty where there are none

    @property
    def identity(self) -> Identity:
        """Joins the tasks and policies of all runs under the identity of the first."""
        identities = [store.identity for store in self.stores]
        tasks = {task.name: task for identity in identities for task in identity.tasks}
        policies: dict[str, PolicyIdentity] = {}
        for policy in (policy for identity in identities for policy in identity.policies):
            policies[policy.name] = policies.get(policy.name, policy).joined_with(policy)
        return identities[0].model_copy(update={"tasks": tuple(tasks.values()), "policies": tuple(policies.values())})

    def records(self) -> pd.DataFrame:
        """Returns the records of all runs, and once those that two runs hold equally; raises :class:`KVBenchError`
        where they differ, which runs of one setting should not."""
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
        group = next((group for group in groups if all(_comparable(store, other) for other in group)), None)
        if group is None:
            groups.append([store])
        else:
            group.append(store)
    return [RunGroup(tuple(group), setting) for group, setting in zip(groups, _settings(groups), strict=True)]


def _comparable(store: Store, other_store: Store) -> bool:
    one, other = store.identity, other_store.identity
    return (
        (one.setting, _kinds(one)) == (other.setting, _kinds(other))
        and all(task == other.task(task.name) for task in one.tasks if other.task(task.name))
        and all(policy.treats_like(same) for policy in one.policies if (same := other.policy(policy.name)))
    )


def _kinds(identity: Identity) -> set[str]:
    """Names the kinds of levels of a run, the untreated cache's aside: one curve cannot have two."""
    levels = {point.level for policy in identity.policies for point in policy.points}
    return {level.kind for level in levels - {UNTREATED}}


def _settings(groups: Sequence[Sequence[Store]]) -> list[str]:
    """Says of each group how its setting differs from those of its model and mode; where that is too little, it names
    the runs."""
    firsts = [group[0].identity for group in groups]
    boards = [(identity.model, identity.mode) for identity in firsts]  # which a site names anyway
    settings = []
    for identity, board in zip(firsts, boards, strict=True):
        alike = [other.setting for other, its_board in zip(firsts, boards, strict=True) if its_board == board]
        fields = identity.setting.items()
        distinctions = (f"{name} {_brief(value)}" for name, value in fields if any(o.get(name) != value for o in alike))
        settings.append(", ".join(distinctions))
    counts = Counter(zip(boards, settings, strict=True))
    return [
        ", ".join(store.folder.name for store in group) if counts[board, setting] > 1 else setting
        for group, board, setting in zip(groups, boards, settings, strict=True)
    ]


def _brief(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name} {content}" for name, content in value.items())
    text = str(value)
    return text[:HASHED] if len(text) >= 2 * HASHED and text.isalnum() else text


def _difference(known: pd.DataFrame, records: pd.DataFrame) -> str:
    """Names the first question that two runs answer differently; nothing if there is none."""
    joined = records[[*KEY, "example_id", *ANSWER]].merge(known[[*KEY, *ANSWER]], on=KEY, suffixes=("", "_known"))
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
    found = []
    for folder in sorted(path.parent for path in store.folder.parent.glob(f"*/{RUN_FILE}")):
        other = None if folder.name == store.folder.name else _opened(folder)
        if other is not None and other.identity.setting == store.identity.setting:
            found.append(other)
    return found


def _opened(folder: Path) -> Store | None:
    try:
        return Store.open(folder)
    except KVBenchError:  # of another version, or damaged: its own run says so
        return None


def borrow(store: Store, others: Sequence[Store], task: str, chunk: int, policy: str, counts: tuple[int, int]) -> bool:
    """Copies what one of the other runs has of a policy on a chunk of contexts, if it has all levels and draws of it: a
    policy that is added to a finished run costs itself alone. ``counts``: of contexts and of questions."""
    mine = store.identity.policy(policy)
    for other in others:
        theirs = other.identity.policy(policy)
        if mine is None or theirs is None or not _same_work(other.identity, store.identity, task, mine, theirs):
            continue
        try:
            answers = counts[1] * len(theirs.points)
            if other.has_questions(task, chunk, *counts) and other.has(task, chunk, policy, answers):
                read = {table.name: other.read(table, other.path(table, task, chunk, policy)) for table in store.tables}
                store.write_chunk(task, chunk, {name: _at(rows, mine.points) for name, rows in read.items()})
                return True
        except KVBenchError:  # a damaged file, which is for its own run to complain of
            continue
    return False


def _same_work(one: Identity, other: Identity, task: str, mine: PolicyIdentity, theirs: PolicyIdentity) -> bool:
    """Tells whether two runs have the same contexts of a task, and ``theirs`` all levels and draws of ``mine``."""
    tasks = one.task(task), other.task(task)
    has_task = tasks[0] is not None and tasks[1] is not None and tasks[0].makes_the_contexts_of(tasks[1])
    return has_task and mine.treats_like(theirs) and set(mine.points) <= set(theirs.points)


def _at(rows: pa.Table, points: Sequence[Point]) -> pa.Table:
    """Keeps the rows at some levels and draws; rows about contexts and questions are of all."""
    if "level" not in rows.column_names:
        return rows
    wanted = [(point.level.kind, point.level.value, point.repeat) for point in points]
    cells = pd.MultiIndex.from_frame(rows.select(["level_kind", "level", "repeat"]).to_pandas())
    return rows.filter(pa.array(cells.isin(wanted), pa.bool_()))
