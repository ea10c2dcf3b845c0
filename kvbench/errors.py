"""The one error that a user sees."""


class KVBenchError(Exception):
    """What is wrong, where, and what to do, in one line. The command line prints it and exits with status 1."""


def first_line(error: BaseException) -> str:
    """What a foreign error says, in one line: its first that is not blank, or nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


class InterruptedRunError(KVBenchError):
    """Somebody pressed Ctrl-C; what was finished is kept."""
