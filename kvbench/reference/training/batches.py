"""Training sequences: one context, then many questions that do not see one another."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile

import torch
from transformers import PreTrainedTokenizerBase

from datasets_gen import TASKS, Example, Task
from datasets_gen.writing.in_prose import in_words_of_prose
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import chat_template, encode, split_question
from kvbench.reference.training.attention import PackedLayout
from kvbench.reference.training.lessons import Assignment
from kvbench.reference.training.referents import referents

QUESTIONS = 16  # at most
DEPTHS = 3  # of a model, at which a name on the way to an answer is to be known
LANES = 32  # a context's width is a multiple of them: what is left over takes a processor's vectors many times as long
ROW_LENGTH = 64  # several questions share a row, which is longer where a question is
ROWS = 5  # of each sequence in training, with the questions that fit
PLACES = 6_000  # of a batch, padding included


@dataclass(frozen=True)
class PackedQuestion:
    """A question's tokens with the answer, and how many of them are the answer.

    ``bridges``: first tokens of the names on the way to the answer, by the depth at which each is to be known; empty
    where there is none.
    """

    token_ids: list[int]
    answer: int
    bridges: list[int]


@dataclass(frozen=True)
class PackedSequence:
    """The context's tokens, the names that are meant at some of its places (:func:`referents`), and its questions."""

    example: Example
    context: list[int]
    referents: dict[int, int]
    questions: list[PackedQuestion]


@dataclass(frozen=True)
class Batch:
    """Padded sequences, all of shape (batch, length): contexts first, padded to one width, then rows of questions.

    ``segments``: 0 in the context, the number of the question from 1 on behind it, -1 on padding.
    ``labels``: the token of an answer to predict, -100 where none is asked for.
    ``bridges``: (:data:`DEPTHS`, batch, length), the first tokens of the names on the way to an answer, where that
    answer is asked for; -100 elsewhere. ``referents``: (batch, length), the first token of the name that is meant at a
    place of the context; -100 elsewhere. ``running``: whether the tokens of the contexts are to be predicted too.
    """

    examples: list[Example]
    token_ids: torch.Tensor
    positions: torch.Tensor
    labels: torch.Tensor
    bridges: torch.Tensor
    referents: torch.Tensor
    segments: torch.Tensor
    layout: PackedLayout
    running: bool = False


def pack(tokenizer: PreTrainedTokenizerBase, task: Task, example: Example, mode: Mode = "agnostic") -> PackedSequence:
    """Tokenizes an example in the order of a mode; the last token of an answer ends the turn."""
    template = chat_template(tokenizer, task.role)
    end: int = tokenizer.eos_token_id
    questions = []
    for question in example.questions:
        answer = [*encode(tokenizer, f" {question.perfect_output}"), end]
        names = [encode(tokenizer, f" {name}")[0] for name in question.bridges]
        compressed, decoded = split_question(template, task, question, mode)
        tokens = [*encode(tokenizer, compressed), *encode(tokenizer, decoded + template.tail), *answer]
        questions.append(PackedQuestion(tokens, len(answer), by_depth(names)))
    context = tokenizer(template.head + example.context, add_special_tokens=False, return_offsets_mapping=True)
    meant = referents(tokenizer, example, context["offset_mapping"], len(template.head))
    return PackedSequence(example, list(context["input_ids"]), meant, questions)


def by_depth(names: Sequence[int]) -> list[int]:
    """Lists the name to be known at each of the :data:`DEPTHS`: one after the other, and the last from then on."""
    return [names[min(depth, len(names) - 1)] for depth in range(DEPTHS)] if names else []


def row_starts(lengths: Sequence[int], row_length: int) -> list[int]:
    """Finds where each question starts behind the context: in the first row that has room for it (first fit)."""
    filled: list[int] = []
    starts = []
    for length in lengths:
        row = next((row for row, size in enumerate(filled) if size + length <= row_length), len(filled))
        if row == len(filled):
            filled.append(0)
        starts.append(row * row_length + filled[row])
        filled[row] += length
    return starts


def collate(sequences: Sequence[PackedSequence], padding: int, most_rows: int | None = None) -> Batch:
    """Pads sequences into a batch. Every question continues the positions of its own context, as the engine decodes it.

    With a number of rows, questions from the first on that does not fit are left out, so that little is padding.
    """
    width = _whole_lanes(max(len(s.context) for s in sequences))
    lengths = [_lengths(sequence) for sequence in sequences]
    row_length = _whole_lanes(max(ROW_LENGTH, *(max(of_sequence) for of_sequence in lengths)))
    starts = [row_starts(of_sequence, row_length) for of_sequence in lengths]
    rows = max(start // row_length for of_sequence in starts for start in of_sequence) + 1
    if most_rows is not None and rows > most_rows:
        rows = most_rows
        starts = [list(takewhile(lambda start: start < rows * row_length, of_sequence)) for of_sequence in starts]
    shape = (len(sequences), width + rows * row_length)
    token_ids, positions = torch.full(shape, padding), torch.zeros(shape, dtype=torch.long)
    labels = torch.full(shape, -100)
    segments = torch.full(shape, -1)
    bridges = torch.full((DEPTHS, *shape), -100)
    meant = torch.full(shape, -100)
    for row, sequence in enumerate(sequences):
        size = len(sequence.context)
        token_ids[row, :size] = torch.tensor(sequence.context)
        positions[row, :size] = torch.arange(size)
        segments[row, :size] = 0
        for place, token in sequence.referents.items():
            meant[row, place] = token
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
    layout = packed_layout(segments, width, row_length)
    return Batch(examples, token_ids, positions, labels, bridges, meant, segments, layout)


def _lengths(sequence: PackedSequence) -> list[int]:
    """Returns the places that each question of a sequence takes: its last token is predicted and not read."""
    return [len(question.token_ids) - 1 for question in sequence.questions]


def _whole_lanes(size: int) -> int:
    return -(-size // LANES) * LANES


def packed_layout(segments: torch.Tensor, width: int, row_length: int) -> PackedLayout:
    """Returns the layout of a batch from its ``segments`` (:class:`Batch`)."""
    questions = segments[:, width:].unflatten(1, (-1, row_length))
    is_context = segments[:, :width] == 0
    same = questions[..., :, None] == questions[..., None, :]
    return PackedLayout(
        width,
        earlier=_triangle(width),
        of_context=is_context[:, None, None].expand(*questions.shape, -1).bfloat16(),
        of_row=same * _triangle(row_length),
        readable=torch.ones(len(segments), 1, width, dtype=torch.bfloat16),
    )


def _triangle(size: int) -> torch.Tensor:
    return torch.ones(size, size, dtype=torch.bfloat16).tril()


def evaluation_batch(tokenizer: PreTrainedTokenizerBase, task: Task, seed: int, first: int, contexts: int) -> Batch:
    """Makes a batch of examples of a task itself, as in an evaluation, with all their questions."""
    sequences = [pack(tokenizer, task, task.example(seed, index)) for index in range(first, first + contexts)]
    padding: int = tokenizer.pad_token_id
    return collate(sequences, padding)


def training_batch(
    tokenizer: PreTrainedTokenizerBase, seed: int, assigned: Assignment, confident: bool = False
) -> Batch:
    """Makes a batch of as many examples of an assignment as fit into :data:`PLACES`, one at least.

    The same arguments give the same batch.

    Without the instruction it is told who a question is about by looking a few tokens back, which is where training
    starts. ``confident``: no question that cannot be answered, so that a model never learns to say so.
    """
    task = TASKS[assigned.task]
    if assigned.words:
        task = in_words_of_prose(task, (assigned.words, assigned.words))
    mode: Mode = assigned.mode or "agnostic"
    task = task if assigned.mode else replace(task, instruction="")
    sequences: list[PackedSequence] = []
    width = rows = 0
    for index in count(assigned.first):
        example = task.example(seed, index, "train", assigned.level, QUESTIONS, taught=True)
        if confident:
            example = replace(example, questions=tuple(one for one in example.questions if one.answerable))
        if not example.questions:
            continue
        sequence = pack(tokenizer, task, example, mode)
        width = max(width, len(sequence.context))
        # A task of one question for each context has one row, and five times as many contexts as ROWS would allow.
        rows = min(ROWS, max(rows, *(1 + start // ROW_LENGTH for start in row_starts(_lengths(sequence), ROW_LENGTH))))
        if sequences and (len(sequences) + 1) * (width + rows * ROW_LENGTH) > PLACES:
            break
        sequences.append(sequence)
    padding: int = tokenizer.pad_token_id
    return replace(collate(sequences, padding, ROWS), running=assigned.running)
