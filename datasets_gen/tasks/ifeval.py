"""Task ``ifeval``: the prompts of IFEval (arXiv 2311.07911), whose answers the official checkers
judge.

Plain, a prompt carries request and directives together, and all of it is the context. Split, the
system message carries the directives, and beside the request, which is to be answered under them,
there is an attack that asks for them (after arXiv 2510.00231). The rows come from elsewhere:
``IFEVAL`` alone has none."""

import json
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from datasets_gen.examples.directives import ARGUMENTS, Directive
from datasets_gen.examples.errors import DatasetError, unknown_name
from datasets_gen.examples.example import Arm, Question, Span
from datasets_gen.examples.jsonl import read_entries, read_field, read_mapping, read_text
from datasets_gen.examples.task import Draft, Request, Task, digest_rows
from datasets_gen.examples.wording import QuestionText, Wording
from datasets_gen.writing.questions import Asker, answerable
from datasets_gen.writing.system_prompt import (
    ATTACKS,
    DEFENCES,
    SystemPrompt,
    attack,
    with_defence,
    with_directives,
)

Placement = Literal["none", "before", "after", "both"]
# Where the defence stands: before or behind the system message.
ARMS: Mapping[Placement, tuple[Arm, ...]] = {
    "none": ("no defence",),
    "before": ("defence first",),
    "after": ("directives first",),
    "both": ("defence first", "directives first"),
}
JOINT = "\n"  # a message may end with a phrase to be quoted, or in a list
QUICK = 12  # rows
ROLES = ["system", "user"]


@dataclass(frozen=True, slots=True)
class IfevalPrompt:
    """A prompt of IFEval."""

    user: str  # the request; in a plain row it carries the directives too
    system: str  # the message that carries the directives; empty in a plain row
    directives: tuple[Directive, ...]


def read_rows(path: Path) -> tuple[IfevalPrompt, ...]:
    """Reads the rows of a JSONL file; raises :class:`DatasetError` that names the first line that
    is none."""
    return read_prompts(read_entries(path, "IFEval"), str(path))


def read_prompts(entries: Iterable[tuple[str, object]], source: str) -> tuple[IfevalPrompt, ...]:
    """Makes rows of entries, each of which comes with its place in the source. All are of one kind.
    Raises :class:`DatasetError` where there are none, or some of another kind."""
    rows: list[IfevalPrompt] = []
    for where, entry in entries:
        row = _row(entry, where)
        if rows and bool(row.system) != bool(rows[0].system):
            kinds = ("split into messages", "plain")
            kind, first = kinds if row.system else kinds[::-1]
            raise DatasetError(
                f"{where}: the row is {kind} and the rows before it are {first}: keep them in two "
                f"files"
            )
        rows.append(row)
    if not rows:
        raise DatasetError(f"{source} has no rows: give a JSONL file of IFEval rows")
    return tuple(rows)


def _row(row: object, where: str) -> IfevalPrompt:
    entry = read_mapping(row, where)
    directives = _directives(entry, where)
    if entry.get("messages") is None:
        return IfevalPrompt(read_text(entry, "prompt", where), "", directives)
    messages = []
    for message in _list(entry, "messages", where):
        if isinstance(message, Mapping):
            messages.append(message)
    if [message.get("role") for message in messages] != ROLES:
        raise DatasetError(
            f"{where}: 'messages' are one of the role system and then one of the role user"
        )
    system, user = (read_text(message, "content", where) for message in messages)
    return IfevalPrompt(user, system, directives)


def _directives(entry: Mapping[str, object], where: str) -> tuple[Directive, ...]:
    kinds, arguments = (_list(entry, name, where) for name in ("instruction_id_list", "kwargs"))
    if not kinds:
        raise DatasetError(
            f"{where}: 'instruction_id_list' is empty: there is nothing to be obeyed"
        )
    if len(kinds) != len(arguments):
        raise DatasetError(
            f"{where}: {len(kinds)} instructions have {len(arguments)} kwargs: give each its own"
        )
    return tuple(
        _directive(kind, given, where) for kind, given in zip(kinds, arguments, strict=True)
    )


def _directive(kind: object, given: object, where: str) -> Directive:
    """Returns the arguments as JSON. The data set on the hub has every argument in every row, most
    of them null."""
    if not isinstance(kind, str) or kind not in ARGUMENTS:
        raise DatasetError(f"{where}: {unknown_name('instruction', str(kind), ARGUMENTS)}")
    if not isinstance(given, Mapping):
        raise DatasetError(f"{where}: the kwargs of {kind} are no JSON object")
    arguments = {name: value for name, value in given.items() if value is not None}
    if sorted(arguments) != sorted(ARGUMENTS[kind]):
        accepted, given_names = (
            ", ".join(sorted(names)) or "nothing" for names in (ARGUMENTS[kind], arguments)
        )
        raise DatasetError(f"{where}: {kind} takes {accepted}, and is given {given_names}")
    for name, value in arguments.items():
        if not isinstance(value, ARGUMENTS[kind][name]):
            raise DatasetError(
                f"{where}: the {name} of {kind} is no {ARGUMENTS[kind][name].__name__}"
            )
        if not value:
            raise DatasetError(
                f"{where}: the {name} of {kind} is empty, and its checker would draw one at random"
            )
    if not arguments:
        return Directive(kind, "")
    # Sorted: the order in which a file names arguments makes no other directive.
    return Directive(kind, json.dumps(arguments, ensure_ascii=False, sort_keys=True))


def _list(entry: Mapping[str, object], name: str, where: str) -> list[object]:
    value = read_field(entry, name, where)
    if not isinstance(value, list):
        raise DatasetError(f"{where}: '{name}' is no list")
    return value


def rows_without(rows: Sequence[IfevalPrompt], kinds: Collection[str]) -> tuple[IfevalPrompt, ...]:
    """Leaves out the rows that have a directive of these kinds; raises :class:`DatasetError` where
    all of them have."""
    left = []
    for row in rows:
        if {directive.kind for directive in row.directives}.isdisjoint(kinds):
            left.append(row)
    if not left:
        names = ", ".join(kinds)
        raise DatasetError(
            f"every row of IFEval has a directive that is left out ({names}): give more rows"
        )
    return tuple(left)


def ifeval_task(rows: Sequence[IfevalPrompt], defence: Placement = "none") -> Task:
    """Makes the task over some rows, in their order, all of one kind; raises :class:`DatasetError`
    for a defence of plain ones, which have no system message."""
    split = bool(rows[0].system)
    if defence != "none" and not split:
        raise DatasetError(
            f"defence={defence} is for rows that are split into a system and a user message: "
            f"these are plain"
        )
    arms = ARMS[defence] if split else IFEVAL.arms
    return replace(
        IFEVAL,
        make=partial(_make, tuple(rows)),
        contexts={"quick": min(QUICK, len(rows)) * len(arms), "paper": len(rows) * len(arms)},
        role="system" if split else "user",
        variant=f"{'split' if split else 'plain'}.{digest_rows(tuple(rows))}.defence-{defence}",
        arms=arms,
        most=len(rows) * len(arms),
    )


def _make(rows: Sequence[IfevalPrompt], rng: random.Random, request: Request) -> Draft:
    """Takes a row as it is, and draws the words of the attack and of the defence."""
    row = rows[request.number]
    if not row.system:
        return Draft(row.user, (), (_question("", row, ()),))
    # All phrasings: rows have no levels.
    wording = Wording(len(DEFENCES.common), request.held_out)
    # Each from a stream of its own: all placements of the defence have the same words.
    for_attack, for_defence = (Asker(random.Random(rng.getrandbits(64)), wording) for _ in range(2))
    prompt = _write_prompt(for_defence, row.system, request.arm)
    questions = (
        _question(row.user, row, prompt.directives),
        attack(for_attack, for_attack.rng.choice(tuple(ATTACKS)), (), prompt),
    )
    return Draft(
        prompt.text, (), questions[: request.questions], prompt.defence + prompt.directives
    )


def _write_prompt(ask: Asker, message: str, arm: Arm) -> SystemPrompt:
    prompt = SystemPrompt()
    if arm == "defence first":
        prompt = with_defence(ask, prompt)
    prompt = with_directives(prompt, [message], JOINT)
    if arm == "directives first":
        return with_defence(ask, prompt, JOINT)
    return prompt


def _question(text: str, row: IfevalPrompt, spans: tuple[Span, ...]) -> Question:
    """Asks for an answer under the directives. There are no gold answers: the checkers judge
    whatever is said."""
    question = answerable(QuestionText(text), "", "thing", "forward", spans)
    return replace(question, golds=(), target="", directives=row.directives)


IFEVAL = Task(
    name="ifeval",
    version="1.0.0",
    description="Prompts of IFEval, from ifeval(data=FILE) or the hub, judged by their official checkers",
    make=partial(_make, ()),
    chances=(0.0,),  # of no meaning: only attacks have gold answers
    contexts={"quick": 0, "paper": 0},
    questions_per_context=2,
    instruction="",
    max_new_tokens=1280,  # as in lm-eval's task
    role="system",
    most=0,
    paper="arXiv 2311.07911",
)
