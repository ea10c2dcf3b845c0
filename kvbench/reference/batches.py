"""Training sequences: one context, then many questions that do not see one another."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedTokenizerBase

from datasets_gen import TASKS, Example, Question, Split, Task
from kvbench.prompt import build_prompts, encode, question_text
from kvbench.reference.attention import PackedLayout

CONTEXT_WEIGHT = 0.02
QUESTIONS = 12
LONGEST_CHAIN = 3  # facts
TURNS = ("base", "hops", "hops")  # chains take the longest to learn
EASIER_SHARE = 0.25  # of the examples come from a lower level than the one reached, so that nothing is forgotten


@dataclass(frozen=True)
class PackedQuestion:
    """A question's tokens with the answer, and how many of them are the answer.

    ``subject``: place of the last token of the name or value that the question starts from. ``chain``: a token of what
    each fact leads to from there, the answer being the last; empty for a question that has none.
    """

    token_ids: list[int]
    answer: int
    subject: int
    chain: list[int]


@dataclass(frozen=True)
class PackedSequence:
    """The context's tokens, and its questions."""

    example: Example
    context: list[int]
    questions: list[PackedQuestion]


@dataclass(frozen=True)
class Batch:
    """Padded sequences, all of shape (batch, length): contexts first, padded to one width, then the questions.

    ``segments``: 0 in the context, the number of the question from 1 on behind it, -1 on padding.
    ``labels``: the token to predict; ``weights``: what its loss counts, 0 where nothing is asked.
    ``chain``: (longest chain, batch, length), a token of what the first, second … fact leads to, where the question
    names what it starts from; -100 elsewhere.
    """

    examples: list[Example]
    token_ids: torch.Tensor
    positions: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor
    chain: torch.Tensor
    segments: torch.Tensor
    layout: PackedLayout


def pack(tokenizer: PreTrainedTokenizerBase, task: Task, example: Example) -> PackedSequence:
    """One example as training data; the last token of an answer ends the turn."""
    prompt = build_prompts(tokenizer, task, example, "agnostic")[0]
    end: int = tokenizer.eos_token_id
    questions = []
    for ask in prompt.asks:
        question = ask.question
        answer = [*encode(tokenizer, f" {question.golds[0]}"), end]
        chain = [encode(tokenizer, f" {name}")[-1] for name in question.bridges]
        if question.answerable:
            chain.append(answer[-2] if question.answer_type == "person" else answer[0])
        subject = _subject_place(tokenizer, example, question) if chain else 0
        questions.append(PackedQuestion([*ask.token_ids, *answer], len(answer), subject, chain))
    return PackedSequence(example, list(prompt.token_ids), questions)


def _subject_place(tokenizer: PreTrainedTokenizerBase, example: Example, question: Question) -> int:
    """Every word is a token or several of its own, so that the tokens of a part are those of the whole."""
    span = next(span for span in question.spans if span.kind == "subject")
    mention = example.context[span.start : span.end]
    text = question_text(question)
    return len(encode(tokenizer, text[: text.index(mention) + len(mention)])) - 1


def collate(sequences: Sequence[PackedSequence], padding: int) -> Batch:
    """Every question continues the positions of its own context, exactly as the engine decodes it."""
    width = max(len(s.context) for s in sequences)
    length = width + max(sum(len(q.token_ids) - 1 for q in s.questions) for s in sequences)
    shape = (len(sequences), length)
    token_ids, positions = torch.full(shape, padding), torch.zeros(shape, dtype=torch.long)
    labels, weights = torch.full(shape, -100), torch.zeros(shape)
    segments = torch.full(shape, -1)
    chain = torch.full((LONGEST_CHAIN, *shape), -100)
    for row, sequence in enumerate(sequences):
        size = len(sequence.context)
        token_ids[row, :size] = torch.tensor(sequence.context)
        positions[row, :size] = torch.arange(size)
        labels[row, : size - 1] = token_ids[row, 1:size]
        weights[row, : size - 1] = CONTEXT_WEIGHT
        segments[row, :size] = 0
        start = width
        for number, question in enumerate(sequence.questions, 1):
            tokens, answer = question.token_ids, question.answer
            end = start + len(tokens) - 1
            token_ids[row, start:end] = torch.tensor(tokens[:-1])
            positions[row, start:end] = torch.arange(size, size + len(tokens) - 1)
            labels[row, end - answer : end] = torch.tensor(tokens[-answer:])
            weights[row, end - answer : end] = 1.0
            segments[row, start:end] = number
            if question.chain:
                chain[: len(question.chain), row, start + question.subject] = torch.tensor(question.chain)
            start = end
    examples = [s.example for s in sequences]
    return Batch(examples, token_ids, positions, labels, weights, chain, segments, packed_layout(segments, width))


def packed_layout(segments: torch.Tensor, width: int) -> PackedLayout:
    """The layout that :func:`collate` wrote; ``segments`` as in :class:`Batch`."""
    behind = segments[:, width:]
    questions = int(behind.max())
    number = torch.arange(1, questions + 1)
    member = behind[:, None, :] == number[None, :, None]
    lengths = member.sum(-1)
    row_length = int(lengths.max())
    starts = member.int().argmax(-1)
    step = torch.arange(row_length)
    inside = step < lengths[..., None]
    rows = torch.where(inside, starts[..., None] + step, 0)
    offset = torch.arange(behind.shape[1]) - starts.gather(1, (behind - 1).clamp(min=0))
    places = torch.where(behind > 0, (behind - 1) * row_length + offset, 0)
    context = (segments[:, :width] == 0)[:, None, None, :].expand(-1, questions, row_length, -1)
    own = (step[:, None] >= step[None, :]).expand(*inside.shape[:2], -1, -1)
    visible = torch.cat([context, own], dim=-1).flatten(0, 1)[:, None]
    return PackedLayout(width, rows, places, visible)


def make_batch(
    tokenizer: PreTrainedTokenizerBase, seed: int, split: Split, first: int, count: int, level: int | None
) -> Batch:
    """Examples ``first .. first + count`` of all tasks in turn; the same for the same arguments.

    Without a level these are the tasks themselves, as in an evaluation. At level 0 the question stands right before the
    answer, without the instruction between them: who it is about is then found by looking a few tokens back.
    """
    sequences = []
    for index in range(first, first + count):
        task = TASKS[TURNS[index % len(TURNS)]]
        if level == 0:
            task = replace(task, instruction="")
        drawn = level
        if level is not None and random.Random(f"{seed}/{index}").random() < EASIER_SHARE:
            drawn = random.Random(f"level/{seed}/{index}").randint(0, level)
        sequences.append(pack(tokenizer, task, task.example(seed, index, split, drawn, QUESTIONS)))
    padding: int = tokenizer.pad_token_id
    return collate(sequences, padding)
