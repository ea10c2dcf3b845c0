"""Former options: which spelling took the place of each, said in one line."""

from collections.abc import Mapping, Sequence

from kvbench.store.run_file import FORMER_OPTIONS
from kvbench.system.errors import KVBenchError

NO_VALUE = "..."  # stands in the new spelling where the option had no value


class FormerOptionError(KVBenchError):
    """An option is written in another way now; the message says in which."""

    status = 2


def _suite_spellings() -> dict[str, str]:
    spellings = {}
    for argument in ("dtypes", "sampling"):
        spellings[f"--{argument}"] = f'--suite "numerics({argument}={{value}})"'
    spellings["--deterministic"] = '--suite "numerics(deterministic=yes)"'
    spellings["--no-deterministic"] = '--suite "numerics(deterministic=no)"'
    return spellings


def _task_spellings(where: str) -> dict[str, str]:
    """Returns the options of tasks. ``where``: how the command takes a task, ``{task}``."""
    spellings = {}
    for option, argument in FORMER_OPTIONS.items():
        task = f'"{_TASKS.get(argument, "TASK")}({argument}={{value}})"'
        spellings[f"--{option.replace('_', '-')}"] = where.replace("{task}", task)
    return spellings


_SUITE = _suite_spellings()
_TASKS = {"defence": "ifeval", "essays": "ruler"}  # the tasks that take an option alone
_OF_TASKS = _task_spellings("--tasks {task}")
# By command and option, what is written in its place; {value} is what the option had.
FORMER: Mapping[str, Mapping[str, str]] = {
    "run": {**_SUITE, **_OF_TASKS},
    "plan": {**_SUITE, **_OF_TASKS},
    "claims": {**_SUITE, **_OF_TASKS},
    "compare": _OF_TASKS,
    "doctor": _OF_TASKS,
    "export": _task_spellings("--task {task}"),
    "show": _task_spellings("show {task}"),
}


def check_spelling(words: Sequence[str]) -> None:
    """Raises :class:`FormerOptionError` for the first word that is a former option of the
    command."""
    if not words:
        return
    former = FORMER.get(words[0], {})
    for place, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option not in former:
            continue
        if not equals:
            following = words[place + 1 : place + 2]
            value = following[0] if following else NO_VALUE
        spelling = former[option].replace("{value}", _as_argument(value))
        raise FormerOptionError(f"{option} is written in another way now: {spelling}")


def _as_argument(value: str) -> str:
    """Writes a value as it may stand in brackets; several in brackets of their own."""
    return f"[{value}]" if "," in value else value
