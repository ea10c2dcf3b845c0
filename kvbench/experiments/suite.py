"""Declares suites: a question that has a page of its own, and the tasks, policies and levels that answer it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from datasets_gen import Task
from datasets_gen.tasks.ifeval import Placement
from kvbench.prompts.mode import Scope

LevelTexts = Mapping[str, str]  # by kind of level, the text of its option


@dataclass(frozen=True)
class Suite:
    """Declares a suite. Whatever the options of a run give is taken from them instead."""

    name: str
    description: str
    tasks: tuple[Task, ...]  # that it has unless others are named
    if_named: tuple[Task, ...]  # that it has only if they are named
    policies: tuple[str, ...]  # names, as ``--policies`` takes them
    scope: Scope  # what is compressed
    defence: Placement  # where a defence stands in prompts from elsewhere
    tables: tuple[str, ...] = ()  # of studies, which its runs fill (kvbench.store.tables)
    levels: LevelTexts = field(default_factory=dict)  # none: the default ones of its policies
    own_levels: Mapping[str, LevelTexts] = field(default_factory=dict)  # of the policies that run at these alone
    repeats: int = 1
    dtype: str | None = None  # as ``--dtype`` takes it
    limit: int | None = None  # contexts per task, where no other profile than the quick one is asked for


def at(names: Iterable[str], **levels: str) -> dict[str, LevelTexts]:
    """Gives policies levels of their own, such as ``at(("zeros",), rate="0.1,0.5")``."""
    return dict.fromkeys(names, levels)
