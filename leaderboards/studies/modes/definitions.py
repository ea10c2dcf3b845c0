"""Defines what the comparison of both modes shows, for the page on method."""

from leaderboards.metrics.declaration import Chapter, Definition

TITLE = "Agnostic beside aware"
CHAPTER = Chapter(
    "modes",
    TITLE,
    (
        Definition(
            "Aware less agnostic",
            "F1 and right answers where the press sees the question less those where it does "
            "not, in points, on the questions that both were asked. Contexts are resampled "
            "for both together.",
            "difference = mean(aware) − mean(agnostic)",
        ),
    ),
)
