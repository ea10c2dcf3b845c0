"""``python -m kvbench.reference.train``: makes the reference model, from nothing, on two CPU cores.

A copying warm-up forms the attention circuit that finds a token by its neighbour; then short contexts, lengthened
whenever the answer loss falls. The state is written every ``CHECKPOINT_EVERY`` steps and a run that was killed goes on
from it. The learning curve is appended to a CSV that is committed with the model.
"""

import csv
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

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
from kvbench.reference.tokenizer import ASSISTANT, END, MODEL_MAX_LENGTH, train_tokenizer

CHECKPOINT_EVERY = 100
EVALUATE_EVERY = 200
EVALUATION_CONTEXTS = 64
COPY_LENGTH = 48
COPY_BATCH = 16
COPY_STEPS = 800  # at most, in each phase
FIRST_WORD = 6  # token ids below are special
COPY_LOSS = 0.2  # a phase of copying ends here
LEVEL_LOSS = 0.3  # contexts get longer when the running answer loss falls below this
WARMUP_STEPS = 50
DECAY_SHARE = 0.3  # of all steps, at the end: the learning rate falls linearly to nothing
MUON_RATE = 3e-3
ADAM_RATE = 2e-3


Phase = Literal["repeat", "pieces", "tasks"]
NEXT_PHASE: dict[Phase, Phase] = {"repeat": "pieces", "pieces": "tasks"}


@dataclass
class Progress:
    """Where the training stands; written with the weights."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    level: int = 0
    phase: Phase = "repeat"
    answer_loss: float = 10.0
    steps_at_level: int = 0


@dataclass(frozen=True)
class CurvePoint:
    """A row of the learning curve. Exact-match rates are on the test split at full difficulty, in percent."""

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
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=5,
        num_attention_heads=6,
        num_key_value_heads=3,
        head_dim=32,
        max_position_embeddings=MODEL_MAX_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    for layer in model.model.layers:
        # At first a layer adds nothing: random output matrices would drown the small embeddings in noise, and it took
        # over 400 steps until the first trace of copying.
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight)
        torch.nn.init.zeros_(layer.mlp.down_proj.weight)
    AttentionInterface.register(PACKED_ATTENTION, packed_attention)
    return model


def make_optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for the embeddings and norms."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def rate_factor(step: int, total: int) -> float:
    """Warm-up, constant, then linear decay over the last :data:`DECAY_SHARE` of the steps."""
    decay = int(total * DECAY_SHARE)
    return min(1.0, (step + 1) / WARMUP_STEPS, max(0.02, (total - step) / max(decay, 1)))


def copying_loss(model: LlamaForCausalLM, phase: Phase, step: int, seed: int) -> torch.Tensor:
    """The loss of copying random tokens, each of which occurs once.

    ``repeat``: the second half repeats the first. It is learned in some hundred steps, but as a distance: the attention
    finds a token by its position. ``pieces``: four pieces from random places; that takes finding a token by the one
    before it, which is what text needs. The first token of a piece cannot be known and does not count.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    draws = torch.rand(COPY_BATCH, model.config.vocab_size - FIRST_WORD, generator=generator)
    source = draws.argsort(dim=1)[:, :COPY_LENGTH] + FIRST_WORD
    if phase == "repeat":
        copied, piece = source, COPY_LENGTH
    else:
        piece = COPY_LENGTH // 4
        starts = torch.randint(COPY_LENGTH - piece + 1, (COPY_BATCH, 4, 1), generator=generator)
        copied = source.gather(1, (starts + torch.arange(piece)).flatten(1))
    model.set_attn_implementation("sdpa")
    logits = model(input_ids=torch.cat([source, copied], dim=1)).logits[:, COPY_LENGTH:-1]
    losses = F.cross_entropy(logits.flatten(0, 1).float(), copied[:, 1:].flatten(), reduction="none")
    inside = (torch.arange(1, COPY_LENGTH) % piece != 0).repeat(COPY_BATCH)
    return losses[inside].mean()


def answer_logits(model: LlamaForCausalLM, batch: Batch, chosen: torch.Tensor) -> torch.Tensor:
    """Logits at the chosen places of a batch, shape (chosen places, vocabulary)."""
    model.set_attn_implementation(PACKED_ATTENTION)
    hidden = model.model(
        input_ids=batch.token_ids, position_ids=batch.positions, use_cache=False, layout=batch.layout
    ).last_hidden_state
    return model.lm_head(hidden[chosen]).float()


def task_loss(model: LlamaForCausalLM, batch: Batch) -> tuple[torch.Tensor, float]:
    """The weighted loss to minimise, and the plain loss of the answer tokens."""
    chosen = batch.weights > 0
    labels, weights = batch.labels[chosen], batch.weights[chosen]
    losses = F.cross_entropy(answer_logits(model, batch, chosen), labels, reduction="none")
    answers = weights == 1
    return (losses * weights).sum() / weights.sum(), float(losses[answers].mean().detach())


@torch.no_grad()
def exact_matches(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, seed: int) -> dict[str, float]:
    """Exact-match rate by kind of question, in percent, on the test split.

    All tokens of an answer are the argmax given the ones before: just then greedy decoding writes that answer.
    """
    outcomes: dict[str, list[bool]] = {}
    for first in range(0, EVALUATION_CONTEXTS, 16):
        batch = make_batch(tokenizer, seed, "test", first, 16, None)
        chosen = batch.weights == 1
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

    def __init__(self, folder: Path, seed: int, total_steps: int, batch_size: int) -> None:
        self.folder, self.seed, self.total_steps, self.batch_size = folder, seed, total_steps, batch_size
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
        rates = exact_matches(self.model, self.tokenizer, self.seed)
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
            if p.phase != "tasks":
                loss = copying_loss(self.model, p.phase, p.step, self.seed)
                measured = float(loss.detach())
                p.tokens += COPY_BATCH * COPY_LENGTH * 2
            else:
                batch = make_batch(
                    self.tokenizer, self.seed, "train", p.step * self.batch_size, self.batch_size, p.level
                )
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
        if p.phase != "tasks":
            if p.answer_loss < COPY_LOSS or p.steps_at_level >= COPY_STEPS:
                p.phase, p.steps_at_level, p.answer_loss = NEXT_PHASE[p.phase], 0, 10.0
        elif p.level < top and p.steps_at_level > 50 and p.answer_loss < LEVEL_LOSS:
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
    steps: Annotated[int, typer.Option(help="Steps in all; a resumed run counts those taken.")] = 6000,
    batch_size: Annotated[int, typer.Option(help="Contexts in a step.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of weights, tokenizer and data.")] = 0,
) -> None:
    """Trains the reference model, resuming from WORK if it was interrupted."""
    trainer = Trainer(work, seed, steps, batch_size)
    assert ASSISTANT in trainer.tokenizer.get_vocab()
    print(f"{trainer.model.num_parameters():,} parameters, step {trainer.progress.step} of {steps}", flush=True)
    while trainer.progress.step < steps:
        trainer.step()
        p = trainer.progress
        if p.step % 20 == 0:
            rate = p.tokens / p.seconds
            left = p.seconds / p.step * (steps - p.step) / 60
            phase = f"level {p.level}" if p.phase == "tasks" else f"copying {p.phase}"
            print(
                f"step {p.step} {phase} loss {p.answer_loss:.3f} {rate:,.0f} tokens/s {left:.0f} min left", flush=True
            )
        if p.step % EVALUATE_EVERY == 0 and p.phase == "tasks":
            print(trainer.evaluate(), flush=True)
        if p.step % CHECKPOINT_EVERY == 0:
            trainer.save()
    trainer.export(out)


if __name__ == "__main__":
    typer.run(main)
