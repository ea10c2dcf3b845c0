"""The errors that a user sees."""

import traceback

from pydantic import ValidationError

from datasets_gen import DatasetError

# Metrics, which know nothing of kvbench, need it too.
from leaderboards.errors import first_line as first_line


class KVBenchError(Exception):
    """Says in one line what is wrong, where, and what to do. The command line prints it and exits
    with its status."""

    status = 1


def unexpected_error(error: BaseException) -> KVBenchError:
    """Describes a bug of kvbench or of a library: its message and where it was raised, in one
    line."""
    places = traceback.extract_tb(error.__traceback__)
    where = f" ({places[-1].filename}:{places[-1].lineno})" if places else ""
    return KVBenchError(f"unexpected {type(error).__name__}: {first_line(error)}{where}")


def as_user_error(error: Exception) -> KVBenchError | None:
    """Returns an error that a user can mend, with its one line; None for a bug. The command line
    and the library say the same."""
    if isinstance(error, KVBenchError):
        return error
    if isinstance(error, DatasetError):
        return KVBenchError(str(error))
    if isinstance(error, OSError):
        return KVBenchError(f"{error.filename or 'the system'}: {error.strerror or error}")
    return None


def fault_of_fields(error: ValidationError) -> str:
    """Names the first field of a file that is not as it has to be, and what is wrong."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or "all of it"
    return f"{where}: {first['msg']}"


class InterruptedRunError(KVBenchError):
    """Somebody pressed Ctrl-C; finished work is kept."""

    status = 130


class GateError(KVBenchError):
    """A comparison was made and is whole, and loses more than was allowed: a pipeline tells it from
    a fault."""

    status = 3
