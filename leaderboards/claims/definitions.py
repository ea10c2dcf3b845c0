"""Defines what the register of claims shows."""

from leaderboards.aggregate.evidence import FEWEST_CONTEXTS, LEAST_CLEAN
from leaderboards.metrics.declaration.definition import Chapter, Definition, estimates

CLAIMS = Chapter(
    "claims",
    "Claims of papers",
    (
        Definition(
            "Claim",
            "What a text says of KV caches, as an inequality: one statistic on one side of a threshold, which was "
            "written down before anything was run and is never changed to suit a result. Beside it what the text "
            "reported, on its own models and tasks.",
            names=("claim", "text", "words", "what the text says", "reported", "side", "threshold"),
        ),
        Definition(
            "Statistic of a claim",
            "What was measured on this model, with its 95 % interval by the cluster bootstrap over contexts: draws of "
            "a random treatment belong to their context, and what is set against one another is resampled together. "
            "A claim has several parts where it is about several policies, tasks or scores. Where a claim is a share "
            f"of the full cache's score, the full cache has to reach {LEAST_CLEAN:.0%} of a perfect one: who fails "
            "has nothing to lose. An answer that failed counts as wrong.",
            names=("statistic", "what was measured", "claim_part", *estimates("measured")),
        ),
        Definition(
            "Verdict on a claim",
            "Holds: the whole interval is on the claim's side of the threshold. Does not hold: the whole interval is "
            "on the other side. Undecided: it holds the threshold, or what has to be there to tell is not; the row "
            "says which, and about how many contexts would decide if the statistic stayed where it is (an interval "
            "shrinks by the square root of their number). The claims of one text that are tested in one run are "
            f"corrected together by Holm's method; fewer than {FEWEST_CONTEXTS} contexts decide nothing. Of a claim "
            "that a number is other than 0 nothing can show the opposite: it holds or is undecided. A verdict is "
            "about the model that was run: a claim that does not hold on a small one is a result, and no fault.",
            names=("verdict on the claim", "claim_verdict", "why", "claim_p"),
        ),
        Definition(
            "Remark, and reason",
            "Where a text's own numbers say something else than its words, the remark gives the arithmetic. Where a "
            "verdict contradicts a text, the reason says what a further experiment showed.",
            names=("remark", "because"),
        ),
    ),
)
