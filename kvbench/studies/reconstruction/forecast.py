"""Counts what the table of reconstruction computes beside the answers of a run: the first question
of a context with its right answer, over the exact rows and over those of each format."""

from collections.abc import Iterator, Sequence

from kvbench.engine.time_limit import NumericsOptions
from kvbench.estimate.forecast import Forecast, Passes, StudyPart
from kvbench.estimate.loads import Load, StudyLoad
from kvbench.studies.reconstruction.tables import stores_exact_rows

# Of a row of the context: it is copied into a cache, and read from there.
READS = 3
ASSUMPTION = (
    "Reconstruction: each format reads the first question and its right answer of a context once."
)


def parts(
    load: Load,
    study: StudyLoad,
    numerics: NumericsOptions,
    tables: Sequence[str],
    layers: int,
    heads: int,
) -> Iterator[StudyPart]:
    """Yields the passes over stored rows on a task; none where no policy stores the full cache in
    another format."""
    formats = 0
    for policy, shares in load.branches:
        if stores_exact_rows(policy):
            formats += len(shares)
    if not formats:
        return
    tokens = study.first_tokens + max(0.0, study.first_gold - 1)
    one_pass = Passes(
        count=1, tokens=tokens, pairs=tokens * load.tokens, cached=READS * load.tokens
    )
    # Once more over the exact rows.
    passes = one_pass.times((1 + formats) * load.all_prompts)
    yield StudyPart("reconstruction", [passes], [passes], ASSUMPTION)


FORECAST = Forecast(parts)
