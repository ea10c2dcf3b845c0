"""Encodes texts in which a control token is spelled, such as ``<|im_end|>`` in somebody's document,
as the text it is.

A tokenizer reads such a spelling as the token itself, so that a document could end the user's turn.
Here only what the chat template writes is read so. A text without such a spelling is encoded by the
tokenizer alone, as kvpress does."""

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

Stretches = Sequence[tuple[int, int]]  # of a text: half-open ranges of characters
Offsets = list[tuple[int, int]]  # by token, where it starts and ends in the text

_DELIMITED = re.compile(r"<[|｜].+[|｜]>")
_FIRST_STAND_IN = 0xF0000  # of the characters that Unicode gives to nobody (plane 15)
_FILLER = "\U0010fffd"  # the last such character
_LEAST = -1e6  # log probability of a piece that is never chosen


@lru_cache(maxsize=8)
def control_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Returns the spellings of tokens that are no text: the special ones, those between ``<|`` and
    ``|>``, and those that the chat template writes, such as ``<tool_call>``. Added tokens of white
    space or of HTML are text."""
    template = str(tokenizer.chat_template or "")
    contents = {token.content: token.special for token in tokenizer.added_tokens_decoder.values()}
    control = []
    for content, is_special in contents.items():
        is_control = is_special or _DELIMITED.fullmatch(content) or content in template
        if is_control and content.strip():
            control.append(content)
    return tuple(control)


def encode_with_offsets(
    tokenizer: PreTrainedTokenizerBase, text: str, of_template: Stretches = ()
) -> tuple[tuple[int, ...], Offsets]:
    """Encodes a text; control tokens are read as such in the stretches that the chat template
    wrote, and nowhere else. Without such stretches a text has no control token."""
    if not _is_spelled(control_tokens(tokenizer), text, of_template):
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return tuple(encoded["input_ids"]), encoded["offset_mapping"]
    reader, stand_ins = _reader(tokenizer)
    pieces, end = [], 0
    for start, stop in of_template:
        written = text[start:stop]
        for content, stand_in in stand_ins.items():
            written = written.replace(content, stand_in)
        pieces += [text[end:start], written]
        end = stop
    encoded = reader.encode("".join([*pieces, text[end:]]), add_special_tokens=False)
    return tuple(encoded.ids), encoded.offsets


def _is_spelled(contents: Sequence[str], text: str, of_template: Stretches) -> bool:
    """Tells whether a control token stands in what the template did not write."""
    end, unwritten = 0, []
    for start, stop in of_template:
        unwritten.append(text[end:start])
        end = stop
    unwritten.append(text[end:])
    # In most texts there is none of these, and vocabularies have thousands.
    first = {content[0] for content in contents}
    for part in unwritten:
        if first & set(part) and any(content in part for content in contents):
            return True
    return False


@lru_cache(maxsize=4)
def _reader(tokenizer: PreTrainedTokenizerBase) -> tuple[Tokenizer, dict[str, str]]:
    """Makes the same tokenizer with other spellings of the control tokens, which stand in no text:
    of the same length, so that offsets stay, and with the same numbers. Returns it with these
    spellings, the longest first."""
    plan: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    # The longest first, as one spelling may stand within another.
    controls = sorted(control_tokens(tokenizer), key=len, reverse=True)
    stand_ins = {}
    for number, content in enumerate(controls):
        stand_ins[content] = chr(_FIRST_STAND_IN + number) + _FILLER * (len(content) - 1)
    numbers = {}
    for token in plan["added_tokens"]:
        token["content"] = stand_ins.get(token["content"], token["content"])
        numbers[token["content"]] = token["id"]
    _rename(plan["model"], stand_ins, numbers)
    # Whoever used the tokenizer before may have switched truncation or padding on in it.
    plan |= {"post_processor": None, "truncation": None, "padding": None}
    return Tokenizer.from_str(json.dumps(plan)), stand_ins


def _rename(model: dict[str, Any], stand_ins: dict[str, str], numbers: dict[str, int]) -> None:
    """Gives the control tokens of a vocabulary their new spellings, and every added token a place
    in it: one without a place would be given another number."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, list):  # of Unigram: pieces with their log probabilities, by number
        pieces = [[stand_ins.get(piece, piece), score] for piece, score in vocabulary]
        for content, number in sorted(numbers.items(), key=lambda item: item[1]):
            # A piece's number is its place in the list: gaps are filled with what is never chosen.
            for place in range(len(pieces), number + 1):
                pieces.append([f"{_FILLER}{place}", _LEAST])
            pieces[number][0] = content
        model["vocab"] = pieces
        return
    renamed = {stand_ins.get(piece, piece): number for piece, number in vocabulary.items()}
    model["vocab"] = renamed | numbers
    if "merges" in model:
        kept = []
        for merge in model["merges"]:
            parts = merge if isinstance(merge, list) else merge.split(" ")
            # A merge with a token that has another spelling now has no place in the vocabulary.
            if stand_ins.keys().isdisjoint({*parts, "".join(parts)}):
                kept.append(parts)
        model["merges"] = kept
