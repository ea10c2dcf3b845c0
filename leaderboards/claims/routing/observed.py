"""The experiment of claims R4 to R6: attention, hidden states and routes over ratios."""

from collections.abc import Mapping
from dataclasses import dataclass

from pandas import DataFrame

from leaderboards.claims.declaration import Experiment
from leaderboards.claims.evidence import Evidence, table_of
from leaderboards.claims.routing.routes import ONE_FACT, MasteredTasks

# The tasks, policies and levels of the suite ``routing``, so that a finished run of it lends its answers.
OBSERVED = Experiment(
    name="heads",
    tasks=f"{ONE_FACT},hops",
    policies="streaming_llm,snapkv,knorm,tova,h2o",
    levels=(("ratio", "0.3,0.5,0.7,0.8,0.9,0.95"),),
    contexts=12,
    observe="attention,states,routes",
)


@dataclass(frozen=True)
class Observed:
    """Holds the observed tables of the tasks that the model can do."""

    records: DataFrame
    tables: Mapping[str, DataFrame]
    seed: int
    left_out: str  # says which tasks it cannot do, if any

    @classmethod
    def of(cls, evidence: Mapping[str, Evidence], name: str = OBSERVED.name) -> "Observed":
        """Takes the evidence of an experiment; :class:`NoEvidenceError` where the model can do none of its tasks."""
        given, routes = evidence[name], MasteredTasks.of(evidence, name)
        tasks = [task.task for task in routes.tasks]
        return cls(given.records[given.records["task"].isin(tasks)], given.tables, given.seed, routes.left_out)

    def table(self, name: str) -> DataFrame:
        """Returns the rows of a table about these tasks; :class:`NoEvidenceError` where there are none."""
        table = table_of(self.tables, name, "observed")
        return table[table["task"].isin(self.records["task"].unique())]
