"""The one error that a user sees."""


class KVBenchError(Exception):
    """What is wrong, where, and what to do, in one line. The command line prints it and exits with status 1."""


class InterruptedRunError(KVBenchError):
    """Somebody pressed Ctrl-C; what was finished is kept."""
