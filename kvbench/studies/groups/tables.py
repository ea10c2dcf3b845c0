"""The table of groups: drift of cache on from cache off by how many query heads share a head of
keys and values.

A run with ``--observe groups`` measures it in float16, at the first question of each context, with
the full cache.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvbench.store.tables import RECORDS, AnswerRow, register_study
from policies import FULL
from policies.declaration.lazy import LazyModule

if TYPE_CHECKING:
    import torch

    from kvbench.experiments.collect import FinishedAnswer as Answer
    from kvbench.experiments.grid import Grid

# They need torch, and a store is read without.
grouping = LazyModule("kvbench.engine.studies.grouping")
precision = LazyModule("kvbench.models.precision")

HALF = "float16"


class GroupRow(AnswerRow):
    """Holds the drift of a model of equal function in which so many query heads share a head."""

    dtype: str
    size: int  # query heads that share a head; the largest is the model as it is
    # Relative, of the residual stream behind each layer, mean over the last tokens of the prompt.
    hidden: list[float]


def _groups(answers: "Sequence[Answer]") -> Iterator[GroupRow]:
    """Measures the full cache's answer to the first question."""
    full = [answer for answer in answers if answer.record.policy == FULL and answer.generation]
    for answer in full[:1]:
        prompt = answer.trace.prompt
        question = prompt.questions[answer.number]
        ids = (*prompt.token_ids, *question.token_ids)
        network = answer.model.copies.network_in(HALF)
        for size, hidden in grouping.by_group_size(network, ids):
            key = RECORDS.row_key(answer.record)
            yield GroupRow(**key, dtype=HALF, size=size, hidden=hidden)


def _prepare(grid: "Grid", device: "torch.device") -> None:
    """Checks that the device has the type of numbers of the study."""
    precision.check_dtypes((HALF,), device)


GROUPS = register_study("groups", GroupRow, ("dtype", "size"), 1, _groups, prepare=_prepare)
