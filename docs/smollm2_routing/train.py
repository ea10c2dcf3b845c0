"""Trains ``smollm2-routing``: LoRA of SmolLM2 on the train splits of the tasks, in plain torch.

    python docs/smollm2_routing/train.py FOLDER --seconds 530

The first start writes the lessons into FOLDER (half an hour of a core), each later one trains on them: on a GPU, which
needs neither kvbench nor kvpress for it, in bfloat16; on a processor in float32, for days. What is shipped took 530
seconds of an H200: 3,316 steps and 52.6 M tokens of lessons. FOLDER then holds the adapter and its curve.
"""

import argparse
import json
import math
import random
import time
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig
from safetensors.torch import save_file
from torch.nn import functional as F
from transformers import AutoModelForCausalLM

ATTENTION, MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
RANKS = {**dict.fromkeys(ATTENTION, 16), **dict.fromkeys(MLP, 10)}  # of 3.7 M parameters
SCALE, RATE, WARM_UP = 2.0, 1e-3, 100
CLIMB = 24_000  # the first lessons, over which the levels of difficulty rise; they come once
STEP_TOKENS, TEXT_TOKENS, TEXT_PLACES = 16_384, 4_096, 768  # of a step
PLACES, PAD = 1_600, 255  # of a sequence at most; the segment of what is behind its end


class Sequences:
    """The arrays of a file, in batches: token ids, segments, what is an answer, and positions, of (rows, places)."""

    def __init__(self, path: Path, device: str) -> None:
        file = np.load(path)
        self.ids, self.segments, self.answers, self.lengths, self.about = (file[name] for name in file.files)
        self.starts, self.device = np.cumsum(self.lengths) - self.lengths, device
        self.short = [int(one) for one in np.flatnonzero(self.lengths <= PLACES)]

    def batch(self, rows: list[int]) -> tuple[torch.Tensor, ...]:
        places = -(-int(self.lengths[rows].max()) // 64) * 64
        ids, segments, answers, positions = np.zeros((4, len(rows), places), np.int64)
        segments[:] = PAD
        for row, number in enumerate(rows):
            length = self.lengths[number]
            cut = slice(self.starts[number], self.starts[number] + length)
            ids[row, :length], segments[row, :length], answers[row, :length] = (
                self.ids[cut],
                self.segments[cut],
                self.answers[cut],
            )
            segment, place = segments[row, :length], np.arange(length)
            first = np.maximum.accumulate(np.where(np.r_[True, segment[1:] != segment[:-1]], place, 0))
            # Each question follows the context directly, and sees no other.
            positions[row, :length] = np.where(segment == 0, place, (segment == 0).sum() + place - first)
        return tuple(torch.from_numpy(one).to(self.device) for one in (ids, segments, answers.astype(bool), positions))

    def batches(self, order: list[int], tokens: int, rng: random.Random):
        """Yields batches of so many places, of sequences of about the same length that are near in this order."""
        for at in range(0, len(order), 1024):
            groups, group = [], []
            for row in sorted(order[at : at + 1024], key=lambda row: self.lengths[row]):
                if group and -(-int(self.lengths[row]) // 64) * 64 * (len(group) + 1) > tokens:
                    groups.append(group)
                    group = []
                group.append(row)
            groups.append(group)
            rng.shuffle(groups)
            yield from map(self.batch, groups)

    def forever(self, tokens: int, rng: random.Random, climb: int = 0):
        order = list(self.short)
        if not climb:
            rng.shuffle(order)
        while True:
            yield from self.batches(order, tokens, rng)
            order = [row for row in self.short if row >= climb]
            rng.shuffle(order)


class Network:
    """SmolLM2, the weights of its layers stacked: adapters are added to all of them once a step, and not in each
    product, which is four times as fast. Its hidden states equal those of transformers and peft."""

    def __init__(self, path: Path, device: str) -> None:
        model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        dtype, config, layers = torch.bfloat16 if device == "cuda" else torch.float32, model.config, model.model.layers
        self.heads, self.key_heads, self.eps = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.rms_norm_eps,
        )
        self.size = config.hidden_size // self.heads
        self.turns = 1 / config.rope_parameters["rope_theta"] ** (
            torch.arange(0, self.size, 2, device=device) / self.size
        )
        self.embed, self.final = (
            one.detach().to(device, dtype) for one in (model.model.embed_tokens.weight, model.model.norm.weight)
        )
        self.norms = [
            [norm.weight.detach().to(device, dtype) for norm in (one.input_layernorm, one.post_attention_layernorm)]
            for one in layers
        ]
        self.base, self.down, self.up = {}, {}, {}
        generator = torch.Generator().manual_seed(0)
        for name, rank in RANKS.items():
            parts = [one.self_attn if name in ATTENTION else one.mlp for one in layers]
            weights = torch.stack([getattr(part, name).weight.detach() for part in parts])
            count, out, inner = weights.shape
            self.base[name] = weights.to(device, dtype)
            drawn = torch.rand(count, rank, inner, generator=generator) * 2 - 1
            self.down[name] = (drawn / inner**0.5).to(device).requires_grad_()
            self.up[name] = torch.zeros(count, out, rank, device=device, requires_grad=True)
        self.parameters = [*self.down.values(), *self.up.values()]

    def weights(self, adapted: bool = True):
        whole = self.base
        if adapted:
            whole = {
                name: torch.baddbmm(base, self.up[name].to(base.dtype), self.down[name].to(base.dtype), alpha=SCALE)
                for name, base in self.base.items()
            }
        qkv, gate_up = (torch.cat([whole[name] for name in names], 1) for names in (ATTENTION[:3], MLP[:2]))
        return list(zip(qkv, whole["o_proj"], gate_up, whole["down_proj"], strict=True))

    def states(self, batch, weights) -> torch.Tensor:
        ids, segments, _, positions = batch
        seen = ((segments[:, None] == 0) | (segments[:, :, None] == segments[:, None])).tril()
        states = F.embedding(ids, self.embed)
        mask = torch.zeros_like(seen, dtype=states.dtype).masked_fill_(~seen, -math.inf)[:, None]
        angles = torch.cat([positions[..., None] * self.turns] * 2, -1)[:, :, None]
        cos, sin = angles.cos().to(states.dtype), angles.sin().to(states.dtype)
        both, group = self.heads + self.key_heads, self.heads // self.key_heads
        for (first, second), (qkv, o, gate_up, down) in zip(self.norms, weights, strict=True):
            product = F.linear(self.normed(states, first), qkv).view(*states.shape[:2], -1, self.size)
            left, right = product[:, :, :both].chunk(2, -1)
            turned = product[:, :, :both] * cos + torch.cat([-right, left], -1) * sin
            heads = (
                turned[:, :, : self.heads],
                *(one.repeat_interleave(group, 2) for one in (turned[:, :, self.heads :], product[:, :, both:])),
            )
            read = F.scaled_dot_product_attention(*(one.transpose(1, 2) for one in heads), attn_mask=mask)
            states = states + F.linear(read.transpose(1, 2).flatten(2), o)
            gate, up = F.linear(self.normed(states, second), gate_up).chunk(2, -1)
            states = states + F.linear(F.silu(gate) * up, down)
        return self.normed(states, self.final)

    def normed(self, states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(states, states.shape[-1:], weight, self.eps)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        return F.linear(states, self.embed).float()

    def save(self, folder: Path) -> None:
        tensors = {}
        for side, stacks in (("A", self.down), ("B", self.up)):
            for name, stack in stacks.items():
                part = "self_attn" if name in ATTENTION else "mlp"
                for layer, weight in enumerate(stack.detach().to("cpu", torch.bfloat16)):
                    tensors[f"base_model.model.model.layers.{layer}.{part}.{name}.lora_{side}.weight"] = weight.clone()
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        alphas = {name: int(SCALE * rank) for name, rank in RANKS.items()}
        shape = {
            "r": 16,
            "rank_pattern": RANKS,
            "lora_alpha": 32,
            "alpha_pattern": alphas,
            "target_modules": list(RANKS),
        }
        LoraConfig(task_type="CAUSAL_LM", base_model_name_or_path="smollm2", **shape).save_pretrained(folder)


def answer_loss(network: Network, batch, weights):
    """Returns the loss of the answers, in which a long one weighs less than its tokens, and of each token whose answer
    it belongs to and whether it is the likeliest."""
    ids, segments, answers, _ = batch
    asked, target = answers[:, 1:], ids[:, 1:][answers[:, 1:]]
    logits = network.logits(network.states(batch, weights)[:, :-1][asked])
    row = torch.arange(len(ids), device=ids.device)[:, None].expand_as(asked)[asked]
    answer = row * (PAD + 1) + segments[:, 1:][asked]
    weight = torch.bincount(answer)[answer].float().rsqrt()
    loss = (F.cross_entropy(logits, target, reduction="none") * weight).sum() / weight.sum()
    return loss, answer, logits.argmax(-1) == target


def text_loss(network: Network, batch, weights, base) -> torch.Tensor:
    """Measures how far the next tokens of texts are from those of the untrained model: the divergence, in nats."""
    _, segments, answers, _ = batch
    places = torch.nonzero((segments != PAD).flatten())[:, 0]
    before_answers = torch.nonzero(answers.flatten())[:, 0] - 1
    chosen = [places[torch.randint(len(places), (TEXT_PLACES,))]]
    if len(before_answers):
        chosen.append(before_answers[torch.randint(len(before_answers), (TEXT_PLACES // 4,))])
    places = torch.cat(chosen)
    with torch.no_grad():
        before = network.logits(network.states(batch, base).flatten(0, 1)[places]).log_softmax(-1)
    after = network.logits(network.states(batch, weights).flatten(0, 1)[places]).log_softmax(-1)
    return F.kl_div(after, before, log_target=True, reduction="batchmean")


@torch.no_grad()
def watch(network: Network, watched: Sequences) -> dict[str, float]:
    """Measures how many answers are exact, token for token under teacher forcing, in percent."""
    right: dict[str, list[bool]] = {}
    order = sorted(range(len(watched.lengths)), key=lambda row: watched.lengths[row])
    for at in range(0, len(order), 16):
        rows = order[at : at + 16]
        _, answer, same = answer_loss(network, watched.batch(rows), network.weights())
        for key in answer.unique().tolist():
            right.setdefault(str(watched.about[rows[key // (PAD + 1)]]), []).append(bool(same[answer == key].all()))
    return {name: round(100 * sum(hits) / len(hits), 1) for name, hits in sorted(right.items())}


def train(folder: Path, gguf: Path, seconds: float) -> None:
    torch.manual_seed(0)
    rng, device = random.Random(0), "cuda" if torch.cuda.is_available() else "cpu"
    network = Network(gguf, device)
    lessons, texts, watched = (Sequences(folder / f"{name}.npz", device) for name in ("lessons", "texts", "watched"))
    optimizer = torch.optim.AdamW(network.parameters, RATE, betas=(0.9, 0.99), weight_decay=0.0, fused=True)
    base, curve, start = network.weights(adapted=False), [], time.monotonic()
    pairs = zip(lessons.forever(STEP_TOKENS, rng, CLIMB), texts.forever(TEXT_TOKENS, rng), strict=False)
    for step, (lesson, text) in enumerate(pairs, 1):
        done = min(1.0, (time.monotonic() - start) / seconds)
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, step / WARM_UP) * (0.505 + 0.495 * math.cos(math.pi * done))
        weights = network.weights()
        (answer_loss(network, lesson, weights)[0] + text_loss(network, text, weights, base)).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if done >= (len(curve) + 1) / 12 or done == 1.0:
            curve.append({"step": step, "seconds": round(time.monotonic() - start), **watch(network, watched)})
            print(curve[-1], flush=True)
            (folder / "learning_curve.json").write_text(json.dumps(curve, indent=1) + "\n")
            network.save(folder)
        if done == 1.0:
            break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=530)
    parser.add_argument(
        "--gguf", type=Path, default=Path("~/.cache/kvbench/smollm2.gguf").expanduser(), help="of SmolLM2"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if not (given.folder / "lessons.npz").exists():
        from lessons import write_lessons  # which needs kvbench

        write_lessons(given.folder)
    train(given.folder, given.gguf, given.seconds)
