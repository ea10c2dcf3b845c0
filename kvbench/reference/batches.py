"""Training sequences: one context, then many questions that do not see one another."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import torch
from transformers import PreTrainedTokenizerBase

from datasets_gen import TASKS, Example, Split, Task
from kvbench.prompt import build_prompts, encode
from kvbench.reference.attention import PackedLayout

QUESTIONS = 16  # at most
ROW_LENGTH = 48  # several questions share a row
ROWS = 3  # of each sequence in training, with the questions that fit
TURNS = ("base", "hops", "hops")  # chains take the longest to learn
EASIER_SHARE = 0.25  # of the batches come from a lower level than the one reached, so that nothing is forgotten
INSTRUCTED_SHARE = 0.3  # of the batches say the task's instruction; it is as long as a question and teaches little


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


def pack(tokenizer: PreTrainedTokenizerBase, task: Task, example: Example) -> PackedSequence:
    """One example as training data; the last token of an answer ends the turn."""
    prompt = build_prompts(tokenizer, task, example, "agnostic")[0]
    end: int = tokenizer.eos_token_id
    questions = []
    for ask in prompt.asks:
        answer = [*encode(tokenizer, f" {ask.question.golds[0]}"), end]
        names = [encode(tokenizer, f" {name}")[0] for name in ask.question.bridges]
        questions.append(PackedQuestion([*ask.token_ids, *answer], len(answer), [*names[:1], *names[-1:]]))
    return PackedSequence(example, list(prompt.token_ids), questions)


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

    Without a level these are the tasks themselves, as in an evaluation. At level 0 the question stands right before the
    answer, without the instruction between them: who it is about is then found by looking a few tokens back.
    """
    rng = random.Random(f"{seed}/{first}")
    instructed = level is None or (level > 0 and rng.random() < INSTRUCTED_SHARE)
    if level is not None and rng.random() < EASIER_SHARE:
        level = rng.randint(0, level)
    sequences = []
    for index in range(first, first + count):
        task = TASKS[TURNS[index % len(TURNS)]]
        task = task if instructed else replace(task, instruction="")
        sequences.append(pack(tokenizer, task, task.example(seed, index, split, level, QUESTIONS)))
    padding: int = tokenizer.pad_token_id
    return collate(sequences, padding, None if level is None else ROWS)
