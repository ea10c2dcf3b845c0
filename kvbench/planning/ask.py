"""A plan from what is asked for, as the command line and docs/scale.md do it."""

import math
from dataclasses import dataclass

from datasets_gen import TASKS, unknown_name
from kvbench.catalogue import EVERYTHING, choose_policies, with_references
from kvbench.errors import KVBenchError
from kvbench.grid import Grid
from kvbench.options import Mode, choose, contexts_of, parse_levels
from kvbench.planning.constants import Constants
from kvbench.planning.cost import Cost, cost_of
from kvbench.planning.machine import MACHINES, MEASURED, Machine, measured_machine
from kvbench.planning.shape import Shape
from kvbench.planning.workload import Workload, workload_of
from kvbench.setting import Setting


@dataclass(frozen=True)
class Plan:
    """A cost, and all that it rests on."""

    workload: Workload
    shape: Shape
    machine: Machine
    constants: Constants
    cost: Cost


@dataclass(frozen=True)
class Request:
    """As the options of ``plan`` have it."""

    shape: Shape
    tasks: str | None = None
    profile: str = "quick"
    limit: int | None = None
    context_tokens: int | None = None
    questions: float | None = None
    policies: str | None = EVERYTHING
    ratios: str | None = None
    budgets: str | None = None
    mode: Mode = "agnostic"
    machine: str = "h100"
    memory_gb: float = 16.0

    def plan(self, constants: Constants) -> Plan:
        """:class:`KVBenchError` for what cannot be meant."""
        for option, value in {"--context-tokens": self.context_tokens, "--questions": self.questions}.items():
            if value is not None and not 1 <= value < math.inf:
                raise KVBenchError(f"{option} is 1 or more, not {value:g}")
        if not 0 < self.memory_gb < math.inf:
            raise KVBenchError(f"--memory-gb is more than 0, not {self.memory_gb:g}")
        chosen = choose("task", self.tasks, TASKS)
        removed, kept = parse_levels(self.ratios, self.budgets)
        policies = with_references(choose_policies(self.policies, chosen, self.mode))
        setting = Setting(policies, removed, mode=self.mode, budgets=kept)
        grid = Grid([(task, contexts_of(task, self.profile, self.limit)) for task in chosen], setting)
        machine = self._machine(constants)
        workload = workload_of(grid, self.context_tokens, self.questions)
        cost = cost_of(workload, self.shape, machine, constants)
        return Plan(workload, self.shape, machine, constants, cost)

    def _machine(self, constants: Constants) -> Machine:
        if self.machine == MEASURED:
            return measured_machine(constants, self.memory_gb * 1e9)
        if self.machine not in MACHINES:
            raise KVBenchError(unknown_name("machine", self.machine, [*MACHINES, MEASURED]))
        return MACHINES[self.machine]
