"""Task ``ifeval``: the prompts of IFEval (arXiv 2311.07911), whose answers the official checkers judge.

Plain, a prompt carries request and directives together, and all of it is the context. Split, the system message carries
the directives, and beside the request, which is to be answered under them, there is an attack that asks for them (after
arXiv 2510.00231). The rows come from elsewhere: ``IFEVAL`` alone has none.
"""

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import Arm, Question, Span
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.examples.wording import QuestionText, Wording
from datasets_gen.tasks.ifeval_rows import IfevalPrompt
from datasets_gen.writing.questions import Asker, answerable
from datasets_gen.writing.system_prompt import ATTACKS, DEFENCES, SystemPrompt, attack, with_defence

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


def ifeval_of(rows: Sequence[IfevalPrompt], defence: Placement = "none") -> Task:
    """Makes the task over some rows, in their order, all of one kind; raises :class:`DatasetError` for a defence of
    plain ones, which have no system message."""
    split = bool(rows[0].system)
    if defence != "none" and not split:
        raise DatasetError(
            f"--defence {defence} is for rows that are split into a system and a user message: these are plain"
        )
    digest = hashlib.sha256(ascii(tuple(rows)).encode()).hexdigest()[:8]
    arms = ARMS[defence] if split else IFEVAL.arms
    return replace(
        IFEVAL,
        make=partial(_make, tuple(rows)),
        contexts={"quick": min(QUICK, len(rows)) * len(arms), "paper": len(rows) * len(arms)},
        role="system" if split else "user",
        variant=f"{'split' if split else 'plain'}.{digest}.defence-{defence}",
        arms=arms,
        most=len(rows) * len(arms),
    )


def _make(rows: Sequence[IfevalPrompt], rng: random.Random, request: Request) -> Draft:
    """Takes a row as it is, and draws the words of the attack and of the defence."""
    if request.split != "test":
        raise DatasetError(f"{IFEVAL.name} has a test split only, not '{request.split}'")
    row = rows[request.number]
    if not row.system:
        return Draft(row.user, (), (_question("", row, ()),))
    wording = Wording(len(DEFENCES.common), request.held_out)
    # Each from a stream of its own: all placements of the defence have the same words.
    for_attack, for_defence = (Asker(random.Random(rng.getrandbits(64)), wording) for _ in range(2))
    prompt = _write_prompt(for_defence, row.system, request.arm)
    questions = (
        _question(row.user, row, prompt.directives),
        attack(for_attack, for_attack.rng.choice(tuple(ATTACKS)), (), prompt),
    )
    return Draft(prompt.text, (), questions[: request.questions], prompt.defence + prompt.directives)


def _write_prompt(ask: Asker, message: str, arm: Arm) -> SystemPrompt:
    prompt = SystemPrompt()
    if arm == "defence first":
        prompt = with_defence(ask, prompt)
    text = prompt.text + JOINT if prompt.text else ""
    spans = (Span("directive", len(text), len(text) + len(message)),)
    prompt = replace(prompt, text=text + message, directives=spans)
    return with_defence(ask, prompt, JOINT) if arm == "directives first" else prompt


def _question(text: str, row: IfevalPrompt, spans: tuple[Span, ...]) -> Question:
    """Asks for an answer under the directives. There are no gold answers: the checkers judge whatever is said."""
    question = answerable(QuestionText(text), "", "thing", "forward", spans)
    return replace(question, golds=(), target="", directives=row.directives)


def _no_rows(rng: random.Random, request: Request) -> Draft:
    raise DatasetError(f"{IFEVAL.name} has no rows of its own: run takes them from --data FILE")


IFEVAL = Task(
    name="ifeval",
    version="1.0.0",
    description="Prompts of IFEval, from --data FILE or the hub, judged by their official checkers",
    make=_no_rows,
    top_level=0,
    chance=0.0,  # of no meaning: only attacks have gold answers
    contexts={"quick": 0, "paper": 0},
    questions_per_context=2,
    instruction="",
    max_new_tokens=1280,  # as in lm-eval's task
    role="system",
    most=0,
    paper="arXiv 2311.07911",
)
