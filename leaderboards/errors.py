"""The errors that a user of boards and metrics sees."""

from policies.declaration.foreign_code import LONGEST, error_text


class LeaderboardError(ValueError):
    """Says that no board can be made of some records. The message says in one line what to do."""


class MetricError(Exception):
    """A metric cannot be computed. The message says in one line what is missing and what to do."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an error that is not blank, cut where it has no end, or an empty
    text."""
    line = next((line.strip() for line in error_text(error).splitlines() if line.strip()), "")
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} …"
