"""A run as somebody handed it in, and what of it can be made again on this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from datasets_gen import Example, Task
from kvbench.experiments.build_grid import tasks_as_run
from kvbench.experiments.grid import source_hash
from kvbench.models.load import hash_files
from kvbench.models.names import adapter_folder, local_source
from kvbench.store.store import Store
from kvbench.store.tables import Record, StoredAnswer
from policies import Policy


@dataclass(frozen=True)
class Submission:
    """A run as it was handed in, and what can be made of it again here."""

    store: Store
    answers: Sequence[StoredAnswer]
    replayed: int  # how many cells are answered again, at least
    policies: Mapping[str, Policy]  # of the run, those that can be run here
    trusted: Sequence[str]  # of these, the ones whose code came from outside

    @cached_property
    def is_of_this_code(self) -> bool:
        """Tells whether the code of the run is that of here, byte for byte."""
        return self.store.identity.source == source_hash()

    @cached_property
    def model_is_here(self) -> bool:
        """Tells whether the model of the run is on this machine, byte for byte, tokenizer
        included."""
        identity = self.store.identity
        place = local_source(identity.model)
        if place is None:
            return False
        fingerprint = hash_files(str(place), adapter=adapter_folder(identity.model))
        return fingerprint == identity.model_fingerprint

    @cached_property
    def tasks(self) -> Mapping[str, Task]:
        """Returns the tasks of the run that can be made here; lengthened ones need the tokenizer of
        the run's model."""
        return tasks_as_run(self.store.run, self.model_is_here)

    @cached_property
    def examples(self) -> Mapping[str, Sequence[Example]]:
        """Generates the contexts of each of these tasks."""
        run = self.store.identity
        examples: dict[str, Sequence[Example]] = {}
        for planned in run.tasks:
            task = self.tasks.get(planned.name)
            if task is None:
                continue
            contexts = []
            for index in range(planned.contexts):
                contexts.append(task.example(run.seed, index, held_out=run.held_out))
            examples[planned.name] = contexts
        return examples


def name_answer(record: Record) -> str:
    return f"{record.policy} at {record.point.where}, {record.question_id}"
