"""Training sequences: one context, then many questions that do not see one another."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import torch
from transformers import PreTrainedTokenizerBase

from datasets_gen import TASKS, Example, Split, Task
from kvbench.prompt import Mode, asked, chat_template, encode
from kvbench.reference.attention import PackedLayout

QUESTIONS = 16  # at most
ROW_LENGTH = 48  # several questions share a row
ROWS = 3  # of each sequence in training, with the questions that fit
TURNS = ("base", "hops", "hops")  # chains take the longest to learn
EASIER_SHARE = 0.25  # of the batches come from a lower level than the one reached, so that nothing is forgotten
# The batches that say the task's instruction where each mode has it; it is as long as a question and teaches little.
INSTRUCTED_SHARES: Mapping[Mode, float] = {"agnostic": 0.2, "aware": 0.1}


@dataclass(frozen=True)
class PackedQuestion:
    """A question's tokens with the answer, and how many of them are the answer.

    ``bridges``: first tokens of the first and the last name on the way to the answer; empty where there is none.
    """

    token_ids: list[int]
    answer: int
    bridges: list[int]


@dataclass(frozen=True)
class PackedSequence:
    """The context's tokens, and its questions."""

    example: Example
    context: list[int]
    questions: list[PackedQuestion]


@dataclass(frozen=True)
class Batch:
    """Padded sequences, all of shape (batch, length): contexts first, padded to one width, then rows of questions.

    ``segments``: 0 in the context, the number of the question from 1 on behind it, -1 on padding.
    ``labels``: the token of an answer to predict, -100 where none is asked for.
    ``bridges``: (2, batch, length), the first tokens of the first and the last name on the way to an answer, where
    that answer is asked for; -100 elsewhere.
    """

    examples: list[Example]
    token_ids: torch.Tensor
    positions: torch.Tensor
    labels: torch.Tensor
    bridges: torch.Tensor
    segments: torch.Tensor
    layout: PackedLayout


def pack(tokenizer: PreTrainedTokenizerBase, task: Task, example: Example, mode: Mode = "agnostic") -> PackedSequence:
    """One example as training data, in the order of a mode; the last token of an answer ends the turn."""
    template = chat_template(tokenizer)
    end: int = tokenizer.eos_token_id
    questions = []
    for question in example.questions:
        answer = [*encode(tokenizer, f" {question.golds[0]}"), end]
        names = [encode(tokenizer, f" {name}")[0] for name in question.bridges]
        compressed, decoded = asked(task, question, mode)
        tokens = [*encode(tokenizer, compressed), *encode(tokenizer, decoded + template.tail), *answer]
        questions.append(PackedQuestion(tokens, len(answer), [*names[:1], *names[-1:]]))
    return PackedSequence(example, list(encode(tokenizer, template.head + example.context)), questions)


def row_starts(lengths: Sequence[int]) -> list[int]:
    """Where each question starts behind the context: in the first row that has room for it (first fit)."""
    filled: list[int] = []
    starts = []
    for length in lengths:
        row = next((row for row, size in enumerate(filled) if size + length <= ROW_LENGTH), len(filled))
        if row == len(filled):
            filled.append(0)
        starts.append(row * ROW_LENGTH + filled[row])
        filled[row] += length
    return starts


def collate(sequences: Sequence[PackedSequence], padding: int, rows: int | None = None) -> Batch:
    """Every question continues the positions of its own context, exactly as the engine decodes it.

    With a number of rows, questions from the first on that does not fit are left out, so that little is padding.
    """
    width = max(len(s.context) for s in sequences)
    starts = [row_starts([len(q.token_ids) - 1 for q in s.questions]) for s in sequences]
    if rows is None:
        rows = max(start // ROW_LENGTH for of_sequence in starts for start in of_sequence) + 1
    else:
        starts = [list(takewhile(lambda start: start < rows * ROW_LENGTH, of_sequence)) for of_sequence in starts]
    shape = (len(sequences), width + rows * ROW_LENGTH)
    token_ids, positions = torch.full(shape, padding), torch.zeros(shape, dtype=torch.long)
    labels = torch.full(shape, -100)
    segments = torch.full(shape, -1)
    bridges = torch.full((2, *shape), -100)
    for row, sequence in enumerate(sequences):
        size = len(sequence.context)
        token_ids[row, :size] = torch.tensor(sequence.context)
        positions[row, :size] = torch.arange(size)
        segments[row, :size] = 0
        for number, (question, place) in enumerate(zip(sequence.questions, starts[row], strict=False), 1):
            tokens, answer, start = question.token_ids, question.answer, width + place
            end = start + len(tokens) - 1
            token_ids[row, start:end] = torch.tensor(tokens[:-1])
            positions[row, start:end] = torch.arange(size, size + len(tokens) - 1)
            labels[row, end - answer : end] = torch.tensor(tokens[-answer:])
            segments[row, start:end] = number
            if question.bridges:
                bridges[:, row, end - answer] = torch.tensor(question.bridges)
    examples = [s.example for s in sequences]
    return Batch(examples, token_ids, positions, labels, bridges, segments, packed_layout(segments, width))


def packed_layout(segments: torch.Tensor, width: int) -> PackedLayout:
    """The layout that :func:`collate` wrote; ``segments`` as in :class:`Batch`."""
    questions = segments[:, width:].unflatten(1, (-1, ROW_LENGTH))
    context = (segments[:, None, None, :width] == 0).expand(*questions.shape, -1)
    same = questions[..., :, None] == questions[..., None, :]
    earlier = torch.ones(ROW_LENGTH, ROW_LENGTH, dtype=torch.bool).tril()
    return PackedLayout(width, torch.cat([context, same & earlier], dim=-1))


def make_batch(
    tokenizer: PreTrainedTokenizerBase, seed: int, split: Split, first: int, count: int, level: int | None
) -> Batch:
    """Examples ``first .. first + count`` of all tasks in turn; the same for the same arguments.

    Without a level these are the tasks themselves, as in an evaluation. At level 0 no instruction stands beside the
    question: who it is about is then found by looking a few tokens back.
    """
    rng = random.Random(f"{seed}/{first}")
    mode: Mode | None = "agnostic"
    if level is not None:
        modes: list[Mode | None] = [*INSTRUCTED_SHARES, None]
        shares = [*INSTRUCTED_SHARES.values(), 1 - sum(INSTRUCTED_SHARES.values())]
        mode = rng.choices(modes, shares)[0] if level > 0 else None
        if rng.random() < EASIER_SHARE:
            level = rng.randint(0, level)
    sequences = []
    for index in range(first, first + count):
        task = TASKS[TURNS[index % len(TURNS)]]
        example = task.example(seed, index, split, level, QUESTIONS)
        told = task if mode else replace(task, instruction="")
        sequences.append(pack(tokenizer, told, example, mode or "agnostic"))
    padding: int = tokenizer.pad_token_id
    return collate(sequences, padding, None if level is None else ROWS)
