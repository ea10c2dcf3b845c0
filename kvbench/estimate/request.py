"""Makes a plan from options, for the command line and for the documents."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kvbench.estimate.constants import Constants
from kvbench.estimate.load import load_of
from kvbench.estimate.machine import MACHINES, Machine
from kvbench.estimate.plan import Plan
from kvbench.estimate.shape import DecoderShape
from kvbench.experiments.build_grid import build_grid
from kvbench.experiments.catalogue import EVERYTHING
from kvbench.models.load import check_places, load_tokenizer
from kvbench.prompts.context_length import Tokens, check_takes_length, count_by, tokens_of
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError

LONG = "long_context"


@dataclass(frozen=True)
class PlanRequest:
    """The options of ``plan``."""

    shape: DecoderShape
    job: Job
    context_tokens: Tokens = None
    questions: float | None = None
    machine: Machine = MACHINES["h100"]

    def plan(self, constants: Constants) -> Plan:
        """Counts what is to be run; raises :class:`KVBenchError` for an option that makes no sense."""
        for option, value in {"--context-tokens": self.context_tokens, "--questions": self.questions}.items():
            if isinstance(value, int | float) and not 1 <= value < math.inf:
                raise KVBenchError(f"{option} is 1 or more, not {value:g}")
        grid = build_grid(self.job, count_by(self.job.model))
        if self.context_tokens is not None:
            check_takes_length([task for task, _ in grid.tasks])
        tokenizer = load_tokenizer(self.job.model)
        loads = [
            load_of(grid, task, contexts, tokens_of(task, self.context_tokens), self.questions, tokenizer=tokenizer)
            for task, contexts in grid.tasks
        ]
        for load in loads:
            check_places(f"a context of {load.task}", self.shape.name, math.ceil(load.tokens), self.shape.places)
        return Plan(loads, self.shape, self.machine, constants)


LARGE = DecoderShape("70.6 B, 80 layers", 80, 64, 8, 128, 70_600_000_000, 2)
MIDDLE = DecoderShape("8.0 B, 32 layers", 32, 32, 8, 128, 8_030_000_000, 2)
# The plans that the documents show.
EXAMPLES: Mapping[str, PlanRequest] = {
    "full catalogue": PlanRequest(LARGE, Job(tasks=LONG, limit=100, policies=EVERYTHING), context_tokens=131_072),
    "default policies": PlanRequest(LARGE, Job(tasks=LONG, limit=100), context_tokens=131_072),
    "8 B at 32 k": PlanRequest(MIDDLE, Job(tasks=LONG, limit=83), context_tokens=32_768),
}
