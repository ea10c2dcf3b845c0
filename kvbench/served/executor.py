"""Answers the units of a grid by asking a server, a bounded number of questions at once.

This is the one place where a model whose cache cannot be seen takes the part of one that can: it
gives rows as any executor does, and what they are stored, judged and compared by knows no more."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_gen import Question, Task
from kvbench.execution.execute import Unit, UnitRows
from kvbench.experiments.grid import Grid
from kvbench.served.answer import ServedAnswer, read_answer
from kvbench.served.client import Client
from kvbench.served.facts import ServerFacts, read_facts
from kvbench.served.journal import Journal
from kvbench.served.questioner import Questioner, ServedRequest
from kvbench.store.run_file import Identity, Job
from kvbench.store.scoring import outcome_scores, text_scores
from kvbench.store.tables import CONTEXTS, QUESTIONS, RECORDS, Record, RowsByTable, StoredContext
from kvbench.system.errors import KVBenchError
from leaderboards.metrics import Outcome
from policies import FULL, UNTREATED

AHEAD = 4  # contexts that are prepared for each request under way


@dataclass(frozen=True)
class Server:
    """Holds a server with what it told when the run began, and how it is asked."""

    client: Client
    facts: ServerFacts
    questioner: Questioner

    def check(self) -> None:
        """Raises :class:`KVBenchError` where another model, or one with other settings, answers by
        now."""
        now = read_facts(self.client)
        if now != self.facts:
            raise KVBenchError(changed_model(self.facts.name, now.name))


def changed_model(before: str, now: str) -> str:
    """Says that a run cannot go on."""
    change = f"is {now} now" if now != before else f"has {now} with other settings now"
    return (
        f"the server had {before} when this run began and {change}: what it answered before is kept; "
        "start it as it was, and the same run again"
    )


@dataclass(frozen=True)
class _Pending:
    """A context whose questions are being asked."""

    unit: Unit
    is_last: bool  # of its unit
    task: Task
    context: StoredContext
    questions: Sequence[tuple[Question, ServedRequest, Future[ServedAnswer]]]


class ServedExecutor:
    """Gives the rows of units of the full cache, which is whatever the server holds."""

    model = None  # it is not in this process

    def __init__(
        self, server: Server, grid: Grid, identity: Identity, job: Job, folder: Path
    ) -> None:
        self.server = server
        self.grid = grid
        self.identity = identity
        self.job: Job | None = job
        self._journal = Journal(folder)
        self._answering = ""  # the model that the last answer names

    @contextmanager
    def map(self, units: Sequence[Unit]) -> Iterator[Iterator[UnitRows]]:
        """Yields the rows of units, a context at a time. Answers that are under way when the body
        ends early are waited for and noted."""
        pool = ThreadPoolExecutor(self.server.client.address.options.requests)
        try:
            yield self._rows(pool, units)
        except BaseException:
            self.server.client.stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)
        self._journal.remove()

    def _rows(self, pool: ThreadPoolExecutor, units: Sequence[Unit]) -> Iterator[UnitRows]:
        waiting = deque(units)
        pending: deque[_Pending] = deque()
        limit = AHEAD * self.server.client.address.options.requests
        while waiting or pending:
            while waiting and len(pending) < limit:
                pending.extend(self._begin(pool, waiting.popleft()))
            first = pending.popleft()
            rows = self._finish(first)
            if first.is_last:
                self._check_model()  # before the unit is written
            yield first.unit, rows

    def _begin(self, pool: ThreadPoolExecutor, unit: Unit) -> Iterator[_Pending]:
        """Begins to ask the questions about the contexts of a unit."""
        task = self.grid.task(unit.task)
        for index in unit.contexts:
            example = self.grid.example(task, index)
            questions = []
            requests = self.server.questioner.requests(task, example)
            for question, request in zip(example.questions, requests, strict=True):
                questions.append((question, request, pool.submit(self._ask, request)))
            context = self.server.questioner.context(task, example)
            yield _Pending(unit, index == unit.contexts[-1], task, context, questions)

    def _ask(self, request: ServedRequest) -> ServedAnswer:
        """Returns an answer that is noted, or asks for it and notes it."""
        key = (request.stored.task, request.stored.question_id)
        noted = self._journal.find(*key)
        if noted is not None:
            return noted
        answer = read_answer(self.server.client.ask(request.path, request.body))
        self._journal.add(*key, answer)
        return answer

    def _finish(self, pending: _Pending) -> RowsByTable:
        """Waits for the answers about a context, and judges them."""
        rows = RowsByTable()
        rows.add(CONTEXTS.name, [pending.context])
        for question, request, future in pending.questions:
            answer = future.result()
            self._check_name(answer.model)
            rows.add(QUESTIONS.name, [request.stored])
            values = self._values(pending, question, request, answer)
            rows.add(RECORDS.name, [Record.model_validate(values)])
        return rows

    def _check_name(self, name: str) -> None:
        """Raises :class:`KVBenchError` for an answer of another model than the one before: a server
        may name its model otherwise than it lists it, but always alike."""
        before, self._answering = self._answering or name, name
        if name != before:
            self._journal.remove()  # nobody knows since when
            raise KVBenchError(changed_model(before, name))

    def _check_model(self) -> None:
        try:
            self.server.check()
        except KVBenchError:
            self._journal.remove()  # nobody knows since when
            raise

    def _values(
        self, pending: _Pending, question: Question, request: ServedRequest, answer: ServedAnswer
    ) -> Mapping[str, Any]:
        """Returns the columns of a record; those of the cache and of times stay empty."""
        written = self.server.questioner.read(pending.task, question, answer)
        values: dict[str, Any] = dict.fromkeys(Record.model_fields)
        values |= {
            "task": pending.task.name,
            "question_id": question.id,
            "policy": FULL,
            "level_kind": UNTREATED.kind,
            "level": UNTREATED.value,
            "repeat": 0,
            "ratio": UNTREATED.share(request.stored.context_tokens),
            "status": "ok",
            "press_arguments": "{}",
            "output_text": written.text,
            "output_token_ids": written.token_ids,
            "ended": written.ended,
        }
        if request.stored.golds or request.stored.directives or request.stored.protected:
            values |= outcome_scores(Outcome(same_tokens=True, ended=written.ended))
        return values | text_scores(written.text, request.stored, pending.context)
