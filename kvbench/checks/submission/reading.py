"""Reads a run that somebody else handed in, and generates its examples again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pandas import DataFrame
from pydantic import ValidationError
from transformers import PreTrainedTokenizerBase

from datasets_gen import KNOWN_TASKS, Example, Task
from kvbench.checks.findings import Finding, finding_of
from kvbench.experiments.build_grid import tasks_as_run
from kvbench.experiments.question_fields import described_context, described_question
from kvbench.experiments.source import source_hash
from kvbench.models.load import LoadedModel, fingerprint_of, load_model
from kvbench.models.names import local_source
from kvbench.models.pretrained import read_ends, read_tokenizer
from kvbench.models.shape import shape_of
from kvbench.models.shipped import REFERENCE_MODELS, folder_of
from kvbench.prompts.ends import AnswerEnds, answer_ends
from kvbench.run.resume import chunks
from kvbench.store.identity import Identity
from kvbench.store.record import Record, StoredAnswer, StoredContext, StoredQuestion
from kvbench.store.run_file import RUN_FILE
from kvbench.store.store import SUMMARY_FILE, Store
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.places import is_remote
from leaderboards.studies.registry import studies
from policies.declaration.shape import ModelShape

Described = Mapping[str, object]


@dataclass(frozen=True)
class Submission:
    """A run as it was handed in."""

    store: Store
    answers: tuple[StoredAnswer, ...]

    @property
    def identity(self) -> Identity:
        return self.store.identity

    @property
    def records(self) -> list[Record]:
        return [answer.record for answer in self.answers]

    @cached_property
    def questions(self) -> list[tuple[StoredQuestion, StoredContext]]:
        """Lists every stored question that was answered, once."""
        return list(
            {answer.question.question_id: (answer.question, answer.context) for answer in self.answers}.values()
        )

    @cached_property
    def frame(self) -> DataFrame:
        """Joins the records as a table; :class:`KVBenchError` where they do not belong to the run."""
        return self.store.frame(possible=False)  # the checks name each impossible number

    @cached_property
    def tasks(self) -> Mapping[str, Task]:
        """Returns the tasks of the run, where they can be made again here."""
        return tasks_as_run(self.store.run, model_is_here=self.tokenizer is not None)

    @cached_property
    def of_this_code(self) -> bool:
        return self.identity.source == source_hash()

    @cached_property
    def model_is_shipped(self) -> bool:
        """Tells whether the model is, byte for byte, one that ships with kvbench."""
        name = self.identity.model
        return name in REFERENCE_MODELS and self.identity.model_fingerprint == fingerprint_of(str(folder_of(name)))

    @cached_property
    def model_source(self) -> str | None:
        """Returns the folder or GGUF file of the model, where it lies at the place that the run names; else None."""
        place = local_source(self.identity.model)
        return None if place is None else str(place)

    @cached_property
    def shape(self) -> ModelShape | None:
        """Returns the shape of the cache, of a model that is here."""
        return None if self.model_source is None else shape_of(self.model_source, "cpu", self.identity.dtype)

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase | None:
        """Loads the tokenizer of a model that is here with the fingerprint of the run, which covers its tokenizer; of
        no other can the right one be known."""
        source = self.model_source
        if source is None or fingerprint_of(source) != self.identity.model_fingerprint:
            return None
        return read_tokenizer(source)

    @cached_property
    def ends(self) -> Mapping[str, AnswerEnds]:
        """Reads by task what ends an answer of a model that is here; not of the tasks of files, which are not."""
        if self.tokenizer is None or self.model_source is None:
            return {}
        own = read_ends(self.model_source, self.tokenizer)
        return {
            planned.name: answer_ends(
                self.tokenizer, replace(KNOWN_TASKS[planned.name], begins_answers=planned.begins_answers)
            ).with_tokens(own)
            for planned in self.identity.tasks
            if planned.name in KNOWN_TASKS
        }

    @cached_property
    def model(self) -> LoadedModel:
        """Loads the model, which is here where a tokenizer is."""
        return load_model(self.identity.model, dtype=self.identity.dtype)

    @cached_property
    def examples(self) -> Mapping[str, tuple[Example, ...]]:
        """Generates the contexts of the run again, by task."""
        seed, held_out = self.identity.seed, self.identity.held_out
        return {
            planned.name: tuple(
                self.tasks[planned.name].example(seed, index, held_out=held_out) for index in range(planned.contexts)
            )
            for planned in self.identity.tasks
            if planned.name in self.tasks
        }

    @cached_property
    def generated_contexts(self) -> Mapping[str, Described]:
        """Maps the id of an example to the context that has to be stored."""
        return {
            example.id: described_context(self.tasks[task], example)
            for task, examples in self.examples.items()
            for example in examples
        }

    @cached_property
    def generated_questions(self) -> Mapping[str, Described]:
        """Maps the id of a question to the row that has to be stored."""
        return {
            question.id: described_question(self.tasks[task], example, question)
            for task, examples in self.examples.items()
            for example in examples
            for question in example.questions
        }


def place_of(record: Record) -> str:
    """Names the policy, level and question of a record."""
    return f"{record.policy} at {record.point.where}, {record.question_id}"


def read(folder: Path) -> tuple[Submission, Finding]:
    """Reads a submission, and checks its files."""
    store = Store.open(folder)
    answers: list[StoredAnswer] = []
    faults: list[str] = []
    for path in store.record_files():
        try:
            answers_of_file = store.read_answers(path)
        except (KVBenchError, ValidationError, pa.ArrowException, OSError) as error:
            faults.append(f"{path.relative_to(folder)} cannot be read ({first_line(error.__cause__ or error)})")
        else:
            faults += _misplaced_records(store, path, answers_of_file)
            answers += answers_of_file
    for table in store.study_tables:
        for path in store.files(table):
            try:
                store.read_rows(table, path)
            except (KVBenchError, ValidationError) as error:
                faults.append(f"{path.relative_to(folder)} cannot be read ({first_line(error.__cause__ or error)})")
    faults += _stray_files(store)
    submission = Submission(store, tuple(answers))
    return submission, finding_of("files", f"{len(store.record_files()):,} files, {len(answers):,} records", faults)


def _stray_files(store: Store) -> Iterator[str]:
    """Names files that no run of this identity writes, such as chunks behind its last context."""
    own = {store.folder / name for name in (RUN_FILE, SUMMARY_FILE, *(f"{study}.json" for study in studies()))}
    for task in store.identity.tasks:
        for number in range(len(chunks(task.contexts))):
            for table in store.tables:
                policies = [policy.name for policy in store.identity.policies] if table.by_policy else [""]
                own |= {store.path(table, task.name, number, policy) for policy in policies}
    if not is_remote(store.folder):
        yield from (
            f"{path.relative_to(store.folder)} is no file of this run"
            for path in sorted(store.folder.rglob("*"))
            if path not in own and (path.is_symlink() or not path.is_dir())
        )


def _misplaced_records(store: Store, path: Path, answers: list[StoredAnswer]) -> Iterator[str]:
    """Names a file that holds a record of another task or policy."""
    for record in (answer.record for answer in answers):
        right = store.record_file(record.task, 0, record.policy)
        if (path.parent.parent.name, path.name) != (right.parent.parent.name, right.name):
            yield f"{path.relative_to(store.folder)} holds a record of {record.policy} on {record.task}"
            return
