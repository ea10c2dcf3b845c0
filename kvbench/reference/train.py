"""Makes a reference model from nothing: ``python -m kvbench.reference.train``. ``torchrun --nproc-per-node 2 -m
kvbench.reference.train`` does it with two processes, each on a core.

A copying warm-up forms the attention circuit that finds a token by its neighbour; then the tasks, each from its own
lowest level up. The state is written every ``CHECKPOINT_EVERY`` seconds and a run that was killed goes on from it. The
learning curve is appended to a CSV that is committed with the model.
"""

import csv
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from datasets_gen import TASKS
from kvbench.checks.read_profile import PARTS
from kvbench.models.shipped import REFERENCE_MODELS, folder_of
from kvbench.reference.training.architecture import ARCHITECTURES, SHAPES, new_model
from kvbench.reference.training.batches import Batch, evaluation_batch, training_batch
from kvbench.reference.training.conversion import (
    is_faded,
    is_normed,
    learn_usual_lengths,
    make_fading,
    set_faded,
    under_tokens,
    without_norms,
)
from kvbench.reference.training.crew import Crew
from kvbench.reference.training.drills import DRILL_WEIGHT, drill_loss, drills
from kvbench.reference.training.lessons import Assignment, Curriculum
from kvbench.reference.training.losses import COPY_BATCH, COPY_LENGTH, copying_loss, task_loss
from kvbench.reference.training.read_profile import read_profile, right_answers
from kvbench.reference.training.reads import HiddenShares, Readable, draw_readable
from kvbench.reference.training.state import Progress, begin_with_state, read_state, write_state
from kvbench.reference.training.tokenizer import END, train_tokenizer
from kvbench.reference.training.widening import narrow_model, spread_reader, widen
from kvbench.system.errors import KVBenchError
from kvbench.system.module_command import run_module

CHECKPOINT_EVERY = 180.0  # seconds
EVALUATE_EVERY = 1000
PROFILE_CONTEXTS = 8
EVALUATION_CONTEXTS = 16  # of each task
WATCHED_SEED = 1000
TOKENIZER_SEED = 0  # all models have the same
COPY_STEPS = 1200  # at most
COPY_LOSS = 0.2  # the warm-up ends here
BATCHES = 2  # whose gradients make a step: each is of one task
WARMUP_STEPS = 50
FALL_TO = 0.02  # of the learning rate, at the end of its fall
HIDDEN = HiddenShares(layers=0.6, heads=0.3, tokens=0.6, lower_half=0.9)
CHAIN_PART = 0.2  # of that share of lower halves, for hops: the first names of a chain are read there
HIDDEN_OVER = 150  # steps over which the hidden shares rise to the whole
MUON_RATE = 1.5e-3
ADAM_RATE = 1e-3
MUON_DECAY = 0.3


def make_optimizers(model: PreTrainedModel) -> list[torch.optim.Optimizer]:
    """Makes Muon for the matrices of the layers, and AdamW for the embeddings and norms.

    Muon's steps add up where little decay holds them: with 0.01 most heads came to look at one token only and the model
    guessed between two people for 5 million tokens. Other changes came with the 0.3.
    """
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [
        torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=MUON_DECAY, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def rate_factor(step: int, fall_from: int | None = None, end: int = 0) -> float:
    """Warms up, then stays constant until the step from which the rate falls linearly, to :data:`FALL_TO` at the end.

    Nothing before the fall depends on the end: a training goes on for as long as there is time, and its fall begins
    from a checkpoint when that is decided.
    """
    fallen = 1.0 if fall_from is None else max(FALL_TO, (end - step) / max(1, end - fall_from))
    return min(1.0, (step + 1) / WARMUP_STEPS, fallen)


@torch.no_grad()
def exact_matches(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, seed: int) -> dict[str, float]:
    """Measures the exact-match rate of each task on the test split, in percent."""
    rates = {}
    for name, task in TASKS.items():
        batches = (evaluation_batch(tokenizer, task, seed, first, 4) for first in range(0, EVALUATION_CONTEXTS, 4))
        outcomes = [is_right for batch in batches for is_right in right_answers(model, batch)]
        rates[name] = 100 * sum(outcomes) / len(outcomes)
    return rates


@dataclass(frozen=True)
class TrainingPlan:
    """Says how a training goes on. ``fall_from`` is the step from which the learning rate falls, until the last of
    ``steps``; None while that is not decided. ``confident`` trains without questions that cannot be answered.
    ``fade``: steps over which the norms of queries and keys fade; None where they stay."""

    steps: int = 1_000_000
    fall_from: int | None = None
    shape: str = "narrow"
    hidden: HiddenShares = HIDDEN
    confident: bool = False
    fade: int | None = None


class Trainer:
    """Holds the model, the optimizers and the progress, which are written together and restored together."""

    def __init__(
        self,
        folder: Path,
        seed: int,
        plan: TrainingPlan = TrainingPlan(),
        name: str = "reference",
        crew: Crew | None = None,
        earlier: Path | None = None,
        state: Path | None = None,
        narrow: Path | None = None,
    ) -> None:
        """Starts or resumes a training. ``earlier`` is the folder of a training whose weights and lessons it begins
        with; a Llama model begins with another, or with a ``reference-qwen`` whose norms have faded.
        ``state``: one that :meth:`keep` wrote, from which a training goes on where there is no checkpoint.
        ``narrow``: the folder of a model of the narrow shape that is widened and begun with."""
        self.folder, self.seed, self.plan = folder, seed, plan
        if state and not folder.exists():
            begin_with_state(state, folder)
        self.crew = crew or Crew()
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(seed)
        self.tokenizer = self._tokenizer()
        self.model = new_model(self.tokenizer, name, SHAPES[plan.shape])
        if plan.fade is not None:
            make_fading(self.model)
        self.optimizers = make_optimizers(self.model)
        self.progress = Progress()
        self.checkpoint = folder / "checkpoint.pt"
        self.curve = folder / "learning_curve.csv"
        if self.checkpoint.exists():
            self._restore()
        elif state:
            self.progress = Progress.of(read_state(state, self.model))
        elif earlier:
            self._inherit(earlier)
        elif narrow:
            widen(self.model, narrow_model(narrow, self.tokenizer))
            spread_reader(self.model)
            self.progress = Progress(copying=False, curriculum=Curriculum.at_the_top())

    def _tokenizer(self) -> PreTrainedTokenizerFast:
        """Learns the tokenizer once and keeps it: weights mean nothing under another numbering of the tokens."""
        folder = self.folder / "tokenizer"
        if not folder.exists():
            partial = self.folder / "tokenizer.partial"
            train_tokenizer(TOKENIZER_SEED).save_pretrained(partial)
            partial.rename(folder)
        tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder)
        return tokenizer

    def _restore(self) -> None:
        state: dict[str, Any] = torch.load(self.checkpoint, weights_only=True)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.progress = Progress.of(state["progress"])
        # Rows written after the checkpoint belong to steps that will be taken again.
        rows = self.curve.read_text().splitlines() if self.curve.exists() else []
        kept = [row for row in rows if not row[0].isdigit() or int(row.split(",")[0]) <= self.progress.step]
        self.curve.write_text("".join(f"{row}\n" for row in kept))

    def _inherit(self, earlier: Path) -> None:
        checkpoint = earlier / self.checkpoint.name
        if not checkpoint.is_file():
            raise KVBenchError(f"--from {earlier}: there is no {checkpoint.name} of a training in it")
        state: dict[str, Any] = torch.load(checkpoint, weights_only=True)
        known = PreTrainedTokenizerFast.from_pretrained(earlier / "tokenizer").get_vocab()
        weights = under_tokens(state["model"], known, self.tokenizer.get_vocab())
        curriculum = Progress.of(state["progress"]).curriculum
        if is_normed(weights) and not is_normed(self.model.state_dict()):
            if not is_faded(weights):
                raise KVBenchError(f"--from {earlier}: its norms, which Llama has not, have not faded: --fade it first")
            weights = without_norms(weights)
        self.model.load_state_dict(weights, strict=self.plan.fade is None)
        if self.plan.fade is not None:
            learn_usual_lengths(self.model, training_batch(self.tokenizer, self.seed, curriculum.assign(self.seed, 0)))
        self.progress = Progress(copying=False, curriculum=curriculum)

    def save(self) -> None:
        """Writes the checkpoint atomically: a kill leaves the one before or the one after."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": asdict(self.progress),
        }
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(self.checkpoint)

    def evaluate(self) -> dict[str, float]:
        """Appends a row to the learning curve: exact-match rates at full difficulty, in percent, on contexts of the
        test split of seed :data:`WATCHED_SEED`, which is not the seed of any score that is reported."""
        self.model.eval()
        with torch.compiler.set_stance("force_eager"):
            rates = exact_matches(self.model, self.tokenizer, WATCHED_SEED)
        self.model.train()
        p = self.progress
        row = {"step": p.step, "minutes": round(p.seconds / 60, 1), "tokens": p.tokens}
        row |= {name: round(rate, 1) for name, rate in rates.items()}
        row |= self._profile()
        new = not self.curve.exists() or not self.curve.read_text()
        with self.curve.open("a", newline="") as handle:
            writer = csv.DictWriter(handle, list(row))
            if new:
                writer.writeheader()
            writer.writerow(row)
        return row

    def _profile(self) -> dict[str, float]:
        """Measures what the answers lose where the context cannot be read, in points."""
        costs: dict[str, float] = {}
        with torch.compiler.set_stance("force_eager"):
            for task, hops in PARTS:
                profile = read_profile(self.model, self.tokenizer, TASKS[task], hops, PROFILE_CONTEXTS, WATCHED_SEED)
                costs[f"{task}_worst_layer"] = round(profile.worst_layer, 1)
                costs[f"{task}_upper_half"] = round(profile.upper_half, 1)
                costs[f"{task}_slots"] = round(profile.slots, 1)
        return costs

    def step(self) -> None:
        started = time.perf_counter()
        p = self.progress
        factor = rate_factor(p.step, self.plan.fall_from, self.plan.steps)
        if self.plan.fade is not None:
            set_faded(self.model, min(1.0, (p.step + 1) / self.plan.fade))
        for optimizer, rate in zip(self.optimizers, (MUON_RATE, ADAM_RATE), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            optimizer.zero_grad()
        if p.copying:
            self._copy()
        else:
            self._learn()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        p.step += 1
        p.seconds += time.perf_counter() - started

    def _copy(self) -> None:
        p = self.progress
        with torch.autocast("cpu", torch.bfloat16):
            loss = copying_loss(self.model, p.step, self.seed)
        (loss / self.crew.size).backward()
        self._add_up_gradients()
        p.tokens += COPY_BATCH * COPY_LENGTH * 2
        p.copying_loss = 0.95 * p.copying_loss + 0.05 * float(loss.detach())
        p.copying = p.copying_loss >= COPY_LOSS and p.step + 1 < COPY_STEPS

    def _learn(self) -> None:
        """Computes the gradient of the next batches, each made by one of the processes."""
        p = self.progress
        assigned = [p.curriculum.assign(self.seed, p.batches + number) for number in range(BATCHES)]
        learned = torch.zeros(BATCHES, 2, dtype=torch.float64)  # answer loss and tokens
        for number in range(self.crew.rank, BATCHES, self.crew.size):
            batch = training_batch(self.tokenizer, self.seed, assigned[number], self.plan.confident)
            readable = self._readable(batch, p.batches + number, assigned[number])
            with torch.autocast("cpu", torch.bfloat16):
                loss, answer_loss = task_loss(self.model, batch, readable)
                drilled = drill_loss(self.model, *drills(self.tokenizer, self.seed, p.batches + number))
            ((loss + DRILL_WEIGHT * drilled) / BATCHES).backward()
            learned[number] = torch.tensor([answer_loss, int((batch.segments >= 0).sum())])
        self.crew.add_up([learned])
        self._add_up_gradients()
        p.batches += BATCHES
        p.tokens += int(learned[:, 1].sum())
        for one, answer_loss in zip(assigned, learned[:, 0].tolist(), strict=True):
            p.curriculum.note(one, answer_loss)

    def _readable(self, batch: Batch, number: int, assignment: Assignment) -> Readable:
        """Draws what questions of a batch can read in each layer: the same for the same numbers of batch and step."""
        risen = min(1.0, self.progress.step / HIDDEN_OVER)
        lower_half = self.plan.hidden.lower_half * (CHAIN_PART if assignment.task == "hops" else 1.0)
        shares = replace(self.plan.hidden.scaled(risen * assignment.hidden), lower_half=risen * lower_half)
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        config = self.model.config
        size = (config.num_hidden_layers, config.num_key_value_heads, len(batch.segments), batch.layout.context_width)
        return draw_readable(generator, shares, *size)

    def _add_up_gradients(self) -> None:
        self.crew.add_up([weight.grad for weight in self.model.parameters() if weight.grad is not None])

    def keep(self, folder: Path) -> None:
        """Writes what the training needs to go on elsewhere."""
        write_state(folder, self.model, self.tokenizer, asdict(self.progress), self.curve)

    def export(self, folder: Path) -> None:
        """Writes an ordinary checkpoint. float16 halves the size and rounds ten times finer than bfloat16."""
        self.model.generation_config.eos_token_id = self.tokenizer.convert_tokens_to_ids(END)
        self.model.generation_config.pad_token_id = self.tokenizer.pad_token_id
        self.model.set_attn_implementation("sdpa")
        self.model.half().save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self.model.float()

    def progress_line(self) -> str:
        """Says in one line how far the training is."""
        p = self.progress
        if p.copying:
            where = f"copying loss {p.copying_loss:.3f}"
        else:
            where = " ".join(f"{name[:6]}:{at.level}/{at.answer_loss:.2f}" for name, at in p.curriculum.lessons.items())
        return f"step {p.step} {where} {p.tokens:,} tokens, {p.tokens / p.seconds:,.0f} a second"


def prepare_trainer(crew: Crew, make: Callable[[], Trainer]) -> Trainer:
    """Makes a trainer in every process; the first writes the tokenizer that the others read."""
    if not crew.is_first:
        crew.wait()
    trainer = make()
    if crew.is_first:
        crew.wait()
    return trainer


def train_to_the_end(trainer: Trainer, steps: int) -> None:
    saved = time.monotonic()
    while trainer.progress.step < steps:
        trainer.step()
        step, copying = trainer.progress.step, trainer.progress.copying
        if not trainer.crew.is_first:
            continue
        if step % 20 == 0:
            print(trainer.progress_line(), flush=True)
        if not copying and (step % EVALUATE_EVERY == 0 or step == steps):
            print(trainer.evaluate(), flush=True)
        if time.monotonic() - saved >= CHECKPOINT_EVERY or step == steps:
            trainer.save()
            saved = time.monotonic()


def main(
    work: Annotated[Path, typer.Option(help="Folder of the checkpoint and the learning curve.")] = Path("training"),
    out: Annotated[Path, typer.Option(help="Where the finished checkpoint goes.")] = Path("training/model"),
    steps: Annotated[int, typer.Option(help="Steps in all; a resumed run counts those taken.")] = 1_000_000,
    fall: Annotated[int, typer.Option(help="Of the steps, the last ones, in which the learning rate falls.")] = 0,
    shape: Annotated[str, typer.Option(help="full, small, or narrow as the models of before.")] = "full",
    hidden: Annotated[bool, typer.Option("--hidden/--all-readable", help="Whether reads are hidden.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of weights, tokenizer and data.")] = 0,
    name: Annotated[str, typer.Option("--model", help="reference or reference-qwen.")] = "reference",
    earlier: Annotated[Path | None, typer.Option("--from", help="WORK of a training to begin with.")] = None,
    fade: Annotated[int | None, typer.Option(help="Steps over which a reference-qwen loses its norms.")] = None,
    confident: Annotated[bool, typer.Option("--confident", help="Only questions that can be answered.")] = False,
    state: Annotated[Path | None, typer.Option(help="Folder to go on from where WORK has no checkpoint.")] = None,
    widened: Annotated[str | None, typer.Option(help="A model of the narrow shape to begin with, widened.")] = None,
    keep: Annotated[Path | None, typer.Option(help="Write such a folder from WORK, and train no further.")] = None,
    again: Annotated[str | None, typer.Option(help="TASK:LEVEL to practise again from; trains no further.")] = None,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Needs a C++ compiler.")] = True,
) -> None:
    """Trains a reference model, resuming from WORK if it was interrupted."""
    if name not in ARCHITECTURES:
        raise KVBenchError(f"--model {name}: choose one of {', '.join(ARCHITECTURES)}")
    if shape not in SHAPES:
        raise KVBenchError(f"--shape {shape}: choose one of {', '.join(SHAPES)}")
    if not 0 <= fall <= steps:
        raise KVBenchError(f"--fall {fall}: it is a number of the --steps, which are {steps}")
    plan = TrainingPlan(
        steps, steps - fall if fall else None, shape, HIDDEN if hidden else HiddenShares(), confident, fade
    )
    narrow = Path(folder_of(widened) if widened in REFERENCE_MODELS else widened) if widened else None
    crew = Crew.join()
    trainer = prepare_trainer(crew, lambda: Trainer(work, seed, plan, name, crew, earlier, state, narrow))
    if keep:
        trainer.keep(keep)
        return
    if again:
        task, level = again.split(":")
        trainer.progress.curriculum.go_back(task, int(level))
        trainer.save()
        return
    if compiled:
        for layer in trainer.model.model.layers:
            layer.compile(dynamic=True)
    if crew.is_first:
        print(f"{trainer.model.num_parameters():,} parameters, step {trainer.progress.step} of {steps}", flush=True)
    train_to_the_end(trainer, steps)
    if crew.is_first and fade is None:  # no checkpoint of transformers holds norms that fade
        trainer.export(out)
    crew.leave()


if __name__ == "__main__":
    run_module(main)
