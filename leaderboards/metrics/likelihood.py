"""Metrics of the likelihood of the right answer, whatever the model writes. They are measured in
the run."""

import numpy as np

from leaderboards.metrics.declaration import (
    PLAIN,
    Definition,
    Heading,
    Measure,
    Metric,
    Over,
    Sample,
    Scale,
)
from leaderboards.statistics.bootstrap import FloatArray

NATS = Scale(1, 3, None)
RISE = "Rise of the right answer’s NLL"

LIKELIHOOD = Definition(
    "Likelihood of the right answer",
    "How unlikely the tokens of the right answer are when the model, reading what a policy left "
    "of the cache, is made to write them: the mean over its tokens, in nats. The right answer is "
    "what a perfect output is (the column target), as the tokenizer makes it behind the question, "
    "without an end token. It moves before an answer turns wrong, on models too that answer "
    "nothing right. Its rise over the full cache is that of the same question in the same run; a "
    "policy that helps has one below 0.",
    "gold_nll = −1/n · Σ log p(token i | cache, question, tokens before i); delta_nll = gold_nll "
    "− gold_nll of the full cache",
    "teacher forcing",
    chapter="answers",
)
NEXT_TOKENS = Definition(
    "Next tokens of running text",
    "Where a task is running text, the model is made to write how the text goes on, from what a "
    "policy left of the cache. Next-token accuracy is the share of these tokens that are the "
    "model’s most likely one, given the text’s own tokens before them; one whose likelihood is no "
    "number counts as wrong. Perplexity is exp of the mean nats a token, over tokens and then "
    "over texts; it leaves out texts whose likelihood is no number.",
    "next_token_accuracy = 1/n · Σ [token i = argmax p(· | cache, tokens before i)]; perplexity = "
    "exp(mean of gold_nll)",
    chapter="answers",
)


def _nats_of_text(sample: Sample) -> FloatArray:
    """Returns the mean nats a token of running text, NaN for questions."""
    # Questions have a likelihood too, that of their answers, and it is no perplexity.
    return np.where(np.isnan(sample["next_token_accuracy"]), np.nan, sample["gold_nll"])


METRICS = (
    Metric(
        name="next_token_accuracy",
        type=float,
        better="higher",
        line=(
            "Of running text, the share of tokens that are the most likely one behind those "
            "before them"
        ),
        definition=NEXT_TOKENS,
        bounds=(0, 1),
        measures=(
            Measure(
                field="next_token_accuracy",
                title="Next-token accuracy",
                unit="percent",
                over=Over.CONCERNED,
                better="higher",
                curve=True,
                table=True,
                board=Heading("next tokens", "next-token accuracy in running text", single=True),
            ),
            Measure(
                field="perplexity",
                over=Over.CONCERNED,
                scale=PLAIN,
                better="lower",
                has_interval=True,
                columns=("gold_nll", "next_token_accuracy"),
                values=_nats_of_text,
                # The mean is over nats: perplexities have no meaning added up.
                of_mean=np.exp,
                heading="perplexity",
            ),
        ),
    ),
    Metric(
        name="gold_nll",
        type=float,
        unit="nats",
        better="lower",
        line=(
            "Mean negative log-likelihood of the right answer's tokens, when the branch is "
            "made to write it"
        ),
        definition=LIKELIHOOD,
        bounds=(0, float("inf")),
        measures=(
            Measure(
                field="gold_nll", unit="nats", over=Over.CONCERNED, scale=NATS, heading="gold-nll"
            ),
        ),
    ),
    Metric(
        name="delta_nll",
        type=float,
        unit="nats",
        better="lower",
        line="The rise of gold_nll over the full cache on the same question",
        definition=LIKELIHOOD,
        measures=(
            Measure(
                field="delta_nll",
                title=RISE,
                unit="nats a token",
                over=Over.CONCERNED,
                scale=NATS,
                better="lower",
                curve=True,
                table=True,
                board=Heading("NLL rise", "rise of the right answer’s NLL"),
                heading="delta-nll",
            ),
        ),
    ),
)
