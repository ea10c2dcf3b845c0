"""Former options: which spelling took the place of each, said in one line."""

from collections.abc import Mapping, Sequence

from kvbench.system.errors import KVBenchError

NO_VALUE = "..."  # stands in the new spelling where the option had no value


class FormerOptionError(KVBenchError):
    """An option is written in another way now; the message says in which."""

    status = 2


def _suite_spellings() -> dict[str, str]:
    spellings = {}
    for argument in ("dtypes", "sampling"):
        spellings[f"--{argument}"] = f'write --suite "numerics({argument}={{value}})"'
    spellings["--deterministic"] = 'write --suite "numerics(deterministic=yes)"'
    spellings["--no-deterministic"] = 'write --suite "numerics(deterministic=no)"'
    return spellings


def _task_spellings(where: str) -> dict[str, str]:
    """Returns the options of tasks. ``where``: how the command takes a task, ``{task}``."""
    spellings = {}
    for option, task in _TASKS.items():
        spellings[option] = where.replace("{task}", f'"{task}"')
    return spellings


_TASKS = {
    "--data": "TASK(data={value})",
    "--defence": "ifeval(defence={value})",
    "--essays": "ruler(essays={value})",
    "--depth": "TASK(depth={value})",
    "--answer-prefix": "TASK(prefix={value})",
}
_SUITE = _suite_spellings()
_OF_TASKS = _task_spellings("write --tasks {task}")
_BOUND = {"--cell-seconds": 'write --executor "local(cell_seconds={value})"'}
_OF_RUN = {
    "--address": 'write --executor "ray(address={value})"',
    "--workers": 'write --executor "ray(workers={value})"',
    "--cpus-per-worker": 'write --executor "ray(cpus={value})"',
    "--gpus-per-worker": 'write --executor "ray(gpus={value})"',
    "--compress": 'write --mode "agnostic(compress={value})"',
    "--device-map": 'write --device "cuda(map={value})"',
    "--beside": "when the run is done, python -m kvbench site RUN --beside {value} does it",
    "--phrasings": "held-out phrasings are for who trains a model, and export and show write them",
}
# By command and option, what is written in its place; {value} is what the option had.
FORMER: Mapping[str, Mapping[str, str]] = {
    "run": {**_SUITE, **_OF_TASKS, **_OF_RUN, **_BOUND},
    "plan": {**_SUITE, **_OF_TASKS},
    "claims": {**_SUITE, **_OF_TASKS},
    "compare": {**_OF_TASKS, **_BOUND},
    "doctor": _OF_TASKS,
    "export": _task_spellings("write --task {task}"),
    "show": _task_spellings("write show {task}"),
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
            # The option may stand last, without a word behind it.
            (value,) = words[place + 1 : place + 2] or [NO_VALUE]
        if option in _TASKS and "," in value:
            value = NO_VALUE  # it needs quotes within those of the shell, which differ
        spelling = former[option].replace("{value}", _as_argument(value))
        raise FormerOptionError(f"{option} is no option any more: {spelling}")


def _as_argument(value: str) -> str:
    """Writes a value as it may stand in brackets; several in brackets of their own."""
    if "," in value:
        return f"[{value}]"
    return value
