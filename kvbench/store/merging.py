"""Several runs on one site: which of them stand on one board, and what tells the boards apart."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kvbench.store.store import PARTS, NamedPolicy, Outline, Store
from kvbench.system.errors import KVBenchError
from policies import UNTREATED, Level, by_kind

QUESTION = ["task", "mode", "policy", "level_kind", "level", "repeat", "example_id", "question_id"]
# What equal runs have in common, as they do not have times.
SCORES = ["f1", "em", "abstained", "hallucinated", "directives_obeyed", "leakage", "ger", "slot_coverage"]
ANSWER = ["status", "output_text", "cache_digest", *SCORES]
HASHED = 8  # letters of a hash that are enough to tell it from others
APART = ("model", "mode")  # parts of an identity that a site names anyway


@dataclass(frozen=True)
class Gathering:
    """Runs whose records may be compared. ``setting``: what tells them from others of their model and mode, or
    nothing."""

    stores: tuple[Store, ...]
    setting: str = ""

    @property
    def outline(self) -> Outline:
        """What all of them set out to do."""
        outlines = [store.run.outline for store in self.stores]
        tasks = {task.name: task for outline in outlines for task in outline.tasks}
        policies: dict[str, NamedPolicy] = {}
        for policy in (policy for outline in outlines for policy in outline.policies):
            policies[policy.name] = _joined(policies.get(policy.name, policy), policy)
        return outlines[0].model_copy(update={"tasks": tuple(tasks.values()), "policies": tuple(policies.values())})

    def records(self) -> pd.DataFrame:
        """Of all of them. What two hold equally is there once; :class:`KVBenchError` where they differ, which runs of
        one setting should not."""
        together = self.stores[0].frame()
        for store in self.stores[1:]:
            own = store.frame()
            known = pd.MultiIndex.from_frame(together[QUESTION])
            twice = pd.MultiIndex.from_frame(own[QUESTION]).isin(known)
            if fault := _difference(together, own[twice]):
                others = ", ".join(str(other.folder) for other in self.stores if other is not store)
                raise KVBenchError(f"{store.folder} and {others} {fault}: leave one of them out")
            together = pd.concat([together, own[~twice]], ignore_index=True)
        return together


def gather(stores: Sequence[Store]) -> list[Gathering]:
    """The runs by what may stand on one board, in the order given. On one board stand runs whose identities differ in
    nothing but tasks and policies, and which have the same contexts of the tasks that they share, the same
    arguments of the policies, and levels of the same kinds."""
    found: list[list[Store]] = []
    for store in stores:
        place = next((own for own in found if all(_comparable(store, other) for other in own)), None)
        if place is None:
            found.append([store])
        else:
            place.append(store)
    return [Gathering(tuple(own), setting) for own, setting in zip(found, _settings(found), strict=True)]


def _comparable(one: Store, other: Store) -> bool:
    return (one.setting, _kinds(one)) == (other.setting, _kinds(other)) and all(
        _entries(one, part)[name] == _entries(other, part)[name]
        for part in PARTS
        for name in set(_entries(one, part)) & set(_entries(other, part))
    )


def _kinds(store: Store) -> set[str]:
    """The kinds of levels of the run, that of the untreated cache aside: one curve cannot have two."""
    levels = {point.level for policy in store.run.outline.policies for point in policy.points}
    return {level.kind for level in levels - {UNTREATED}}


def _entries(store: Store, part: str) -> dict[str, Any]:
    """By name. Of a policy without how much of it was run; of a task with its contexts, which are questions of every
    cell."""
    contexts = {task.name: task.contexts for task in store.run.outline.tasks} if part == "tasks" else {}
    return {
        name: (store.entry(part, name), contexts.get(name))
        for name in (entry["name"] for entry in store.run.identity[part])
    }


def _settings(found: Sequence[Sequence[Store]]) -> list[str]:
    """For each what differs from others of its model and mode; where that tells too little, the runs by name."""
    names = [tuple(own[0].run.identity[part] for part in APART) for own in found]
    told = []
    for own, name in zip(found, names, strict=True):
        alike = [other[0].setting for other, of in zip(found, names, strict=True) if of == name]
        told.append(", ".join(_apart(own[0].setting, alike)) if len(alike) > 1 else "")
    counts = Counter(zip(names, told, strict=True))
    return [
        ", ".join(store.folder.name for store in own) if counts[name, setting] > 1 else setting
        for own, name, setting in zip(found, names, told, strict=True)
    ]


def _apart(setting: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> list[str]:
    differing = [name for name in setting if any(other.get(name) != setting[name] for other in others)]
    return [f"{name} {_brief(setting[name])}" for name in differing]


def _brief(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name} {content}" for name, content in value.items())
    text = str(value)
    return text[:HASHED] if len(text) >= 2 * HASHED and text.isalnum() else text


def _joined(one: NamedPolicy, other: NamedPolicy) -> NamedPolicy:
    return one.model_copy(
        update={
            "levels": by_kind(point.level for point in (*one.points, *other.points)),
            "repeats": max(one.repeats, other.repeats),
            "tasks": tuple(dict.fromkeys((*one.tasks, *other.tasks))),
        }
    )


def _difference(known: pd.DataFrame, own: pd.DataFrame) -> str:
    """The first question that two runs answer differently, in words."""
    joined = own[[*QUESTION, *ANSWER]].merge(known[[*QUESTION, *ANSWER]], on=QUESTION, suffixes=("", "_known"))
    for name in ANSWER:
        mine, theirs = joined[name], joined[f"{name}_known"]
        differing = joined[(mine != theirs) & ~(mine.isna() & theirs.isna())]
        if len(differing):
            first = differing.iloc[0]
            return (
                f"both hold {first['policy']} at {Level(first['level_kind'], first['level']).where} of "
                f"{first['task']} and differ "
                f"({name} of {first['question_id']} of {first['example_id']})"
            )
    return ""
