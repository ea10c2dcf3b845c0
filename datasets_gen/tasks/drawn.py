"""Tasks that a user's function draws: it returns a row in the form of one's own questions."""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.scorer import Scorer
from datasets_gen.examples.task import INSTRUCTION, Draft, Request, Task
from datasets_gen.tasks.own_questions import draft_rows, read_row

Draw = Callable[[random.Random], Mapping[str, Any]]


def drawn_task(
    name: str,
    draw: Draw,
    *,
    description: str,
    version: str = "1",
    chance: float = 0.0,
    contexts: int = 12,
    questions: int = 6,
    instruction: str = INSTRUCTION,
    max_new_tokens: int = 32,
    scorers: Sequence[Scorer] = (),
) -> Task:
    """Makes the task of a function that draws a row from a random generator. A wrong row raises
    :class:`DatasetError` when it is drawn. ``chance``: the percent that a guesser without the text
    has right. ``contexts``: of a run that gives no limit. ``questions``: of a context at most."""
    return Task(
        name=name,
        version=version,
        description=description,
        make=partial(_make, draw, name),
        chances=(chance,),
        contexts={"quick": contexts, "paper": contexts},
        questions_per_context=questions,
        instruction=instruction,
        max_new_tokens=max_new_tokens,
        answer_end="tokens" if scorers else "line",
        scorers=tuple(scorers),
    )


def _make(draw: Draw, name: str, rng: random.Random, request: Request) -> Draft:
    try:
        drawn = draw(rng)
    except Exception as error:  # of a user's function
        reason = f"{type(error).__name__}: {error}"
        raise DatasetError(f"the function of the task {name} raised {reason}") from error
    row = read_row(drawn, f"{name}, what it draws", name)
    draft = draft_rows(row.row.context, [row])
    return Draft(draft.context, draft.stated, draft.questions[: request.questions], draft.spans)
