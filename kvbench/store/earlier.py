"""Reads a stored run as one side of a comparison: its answers to the same questions, under a name
of their own."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import pandas as pd

from kvbench.store.differences import describe
from kvbench.store.run_file import Identity, PolicyIdentity
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.pairing import with_held

QUESTION = ["task", "mode", "example_id", "question_id"]
# Two questions of one name are the same if these are: an edited file, another length or another
# generator change them.
TEXTS = ["context", "question", "answer_prefix", "golds"]
# Fields of a policy that say where it was run, and not what it does.
OF_COVERAGE = {
    "levels",
    "repeats",
    "tasks",
}
OF_LENGTH = {"contexts", "prompt", "chance"}  # likewise of a task


@dataclass(frozen=True)
class EarlierRun:
    """A run whose answers are compared with those of another, question by question."""

    store: Store
    label: str  # the name of its folder, behind those of its policies

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Opens it; raises :class:`KVBenchError` where the folder holds no run, or one of another
        schema."""
        return cls(Store.open(folder), folder.resolve().name)

    @cached_property
    def records(self) -> pd.DataFrame:
        return with_held(self.store.frame())

    def policy(self, name: str) -> PolicyIdentity:
        """Returns what the run says of a policy; raises :class:`KVBenchError` where it has none of
        that name."""
        policy = self.store.identity.policy(name)
        if policy is None:
            names = ", ".join(entry.name for entry in self.store.identity.policies)
            raise KVBenchError(f"{self.store.folder} has no answers of {name}: it has {names}")
        return policy

    def check_asks(self, tasks: Sequence[str], seed: int, mode: str) -> None:
        """Raises :class:`KVBenchError` where no question of these tasks can be one of the run."""
        identity = self.store.identity
        is_same_setting = (identity.seed, identity.mode) == (seed, mode)
        if is_same_setting and any(map(identity.task, tasks)):
            return
        names = ", ".join(task.name for task in identity.tasks)
        stored = f"{names} with seed {identity.seed} in mode {identity.mode}"
        fresh = f"{', '.join(tasks)} with seed {seed} in mode {mode}"
        questions = f"it asked {stored}, and asked here is {fresh}"
        raise KVBenchError(f"{self.store.folder} shares no question: {questions}")

    def policy_label(self, policy: str) -> str:
        return f"{policy} of {self.label}"

    def answers(self, policy: str, today: pd.DataFrame) -> tuple[pd.DataFrame, int]:
        """Returns the records of a policy about the questions of ``today``, under its name here,
        and counts the questions that have the name of one of today and another text: they are left
        out. Raises :class:`KVBenchError` where no question is the same."""
        self.policy(policy)
        records = self.records
        records = records[records["policy"] == policy]
        ours, theirs = _texts(today), _texts(records)
        named_alike = theirs.index.intersection(ours.index)
        is_same = (theirs.loc[named_alike] == ours.loc[named_alike]).to_numpy()
        if not is_same.any():
            raise KVBenchError(self._nothing_shared(policy, today, len(named_alike)))
        same = pd.MultiIndex.from_frame(records[QUESTION]).isin(named_alike[is_same])
        changed = int((~is_same).sum())
        return records[same].assign(policy=self.policy_label(policy)), changed

    def _nothing_shared(self, policy: str, today: pd.DataFrame, named_alike: int) -> str:
        """Says why no question of today is one of the run."""
        tasks = ", ".join(map(str, today["task"].unique()))
        fault = f"{self.store.folder} shares no question of {tasks} for {policy}"
        if not named_alike:
            return f"{fault}: its contexts are others, of another seed, mode or file of questions"
        others = f"{named_alike} have the same names and other texts"
        return f"{fault}: {others}, of another length, file or version"

    def differences(self, today: Identity, policies: Sequence[str]) -> str:
        """Says in which settings, tasks and code of some policies it differs from a run of today;
        empty if in none."""
        stored = self.store.identity
        before = _compared(stored, today, policies)
        now = _compared(today, stored, policies)
        if stored.model_fingerprint == today.model_fingerprint:
            before["model"] = now["model"] = ""
        described = describe(before, now)
        if described:
            return f"{self.store.folder} was made in another way: {described}"
        return ""


def _compared(identity: Identity, other: Identity, policies: Sequence[str]) -> dict[str, Any]:
    """Returns as plain data what may make two runs answer differently where they ask the same."""
    plain: dict[str, Any] = {"model": identity.model, **identity.decisive}
    plain["tables"] = plain["options"] = ""  # of studies, which change no answer
    plain["begun"] = ""  # which no two runs have in common
    shared_tasks = {}
    for name, task in plain["tasks"].items():
        if other.task(name):
            shared_tasks[name] = _without(task, OF_LENGTH)
    shared_policies = {}
    for name, policy in plain["policies"].items():
        if name in policies and other.policy(name):
            shared_policies[name] = _without(policy, OF_COVERAGE)
    return {**plain, "tasks": shared_tasks, "policies": shared_policies}


def _without(entry: Mapping[str, Any], fields: Collection[str]) -> dict[str, Any]:
    return {field: value for field, value in entry.items() if field not in fields}


def _texts(records: pd.DataFrame) -> pd.Series:
    """Returns the texts of each question, joined, by its name."""
    questions = records.drop_duplicates(QUESTION)
    rows = questions[TEXTS].itertuples(index=False)
    texts = ["\x00".join(map(str, row)) for row in rows]
    return pd.Series(texts, pd.MultiIndex.from_frame(questions[QUESTION]), dtype=object)
