"""The command that makes a run again, told by its identity: which needs neither torch nor the policies."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from datasets_gen import FROM_DATA, TASKS, Task
from datasets_gen.tasks.instructions import INSTRUCTIONS_IN_ARMS
from kvbench.store.store import NamedTask, Outline, RunFile
from policies import CONTROLS, FULL, KINDS

OF_TOKENS = re.compile(r"(?P<tokens>\d+)-tokens-of-.+-(?:scattered|together-at-depth-(?P<depth>.+))")
OF_DATA = re.compile(r".+\.defence-(?P<defence>\w+)")
WORD = r"[^\s,'\"]+"

Options = dict[str, str]


@dataclass(frozen=True)
class Reproduction:
    """``command``: one line for a shell. ``unknown``: what the identity does not tell, a line each, and what stands in
    the command in its place."""

    command: str
    unknown: tuple[str, ...] = ()


def reproduction(run: RunFile, registered: Sequence[str]) -> Reproduction:
    """How to make a run again. ``registered``: names of the policies that are known without their files."""
    outline = run.outline
    unknown: list[str] = []
    words = _places(run, registered, unknown)
    names = [policy.name for policy in outline.policies]
    if all(control in names for control in CONTROLS):
        start = ["run"]
        options = _tasks(outline) | {"--policies": ",".join(words[name] for name in names)}
    else:  # `compare` runs no controls, the others first, and the press that it is about last
        *others, mine = (words[name] for name in names if name != FULL or names == [FULL])
        start = ["compare", mine]
        options = _tasks(outline) | {"--against": ",".join(others)}
    options |= _levels(outline) | _contexts(outline) | _variants(run, unknown) | _rest(outline, start[0] == "compare")
    line = ["python", "-m", "kvbench", *start, *(word for option in options.items() for word in option)]
    return Reproduction(shlex.join(line), tuple(unknown))


def _places(run: RunFile, registered: Sequence[str], unknown: list[str]) -> dict[str, str]:
    """By name, how each policy is written: a plug-in behind the file or package that it was taken from."""
    words = {}
    for name in (policy.name for policy in run.outline.policies):
        words[name] = name
        if name not in registered and name.partition("+")[0] not in registered:  # which may be protected
            found = re.search(rf"({WORD}:{re.escape(name)})(?![\w(])", run.command)
            words[name] = found[1] if found else f"FILE.py:{name}"
            if not found:
                unknown.append(f"{name} is no policy of kvbench: put the file that it is in for FILE.py")
    return words


def _is_in_arms(task: NamedTask) -> bool:
    return task.name == INSTRUCTIONS_IN_ARMS.name and _variant(task) == INSTRUCTIONS_IN_ARMS.variant


def _tasks(outline: Outline) -> Options:
    if any(map(_is_in_arms, outline.tasks)):
        return {"--suite": "instructions"}  # which alone brings it
    return {"--tasks": ",".join(task.name for task in outline.tasks)}


def _levels(outline: Outline) -> Options:
    """The levels of each kind and the draws: some policies reach no high level."""
    given = [policy for policy in outline.policies if policy.name != FULL]
    options = {}
    for name, kind in KINDS.items():
        values = tuple(sorted({value for policy in given for value in policy.levels.get(name, ())}))
        if values:
            is_default = kind.default and values == kind.parse(kind.default)
            options[kind.option] = kind.default if is_default else ",".join(map(shortest, values))
    repeats = max((policy.repeats for policy in given), default=1)
    return options | ({"--repeats": str(repeats)} if repeats > 1 else {})


def shortest(value: float) -> str:
    """A number that reads back as the same, whole numbers without a point."""
    return str(int(value)) if value.is_integer() else repr(value)


def _contexts(outline: Outline) -> Options:
    """The profile that takes so many contexts of each task, or the limit."""
    counted = [(_known(task), task.contexts) for task in outline.tasks]
    for profile in ("quick", "paper"):
        if all(task is not None and dict(task.contexts)[profile] == contexts for task, contexts in counted):
            return {"--profile": profile}
    return {"--limit": str(outline.tasks[0].contexts)}


def _known(task: NamedTask) -> Task | None:
    """The task that contexts are counted of; None for one whose contexts depend on its rows, or that is not here."""
    return INSTRUCTIONS_IN_ARMS if _is_in_arms(task) else TASKS.get(task.name)


def _variant(task: NamedTask) -> str:
    """What stands in a version between that of the task and that of the words."""
    return task.version.partition("+")[2].rpartition("lexicon.")[0].rstrip("+")


def _variants(run: RunFile, unknown: list[str]) -> Options:
    """What makes another task of one: lengths, rows and bounds."""
    options: Options = {}
    for task in run.outline.tasks:
        variant, known = _variant(task), {**TASKS, **FROM_DATA}.get(task.name)
        if matched := OF_TOKENS.fullmatch(variant):
            options["--context-tokens"] = matched["tokens"]
            options |= {"--depth": matched["depth"]} if matched["depth"] else {}
        elif matched := OF_DATA.fullmatch(variant):
            options |= _data(run, unknown) | {"--defence": matched["defence"]}
        if known is not None and task.max_new_tokens != known.max_new_tokens:
            options["--max-new-tokens"] = str(task.max_new_tokens)
    return options


def _data(run: RunFile, unknown: list[str]) -> Options:
    found = re.search(rf"--data[= ]({WORD})", run.command)
    if found is None and "--data" not in run.command:
        return {}  # from the hub
    if found is None:
        unknown.append("the rows of ifeval came from a file: put its name for ROWS.jsonl")
    return {"--data": found[1] if found else "ROWS.jsonl"}


def _rest(outline: Outline, compared: bool) -> Options:
    phrasings = "held-out" if outline.held_out else "common"
    return {
        "--model": outline.model,
        "--seed": str(outline.seed),
        "--mode": outline.mode,
        **({} if compared else {"--compress": outline.scope, "--phrasings": phrasings}),
        "--device": outline.device.partition(" ")[0],
        "--dtype": outline.dtype,
    }
