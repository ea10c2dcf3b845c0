"""Measures the read profile of a model that is in training, by the packed attention of training.

It is what ``kvbench.checks.read_profile`` measures of any model through the engine, in a fraction of the time: it knows
the reference architectures alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from datasets_gen import Task
from kvbench.checks.read_profile import SLOT_SHARE, ReadProfile, counts, part_name
from kvbench.reference.training.attention import PackedLayout
from kvbench.reference.training.batches import Batch, evaluation_batch
from kvbench.reference.training.losses import answer_logits

SEED = 1000  # that of the watched contexts
CONTEXTS = 24


@dataclass(frozen=True)
class Destroyed:
    """Puts noise in the place of keys and values. ``rows``: bool (batch, key heads, width), which of them."""

    rows: torch.Tensor
    seed: int

    def __call__(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.seed)

        def noise(tensor: torch.Tensor) -> torch.Tensor:
            drawn = torch.randn(tensor.shape, generator=generator).to(tensor)
            return torch.where(self.rows[..., None], drawn * tensor.std() + tensor.mean(), tensor)

        return noise(keys), noise(values)


def destroyed_slots(shares: Sequence[float], key_heads: int, batch: Batch, seed: int) -> list[PackedLayout]:
    """Makes a layout for each layer, in which a share of its (head, token) slots is destroyed at random."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(batch.segments), key_heads, batch.layout.context_width)
    drawn = [torch.rand(shape, generator=generator) < share for share in shares]
    layouts = [replace(batch.layout, disturb=Destroyed(rows, seed + n)) for n, rows in enumerate(drawn)]
    return [layout if share else batch.layout for layout, share in zip(layouts, shares, strict=True)]


@torch.no_grad()
def right_answers(
    model: PreTrainedModel, batch: Batch, layouts: Sequence[PackedLayout] | None = None, hops: int | None = None
) -> list[bool]:
    """Tells whether greedy decoding writes each answer exactly, of questions of so many facts.

    All tokens of an answer are the argmax given the ones before: just then greedy decoding writes that answer.
    """
    chosen = batch.labels >= 0
    right = torch.ones(batch.labels.shape, dtype=torch.bool)
    right[chosen] = answer_logits(model, batch, chosen, layouts).argmax(-1) == batch.labels[chosen]
    return [
        bool(right[row][batch.segments[row] == number].all())
        for row, example in enumerate(batch.examples)
        for number, question in enumerate(example.questions, 1)
        if counts(question, hops)
    ]


def read_profile(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    hops: int | None = None,
    contexts: int = CONTEXTS,
    seed: int = SEED,
) -> ReadProfile:
    """Measures a model on contexts of a task's test split, of which one is read at a time: noise has the spread of
    that context's rows."""
    layers, heads = model.config.num_hidden_layers, model.config.num_key_value_heads
    every = range(layers)
    cases = [[0.0] * layers]
    cases += [[float(layer == one) for layer in every] for one in every]
    cases.append([float(layer >= layers // 2) for layer in every])
    cases.append([SLOT_SHARE] * layers)
    right: list[list[bool]] = [[] for _ in cases]
    for index in range(contexts):
        batch = evaluation_batch(tokenizer, task, seed, index, 1)
        for outcomes, shares in zip(right, cases, strict=True):
            outcomes += right_answers(model, batch, destroyed_slots(shares, heads, batch, index), hops)
    percent = [100 * sum(outcomes) / max(1, len(outcomes)) for outcomes in right]
    return ReadProfile(part_name(task.name, hops), percent[0], tuple(percent[1:-2]), percent[-2], percent[-1])
