"""Defines what the pages on faults, errors and bytes show."""

from leaderboards.metrics.declaration.definition import Chapter, Definition, estimates
from leaderboards.studies.treatments.published import IFEVAL, LARGE, NEXT_TOKEN, SMALL, TEXT_E, TEXT_F

TREATMENTS = Chapter(
    "treatments",
    "Faults, errors and bytes",
    (
        Definition(
            "Share kept",
            "What a treatment keeps of what the full cache has: right answers, or directives obeyed where a task has "
            "directives, as a share of the full cache’s on the same questions, averaged over the draws of a random "
            "treatment. Its interval resamples contexts, for treatment and full cache together. An answer that failed "
            "counts as 0. The control at level 0 and the full cache are 100 %.",
            "kept = mean(lead | treated) / mean(lead | full cache)",
            names=(*estimates("share_kept"), "share kept", "percent of the control", "fault", "damaged"),
        ),
        Definition(
            "Area over numbers changed",
            "The mean height of the curve of what is kept over the share of numbers that a fault changes, from the "
            "clean cache to where the shortest curve ends, by the trapezoid rule. Of rows and values that share is the "
            "rate; where each of b bits of a number flips with probability r, it is 1 − (1 − r)^b. The difference of "
            "two areas is paired: the same questions in the same resamples.",
            "area = (1 / span) ∫ kept(s) ds",
            names=(
                *estimates("area_over_changed"),
                *("area over numbers changed", "difference of areas", "pair", "order is clear"),
            ),
        ),
        Definition(
            "Half lost from",
            "The share of numbers changed, in percent, from which on, at every higher one too, no more than half is "
            "kept.",
            names=("half lost from",),
        ),
        Definition(
            "Aimed faults",
            "A fault hits a share of the rows of some tokens alone, in every layer and head. Evidence: the tokens of "
            "the sentences that the answer follows from. Answer: those of the answer itself. Other: all of the "
            "context but the evidence. Random: as many tokens as carry evidence, drawn from those that do not.",
            names=("aimed at", "against random tokens"),
        ),
        Definition(
            "Bands of layers",
            "A fault in some layers alone: Q1 to Q4 are the quarters of the layers from the input on, H1 and H2 the "
            "halves.",
            names=("layers",),
        ),
        Definition(
            "The front, at equal bytes",
            "Bytes: what keys and values take once the context is read, codes with their scales and zero points and "
            "the latest tokens in full, in percent of the full cache in the model’s own numbers. On the front is what "
            "nothing else exceeds in as few bytes. Way: eviction, quantisation, or both. Score: percent right, or "
            "directives obeyed.",
            names=(
                *("on the front", "on_front", "way", "bytes, percent", "held_percent", "score, percent"),
                *("at bytes, way", "best", "against eviction, points", "as deployed"),
            ),
        ),
        Definition(
            "Published figures",
            "What the texts report, on other models and other tasks, as a share of their own control where they give "
            "both.",
            source=f"{TEXT_F}; {TEXT_E}",
            names=("treatment", "our treatment", LARGE, SMALL, IFEVAL, NEXT_TOKEN),
        ),
    ),
)
