"""``python -m kvbench show`` shows one example of a task, or the worst answers of a run, with their spans marked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from datasets_gen import KNOWN_TASKS, Question, get_task, is_file_of_questions
from kvbench.cli import parameters as options
from kvbench.cli.result import Result
from kvbench.experiments.data import with_data
from kvbench.experiments.options import check_count
from kvbench.prompts.context_length import lengthen_by_tokenizer
from kvbench.prompts.mode import asked_of
from kvbench.publish.worst_answers import (
    Marked,
    WorstAnswer,
    chosen_level,
    colour_spans,
    decoded_in_halves,
    first_policy,
    legend,
    levels_of,
    render_answers,
    verdict,
    worst_answers,
)
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from kvbench.system.places import local_folder
from leaderboards.terminal.result_table import Column, ResultTable
from policies import KINDS, LazyModule, Level

models = LazyModule("kvbench.models.load")
prompts = LazyModule("kvbench.prompts.prompt")


def command(
    context: typer.Context,
    what: Annotated[str, typer.Argument(help="Name of a task, file of questions, or folder of a run, such as runs/x.")],
    index: Annotated[int, typer.Option(help="Which example.")] = 0,
    question: Annotated[int | None, typer.Option(help="Colour the evidence of one question; default: of all.")] = None,
    context_tokens: options.ShownTokens = None,
    depth: options.Depth = None,
    tokenizer: options.Tokenizer = None,
    data: options.Data = None,
    defence: options.Defence = None,
    seed: options.ExampleSeed = 0,
    split: options.ExampleSplit = "test",
    phrasings: options.Phrasings = "common",
    policy: Annotated[str, typer.Option(help="Of a run: whose answers; default: of its first method.")] = "",
    level: options.GivenLevel = options.NONE_GIVEN,
    worst: Annotated[int, typer.Option(help="Of a run: how many answers, the worst first.")] = 5,
) -> Result:
    """Prints an example of a task: its context with the spans coloured, its questions and what answers them. Or the
    worst answers of a policy in a run: what is lost of what they needed."""
    # A file without an ending may be what is left of a run, and is said to be none.
    is_task = what in KNOWN_TASKS or (is_file_of_questions(what) and Path(what).suffix != "")
    is_run = not is_task and ("/" in what or Path(what).is_dir())
    for name in options.given_parameters(context):
        if name != "what" and (name in ("policy", *KINDS, "worst")) != is_run:
            option = "--" + name.replace("_", "-")
            raise KVBenchError(
                f"{option} is for {'tasks' if is_run else 'runs'}, and {what} is {'none' if is_run else 'no run'}"
            )
    if is_run:
        run = Store.open(local_folder(what))
        return worst_of(run, policy, [Level(*one) for one in level.items()], check_count("--worst", worst))
    (task,) = with_data([get_task(what)], data, defence)
    chosen = lengthen_by_tokenizer(tokenizer if context_tokens else None, task, context_tokens, depth)
    example = chosen.example(seed, index, split, held_out=phrasings == "held-out")
    shown = list(enumerate(example.questions))
    if question is not None:
        if not 0 <= question < len(example.questions):
            raise KVBenchError(f"--question {question}: the example has questions 0 to {len(example.questions) - 1}")
        shown = [shown[question]]
    spans = [*example.spans, *(span for _, one in shown for span in one.spans)]
    view = Group(Marked(colour_spans(example.context, spans)), Text(), legend(spans))
    columns = [Column(name) for name in ("task", "index", "context", "spans")]
    row = (chosen.name, index, example.context, spans)
    result = [ResultTable("examples", columns, [row], view=view), questions_table(shown)]
    if tokenizer is not None:
        asked = asked_of([chosen], tokenizer)[0]
        sent = prompts.prompt_as_sent(models.load_tokenizer(tokenizer), asked, example, "agnostic")
        result.append(prompt_table([(chosen.name, sent)]))
    return Result(result)


def worst_of(store: Store, policy: str, given: Sequence[Level], count: int) -> Result:
    """Returns the worst answers of a policy in a run; where no policy or level is named, of the first that is no
    control, and at the level that boards show first."""
    policy = policy or first_policy(store.identity)
    level = chosen_level(store.identity, policy, given)
    answers, failed = worst_answers(store, policy, level, count)
    levels = ", ".join(map(str, levels_of(store.identity, policy)))
    policies = ", ".join(entry.name for entry in store.identity.policies)
    shown = f"the worst answers of {policy} at {level.where}"
    warnings = [f"{shown}; others: --policy, of {policies}; --{level.kind}, of {levels}"]
    if failed:
        warnings.append(f"{failed:,} answers failed and are not among these")
    if halved := decoded_in_halves(store):
        warnings.append(f"memory ended in this run: {halved:,} of its answers come from halved waves")
    tasks = dict.fromkeys(answer.record.task for answer in answers)
    sent = [(task, store.identity.prompts[task]) for task in tasks if task in store.identity.prompts]
    return Result([answers_table(answers), *([prompt_table(sent)] if sent else [])], notes=warnings)


def prompt_table(prompts: Sequence[tuple[str, str]]) -> ResultTable:
    """Shows the first prompt of each task as it was sent."""
    view = Group(*(Text(f"The first prompt of {task}, as sent:\n{prompt}") for task, prompt in prompts))
    return ResultTable("prompts", [Column("task"), Column("prompt")], prompts, view=view)


def answers_table(answers: Sequence[WorstAnswer]) -> ResultTable:
    """Lists stored answers with what was asked, what the full cache wrote, and what was kept."""
    of_record = ("question_id", "policy", "output_text", "f1", "em", "ger", "slot_coverage", "realised_ratio")
    names = (*of_record, "question", "golds", "full_cache_output", "verdict")
    rows = [
        (
            *(getattr(one.record, name) for name in of_record),
            *(one.question.question, one.question.golds),
            *(one.full.output_text if one.full else None, verdict(one.record)),
        )
        for one in answers
    ]
    view = render_answers(answers)
    return ResultTable("answers", [Column(name) for name in names], rows, view=view)


def questions_table(numbered: list[tuple[int, Question]]) -> ResultTable:
    """Lists the questions of an example, with the expected text where it is not the gold (directives, steps)."""
    differs = any(question.perfect_output != (question.golds or ("",))[0] for _, question in numbered)
    columns = (
        Column("number", ""),
        Column("question", of_sentences=True),
        Column("golds", "gold", lambda golds: golds[0] if golds else "", of_sentences=True),
        Column("written", "to be written", of_sentences=True, shown=differs),
        Column("type"),
        Column("hops"),
    )
    rows = [
        (number, one.text, one.golds, one.perfect_output, one.type if one.answerable else "unanswerable", one.hops)
        for number, one in numbered
    ]
    return ResultTable("questions", columns, rows)
