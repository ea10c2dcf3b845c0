"""The options of a run, in the words of the command line: any process makes the same grid of them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from datasets_gen.tasks.ifeval import Placement
from kvbench.engine.treat.time_limit import TimeLimit
from kvbench.experiments.catalogue import EVERYTHING, at_some_level, check_scope, choose_policies, with_references
from kvbench.experiments.data import check_judges, with_data
from kvbench.experiments.grid import Grid
from kvbench.experiments.options import cell_bound, contexts_of, kv_bytes, parse_points, with_answers_of
from kvbench.experiments.setting import Setting
from kvbench.experiments.suites import wanted
from kvbench.models.load import LoadedModel, load_model
from kvbench.prompts.context_length import Count, lengthen
from kvbench.prompts.mode import Mode, Scope
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError


@dataclass(frozen=True)
class Job:
    """Options of ``run`` that decide which records it makes, as they were given; the help of each says what it is.
    ``levels``: the text of each kind's option."""

    model: str
    device: str
    dtype: str
    device_map: str | None
    suite: str | None
    tasks: str | None
    policies: str | None
    levels: Mapping[str, str]
    repeats: int
    profile: str
    limit: int | None
    phrasings: str
    context_tokens: int | None
    depth: float | None
    data: Path | None
    defence: Placement | None
    max_new_tokens: int | None
    seed: int
    mode: Mode
    compress: Scope | None
    cell_seconds: float
    max_kv_gb: float | None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Of the options of a command, those that are a job's."""
        return cls(**{field.name: options[field.name] for field in fields(cls)})

    def load(self) -> LoadedModel:
        return load_model(self.model, self.device, self.dtype, self.device_map)

    def grid(self, count: Count) -> Grid:
        """What is to be run; ``count`` is asked for tokens of the model when an example is made.
        :class:`KVBenchError` for whatever cannot be meant."""
        asked = wanted(self.suite, self.tasks, self.policies, self.compress)
        tasks = with_data(asked.tasks, self.data, self.defence, asked.defence)
        check_judges(tasks, self.mode)
        check_scope(tasks, self.mode, asked.scope)
        tasks = lengthen(tasks, self.context_tokens, self.depth, count, self.model)
        tasks = with_answers_of(tasks, self.max_new_tokens)
        counts = [(task, contexts_of(task, self.profile, self.limit)) for task in tasks]
        chosen = with_references(choose_policies(asked.policies, tasks, self.mode, even_if_broken=True))
        points = parse_points(self.levels, chosen, self.repeats)
        chosen = at_some_level(chosen, points)
        time_limit = TimeLimit(cell_bound(self.cell_seconds))
        bound = kv_bytes(self.max_kv_gb)
        setting = Setting(chosen, points, self.seed, self.mode, bound, time_limit, asked.scope)
        return Grid(counts, setting, held_out=self.phrasings == "held-out")

    def without(self, missing: Mapping[str, str], grid: Grid) -> Grid:
        """The grid without the policies whose weights are ``missing``, which is told; of one that was named, an error
        with its reason."""
        if missing and (self.policies or "").strip() != EVERYTHING:
            raise KVBenchError(f"{next(iter(missing.values()))}: leave it out")
        for reason in missing.values():
            console.print(f"left out: {reason}", soft_wrap=True, markup=False)
        left = [policy for policy in grid.setting.policies if policy.name not in missing]
        return replace(grid, setting=grid.setting.only(left))
