"""Makes tasks and scorers of functions: ``kvbench.task`` and ``kvbench.scorer``."""

from collections.abc import Callable, Sequence
from typing import Literal

from datasets_gen import INSTRUCTION, DatasetError, Scorer, Task, drawn_task
from datasets_gen.tasks.drawn import Draw
from kvbench.api.checked import checked
from kvbench.system.errors import KVBenchError

Judge = Callable[[str, str, str], float]


@checked
def task(
    *,
    name: str = "",
    version: str = "1",
    chance: float = 0.0,
    contexts: int = 12,
    questions: int = 6,
    instruction: str = INSTRUCTION,
    max_new_tokens: int = 32,
    scorers: Sequence[Scorer] = (),
) -> Callable[[Draw], Task]:
    """Makes a task of a function that draws a context with its questions.

    The function takes a ``random.Random`` and returns a row in the form of one's own questions:
    ``context``, ``question`` (or ``questions``), ``answers``, and ``evidence``, the texts of the
    context from which the answer follows. ``--tasks my_tasks.py:MyTask`` runs it, and so does
    ``kvbench.run(tasks=[MyTask])``.

    Args:
        name: Of the task; by default that of the function.
        version: Of the function: raise it where the same seed is to give other contexts.
        chance: Percent that a guesser who does not see the context has right.
        contexts: How many a run asks that gives no limit.
        questions: Of a context at most.
        instruction: What stands behind each question.
        max_new_tokens: Tokens of an answer.
        scorers: What judges the answers beside the metrics of every task.

    Returns:
        What makes the task of a function.

    Raises:
        KVBenchError: A number makes no sense, or a scorer is none.

    Example:
        >>> import kvbench
        >>> @kvbench.task(chance=50)
        ... def coin(rng):
        ...     side = rng.choice(["heads", "tails"])
        ...     context = f"The coin shows {side}."
        ...     return {"context": context, "question": "What does it show?", "answers": side}
    """

    if not 0 <= chance <= 100:
        raise KVBenchError(f"chance is a percentage from 0 to 100, not {chance:g}")
    for number in (contexts, questions, max_new_tokens):
        if number < 1:
            raise KVBenchError(
                f"contexts, questions and max_new_tokens are 1 or more, not {number}"
            )
    for entry in scorers:
        if not isinstance(entry, Scorer):
            raise KVBenchError(f"scorers are what kvbench.scorer() makes, not {entry!r:.60}")

    def make(draw: Draw) -> Task:
        description = (draw.__doc__ or draw.__name__).strip().splitlines()[0]
        return drawn_task(
            name or draw.__name__,
            draw,
            description=description,
            version=version,
            chance=chance,
            contexts=contexts,
            questions=questions,
            instruction=instruction,
            max_new_tokens=max_new_tokens,
            scorers=scorers,
        )

    return make


@checked
def scorer(
    *,
    name: str = "",
    low: float = 0.0,
    high: float = 1.0,
    better: Literal["higher", "lower"] = "higher",
) -> Callable[[Judge], Scorer]:
    """Makes a scorer of a function of output, gold and question, which returns a number.

    Its scores stand in the table ``scores`` of a run and on its page. A task brings it
    (``kvbench.task(scorers=[...])``); one that an installed package names under
    ``kvbench.metrics`` judges every task of a run with ``observe="scores"``.

    Args:
        name: Of the scorer; by default that of the function.
        low: The lowest score that there is.
        high: The highest.
        better: Whether ``higher`` or ``lower`` scores are better.

    Returns:
        What makes the scorer of a function.

    Raises:
        KVBenchError: The range is none.

    Example:
        >>> import kvbench
        >>> @kvbench.scorer()
        ... def same_length(output, gold, question):
        ...     return len(output) == len(gold)
    """

    def make(judge: Judge) -> Scorer:
        description = (judge.__doc__ or "").strip().partition("\n")[0]
        try:
            return Scorer(name or judge.__name__, judge, low, high, better, description)
        except DatasetError as error:
            raise KVBenchError(str(error)) from error

    return make
