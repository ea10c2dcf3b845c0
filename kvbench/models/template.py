"""Runs the chat template of a tokenizer, which is foreign code, and finds the token that ends a turn in it."""

from collections.abc import Sequence

import torch
from transformers import PreTrainedTokenizerBase

from kvbench.system.errors import KVBenchError
from kvbench.system.memory import memory_bound
from policies import description_of
from policies.declaration.faults import TookTooLongError, time_bound

CPU = torch.device("cpu")
TEMPLATE_SECONDS = 1.0
TEMPLATE_CHARACTERS = 10**6  # around a context: a tenth of that is a long template
TEMPLATE_BYTES = 10**9  # that memory may grow by meanwhile
ANSWER = "#" * 16


def run_template(tokenizer: PreTrainedTokenizerBase, turns: Sequence[dict[str, str]], begin_answer: bool = True) -> str:
    """Returns the text of a conversation; raises :class:`KVBenchError` for a template that is broken."""
    try:
        with time_bound(TEMPLATE_SECONDS, "it takes longer than a second"), memory_bound(CPU, TEMPLATE_BYTES):
            text = str(
                tokenizer.apply_chat_template(
                    [dict(turn) for turn in turns],
                    add_generation_prompt=begin_answer,
                    tokenize=False,
                    enable_thinking=False,
                )
            )
    except (Exception, TookTooLongError) as error:
        raise KVBenchError(f"the chat template of the tokenizer is broken: {description_of(error)}") from error
    if len(text) > TEMPLATE_CHARACTERS:
        raise KVBenchError(f"the chat template of the tokenizer is broken: it makes {len(text):,} characters of a turn")
    return text


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Returns the special token that the chat template writes behind an answer, which a checkpoint's
    generation_config.json may not name; nothing where there is none."""
    if tokenizer.chat_template is None:
        return ()
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": ANSWER}]
    try:
        text = run_template(tokenizer, turns, begin_answer=False)
    except KVBenchError:  # whoever asks a question through it hears of it
        return ()
    behind = tokenizer.encode(text.rpartition(ANSWER)[2].lstrip(), add_special_tokens=False)
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return tuple(behind[:1]) if special & set(behind[:1]) else ()
