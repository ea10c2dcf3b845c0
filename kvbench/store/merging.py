"""Uses runs together: groups them for one site, and lends the records of one to another."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import get_origin

import pandas as pd
import pyarrow as pa

from kvbench.store.run_file import RUN_FILE, Identity, PolicyIdentity, TaskIdentity
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS
from kvbench.system.errors import KVBenchError
from leaderboards.metrics import METRICS
from policies import UNTREATED, Level, Point

KEY = list(RECORDS.key)
COMPARED = [metric for metric in METRICS.values() if metric.of_answer or metric.of_kept]
# Lists cannot be compared at once.
SCORES = [metric.name for metric in COMPARED if get_origin(metric.type) is not list]
ANSWER = ["status", "output_text", "cache_digest", *SCORES]  # equal in equal runs, as times are not


# Fields of an identity that nobody asks for: two runs that differ in these alone look alike.
BELOW_THE_QUESTION = {"source", "packages", "contents", "switches", "date", "device"}


@dataclass(frozen=True)
class RunGroup:
    """Runs whose records may be compared."""

    stores: tuple[Store, ...]
    setting: str = ""  # the names of its runs, where another group has their model and mode
    # Its runs may be of any code and machine, whose rounding may write another answer: that of the
    # first is taken.
    across_code: bool = False

    @property
    def identity(self) -> Identity:
        """Joins the tasks and policies of all runs under the identity of the first."""
        tasks: dict[str, TaskIdentity] = {}
        policies: dict[str, PolicyIdentity] = {}
        for store in self.stores:
            tasks |= {task.name: task for task in store.identity.tasks}
            for policy in store.identity.policies:
                joined = policies.get(policy.name, policy).joined_with(policy)
                policies[policy.name] = joined
        joined_parts = {"tasks": tuple(tasks.values()), "policies": tuple(policies.values())}
        return self.stores[0].identity.model_copy(update=joined_parts)

    def records(self) -> pd.DataFrame:
        """Returns the records of all runs, each once; raises :class:`KVBenchError` where two runs
        differ."""
        together = self.stores[0].frame()
        for store in self.stores[1:]:
            records = store.frame()
            former_keys = pd.MultiIndex.from_frame(together[KEY])
            twice = pd.MultiIndex.from_frame(records[KEY]).isin(former_keys)
            fault = "" if self.across_code else _difference(together, records[twice])
            if fault:
                others = ", ".join(str(other.folder) for other in self.stores if other is not store)
                advice = "leave one of them out"
                raise KVBenchError(f"{store.folder} and {others} {fault}: {advice}")
            together = pd.concat([together, records[~twice]], ignore_index=True)
        return together


def group_runs(stores: Sequence[Store], across_code: bool = False) -> list[RunGroup]:
    """Groups runs by the board that they stand on, in the order given. On one board stand runs
    whose identities differ in nothing but tasks and policies, and which have the same contexts of
    the tasks that they share, the same arguments of the policies, and levels of the same kinds.
    ``across_code``: runs may be of any code and machine if all that determines their answers is the
    same: versions of tasks and policies, the model, and what was asked of it."""
    groups: list[list[Store]] = []
    comparable = _answer_alike if across_code else _comparable
    for store in stores:
        for group in groups:
            if all(comparable(store, other) for other in group):
                group.append(store)
                break
        else:
            groups.append([store])
    boards = Counter(_board(group) for group in groups)
    joined = []
    for group in groups:
        setting = ""
        if boards[_board(group)] > 1:
            setting = ", ".join(store.folder.name for store in group)
        joined.append(RunGroup(tuple(group), setting, across_code))
    return joined


def _board(group: Sequence[Store]) -> tuple[str, str]:
    """Returns the model and the mode of a group, which two groups may share."""
    identity = group[0].identity
    return identity.model, identity.mode


def _comparable(store: Store, other_store: Store) -> bool:
    mine, theirs = store.identity, other_store.identity
    if mine.setting != theirs.setting or _kinds_of_levels(mine) != _kinds_of_levels(theirs):
        return False
    return _share(mine, theirs, PolicyIdentity.treats_like)


def _answer_alike(store: Store, other_store: Store) -> bool:
    mine, theirs = store.identity, other_store.identity
    if mine.answer_setting != theirs.answer_setting:
        return False
    return _share(mine, theirs, PolicyIdentity.answers_like)


def _share(
    mine: Identity, theirs: Identity, is_alike: Callable[[PolicyIdentity, PolicyIdentity], bool]
) -> bool:
    """Tells whether the tasks that both have are the same, and their policies alike."""
    for task in mine.tasks:
        if theirs.task(task.name) not in (None, task):
            return False
    for policy in mine.policies:
        same_policy = theirs.policy(policy.name)
        if same_policy is not None and not is_alike(policy, same_policy):
            return False
    return True


def _kinds_of_levels(identity: Identity) -> set[str]:
    """Finds the kinds of levels, the untreated cache's aside: a curve cannot have two."""
    kinds = set()
    for policy in identity.policies:
        kinds |= {point.level.kind for point in policy.points if point.level != UNTREATED}
    return kinds


def _difference(former: pd.DataFrame, records: pd.DataFrame) -> str:
    """Names the first question that two runs answer differently; nothing if there is none."""
    mine, theirs = records[[*KEY, "example_id", *ANSWER]], former[[*KEY, *ANSWER]]
    joined = mine.merge(theirs, on=KEY, suffixes=("", "_former"))
    for name in ANSWER:
        value, former_value = joined[name], joined[f"{name}_former"]
        # A missing number is not equal to itself.
        both_missing = value.isna() & former_value.isna()
        differing = joined[(value != former_value) & ~both_missing]
        if len(differing):
            first = differing.iloc[0]
            level = Level(first["level_kind"], first["level"])
            cell = f"{first['policy']} at {level.where} of {first['task']}"
            question = f"{first['question_id']} of {first['example_id']}"
            return f"both hold {cell} and differ ({name} of {question})"
    return ""


def runs_beside(store: Store) -> list[Store]:
    """Opens the other runs in the folder of a run that have its model, code, seed, mode and
    tables."""
    return [other for other in _all_beside(store) if other.identity.has_answers_for(store.identity)]


def _all_beside(store: Store) -> list[Store]:
    others = []
    for folder in sorted(path.parent for path in store.folder.parent.glob(f"*/{RUN_FILE}")):
        with suppress(KVBenchError):  # of another version, or damaged: its own run says so
            if folder.name != store.folder.name:
                others.append(Store.open(folder))
    return others


def why_not_lent(store: Store) -> str:
    """Says why the latest run beside a run lends nothing although it asked the same; an empty text
    where none did."""
    others = sorted(_all_beside(store), key=lambda other: other.run.created, reverse=True)
    for other in others:
        differing = {*store.identity.differences(other.identity)} - {"tasks", "policies"}
        if differing and differing <= BELOW_THE_QUESTION:
            reason = store.identity.described_against(other.identity)
            return f"{other.folder} lends no answers: {reason}"
    return ""


def borrow(
    store: Store,
    others: Sequence[Store],
    task: str,
    chunk: int,
    policy: str,
    counts: tuple[int, int],
) -> bool:
    """Copies what one of the other runs has of a policy on a chunk of contexts, if it has all
    levels and draws of it: a policy that is added to a finished run costs itself alone. ``counts``:
    of contexts and of questions. Tells whether a run had it."""
    mine = store.identity.policy(policy)
    if mine is None:
        return False
    for other in others:
        theirs = other.identity.policy(policy)
        if theirs is None or not mine.treats_like(theirs) or not _is_same_task(store, other, task):
            continue
        if not set(mine.points) <= set(theirs.points):
            continue
        with suppress(KVBenchError):  # a damaged file, which is for its own run to complain of
            answers = counts[1] * len(theirs.points)
            has_questions = other.has_questions(task, chunk, *counts)
            if has_questions and other.has(task, chunk, policy, answers):
                store.write_chunk(task, chunk, _rows_at(other, store, task, chunk, mine))
                return True
    return False


def _is_same_task(store: Store, other: Store, task: str) -> bool:
    """Tells whether both have a task, whatever the number of its contexts."""
    mine, theirs = store.identity.task(task), other.identity.task(task)
    return mine is not None and theirs is not None and mine.asks_like(theirs)


def _rows_at(
    other: Store, store: Store, task: str, chunk: int, policy: PolicyIdentity
) -> dict[str, pa.Table]:
    """Reads what another run has for the tables of a run, at the levels and draws of a policy."""
    rows = {}
    for table in store.tables:
        stored = other.read(table, other.path(table, task, chunk, policy.name))
        rows[table.name] = _at(stored, policy.points)
    return rows


def _at(rows: pa.Table, points: Sequence[Point]) -> pa.Table:
    """Keeps the rows at some levels and draws; rows about contexts and questions are of all."""
    if "level" not in rows.column_names:
        return rows
    wanted = [(point.level.kind, point.level.value, point.repeat) for point in points]
    stored = rows.select(["level_kind", "level", "repeat"]).to_pandas()
    is_wanted = pd.MultiIndex.from_frame(stored).isin(wanted)
    return rows.filter(pa.array(is_wanted, pa.bool_()))
