"""The one error that a user sees."""

import traceback


class KVBenchError(Exception):
    """What is wrong, where, and what to do, in one line. The command line prints it and exits with status 1."""


def first_line(error: BaseException) -> str:
    """What a foreign error says, in one line: its first that is not blank, or nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def unexpected(error: BaseException) -> KVBenchError:
    """A fault of ours, or of a library: what it says and where it was raised, in one line."""
    places = traceback.extract_tb(error.__traceback__)
    where = f" ({places[-1].filename}:{places[-1].lineno})" if places else ""
    return KVBenchError(f"unexpected {type(error).__name__}: {first_line(error)}{where}")


class InterruptedRunError(KVBenchError):
    """Somebody pressed Ctrl-C; what was finished is kept."""
