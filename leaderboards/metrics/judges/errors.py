"""The error of this package."""


class MetricError(Exception):
    """A metric cannot be computed. The message says in one line what is missing and what to do."""


def first_line(error: BaseException) -> str:
    """What a foreign error says, in one line: its first that is not blank, or nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")
