"""Declares suites: what a run covers where it names one, and how the paper asked."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from datasets_gen import Task
from datasets_gen.tasks.ifeval import Placement
from kvbench.prompts.mode import Mode, Scope

QUICK = "quick"  # the profile of a run unless another is given
LevelTexts = Mapping[str, str]  # by kind of level, the text of its option


class NoArguments(BaseModel):
    """Declares that a name takes nothing in brackets."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class PaperSize:
    """Says how the paper of a suite asked, where its summary tells: what ``--profile paper`` means
    then."""

    contexts: Mapping[str, int]  # by task; of others as many as the profile says
    tokens: int  # of an answer at most
    repeats: int
    without: tuple[str, ...] = ()  # kinds of directives whose rows of IFEval are left out


@dataclass(frozen=True)
class Suite:
    """Declares a suite. Whatever the options of a run give is taken from them instead."""

    name: str
    description: str
    tasks: Sequence[Task]  # that it has unless others are named
    policies: str | None = None  # as ``--policies`` takes them
    scope: Scope = "context"  # what is compressed
    defence: Placement = "none"  # where a defence stands in prompts from elsewhere
    tables: tuple[str, ...] = ()  # of studies, which its runs fill (kvbench.store.tables)
    levels: LevelTexts = field(default_factory=dict)  # none: the default ones of its policies
    # Of the policies that run at these alone.
    own_levels: Mapping[str, LevelTexts] = field(default_factory=dict)
    repeats: int = 1
    # As ``--dtype`` takes it, or OF_CHECKPOINT, of what compares types of numbers.
    dtype: str | None = None
    # Contexts per task, where no other profile than the quick one is asked for.
    limit: int | None = None
    paper_size: PaperSize | None = None
    if_aware: str | None = None  # policies of ``--mode aware``, where they are others
    needs_right_answers: bool = True  # of the full cache; else what it measures shows without them
    arguments: type[BaseModel] = NoArguments  # that stand behind its name in brackets
    # Of a suite that places all methods: those that it leaves out, with the reason. Its site has a
    # page of methods.
    left_out: Mapping[str, str] = field(default_factory=dict)

    def policies_in(self, mode: Mode) -> str | None:
        """Returns the policies that it has in a mode, as ``--policies`` takes them."""
        if mode == "aware" and self.if_aware:
            return self.if_aware
        return self.policies

    @property
    def all_levels(self) -> dict[str, str]:
        """Joins the texts of its levels, by kind."""
        by_kind: dict[str, dict[str, None]] = {}  # a dict and no set, since the order counts
        for levels in (self.levels, *self.own_levels.values()):
            for kind, text in levels.items():
                by_kind.setdefault(kind, {})[text] = None
        joined: dict[str, str] = {}
        for kind, texts in by_kind.items():
            joined[kind] = ",".join(texts)
        return joined

    def size_at(self, profile: str) -> PaperSize | None:
        """Returns how the paper asked, where the profile is that of the paper."""
        if profile != "paper":
            return None
        return self.paper_size

    def count_contexts(self, task: Task, profile: str) -> int | None:
        """Returns how many contexts of a task it has, and ``None`` where the profile alone says
        that."""
        if profile == QUICK:
            return self.limit
        size = self.size_at(profile)
        if size is None:
            return None
        return size.contexts.get(task.name)


def at(names: Iterable[str], **levels: str) -> dict[str, LevelTexts]:
    """Gives policies levels of their own, such as ``at(("zeros",), rate="0.1,0.5")``."""
    return dict.fromkeys(names, levels)
