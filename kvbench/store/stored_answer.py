"""An answer with everything that is stored about it: the rows of three tables that belong together."""

from dataclasses import dataclass

from kvbench.store.record import Record
from kvbench.store.stored_context import StoredContext
from kvbench.store.stored_question import StoredQuestion


@dataclass(frozen=True)
class StoredAnswer:
    record: Record
    question: StoredQuestion
    context: StoredContext
