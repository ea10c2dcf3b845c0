"""Metrics of the likelihood of the right answer, whatever the model writes. They are measured in the run."""

from leaderboards.metrics.declaration.definition import Definition
from leaderboards.metrics.declaration.measure import Measure, Over, Scale
from leaderboards.metrics.declaration.metric import Metric

NATS = Scale(1, 3, None)

LIKELIHOOD = Definition(
    "Likelihood of the right answer",
    "How unlikely the tokens of the right answer are when the model, reading what a policy left of the cache, is made "
    "to write them: the mean over its tokens, in nats. The right answer is what a perfect output is (the column "
    "target), as the tokenizer makes it behind the question, without an end token. It moves before an answer turns "
    "wrong, on models too that answer nothing right. Its rise over the full cache is that of the same question in the "
    "same run; a policy that helps has one below 0.",
    "gold_nll = −1/n · Σ log p(token i | cache, question, tokens before i); delta_nll = gold_nll − gold_nll "
    "of the full cache",
    "teacher forcing: the perplexity of the answer is exp(gold_nll)",
    chapter="answers",
)


def _mean(name: str, heading: str) -> Measure:
    return Measure(name=heading, field=name, title="", unit="nats", over=Over.CONCERNED, scale=NATS, heading=heading)


METRICS = (
    Metric(
        name="gold_nll",
        type=float,
        unit="nats",
        better="lower",
        line="Mean negative log-likelihood of the right answer's tokens, when the branch is made to write it",
        definition=LIKELIHOOD,
        bounds=(0, float("inf")),
        measures=(_mean("gold_nll", "gold-nll"),),
    ),
    Metric(
        name="delta_nll",
        type=float,
        unit="nats",
        better="lower",
        line="The rise of gold_nll over the full cache on the same question",
        definition=LIKELIHOOD,
        measures=(_mean("delta_nll", "delta-nll"),),
    ),
)
