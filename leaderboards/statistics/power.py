"""Says before a run which differences so many contexts are likely to show."""

import math

from leaderboards.statistics.intervals import ALPHA
from leaderboards.statistics.paired_difference import StudentTest, fewest_clusters

# Points of percent: the standard deviation of a context's difference between two policies, times
# the root of its questions. Of nine tasks with 1 to 16 questions, on SmolLM2 and reference, the
# medians are 46 to 67, of six 50 to 52.
QUESTION_SPREAD = 51.0
# How alike the differences of questions about one context are: their intraclass correlation, median
# over policies and levels, on nine tasks of 4 to 16 questions, of SmolLM2 and reference. So a
# question more tells nearly as much as a context more, and takes no prefill.
ALIKE = (0.0, 0.05)


def smallest_detectable(spread: float, clusters: int, alpha: float = ALPHA) -> float | None:
    """Returns :meth:`StudentTest.smallest` of so many clusters, whose differences have the standard
    deviation ``spread``."""
    error = spread / math.sqrt(clusters)
    # What can be detected depends on the error alone, and not on the mean that will be measured.
    test = StudentTest(0.0, error, freedom=clusters - 1, least=2.0 ** (1 - clusters))
    return test.smallest(alpha)


def usual_spread(questions: float) -> float:
    """Returns the usual standard deviation of the difference of a context with so many questions,
    in points."""
    return QUESTION_SPREAD / math.sqrt(questions)


def clusters_to_detect(difference: float, spread: float) -> int:
    """Returns the fewest clusters by which :func:`smallest_detectable` sees a difference."""
    count = fewest_clusters()
    while True:
        # It falls with the root of the count, so that this ends for any difference above 0.
        smallest = smallest_detectable(spread, count)
        if smallest and smallest <= difference:
            return count
        count += 1
