"""Tells which tasks a model cannot do with the full cache, two of its answers beside the right ones, and what to run
instead."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pandas import DataFrame

from datasets_gen import KNOWN_TASKS
from leaderboards.aggregate.lead import CANNOT
from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.aggregate.summary import visible
from policies.declaration.names import FULL

ANSWERS = 2
LONGEST = 80  # characters of an output that are shown
NEEDLE = "niah_single_2"
OWN = "easier questions, each with an answer_prefix (all that it wrote: show RUN --policy full)"
GENERATED = "the levels that it masters (--difficulty auto)"


@dataclass(frozen=True)
class WrittenAnswer:
    """An answer that the model wrote with the full cache."""

    question: str
    golds: tuple[str, ...]
    output: str  # its beginning, in one line


@dataclass(frozen=True)
class Unmastered:
    """A task that the model cannot do."""

    task: str
    mode: str
    reason: str
    answers: tuple[WrittenAnswer, ...]  # wrong ones, of different contexts as far as there are


def reasons_by_task(rows: Sequence[SummaryRow]) -> dict[str, str]:
    """Returns why the model cannot do a task, of those that it cannot do."""
    return {row.task: row.not_mastered for row in rows if row.not_mastered and row.task != ALL_TASKS}


def line_of(unmastered: Sequence[Unmastered]) -> str:
    """Says in one line what the model cannot do, with two of its answers, and what to run instead; nothing of none."""
    if not unmastered:
        return ""
    tasks = "; ".join(f"{one.task} ({one.reason.removeprefix(f'{CANNOT}: ')})" for one in unmastered)
    answers = [answer for one in unmastered for answer in one.answers][:ANSWERS]
    wrote = " and ".join(f"{answer.output!r} for {' or '.join(answer.golds) or 'no answer'}" for answer in answers)
    return f"Not mastered: {tasks}. {f'It wrote {wrote}. ' if wrote else ''}{advice(one.task for one in unmastered)}"


def advice(unmastered: Iterable[str]) -> str:
    """Says what to run instead of the tasks of these names."""
    names = set(unmastered)
    parts = [GENERATED] * bool(names & KNOWN_TASKS.keys()) + [OWN] * bool(names - KNOWN_TASKS.keys())
    parts += [f"a needle (--tasks {NEEDLE})"] * (NEEDLE not in names)
    return (
        f"Instead: {', '.join(parts)}, next tokens (--tasks prose), or the rise of the right answer's NLL (delta_nll)."
    )


def find_unmastered(records: DataFrame, rows: Sequence[SummaryRow]) -> list[Unmastered]:
    """Finds the tasks that the model cannot do, as the rows say, which these records add up to."""
    reasons = {(row.task, row.mode): row.not_mastered for row in rows if row.not_mastered and row.task != ALL_TASKS}
    return [Unmastered(task, mode, reason, _answers(records, task, mode)) for (task, mode), reason in reasons.items()]


def _answers(records: DataFrame, task: str, mode: str) -> tuple[WrittenAnswer, ...]:
    here = (records["task"] == task) & (records["mode"] == mode) & (records["policy"] == FULL)
    wrong = records[here & (records["status"] == "ok") & records["leakage"].isna() & ~records["right"].eq(True)]
    chosen = wrong.drop_duplicates("example_id").head(ANSWERS)
    chosen = chosen if len(chosen) == ANSWERS else wrong.head(ANSWERS)
    written = (visible(" ".join(str(output).split())) for output in chosen["output_text"])
    return tuple(
        WrittenAnswer(str(question), tuple(map(str, golds)), _shortened(text, golds))
        for question, golds, text in zip(chosen["question"], chosen["golds"], written, strict=True)
    )


def _shortened(text: str, golds: Iterable[object]) -> str:
    """Shortens an output, but not before the gold that it holds: why it is wrong all the same stands near that."""
    ends = [place + len(str(gold)) for gold in golds if (place := text.lower().find(str(gold).lower())) >= 0]
    shown = max([LONGEST, *ends])
    return text if len(text) <= shown else f"{text[:shown]}…"
