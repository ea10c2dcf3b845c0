"""Keeps what is handed in for as long as a call of the library runs.

Options name models, policies and tasks by texts, in a job, in a store and on pages. What is in
memory gets such a name too, and whoever looks a name up looks here first: the command line and the
library then go one way. Outside of a call there is nothing here."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from datasets_gen import Task
    from policies import Policy

IN_MEMORY = "-in-memory"  # ends the name of a model that is handed in


@dataclass(frozen=True)
class HandedModel:
    """A model that is in memory, with its tokenizer."""

    name: str
    network: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"

    @property
    def device(self) -> str:
        """Returns the kind of its device, as ``--device`` names it."""
        return str(self.network.device.type)

    @property
    def dtype(self) -> str:
        """Returns the type of its numbers, as ``--dtype`` names it."""
        return str(self.network.dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Handed:
    """Holds what one call hands in, by the names that options have for it."""

    model: HandedModel | None = None
    policies: "Mapping[str, Policy]" = field(default_factory=dict)
    tasks: "Mapping[str, Task]" = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return self.model is None and not self.policies and not self.tasks


NOTHING = Handed()
_current: ContextVar[Handed] = ContextVar("handed", default=NOTHING)


@contextmanager
def handing_in(handed: Handed) -> Iterator[None]:
    """Lets names mean what is handed in, inside a ``with`` block."""
    token = _current.set(handed)
    try:
        yield
    finally:
        _current.reset(token)


def find_handed_model(name: str) -> HandedModel | None:
    """Finds the model that is handed in under a name; None where the name is another one's."""
    model = _current.get().model
    if model is None or model.name != name:
        return None
    return model


def find_handed_policy(name: str) -> "Policy | None":
    """Finds the policy that is handed in under a name; None where the name is another one's."""
    return _current.get().policies.get(name)


def find_handed_task(name: str) -> "Task | None":
    """Finds the task that is handed in under a name; None where the name is another one's."""
    return _current.get().tasks.get(name)


def known_name(model: str) -> str:
    """Returns the name of the model that one in memory was loaded from: it is asked in the same
    way.

    >>> known_name("reference-in-memory")
    'reference'
    """
    return model.removesuffix(IN_MEMORY)


def handed_values(values: Mapping[str, Any], handed: Handed) -> dict[str, Any]:
    """Returns the options of a call with the device and the dtype of a model that is in memory."""
    completed = dict(values)
    if handed.model is not None:
        for option in ("device", "dtype"):
            if option in completed:
                completed[option] = getattr(handed.model, option)
    return completed
