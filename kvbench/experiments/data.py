"""Gives tasks whose rows come from elsewhere their rows, from a file or from their data set on the
hub."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from huggingface_hub import constants

from datasets_gen import FROM_DATA, Directive, Question, Task
from datasets_gen.tasks import gsm8k, prose
from datasets_gen.tasks.ifeval import (
    IFEVAL,
    Placement,
    ifeval_task,
    read_prompts,
    read_rows,
    rows_without,
)
from datasets_gen.tasks.ruler import niah
from kvbench.store.run_file import TaskOptions
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.hub import fault_of_hub
from leaderboards.metrics import MetricError
from leaderboards.metrics.judges.obedience import check_directives, official
from policies import LazyModule

datasets = LazyModule("datasets")  # its import takes a second, and few commands need it
python_topics = LazyModule("pydoc_data.topics")

HUB = "google/IFEval"
GSM8K_HUB = "openai/gsm8k"
# Named by data=, as prose needs none.
WIKITEXT_HUB = "Salesforce/wikitext"
WIKITEXT = Path("wikitext")
# Named likewise: the reference of Python's language, which every Python has.
PYTHON = Path("python")


def with_data(
    tasks: Sequence[Task],
    options_of_tasks: Mapping[str, TaskOptions],
    otherwise: Placement = "none",
    without: Sequence[str] = (),
) -> list[Task]:
    """Returns the tasks with rows and prose that come from elsewhere. ``options_of_tasks``: by
    name. ``otherwise``: the defence if none is given. ``without``: kinds of directives whose rows
    are left out."""
    with_rows: list[Task] = []
    for task in tasks:
        options = options_of_tasks.get(task.name, TaskOptions())
        if task.name in FROM_DATA:
            task = _with_rows(task, options.data, options.defence or otherwise, without)
        if options.essays is not None:
            task = niah.in_essays(task, prose.read_texts(options.essays, "essays="))
        with_rows.append(task)
    return with_rows


def _with_rows(task: Task, data: Path | None, defence: Placement, without: Sequence[str]) -> Task:
    """Returns one of the tasks with the rows of a file, or with those of its data set."""
    if task.name == IFEVAL.name:
        if data is not None:
            rows = read_rows(data)
        else:
            rows = read_prompts(hub_entries(HUB), HUB)
        return ifeval_task(rows_without(rows, without), defence)
    if task.name == prose.PROSE.name:
        return _prose(task, data)
    if data is not None:
        return gsm8k.gsm8k_task(gsm8k.read_rows(data))
    shots = hub_entries(GSM8K_HUB, name="main", split=f"train[:{gsm8k.SHOTS}]")
    problems = hub_entries(GSM8K_HUB, name="main", split="test")
    return gsm8k.gsm8k_task(gsm8k.read_problems([*shots, *problems], GSM8K_HUB))


def _prose(task: Task, data: Path | None) -> Task:
    """Returns the task of running text, with the texts that ``--data`` names: a file before the two
    names that stand for texts from elsewhere."""
    if data is None:
        return task
    if data == WIKITEXT and not data.exists():
        entries = hub_entries(WIKITEXT_HUB, name="wikitext-2-raw-v1", split="test")
        return prose.prose_task(prose.join_articles(entries))
    if data == PYTHON and not data.exists():
        return prose.prose_task(python_reference())
    return prose.prose_task(prose.read_texts(data))


def python_reference() -> list[str]:
    """Returns the paragraphs of the reference of Python's language, without code, each topic as a
    text."""
    texts: list[str] = []
    for topic in python_topics.topics.values():
        paragraphs: list[str] = []
        for part in topic.split("\n\n"):
            # Examples of code and signatures begin or end in another way.
            is_sentence = part[:1].isalpha() and part.endswith(".")
            if is_sentence:
                paragraphs.append(part)
        texts.append("\n\n".join(paragraphs))
    return texts


def is_here(file: Path | None) -> bool:
    """Tells whether what an option names can be read on this machine."""
    return file is None or file == PYTHON or file.is_file()


def check_judges(tasks: Sequence[Task], mode: str) -> None:
    """Raises :class:`KVBenchError` if a directive of ifeval cannot be judged, or contexts that hold
    their question are to be compressed with it. It runs before anything is loaded."""
    if mode == "aware":
        _check_compressed_questions(tasks)
    for task in tasks:
        if task.name != IFEVAL.name:
            continue
        try:
            official()
            check_directives(_directives(task))
        except MetricError as error:
            raise KVBenchError(str(error)) from error


def _check_compressed_questions(tasks: Sequence[Task]) -> None:
    """Raises :class:`KVBenchError` for tasks without a question that is compressed with the
    context."""
    if any(task.role == "text" for task in tasks):
        raise KVBenchError(
            "--mode aware: prose asks nothing that could be compressed with it: use --mode agnostic"
        )
    for task in tasks:
        if task.most and not all(question.text for question in _all_questions(task)):
            raise KVBenchError(
                f"--mode aware: contexts of {task.name} hold what is asked already: use --mode "
                f"agnostic"
            )


def _directives(task: Task) -> list[tuple[str, Directive]]:
    """Lists the directives of a task, each with the name of its question."""
    directives: list[tuple[str, Directive]] = []
    for question in _all_questions(task):
        for directive in question.directives:
            directives.append((question.id, directive))
    return directives


def _all_questions(task: Task) -> Iterator[Question]:
    """Generates the questions of all examples of a task over rows."""
    for example in task.generate(0, task.most or 1):
        yield from example.questions


def hub_entries(hub: str, split: str = "train", **named: str) -> list[tuple[str, object]]:
    """Loads rows of a data set from the hub, or from an earlier download, each with its place.
    Raises :class:`KVBenchError` where neither is there."""
    fault = fault_of_hub()
    if fault:  # the library would ask for each file again and again
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    datasets.disable_progress_bars()
    try:
        loaded = datasets.load_dataset(hub, split=split, **named)
    except Exception as error:  # the network, the hub and the cache raise anything
        reason = fault or f"{type(error).__name__}: {first_line(error)}"
        raise KVBenchError(
            f"{hub} cannot be loaded ({reason}): give a local file of its rows, as TASK(data=FILE)"
        ) from error
    return [(f"{hub}, row {number}", row) for number, row in enumerate(loaded, 1)]
