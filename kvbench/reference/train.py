"""``python -m kvbench.reference.train``: makes the reference model, from nothing, on two CPU cores.

A copying warm-up forms the attention circuit that finds a token by its neighbour; then short contexts, lengthened
whenever the answer loss falls. The state is written every ``CHECKPOINT_EVERY`` steps and a run that was killed goes on
from it. The learning curve is appended to a CSV that is committed with the model.
"""

import csv
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch.nn import functional as F
from transformers import (
    AttentionInterface,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from datasets_gen import TASKS
from kvbench.reference.attention import PACKED_ATTENTION, packed_attention
from kvbench.reference.batches import Batch, make_batch
from kvbench.reference.tokenizer import END, MODEL_MAX_LENGTH, train_tokenizer

CHECKPOINT_EVERY = 100
EVALUATE_EVERY = 200
EVALUATION_CONTEXTS = 64
WATCHED_SEED = 1000
COPY_LENGTH = 48
COPY_BATCH = 16
COPY_STEPS = 1200  # at most
FIRST_WORD = 6  # token ids below are special
COPY_LOSS = 0.2  # the warm-up ends here
LEVEL_LOSS = (0.1, 0.1, 0.05, 0.1, 0.12)  # contexts get longer when the running answer loss falls below it
LEVEL_UNTIL = (0.15, 0.22, 0.5, 0.6, 0.7)  # share of all steps at which a level is left in any case
BATCH_SIZE = 24  # contexts in a step
BRIDGE_LAYERS = (5, 8)  # before which the first and the last name on the way to an answer are known
BRIDGE_WEIGHT = 0.3
WARMUP_STEPS = 50
EMBEDDING_CONSTANT = 0.06  # three times the spread of the other entries
DECAY_SHARE = 0.3  # of all steps, at the end: the learning rate falls linearly to nothing
MUON_RATE = 3e-3
ADAM_RATE = 2e-3
MUON_DECAY = 0.3


@dataclass
class Progress:
    """Where the training stands; written with the weights."""

    step: int = 0
    examples: int = 0
    tokens: int = 0
    seconds: float = 0.0
    level: int = 0
    copying: bool = True
    answer_loss: float = 10.0
    steps_at_level: int = 0


@dataclass(frozen=True)
class CurvePoint:
    """A row of the learning curve. Exact-match rates at full difficulty, in percent, on contexts of the test split of
    seed :data:`WATCHED_SEED`, which is not the seed of any score that is reported."""

    step: int
    minutes: float
    tokens: int
    level: int
    answer_loss: float
    base: float
    hops_1: float
    hops_2: float
    hops_3: float
    unanswerable: float


def new_model(tokenizer: PreTrainedTokenizerBase) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=12,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MODEL_MAX_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    initialise(model)
    AttentionInterface.register(PACKED_ATTENTION, packed_attention)
    return model


@torch.no_grad()
def initialise(model: LlamaForCausalLM) -> None:
    """Layers that add nothing at first, and four heads that look one to four tokens back.

    Random output matrices would drown the small embeddings in noise. Finding a token by the one before it takes two
    layers, and the first of the two steps brings no gain alone: in trials without it the loss of copying pieces was
    still above that of guessing among the tokens at hand after 300 steps. The first step is given here, free to be
    unlearned. All embeddings share a constant in their first entry, from which a head makes the same query and key at
    every place; rotated against each other by ``distance`` places, they agree best that far back.
    """
    model.model.embed_tokens.weight[:, 0] = EMBEDDING_CONSTANT
    size, strength = model.config.head_dim, 1.7
    frequencies = model.model.rotary_emb.inv_freq[:6]  # the fast ones: they tell neighbours apart
    pairs = torch.arange(len(frequencies))
    first = model.model.layers[0].self_attn
    for head in range(4):
        distance = head + 1
        query, key = first.q_proj.weight[head * size :, 0], first.k_proj.weight[head // 2 * size :, 0]
        query[pairs] = strength * torch.cos(frequencies * distance)
        query[pairs + size // 2] = -strength * torch.sin(frequencies * distance)
        key[pairs] = strength
        key[pairs + size // 2] = 0.0
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)


def make_optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the embeddings and norms.

    Muon's steps add up where little decay holds them: with 0.01 most heads came to look at one token only and the model
    guessed between two people for 5 million tokens. Other changes came with the 0.3; docs/performance.md lists them.
    """
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=MUON_DECAY, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def rate_factor(step: int, total: int) -> float:
    """Warm-up, constant, then linear decay over the last :data:`DECAY_SHARE` of the steps."""
    decay = int(total * DECAY_SHARE)
    return min(1.0, (step + 1) / WARMUP_STEPS, max(0.02, (total - step) / max(decay, 1)))


def copying_loss(model: LlamaForCausalLM, step: int, seed: int) -> torch.Tensor:
    """Random tokens, each once, then four pieces of them from random places: the loss of all but the first of a piece.

    The places are random because a copy at a fixed distance is learned as a distance: the attention then finds a token
    by its position and not by the token before it, and nothing of that helps with text.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    piece = COPY_LENGTH // 4
    draws = torch.rand(COPY_BATCH, model.model.embed_tokens.weight.shape[0] - FIRST_WORD, generator=generator)
    source = draws.argsort(dim=1)[:, :COPY_LENGTH] + FIRST_WORD
    starts = torch.randint(COPY_LENGTH - piece + 1, (COPY_BATCH, 4, 1), generator=generator)
    pieces = source.gather(1, (starts + torch.arange(piece)).flatten(1))
    model.set_attn_implementation("sdpa")
    logits = model(input_ids=torch.cat([source, pieces], dim=1), use_cache=False).logits[:, COPY_LENGTH:-1]
    losses = F.cross_entropy(logits.flatten(0, 1).float(), pieces[:, 1:].flatten(), reduction="none")
    inside = (torch.arange(1, COPY_LENGTH) % piece != 0).repeat(COPY_BATCH)
    return losses[inside].mean()


def states_of(model: LlamaForCausalLM, batch: Batch) -> tuple[torch.Tensor, ...]:
    """What enters each layer, and last what leaves the model: each of shape (batch, length, hidden size)."""
    model.set_attn_implementation(PACKED_ATTENTION)
    hidden = model.model.embed_tokens(batch.token_ids)
    rotations = model.model.rotary_emb(hidden, position_ids=batch.positions)
    states = [hidden]
    for layer in model.model.layers:
        hidden = layer(hidden, position_embeddings=rotations, layout=batch.layout)
        states.append(hidden)
    return (*states[:-1], model.model.norm(hidden))


def answer_logits(model: LlamaForCausalLM, batch: Batch, chosen: torch.Tensor) -> torch.Tensor:
    """Logits at the chosen places of a batch, shape (chosen places, vocabulary)."""
    logits: torch.Tensor = model.lm_head(states_of(model, batch)[-1][chosen]).float()
    return logits


def task_loss(model: LlamaForCausalLM, batch: Batch) -> tuple[torch.Tensor, float]:
    """The loss to minimise, and the plain loss of the answer tokens.

    The context is not predicted: its names and values are random and can only add noise. Chains were learned after
    that, and other changes at the same time; docs/performance.md lists them.
    """
    states = states_of(model, batch)
    chosen = batch.labels >= 0
    answers = F.cross_entropy(model.lm_head(states[-1][chosen]).float(), batch.labels[chosen])
    return answers + BRIDGE_WEIGHT * bridge_loss(model, batch, states), float(answers.detach())


def bridge_loss(model: LlamaForCausalLM, batch: Batch, states: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Of the first and the last name on the way to an answer, read between layers where the answer is asked for.

    The second fact can be looked up by no layer below the one that found the first, and the answers alone do not ask
    for the first to be found early: chains that end in an attribute were guessed after 12 million tokens without such a
    loss, and after 27 million with one at the question's own name, where it was known at 99 %. It is not enough alone:
    docs/performance.md has what else was needed.
    """
    losses = []
    for layer, labels in zip(BRIDGE_LAYERS, batch.bridges, strict=True):
        asked = labels >= 0
        logits = model.lm_head(model.model.norm(states[layer][asked])).float()
        losses.append(F.cross_entropy(logits, labels[asked], reduction="sum"))
    return torch.stack(losses).sum() / max(1, int((batch.bridges >= 0).sum()))


@torch.no_grad()
def exact_matches(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, seed: int) -> dict[str, float]:
    """Exact-match rate by kind of question, in percent, on the test split.

    All tokens of an answer are the argmax given the ones before: just then greedy decoding writes that answer.
    """
    outcomes: dict[str, list[bool]] = {}
    for first in range(0, EVALUATION_CONTEXTS, 16):
        batch = make_batch(tokenizer, seed, "test", first, 16, None)
        chosen = batch.labels >= 0
        right = torch.ones(batch.labels.shape, dtype=torch.bool)
        right[chosen] = answer_logits(model, batch, chosen).argmax(-1) == batch.labels[chosen]
        for row, example in enumerate(batch.examples):
            for number, question in enumerate(example.questions, 1):
                kind = example.task if example.task == "base" else f"hops_{question.hops}"
                kind = kind if question.answerable else "unanswerable"
                outcomes.setdefault(kind, []).append(bool(right[row][batch.segments[row] == number].all()))
    return {kind: 100 * sum(all_right) / len(all_right) for kind, all_right in outcomes.items()}


class Trainer:
    """Model, optimizers and progress, written together and restored together."""

    def __init__(self, folder: Path, seed: int, total_steps: int) -> None:
        self.folder, self.seed, self.total_steps = folder, seed, total_steps
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(seed)
        self.tokenizer = self._tokenizer()
        self.model = new_model(self.tokenizer)
        self.optimizers = make_optimizers(self.model)
        self.progress = Progress()
        self.checkpoint = folder / "checkpoint.pt"
        self.curve = folder / "learning_curve.csv"
        if self.checkpoint.exists():
            self._restore()

    def _tokenizer(self) -> PreTrainedTokenizerFast:
        """Learned once and kept: weights mean nothing under another numbering of the tokens."""
        folder = self.folder / "tokenizer"
        if not folder.exists():
            partial = self.folder / "tokenizer.partial"
            train_tokenizer(self.seed).save_pretrained(partial)
            partial.rename(folder)
        tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
        return tokenizer

    def _restore(self) -> None:
        state: dict[str, Any] = torch.load(self.checkpoint, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.progress = Progress(**state["progress"])
        # Rows written after the checkpoint belong to steps that will be taken again.
        rows = self.curve.read_text().splitlines() if self.curve.exists() else []
        kept = [row for row in rows if not row[0].isdigit() or int(row.split(",")[0]) <= self.progress.step]
        self.curve.write_text("".join(f"{row}\n" for row in kept))

    def save(self) -> None:
        """Atomic: a kill leaves the checkpoint before or the one after."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": asdict(self.progress),
        }
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.checkpoint)

    def evaluate(self) -> CurvePoint:
        self.model.eval()
        with torch.compiler.set_stance("force_eager"):
            rates = exact_matches(self.model, self.tokenizer, WATCHED_SEED)
        self.model.train()
        p = self.progress
        kinds = [f.name for f in fields(CurvePoint)][5:]
        measured = {kind: round(rates[kind], 1) for kind in kinds}
        minutes, loss = round(p.seconds / 60, 1), round(p.answer_loss, 4)
        point = CurvePoint(p.step, minutes, p.tokens, p.level, loss, **measured)
        new = not self.curve.exists() or not self.curve.read_text()
        with self.curve.open("a", newline="") as handle:
            writer = csv.DictWriter(handle, [f.name for f in fields(CurvePoint)])
            if new:
                writer.writeheader()
            writer.writerow(asdict(point))
        return point

    def step(self) -> None:
        started = time.perf_counter()
        p = self.progress
        factor = rate_factor(p.step, self.total_steps)
        for optimizer, rate in zip(self.optimizers, (MUON_RATE, ADAM_RATE), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            if p.copying:
                loss = copying_loss(self.model, p.step, self.seed)
                measured = float(loss.detach())
                p.tokens += COPY_BATCH * COPY_LENGTH * 2
            else:
                batch = make_batch(self.tokenizer, self.seed, "train", p.examples, BATCH_SIZE, p.level)
                p.examples += BATCH_SIZE
                loss, measured = task_loss(self.model, batch)
                p.tokens += int((batch.segments >= 0).sum())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        p.answer_loss = 0.95 * p.answer_loss + 0.05 * measured
        self._advance(measured)
        p.step += 1
        p.seconds += time.perf_counter() - started

    def _advance(self, measured: float) -> None:
        p = self.progress
        p.steps_at_level += 1
        top = max(task.top_level for task in TASKS.values())
        if p.copying:
            if p.answer_loss < COPY_LOSS or p.steps_at_level >= COPY_STEPS:
                p.copying, p.steps_at_level, p.answer_loss = False, 0, 10.0
        elif p.level < top:
            mastered = p.steps_at_level > 50 and p.answer_loss < LEVEL_LOSS[p.level]
            if mastered or p.step >= LEVEL_UNTIL[p.level] * self.total_steps:
                p.level, p.steps_at_level = p.level + 1, 0

    def export(self, folder: Path) -> None:
        """An ordinary checkpoint. float16 halves the size and rounds ten times finer than bfloat16."""
        self.model.generation_config.eos_token_id = self.tokenizer.convert_tokens_to_ids(END)
        self.model.generation_config.pad_token_id = self.tokenizer.pad_token_id
        self.model.set_attn_implementation("sdpa")
        self.model.half().save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self.model.float()


def main(
    work: Annotated[Path, typer.Option(help="Folder of the checkpoint and the learning curve.")] = Path("training"),
    out: Annotated[Path, typer.Option(help="Where the finished checkpoint goes.")] = Path("training/model"),
    steps: Annotated[int, typer.Option(help="Steps in all; a resumed run counts those taken.")] = 7700,
    seed: Annotated[int, typer.Option(help="Seed of weights, tokenizer and data.")] = 0,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Needs a C++ compiler.")] = True,
) -> None:
    """Trains the reference model, resuming from WORK if it was interrupted."""
    trainer = Trainer(work, seed, steps)
    if compiled:
        for layer in trainer.model.model.layers:
            layer.compile(dynamic=True)
    print(f"{trainer.model.num_parameters():,} parameters, step {trainer.progress.step} of {steps}", flush=True)
    while trainer.progress.step < steps:
        trainer.step()
        p = trainer.progress
        if p.step % 20 == 0:
            rate = p.tokens / p.seconds
            left = p.seconds / p.step * (steps - p.step) / 60
            phase = "copying" if p.copying else f"level {p.level}"
            print(
                f"step {p.step} {phase} loss {p.answer_loss:.3f} {rate:,.0f} tokens/s {left:.0f} min left", flush=True
            )
        if p.step % EVALUATE_EVERY == 0 and not p.copying:
            print(trainer.evaluate(), flush=True)
        if p.step % CHECKPOINT_EVERY == 0:
            trainer.save()
    trainer.export(out)


if __name__ == "__main__":
    typer.run(main)
