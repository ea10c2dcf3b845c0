"""Finds out how a server takes questions, by a few short requests whose answers are not judged."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvbench.prompts.context_length import Count
from kvbench.prompts.prompt import encode
from kvbench.served import chat, raw
from kvbench.served.answer import ServedAnswer, read_answer
from kvbench.served.client import Client, RefusedError
from kvbench.served.questioner import Questioner
from kvbench.system.errors import KVBenchError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

QUESTION = "What is the capital of France?"
# One token in every vocabulary. A server that closes the turn of this message and opens a new one
# reads at least four tokens more.
SHORT = "A"
MOST_MORE = 2
# Cut inside a word: who goes on from it writes the rest of that word, and who answers anew does not.
BEGINNING, REST = "The capital of France is Par", "is"
# Fields with which servers go on from a last message of the assistant: llama.cpp needs none, vLLM
# and SGLang need both.
CONTINUING: tuple[Mapping[str, Any], ...] = (
    {},
    {"add_generation_prompt": False, "continue_final_message": True},
)
# Without it a thinking model spends its few tokens on thoughts. Not every server takes it, and
# llama.cpp refuses it where an answer is begun.
WITHOUT_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


def find_questioner(
    client: Client,
    model: str,
    seed: int,
    count: Count,
    tokenizer: "PreTrainedTokenizerBase | None",
) -> Questioner:
    """Returns what puts questions to a server: as token numbers where a ``tokenizer`` is given,
    else as messages. ``count``: of the tokens of a text. Raises :class:`KVBenchError` for a server
    that takes no token numbers."""
    if tokenizer is not None:
        check_numbers(client, model, tokenizer)
        return raw.Raw(model, seed, tokenizer)
    fields: Mapping[str, Any] = WITHOUT_THINKING
    try:
        _ask(client, model, {}, fields, 1)
    except RefusedError:
        fields = {}
    alone = _ask(client, model, {}, {}, 1)
    continuation = _find_continuation(client, model, alone.prompt_tokens)
    return chat.Chat(model, seed, count, continuation, fields)


def check_numbers(client: Client, model: str, tokenizer: "PreTrainedTokenizerBase") -> None:
    """Raises :class:`KVBenchError` where a server does not read the very numbers that it is
    sent."""
    ids = list(encode(tokenizer, BEGINNING))
    body = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 0, "stream": False}
    advice = "leave the tokenizer to count alone: ADDRESS(tokenizer=NAME,prompt=chat)"
    try:
        answer = read_answer(client.ask(raw.PATH, body))
    except RefusedError as error:
        raise KVBenchError(f"{error}; it takes no token numbers: {advice}") from error
    read = answer.prompt_tokens
    if read is not None and read != len(ids):
        raise KVBenchError(f"the server reads {read} tokens where {len(ids)} were sent: {advice}")


def _find_continuation(
    client: Client, model: str, tokens_alone: int | None
) -> chat.Continuation | None:
    """Returns how a server goes on from the last message of the assistant; None where it does
    not."""
    for fields in CONTINUING:
        try:
            short = _ask(client, model, {"assistant": SHORT}, fields, 1)
            longer = _ask(client, model, {"assistant": BEGINNING}, fields, 4)
        except RefusedError:
            continue
        repeats = longer.text.startswith(BEGINNING)
        if tokens_alone is None or short.prompt_tokens is None:
            goes_on = longer.text.removeprefix(BEGINNING).startswith(REST)
        else:
            goes_on = short.prompt_tokens - tokens_alone <= MOST_MORE
        if goes_on:
            return chat.Continuation(fields, repeats)
    return None


def _ask(
    client: Client,
    model: str,
    more_turns: Mapping[str, str],
    fields: Mapping[str, Any],
    tokens: int,
) -> ServedAnswer:
    turns = [{"role": "user", "content": QUESTION}]
    for role, content in more_turns.items():
        turns.append({"role": role, "content": content})
    body = {
        "model": model,
        "messages": turns,
        "max_tokens": tokens,
        "temperature": 0,
        "stream": False,
    }
    return read_answer(client.ask(chat.PATH, {**body, **fields}))
