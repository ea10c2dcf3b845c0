"""Task ``gsm8k``: word problems of GSM8K (arXiv 2110.14168), for real models.

The context, all of which is compressed, is a few worked problems and the problem itself: texts that
damage the cache of GSM8K damage that of the whole prompt. Nothing is asked behind it. The answer is
the number behind the last ``####``, as in the worked problems, and an answer without one is wrong
(the strict match of lm-eval). The rows come from elsewhere: ``GSM8K`` alone has none."""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import Span
from datasets_gen.examples.jsonl import read_entries, read_mapping, read_text
from datasets_gen.examples.task import Draft, Request, Task, digest_rows
from datasets_gen.examples.wording import QuestionText
from datasets_gen.tasks.arithmetic import MARKER
from datasets_gen.texts.final_number import final_number
from datasets_gen.writing.questions import answerable

SHOTS = 4  # rows at the beginning that are shown as worked problems, and not asked
QUICK = 12  # problems
INSTRUCTION = f"Answer the last question step by step, as the others are answered. End with {MARKER} and the number."
# Of the calculator that the solutions were written for: no word of the solution.
CALCULATION = re.compile(r"<<.*?>>")
NUMBER = re.compile(r"[-−]?\d[\d,]*(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of GSM8K."""

    question: str
    solution: str  # its steps, which end with the marker and the number
    number: str  # in plain digits


def read_rows(path: Path) -> tuple[Problem, ...]:
    """Reads the rows of a JSONL file; raises :class:`DatasetError` that names the first line that
    is none."""
    return read_problems(read_entries(path, "GSM8K"), str(path))


def read_problems(entries: Iterable[tuple[str, object]], source: str) -> tuple[Problem, ...]:
    """Makes rows of entries with the fields ``question`` and ``answer``, each of which comes with
    its place. Raises :class:`DatasetError` for too few to be shown and asked."""
    rows = tuple(_row(entry, where) for where, entry in entries)
    if len(rows) <= SHOTS:
        raise DatasetError(
            f"{source} has {len(rows)} rows: the first {SHOTS} are shown as worked problems, give "
            f"{SHOTS + 1} or more"
        )
    return rows


def _row(entry: object, where: str) -> Problem:
    row = read_mapping(entry, where)
    question, answer = (read_text(row, name, where).strip() for name in ("question", "answer"))
    steps, marker, stated = CALCULATION.sub("", answer).rpartition(MARKER)
    is_plain = NUMBER.fullmatch(stated.strip()) is not None
    if is_plain:
        number = stated.strip().replace(",", "").replace("−", "-")
    else:
        number = final_number(stated)
    if not marker or not number:
        raise DatasetError(f"{where}: 'answer' does not end with {MARKER} and a number")
    return Problem(question, f"{steps.strip()}\n{MARKER} {number}", number)


def gsm8k_task(rows: Sequence[Problem]) -> Task:
    """Makes the task over some rows, in their order: the first ones are worked problems of every
    context."""
    count = len(rows) - SHOTS
    return replace(
        GSM8K,
        make=partial(_make, tuple(rows[:SHOTS]), tuple(rows[SHOTS:])),
        contexts={"quick": min(QUICK, count), "paper": count},
        variant=f"{SHOTS}-shot.{digest_rows(tuple(rows))}",
        most=count,
    )


def _make(
    shots: Sequence[Problem], rows: Sequence[Problem], rng: random.Random, request: Request
) -> Draft:
    """Takes a row as it is; nothing is drawn."""
    row = rows[request.number]
    worked = [f"Question: {shot.question}\nAnswer: {shot.solution}" for shot in shots]
    before = "\n\n".join([INSTRUCTION, *worked, "Question: "])
    # The problem itself: the worked ones carry nothing of the answer.
    spans = (Span("fact", len(before), len(before) + len(row.question)),)
    question = answerable(QuestionText(""), row.number, "numeral", "forward", spans)
    return Draft(
        f"{before}{row.question}", (), (replace(question, type="manipulated", target=row.solution),)
    )


GSM8K = Task(
    name="gsm8k",
    version="1.0.0",
    description="Word problems of GSM8K behind four worked ones, from gsm8k(data=FILE) or the hub, for real models",
    make=partial(_make, (), ()),
    chances=(0.0,),  # numbers are too many to guess one
    contexts={"quick": 0, "paper": 0},
    questions_per_context=1,
    instruction="",
    max_new_tokens=512,
    answer_marker=MARKER,
    most=0,
    paper="arXiv 2110.14168",
)
