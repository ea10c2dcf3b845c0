"""The errors that a user sees."""

import traceback

from leaderboards.errors import first_line as first_line  # metrics, which know nothing of kvbench, need it too


class KVBenchError(Exception):
    """An error that says in one line what is wrong, where, and what to do. The command line prints it and exits with
    status 1."""


def unexpected_error(error: BaseException) -> KVBenchError:
    """Describes a bug of kvbench or of a library: its message and where it was raised, in one line."""
    places = traceback.extract_tb(error.__traceback__)
    where = f" ({places[-1].filename}:{places[-1].lineno})" if places else ""
    return KVBenchError(f"unexpected {type(error).__name__}: {first_line(error)}{where}")


class InterruptedRunError(KVBenchError):
    """Somebody pressed Ctrl-C; finished work is kept."""
