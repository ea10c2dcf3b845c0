"""Turns rows of public data sets into rows of one's own questions: of kvpress, RULER, LongBench and
SQuAD.

What such a row says of itself, as its number and its language, is left out; a field that nobody
knows is an error, in these rows as in our own."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.jsonl import golds_in

# What data sets tell of their rows, and nothing is made of.
_METADATA = "_id id index idx title task dataset language length all_classes token_position_answer domain sub_domain "
_METADATA += "difficulty is_impossible plausible_answers subject"
METADATA = frozenset(_METADATA.split())
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Where the question begins at the end of RULER's prompts: a line of its own, or what it says behind
# the last full stop where line ends were taken out.
BORDERS = tuple(
    map(
        re.compile,
        (
            r"\s*\n(?=[^\n]*$)",
            r"\s(?=Question: (?!.*Question: ))",
            r"(?<=[.!?])\s+(?=[^.!?\s][^.!?]*\?$)|(?<=[。！？])(?=[^。！？]+[？?]$)",
        ),
    )
)


@dataclass(frozen=True)
class Converted:
    """Holds the fields of a row in our own form."""

    fields: dict[str, Any]
    every_gold: bool = False  # an answer has to name all golds
    is_whole_prompt: bool = False  # the row says itself how to answer
    may_lack_question: bool = False  # the context itself asks, as in some rows of kvpress


def converted(row: Mapping[str, Any], where: str, task: str) -> Converted:
    """Returns the fields of a row in our own form. ``task``: which tells kvpress's questions with
    one answer from its others, where the row does not. Raises :class:`DatasetError` for options
    that are no list of two or more texts."""
    # Of RULER's questions on documents any output is right; in its other tasks all are to be named.
    any_is_right = str(row.get("task", row.get("dataset", task))).startswith("qa")
    fields = {name: value for name, value in row.items() if name not in METADATA}
    if "input" in fields and "outputs" in fields:
        return _of_ruler(fields, any_is_right)
    if "input" in fields and "context" in fields and "question" not in fields:  # LongBench
        fields["question"] = fields.pop("input")
    if "questions" in fields:
        return Converted(fields)
    fields = _with_options(fields, where)
    answers = fields.get("answers")
    if isinstance(answers, Mapping) and "text" in answers:  # SQuAD
        fields["answers"] = answers["text"]
    if "answer" not in fields or "answers" in fields:
        return Converted(fields)
    answer = fields.pop("answer")
    golds = golds_in(answer) if isinstance(answer, str) else answer
    every = isinstance(golds, list) and golds != [answer] and not any_is_right
    return Converted({**fields, "answers": golds}, every_gold=every, may_lack_question=True)


def _of_ruler(fields: dict[str, Any], any_is_right: bool) -> Converted:
    prompt = str(fields.pop("input")).strip()
    outputs = fields.pop("outputs")
    border = next(filter(None, (border.search(prompt) for border in BORDERS)), None)
    context, question = (
        (prompt[: border.start()], prompt[border.end() :]) if border else (prompt, "")
    )
    every = isinstance(outputs, list) and not any_is_right
    fields |= {"context": context, "question": question, "answers": outputs}
    return Converted(fields, every, is_whole_prompt=True, may_lack_question=True)


def _with_options(fields: dict[str, Any], where: str) -> dict[str, Any]:
    """Sets the options of a row into its question, each behind its letter; an answer that is the
    number of an option becomes its letter."""
    options = _take_options(fields, where)
    if not options:
        return fields
    lines = [f"{letter}) {text}" for letter, text in options.items()]
    fields["question"] = "\n".join([str(fields.get("question", "")).rstrip(), *lines])
    answer = fields.get("answer")
    is_text = isinstance(answer, bool) or str(answer) in options.values()
    if isinstance(answer, int) and not is_text and 0 <= answer < len(options):
        fields["answer"] = LETTERS[answer]
    return fields


def _take_options(fields: dict[str, Any], where: str) -> dict[str, str]:
    """Takes the options out of a row, by letter: a list, a mapping, or a field for each."""
    named = [name for name in fields if re.fullmatch(r"(?:choice|option)_[A-Z]", name)]
    texts: object = None
    if named:
        return {name[-1]: str(fields.pop(name)) for name in sorted(named)}
    for name in ("options", "choices"):
        texts = fields.pop(name, texts)
    if texts is None:
        return {}
    if isinstance(texts, Mapping) and {"text", "label"} <= texts.keys():  # ARC
        return dict(zip(map(str, texts["label"]), map(str, texts["text"]), strict=True))
    if isinstance(texts, Mapping):
        return {str(letter): str(text) for letter, text in texts.items()}
    if (
        not isinstance(texts, Sequence)
        or isinstance(texts, str)
        or not 2 <= len(texts) <= len(LETTERS)
    ):
        raise DatasetError(f"{where}: 'options' is no list of two or more texts")
    # An option may have its letter already: "A) Breveth" or "B. Ambrova".
    bare = []
    for letter, text in zip(LETTERS, texts, strict=False):
        bare.append(re.sub(rf"^\(?{letter}[).:]\s+", "", str(text)))
    return dict(zip(LETTERS, bare, strict=False))
