"""The errors that a user sees."""

import traceback


class KVBenchError(Exception):
    """An error that says in one line what is wrong, where, and what to do. The command line prints it and exits with
    status 1."""


def first_line(error: BaseException) -> str:
    """Returns the first line of an error that is not blank, or an empty text."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "")


def unexpected(error: BaseException) -> KVBenchError:
    """Describes a bug of kvbench or of a library: its message and where it was raised, in one line."""
    places = traceback.extract_tb(error.__traceback__)
    where = f" ({places[-1].filename}:{places[-1].lineno})" if places else ""
    return KVBenchError(f"unexpected {type(error).__name__}: {first_line(error)}{where}")


class InterruptedRunError(KVBenchError):
    """Somebody pressed Ctrl-C; finished work is kept."""
