"""``python -m kvbench.reference.read_profile`` measures where a model reads its context.

After the context was read undisturbed, keys and values of some of its rows are replaced with noise of the mean and
spread that the layer's own have, and the questions are asked. What the answers lose by it in one layer, in all layers
from one on, or in a share of all (layer, head, token) slots says where they come from. A model that reads in one layer
cannot show what layer and head budgets do, nor what it means that a token is gone from all of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from transformers import (
    AttentionInterface,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from datasets_gen import TASKS, Task
from kvbench.reference.training.attention import PACKED_ATTENTION, PackedLayout, packed_attention
from kvbench.reference.training.batches import Batch, evaluation_batch
from kvbench.reference.training.losses import answer_logits
from kvbench.models.shipped import REFERENCE_MODELS, folder_of

SEED = 1000  # that of the watched contexts
CONTEXTS = 24
SLOT_SHARE = 0.3  # of all slots, destroyed at random
PARTS = (("base", None), ("hops", 2))  # a task, and of how many facts the questions are that count; None: all


@dataclass(frozen=True)
class ReadProfile:
    """Exact match in percent: undisturbed, with the context's rows destroyed in each layer alone, in all layers from
    each on, and in a share of all slots."""

    part: str
    undisturbed: float
    without_layer: tuple[float, ...]
    without_from: tuple[float, ...]
    without_slots: float

    @property
    def worst_layer(self) -> float:
        """Returns what the layer costs that the answers need most, in points."""
        return self.undisturbed - min(self.without_layer)

    @property
    def upper_half(self) -> float:
        """Returns what the upper half of the layers costs, in points."""
        return self.undisturbed - self.without_from[len(self.without_from) // 2]

    @property
    def slots(self) -> float:
        """Returns what the share of all slots costs, in points."""
        return self.undisturbed - self.without_slots


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
    model: PreTrainedModel, batch: Batch, layouts: Sequence[PackedLayout], hops: int | None
) -> list[bool]:
    """Tells whether greedy decoding writes each answer exactly, of questions of so many facts."""
    chosen = batch.labels >= 0
    right = torch.ones(batch.labels.shape, dtype=torch.bool)
    right[chosen] = answer_logits(model, batch, chosen, layouts).argmax(-1) == batch.labels[chosen]
    return [
        bool(right[row][batch.segments[row] == number].all())
        for row, example in enumerate(batch.examples)
        for number, question in enumerate(example.questions, 1)
        if hops is None or question.hops == hops
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
    cases += [[float(layer >= one) for layer in every] for one in every]
    cases.append([SLOT_SHARE] * layers)
    right: list[list[bool]] = [[] for _ in cases]
    for index in range(contexts):
        batch = evaluation_batch(tokenizer, task, seed, index, 1)
        for outcomes, shares in zip(right, cases, strict=True):
            outcomes += right_answers(model, batch, destroyed_slots(shares, heads, batch, index), hops)
    percent = [100 * sum(outcomes) / max(1, len(outcomes)) for outcomes in right]
    name = task.name if hops is None else f"{task.name}, {hops} facts"
    return ReadProfile(name, percent[0], tuple(percent[1 : 1 + layers]), tuple(percent[1 + layers : -1]), percent[-1])


def lines_of(profile: ReadProfile) -> list[str]:
    """Writes a profile as lines to be printed."""

    def row(name: str, percent: Sequence[float]) -> str:
        return f"  {name:<22}" + "".join(f"{value:>5.0f}" for value in percent)

    return [
        f"{profile.part}: {profile.undisturbed:.0f}",
        row("layer", range(len(profile.without_layer))),
        row("destroyed there", profile.without_layer),
        row("destroyed from there on", profile.without_from),
        f"  {SLOT_SHARE:.0%} of all slots: {profile.without_slots:.0f}; costs: worst layer {profile.worst_layer:.0f}, "
        f"upper half {profile.upper_half:.0f}, slots {profile.slots:.0f}",
    ]


def read_profiles(model: str, contexts: int = CONTEXTS, seed: int = SEED) -> list[ReadProfile]:
    """Measures the profiles of a reference model, or of one in a folder, on base and on chains of two facts."""
    folder = folder_of(model) if model in REFERENCE_MODELS else Path(model)
    AttentionInterface.register(PACKED_ATTENTION, packed_attention)
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [read_profile(network, tokenizer, TASKS[task], hops, contexts, seed) for task, hops in PARTS]


def main(
    model: Annotated[str, typer.Option(help="A reference model, or the folder of an exported one.")] = "reference",
    contexts: Annotated[int, typer.Option(help="Contexts of each task.")] = CONTEXTS,
    seed: Annotated[int, typer.Option(help="Seed of the contexts; by default the one that is watched.")] = SEED,
) -> None:
    """Prints where a model reads, on base and on chains of two facts."""
    for profile in read_profiles(model, contexts, seed):
        print("\n".join(lines_of(profile)), flush=True)


if __name__ == "__main__":
    typer.run(main)
