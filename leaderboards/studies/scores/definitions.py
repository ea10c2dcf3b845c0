"""Defines what the study of scores shows, for the page on method."""

from leaderboards.metrics.declaration import Chapter, Definition

TITLE = "Scores of one's own"
CHAPTER = Chapter(
    "scores",
    TITLE,
    (
        Definition(
            "Scores of one's own",
            "What a scorer says that a task brings, or an installed package: the mean over "
            "contexts, each of which weighs the same, and the difference from the full cache on the "
            "same questions. A scorer declares its range and whether higher is better; it is no "
            "part of kvbench, and enters no rank and no safe ratio. Intervals are those of means "
            "and of paired differences between the ends of the range.",
            "difference = mean(score of the policy − score of the full cache)",
            columns=("scorer", "score", "score_low", "score_high", "loss", "loss_low", "loss_high"),
        ),
    ),
)
