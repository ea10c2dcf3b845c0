"""Runs a job on a server: looks at what is there, finds out how to ask it, and fills a store."""

import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.estimate.plan import few_contexts_in
from kvbench.execution.execute import complete
from kvbench.experiments.build_grid import leave_out_tasks
from kvbench.experiments.grid import Grid, ModelFacts
from kvbench.models.chat_date import date_told
from kvbench.models.load import load_tokenizer
from kvbench.served.address import Address
from kvbench.served.client import Client, repeats_line
from kvbench.served.executor import ServedExecutor, Server
from kvbench.served.facts import ServerFacts, read_facts
from kvbench.served.job import grid_of_questions, token_count
from kvbench.served.probe import find_questioner
from kvbench.served.questioner import Questioner
from kvbench.store.run_file import RUN_FILE, Job, choose_tolerance, read_run_file
from kvbench.store.store import Store
from kvbench.system.clock import today
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from leaderboards.boards.safe_ratio import contexts_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IN_WORDS = "a model behind a server, whose cache is not seen: full is whatever it holds"
# Of an identity; they are the defaults of run, which takes no others for a server.
DEVICE, DTYPE = "auto (of a server)", "auto"


def run_on_server(text: str, job: Job, name: str | None, out: Path) -> Store:
    """Asks a server what is missing of a run. ``text``: its address, with options, as it was
    given. Raises :class:`KVBenchError` for a run without a name, which would not be found again
    after a kill, and where the server cannot be asked."""
    address = Address.read(text)
    if name is None:
        raise KVBenchError("a run of a server needs a --name, such as before: by it a run goes on")
    folder = out / name
    begun, stored_date = _read_begun(folder)
    grid_of_questions(job, address)  # a mistyped option waits for no server
    with Client(address) as client:
        facts = read_facts(client)
        tokenizer: PreTrainedTokenizerBase | None = None
        day = ""
        if address.is_raw:
            day = job.date or stored_date or today()
            tokenizer = load_tokenizer(str(address.options.tokenizer), day)
        questioner = find_questioner(client, facts.model, job.seed, token_count(address), tokenizer)
        grid = grid_of_questions(job, address, questioner.begins_answers)
        if tokenizer is not None:
            grid = leave_out_tasks(grid, tokenizer, job)
        _introduce(facts, questioner, grid, job, is_new=not begun)
        date = date_told(tokenizer, day) if tokenizer is not None else ""
        model_facts = _model_facts(facts, questioner, date)
        begun = begun or datetime.now(UTC).isoformat(timespec="microseconds")
        identity = grid.identify(model_facts, _first_prompts(questioner, grid), begun=begun)
        stored_job = job.model_copy(update={"model": address.shown, "policies": None})
        server = Server(client, facts, questioner)
        executor = ServedExecutor(server, grid, identity, stored_job, folder)
        try:
            return complete(executor, folder, _command(text, address))
        finally:
            if line := repeats_line(client.repeats):
                console.print(line, soft_wrap=True)


def _introduce(
    facts: ServerFacts, questioner: Questioner, grid: Grid, job: Job, is_new: bool
) -> None:
    """Says what was found, before the first question."""
    settings = ", ".join(f"{key} {value}" for key, value in facts.settings.items())
    console.print(f"asking {facts.name} ({settings or 'it tells no settings'})", soft_wrap=True)
    console.print(f"questions are put as {questioner.sentence}", soft_wrap=True)
    if not is_new:
        return
    counts = [count for _, count in grid.tasks]
    parts = (contexts_line(counts, choose_tolerance([job])), few_contexts_in(grid))
    console.print("; ".join(filter(None, parts)), soft_wrap=True)


def _read_begun(folder: Path) -> tuple[str, str]:
    """Returns when the run of a folder began, and the day that its prompts tell; empty where there
    is none. A server asked twice is two runs, and neither takes the other's answers."""
    if not (folder / RUN_FILE).exists():
        return "", ""
    identity = read_run_file(folder).identity
    return identity.begun, identity.date


def _model_facts(facts: ServerFacts, questioner: Questioner, date: str) -> ModelFacts:
    packages = {"python": platform.python_version(), "httpx": version("httpx")}
    return ModelFacts(
        name=facts.name,
        fingerprint=facts.fingerprint,
        in_words=IN_WORDS,
        device=DEVICE,
        dtype=DTYPE,
        packages=packages,
        switches={**facts.settings, "questions": questioner.sentence},
        date=date,
    )


def _first_prompts(questioner: Questioner, grid: Grid) -> dict[str, str]:
    prompts: dict[str, str] = {}
    for task, _ in grid.tasks:
        prompts[task.name] = questioner.shown(task, grid.example(task, 0))
    return prompts


def _command(text: str, address: Address) -> str:
    """Returns the command as it was typed, without the address."""
    words: Sequence[str] = [word.replace(text, address.shown) for word in sys.argv[1:]]
    return shlex.join(["python", "-m", "kvbench", *words])
