"""The table of reconstruction: the error of keys and values as a format stores them.

A run with ``--observe reconstruction`` measures it for each context, of the policies that store the
full cache in another format. It is the number by which formats are often compared, and it asks
nothing: whether answers follow it is another question.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvbench.store.tables import RECORDS, AnswerRow, register_study
from policies.declaration.lazy import LazyModule

if TYPE_CHECKING:
    from kvbench.experiments.collect import FinishedAnswer as Answer

# It needs torch, and a store is read without.
stored_rows = LazyModule("kvbench.engine.studies.stored_rows")


class ReconstructionRow(AnswerRow):
    """Holds the errors of a format, each as a share of the length of the exact rows, by layer."""

    keys: list[float]
    values: list[float]


def _reconstruction(answers: "Sequence[Answer]") -> Iterator[ReconstructionRow]:
    """Measures each format at the first question of a context, of which all others read the same
    rows."""
    for answer in answers:
        is_first = answer.number == 0 and answer.generation is not None
        if not is_first or answer.branch.treatment.policy.family != "quantisation":
            continue
        trace = answer.trace
        treatment = answer.branch.treatment
        rows = stored_rows.store_rows(
            treatment.policy, treatment.situation, trace.keys, trace.values
        )
        yield ReconstructionRow(
            **RECORDS.row_key(answer.record),
            keys=stored_rows.relative_errors(trace.keys, rows.keys),
            values=stored_rows.relative_errors(trace.values, rows.values),
        )


RECONSTRUCTION = register_study("reconstruction", ReconstructionRow, (), 1, _reconstruction)
