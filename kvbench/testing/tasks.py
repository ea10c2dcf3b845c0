"""Checks a task: seeds, evidence under a tokenizer, a solver, lengths, duplicates, and what a
guesser has right."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from datasets_gen import DatasetError, Example, Question, Task
from kvbench.experiments.descriptions import described_context, described_question
from kvbench.handed.tasks import with_code
from kvbench.prompts.context_length import load_fast_tokenizer
from kvbench.testing.scorers import Asked, find_scorer_faults
from leaderboards.metrics import Answer

Solver = Callable[[str, str], str]
CONTEXTS = 24
ABOVE_CHANCE = 15.0  # points that a guesser may have above what the task declares, by chance
SHOWN = 60  # characters of a text in a message
LEAST_FOR_GUESSING = 12  # questions
SCORED = 3  # questions by which scorers are tried


def check_task(
    task: Task, contexts: int = CONTEXTS, tokenizer: str = "reference", solver: Solver | None = None
) -> None:
    """Checks a task by its contexts.

    Args:
        task: What ``kvbench.task`` makes.
        contexts: How many are drawn.
        tokenizer: The model whose tokens the evidence is looked for in.
        solver: A function of context and question that has to answer every question rightly.

    Raises:
        AssertionError: It has faults, which the message lists.

    Example:
        >>> from kvbench.testing import check_task
        >>> from my_tasks import MyTask
        >>> def test_my_task():
        ...     check_task(MyTask)
    """
    faults = find_task_faults(task, contexts, tokenizer, solver)
    if faults:
        raise AssertionError("; ".join(faults))


def find_task_faults(
    task: Task, contexts: int = CONTEXTS, tokenizer: str = "reference", solver: Solver | None = None
) -> list[str]:
    """Returns the faults of a task, a sentence each; none of a sound one. The arguments are those
    of :func:`check_task`."""
    task = with_code(task, task.name)
    if task.most is not None:
        contexts = min(contexts, task.most)
    try:
        examples = list(task.generate(0, contexts))
        again = list(task.generate(0, contexts))
    except DatasetError as error:
        return [str(error)]
    faults = [*_seeds(task, examples, again), *_duplicates(examples)]
    for example in examples:
        faults += _answers(task, example, solver)
        faults += _evidence(task, example, tokenizer)
        if faults:  # those of one example tell as much as those of all
            break
    faults += _guesser(task, examples)
    for scorer in task.scorers:
        pairs = [Asked(question.text, question.golds[0]) for question in _with_golds(examples)]
        faults += find_scorer_faults(scorer, pairs[:SCORED])
    return faults


def _seeds(task: Task, examples: Sequence[Example], again: Sequence[Example]) -> Iterator[str]:
    for example, other in zip(examples, again, strict=True):
        if example != other:
            yield (
                f"{task.name} draws another context {example.index} each time: draw from the "
                "generator that it is given, and from nothing else"
            )
            return
    if task.most is None and len(examples) > 1:
        other_seed = task.example(1, 0)
        if other_seed.context == examples[0].context:
            yield f"{task.name} draws the same context for another seed"


def _duplicates(examples: Sequence[Example]) -> Iterator[str]:
    counts = Counter((example.context, example.questions[0].text) for example in examples)
    ((_, text), count) = counts.most_common(1)[0]
    if count > 1:
        yield f"{count} of {len(examples)} contexts are the same, with the question '{text}'"
    for example in examples:
        golds: dict[str, tuple[str, ...]] = {}
        for question in example.questions:
            if golds.setdefault(question.text, question.golds) != question.golds:
                yield f"'{question.text}' is asked twice of one context, with two answers"
                return


def _answers(task: Task, example: Example, solver: Solver | None) -> Iterator[str]:
    """Checks that a perfect output is right, as a record would say, and that an answer has room."""
    for question in example.questions:
        perfect = question.perfect_output
        if question.golds and not _is_right(task, example, question, perfect):
            yield f"the answer to '{question.text}' is not right itself: '{perfect:.{SHOWN}}'"
        if solver is not None:
            answer = solver(example.context, question.text)
            if question.golds and not _is_right(task, example, question, answer):
                yield f"the solver answers '{question.text}' by '{answer:.{SHOWN}}', which is wrong"


def _is_right(task: Task, example: Example, question: Question, output: str) -> bool:
    described: dict[str, Any] = {
        **described_context(task, example),
        **described_question(task, example, question),
    }
    names = [name for name in Answer.__dataclass_fields__ if name in described]
    answer = Answer(**{name: described[name] for name in names}, output_text=output)
    return answer.scores is not None and bool(answer.scores.right)


def _evidence(task: Task, example: Example, tokenizer: str) -> Iterator[str]:
    """Checks that what carries the answers stands in tokens of the context."""
    loaded = load_fast_tokenizer(tokenizer)
    offsets = loaded.encode(example.context, add_special_tokens=False).offsets
    if not offsets:
        yield f"context {example.index} is empty"
    for question in example.questions:
        tokens = len(loaded.encode(question.perfect_output, add_special_tokens=False).ids)
        if tokens > task.max_new_tokens:
            yield (
                f"the answer to '{question.text}' has {tokens} tokens of {tokenizer}, and answers "
                f"have {task.max_new_tokens}: raise max_new_tokens"
            )
        if not question.answerable:
            continue
        if not question.spans:
            yield (
                f"nothing in context {example.index} carries the answer to '{question.text}': write "
                "it into the context, or name its evidence"
            )
        for span in question.spans:
            inside = [start for start, end in offsets if start < span.end and end > span.start]
            if not inside or not example.context[span.start : span.end].strip():
                yield f"the {span.kind} of '{question.text}' has no token"


def _guesser(task: Task, examples: Sequence[Example]) -> Iterator[str]:
    """Checks what whoever always gives the most frequent answer has right."""
    questions = _with_golds(examples)
    if len(questions) < LEAST_FOR_GUESSING:
        return
    counts: Counter[str] = Counter()
    for question in questions:
        counts.update(question.golds)
    guess, count = counts.most_common(1)[0]
    right = 100 * count / len(questions)
    if right > task.chance + ABOVE_CHANCE:
        yield (
            f"who always answers '{guess:.{SHOWN}}' has {right:.0f} % right, and the task declares a "
            f"chance of {task.chance:g} %"
        )


def _with_golds(examples: Sequence[Example]) -> list[Question]:
    questions = []
    for example in examples:
        questions += [question for question in example.questions if question.golds]
    return questions
