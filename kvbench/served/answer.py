"""Reads one answer of a server."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kvbench.system.errors import KVBenchError, fault_of_fields


class ServedAnswer(BaseModel):
    """What a server answers, as far as it is used."""

    model_config = ConfigDict(frozen=True)

    text: str
    is_stopped: bool  # by an end token or a stop string, and not by the number of tokens
    model: str = ""  # that it says to have answered by
    prompt_tokens: int | None = None


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message | None = None  # of messages
    text: str | None = None  # of a raw prompt
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None


class _Completion(BaseModel):
    choices: list[_Choice]
    model: str | None = None
    usage: _Usage | None = None


def read_answer(response: Mapping[str, Any]) -> ServedAnswer:
    """Reads the first choice of a response. Raises :class:`KVBenchError` for one that has another
    form than servers of this interface give."""
    try:
        completion = _Completion.model_validate(response)
    except ValidationError as error:
        fault = f"the server answers in another form ({fault_of_fields(error)})"
        raise KVBenchError(f"{fault}: it has to have the interface of OpenAI") from error
    if not completion.choices:
        raise KVBenchError("the server answers with no choice")
    choice = completion.choices[0]
    text = choice.text
    if choice.message is not None:
        text = choice.message.content
    return ServedAnswer(
        text=text or "",
        is_stopped=choice.finish_reason == "stop",
        model=completion.model or "",
        prompt_tokens=completion.usage.prompt_tokens if completion.usage else None,
    )
