"""Puts each answer into one class of failure, from the stored routes and records alone."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pandas import DataFrame, Series

from leaderboards.routing.failures import AnswerFacts, FailureClass, outcome_of
from leaderboards.routing.reach import EPSILON, EPSILONS
from leaderboards.statistics.bootstrap import Estimate, resampled_means
from policies.declaration.names import FULL

TABLE = "routes"  # of a store (kvbench.store.observed)
CELL = ["task", "question_id", "policy", "level_kind", "level", "repeat"]
QUESTION = ["task", "question_id"]
CONTEXT = "context"  # a column: what is resampled
# The classes of answers with a route, whatever is said instead.
USES = (FailureClass.SILENT, FailureClass.CONFUSED, FailureClass.UNUSED)
SELDOM = 0.1  # share of a context's tokens that may reach an answer, where to be reached tells something


def contexts_of(rows: DataFrame) -> Series:
    """Names the context of each row, which is the same however it is written."""
    named: Series = rows["task"].astype(str) + "/" + rows["draw_id"].astype(str)
    return named


def with_routes(routes: DataFrame, records: DataFrame) -> DataFrame:
    """Joins routes with their records, of questions whose answer stands in the context. ``right_with_full`` says
    whether the full cache answers the question rightly. Answers that failed are wrong."""
    columns = [*CELL, "draw_id", "right", "answered", "hallucination_kind", "answer_tokens", "ratio"]
    joined = routes.merge(records[columns], on=CELL, validate="one_to_one")
    joined = joined[joined["answer_tokens"] > 0]
    for column in ("right", "answered"):
        joined[column] = joined[column].eq(True)
    full = joined[joined["policy"] == FULL].set_index(QUESTION)["right"].rename("right_with_full")
    joined[CONTEXT] = contexts_of(joined)
    return joined.join(full, on=QUESTION, how="inner").reset_index(drop=True)


def reaches(widths: Series, epsilon: float) -> npt.NDArray[np.bool_]:
    """Tells which widths have at least epsilon in every step; none that is unknown has. Widths are of 32 bits."""
    return np.asarray(widths.astype(np.float32) >= np.float32(epsilon))


def classify(joined: DataFrame, epsilon: float = EPSILON) -> list[FailureClass]:
    """Returns the class of each answer of :func:`with_routes`: of what becomes of the tokens of the gold answer, with
    edges of at least epsilon."""
    reached, said = (reaches(joined[f"{of}_width"], epsilon) for of in ("answer", "said"))
    confused = (joined["hallucination_kind"] == "confused").to_numpy() & said
    columns = zip(
        joined["right"],
        joined["right_with_full"],
        joined["answer_alive"].eq(True),
        reached,
        ~joined["answered"],
        confused,
        joined["unobserved"].isna(),
        strict=True,
    )
    return [outcome_of(AnswerFacts(*map(bool, row))) for row in columns]


def chances(joined: DataFrame) -> dict[float, float]:
    """Returns by epsilon the share of a context's tokens that reach an answer under the full cache, whatever they
    say; nothing where none of its answers was observed."""
    full = joined[(joined["policy"] == FULL) & joined["unobserved"].isna()]
    if full.empty:
        return {}
    return dict(zip(EPSILONS, np.stack(full["chance"].to_list()).mean(axis=0).tolist(), strict=True))


def telling_epsilon(joined: DataFrame) -> float:
    """Returns the least epsilon at which few tokens of a context reach an answer under the full cache; the greatest
    where many always do. It follows from the full cache alone, and not from any policy's answers."""
    return next((epsilon for epsilon, chance in chances(joined).items() if chance <= SELDOM), EPSILONS[-1])


def shares(outcomes: Sequence[FailureClass], contexts: Sequence[str]) -> dict[FailureClass, Estimate]:
    """Returns the share of each class; all together are 1. Contexts are resampled."""
    clusters = np.asarray(contexts, dtype=str)
    found = {}
    for outcome in FailureClass:
        values = np.array([one is outcome for one in outcomes], dtype=np.float64)
        found[outcome] = Estimate.of(float(values.mean()), resampled_means(values, clusters, 0), len(values))
    return found
