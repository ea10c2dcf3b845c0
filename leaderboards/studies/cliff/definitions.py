"""Defines what the study of the cliff shows, for the page on method."""

from leaderboards.metrics.declaration import Chapter, Definition

TITLE = "Hallucination, GER and the cliff"
CHAPTER = Chapter(
    "cliff",
    TITLE,
    (
        Definition(
            "Susceptibility, and the cliff",
            "How fast the hallucination rate H rises over the realised ratio α, by finite "
            "differences between neighbouring levels, the full cache among them. The cliff is the "
            "middle of the step over which it rises fastest; its interval is that of the middles "
            "in resamples of contexts. A rise is clear if the interval of the slope there, "
            "corrected over the steps, leaves out 0.",
            "χ = ΔH / Δα",
            "arXiv 2603.01426",
        ),
        Definition(
            "r over ratios, and partial over contexts",
            "r is Pearson’s correlation of GER and H over the levels of a policy, or of all, and "
            "the full cache. Both rise with the ratio, so that it is high also where neither "
            "causes the other. The partial correlation is over contexts, given task, policy and "
            "level: of what GER and the rate of a context are above their means there, of "
            "questions whose answer stands in the context.",
        ),
    ),
)
