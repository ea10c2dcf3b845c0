"""The experiment of text P: system prompts that are compressed, plain and with their instructions protected."""

from collections.abc import Mapping, Sequence

import numpy as np
from pandas import DataFrame

from leaderboards.claims.declaration import Experiment
from leaderboards.claims.evidence import LEAST_CLEAN, Evidence, NoEvidenceError
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.instructions.obedience import DEFENDED, PromptRecords, prompt_records
from policies.declaration.levels import Level
from policies.declaration.names import FULL

POLICIES = ("streaming_llm", "snapkv", "knorm")
WAYS = ("whitelist", "fair")
LITTLE, HALF, MORE = (Level("ratio", ratio) for ratio in (0.3, 0.5, 0.7))
PROMPTS = Experiment(
    name="prompts",
    tasks="instructions",
    policies=",".join((*POLICIES, *(f"{policy}+{way}" for policy in POLICIES for way in WAYS))),
    levels=(("ratio", ",".join(f"{level.value:g}" for level in (LITTLE, HALF, MORE))),),
    contexts=72,  # 24 draws in three orders
    suite="instructions",
)


def prompts_of(evidence: Mapping[str, Evidence]) -> PromptRecords:
    """Sorts the records of the experiment; :class:`NoEvidenceError` where the full cache obeys less than half."""
    records = evidence[PROMPTS.name]
    prompts = prompt_records(records.records, records.seed)
    obeyed = float(prompts.directives.loc[prompts.directives["policy"] == FULL, "strict"].mean())
    if not obeyed >= LEAST_CLEAN:
        raise NoEvidenceError(f"instructions: the full cache obeys {obeyed:.2f} of the directives, not {LEAST_CLEAN}")
    return prompts


def rows_of(table: DataFrame, policies: Sequence[str], level: Level | None, **where: object) -> DataFrame:
    """Returns the rows of some policies at a level; :class:`NoEvidenceError` where there are none."""
    chosen = table["policy"].isin(list(policies))
    if level is not None:
        chosen &= table["level"] == level
    for name, value in where.items():
        chosen &= table[name] == value
    if not chosen.any():
        at = "" if level is None else f" at {level.value:g}"
        raise NoEvidenceError(f"{', '.join(policies)}{at} has no records of system prompts")
    return table[chosen]


def rows_with_defence(table: DataFrame) -> DataFrame:
    """Returns the rows of prompts with a defence, in both orders."""
    return table[table["arm"].isin(DEFENDED)]


def mean(prompts: PromptRecords, rows: DataFrame, values: FloatArray) -> FloatArray:
    """Averages values of some rows: shape (1 + resamples,), as measured and in the resamples that all share."""
    return np.concatenate([[values.mean()], prompts.resampler.means(values, rows["draw"].to_numpy())])


def mean_of(prompts: PromptRecords, rows: DataFrame, column: str) -> FloatArray:
    return mean(prompts, rows, rows[column].to_numpy(dtype=np.float64))
