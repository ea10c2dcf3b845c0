"""Makes a plan from options, for the command line and for docs/scale.md."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from datasets_gen import unknown_name
from kvbench.estimate.constants import Constants
from kvbench.estimate.load import load_of
from kvbench.estimate.machine import MACHINES, MEASURED, Machine, measured_machine
from kvbench.estimate.plan import Plan
from kvbench.estimate.shape import Shape
from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.catalogue import EVERYTHING
from kvbench.prompts.context_length import count_by
from kvbench.prompts.mode import Mode
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError


@dataclass(frozen=True)
class Request:
    """The options of ``plan``."""

    shape: Shape
    tasks: str | None = None
    profile: str = "quick"
    limit: int | None = None
    context_tokens: int | None = None
    questions: float | None = None
    policies: str | None = EVERYTHING
    levels: Mapping[str, str] = field(default_factory=dict)
    repeats: int = 1
    mode: Mode = "agnostic"
    machine: str = "h100"
    memory_gb: float = 16.0

    def plan(self, constants: Constants) -> Plan:
        """Counts what is to be run; raises :class:`KVBenchError` for an option that makes no sense."""
        for option, value in {"--context-tokens": self.context_tokens, "--questions": self.questions}.items():
            if value is not None and not 1 <= value < math.inf:
                raise KVBenchError(f"{option} is 1 or more, not {value:g}")
        job = Job(
            tasks=self.tasks,
            profile=self.profile,
            limit=self.limit,
            policies=self.policies,
            levels=dict(self.levels),
            repeats=self.repeats,
            mode=self.mode,
        )
        grid = build_grid(job, count_by(job.model))
        loads = [load_of(grid, task, contexts, self.context_tokens, self.questions) for task, contexts in grid.tasks]
        return Plan(loads, self.shape, self._machine(constants), constants)

    def _machine(self, constants: Constants) -> Machine:
        if not 0 < self.memory_gb < math.inf:
            raise KVBenchError(f"--memory-gb is more than 0, not {self.memory_gb:g}")
        machines = {**MACHINES, MEASURED: measured_machine(constants, self.memory_gb * 1e9)}
        if self.machine not in machines:
            raise KVBenchError(unknown_name("machine", self.machine, list(machines)))
        return machines[self.machine]
