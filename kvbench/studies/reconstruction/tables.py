"""The table of reconstruction: the error of keys and values as a format stores them, and how far
the model's next tokens then are from those of the full cache.

A run with ``--observe reconstruction`` measures it for each context, of the policies that store the
full cache in another format. They are the numbers by which formats are often compared. Whether
answers follow them is another question.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvbench.store.tables import RECORDS, AnswerRow, register_study
from policies import Policy
from policies.composition import is_treatment
from policies.declaration.lazy import LazyModule

if TYPE_CHECKING:
    import torch

    from kvbench.experiments.collect import FinishedAnswer as Answer

# It needs torch, and a store is read without.
stored_rows = LazyModule("kvbench.engine.studies.stored_rows")


class ReconstructionRow(AnswerRow):
    """Holds the errors of a format by layer, each as a share of the length of the exact rows, and
    the KL divergence in nats from the full cache at the tokens of the right answer."""

    keys: list[float]
    values: list[float]
    kl: float


def stores_exact_rows(policy: Policy) -> bool:
    """Tells whether a policy does nothing but to store the exact rows of the full cache in another
    format: no press evicted before, and the prefill read them as they were."""
    is_format = policy.family == "quantisation" and is_treatment(policy.name)
    return is_format and policy.treatment.wrap is None


def _reconstruction(answers: "Sequence[Answer]") -> Iterator[ReconstructionRow]:
    """Measures each format at the first question of a context, of which all others read the same
    rows."""
    exact_by_question: dict[str, torch.Tensor] = {}
    for answer in answers:
        is_first = answer.number == 0 and answer.generation is not None
        if not is_first or not stores_exact_rows(answer.branch.treatment.policy):
            continue
        trace = answer.trace
        exact = stored_rows.StoredRows(trace.keys, trace.values)
        question = trace.prompt.questions[answer.number]
        ids = question.token_ids, question.gold_ids
        network = answer.model.network
        if answer.record.question_id not in exact_by_question:
            exact_by_question[answer.record.question_id] = stored_rows.answer_log_probabilities(
                network, exact, *ids
            )
        treatment = answer.branch.treatment
        rows = stored_rows.store_rows(
            treatment.policy, treatment.situation, trace.keys, trace.values
        )
        treated = stored_rows.answer_log_probabilities(network, rows, *ids)
        yield ReconstructionRow(
            **RECORDS.row_key(answer.record),
            keys=stored_rows.relative_errors(trace.keys, rows.keys),
            values=stored_rows.relative_errors(trace.values, rows.values),
            kl=stored_rows.mean_divergence(exact_by_question[answer.record.question_id], treated),
        )


RECONSTRUCTION = register_study("reconstruction", ReconstructionRow, (), 2, _reconstruction)
