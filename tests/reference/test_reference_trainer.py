"""The trainer of the reference models: resumed after a kill, in a crew, and begun with an earlier model's weights."""

import csv
import multiprocessing
import socket
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

import kvbench.reference.train as train
import kvbench.reference.training.batches as batches
import kvbench.reference.training.losses as losses
from datasets_gen import TASKS
from kvbench.models.load import load_model
from kvbench.reference.train import WARMUP_STEPS, Trainer, TrainingPlan, prepare_trainer, rate_factor, train_to_the_end
from kvbench.reference.training.architecture import ARCHITECTURES, SHAPES, new_model
from kvbench.reference.training.batches import training_batch
from kvbench.reference.training.conversion import under_tokens
from kvbench.reference.training.crew import Crew
from kvbench.reference.training.lessons import Assignment
from kvbench.reference.training.losses import states_of
from kvbench.reference.training.tokenizer import train_tokenizer
from kvbench.reference.training.widening import COPIED_INTO, KEPT, READER, spread_reader, widen
from kvbench.system.errors import KVBenchError
from tests.support.models.toy import toy_tokenizer

QUICK = TrainingPlan(steps=10)


def curve_of(trainer: Trainer) -> list[dict[str, str]]:
    return list(csv.DictReader(trainer.curve.read_text().splitlines()))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that take a moment."""
    monkeypatch.setattr(train, "train_tokenizer", lambda seed: train_tokenizer(seed, contexts=50))
    monkeypatch.setattr(train, "TASKS", {"base": TASKS["base"], "hops": TASKS["hops"]})
    monkeypatch.setattr(train, "EVALUATION_CONTEXTS", 4)
    monkeypatch.setattr(train, "PROFILE_CONTEXTS", 1)
    monkeypatch.setattr(train, "COPY_STEPS", 1)
    monkeypatch.setattr(losses, "COPY_BATCH", 2)
    monkeypatch.setattr(batches, "PLACES", 300)


@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_training_goes_on_after_a_kill_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def steps(trainer: Trainer, count: int) -> None:
        for _ in range(count):
            trainer.step()

    undisturbed = Trainer(tmp_path / "undisturbed", 0, QUICK)
    steps(undisturbed, 5)
    first = Trainer(tmp_path / "killed", 0, QUICK)
    steps(first, 3)
    first.save()
    steps(first, 1)  # lost with the kill
    first.evaluate()
    second = Trainer(tmp_path / "killed", 0, QUICK)
    assert second.progress.step == 3
    assert curve_of(second) == []  # the row of the lost step is gone
    steps(second, 2)
    weights, expected = second.model.state_dict(), undisturbed.model.state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert second.progress.curriculum == undisturbed.progress.curriculum
    second.evaluate()
    (row,) = curve_of(second)
    assert row["step"] == "5"
    assert list(row)[:5] == ["step", "minutes", "tokens", "base", "hops"]
    assert {"base_worst_layer", "base_upper_half", "hops_slots"} <= set(row)


@pytest.mark.usefixtures("small")
def test_a_training_goes_on_elsewhere_from_what_was_kept_of_it(tmp_path: Path) -> None:
    here = Trainer(tmp_path / "here", 0, QUICK)
    for _ in range(3):
        here.step()
    here.evaluate()
    here.keep(tmp_path / "kept")
    there = Trainer(tmp_path / "there", 0, QUICK, state=tmp_path / "kept")
    assert there.progress == here.progress
    assert there.tokenizer.get_vocab() == here.tokenizer.get_vocab()
    assert curve_of(there) == curve_of(here)
    for name, weight in here.model.state_dict().items():
        assert torch.allclose(there.model.state_dict()[name], weight, atol=1e-3)
    there.step()
    there.save()
    again = Trainer(tmp_path / "there", 0, QUICK, state=tmp_path / "kept")
    assert again.progress.step == 4, "its own checkpoint counts for more"


@pytest.mark.usefixtures("small")
def test_the_llama_model_is_made_from_the_qwen_model_whose_norms_have_faded(tmp_path: Path) -> None:
    """At first a fading norm is the norm; faded, Llama's architecture holds the same model to rounding."""
    source = Trainer(tmp_path / "normed", 0, QUICK, "reference-qwen")
    for _ in range(2):
        source.step()
    with torch.no_grad():
        for name, weight in source.model.named_parameters():
            if "q_norm" in name or "k_norm" in name:
                weight.uniform_(0.5, 2)
            if "o_proj" in name:
                weight.normal_(std=0.05)
    source.save()
    fading = Trainer(tmp_path / "fading", 0, TrainingPlan(steps=2, fade=2), "reference-qwen", earlier=source.folder)
    assert fading.progress.curriculum == source.progress.curriculum
    assert (fading.progress.step, fading.progress.copying) == (0, False)
    batch = training_batch(toy_tokenizer(), 0, Assignment("base", TASKS["base"].top_level, 0, "agnostic"))
    batch = replace(batch, token_ids=batch.token_ids % len(source.tokenizer))
    tokens = batch.segments >= 0

    def states(trainer: Trainer) -> torch.Tensor:
        return states_of(trainer.model, batch)[-1].detach()[tokens]

    assert torch.allclose(states(fading), states(source), atol=1e-4)
    fading.save()
    with pytest.raises(KVBenchError, match=r"^--from \S+nowhere: there is no checkpoint.pt of a training in it$"):
        Trainer(tmp_path / "early", 0, QUICK, "reference", earlier=tmp_path / "nowhere")
    for too_early in (source, fading):
        with pytest.raises(KVBenchError, match=f"--from {too_early.folder}: its norms, .* have not faded: --fade it"):
            Trainer(tmp_path / "early", 0, QUICK, "reference", earlier=too_early.folder)
    for _ in range(2):
        fading.step()
    fading.save()
    made = Trainer(tmp_path / "plain", 0, QUICK, "reference", earlier=fading.folder)
    assert made.model.config.model_type == "llama"
    assert made.progress.curriculum == fading.progress.curriculum
    assert torch.allclose(states(made), states(fading), atol=1e-4)
    made.save()
    again = Trainer(tmp_path / "plain", 0, QUICK, "reference", earlier=tmp_path / "nowhere")
    assert torch.equal(again.model.lm_head.weight, made.model.lm_head.weight)
    begun = Trainer(tmp_path / "confident", 0, TrainingPlan(confident=True), "reference", earlier=made.folder)
    assert torch.equal(begun.model.lm_head.weight, made.model.lm_head.weight), "a Llama model goes on from another"


def train_in_a_crew(rank: int, folder: Path, port: int) -> None:
    """Three steps, one of copying, by one of two processes; the first writes its weights."""
    torch.distributed.init_process_group("gloo", f"tcp://localhost:{port}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    train.COPY_STEPS, losses.COPY_BATCH, batches.PLACES = 1, 2, 300
    train.EVALUATION_CONTEXTS, train.PROFILE_CONTEXTS = 4, 1
    train.TASKS = {"base": TASKS["base"], "hops": TASKS["hops"]}  # type: ignore[attr-defined]
    crew = Crew(rank, 2)
    trainer = prepare_trainer(crew, lambda: Trainer(folder, 0, QUICK, crew=crew))
    train_to_the_end(trainer, 3)
    crew.wait()
    torch.save((trainer.model.state_dict(), asdict(trainer.progress)), folder / f"{rank}.pt")
    crew.leave()


@pytest.mark.usefixtures("small")
@pytest.mark.slow
def test_two_processes_learn_what_one_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Trainer(tmp_path, 0, QUICK)
    for _ in range(3):
        alone.step()
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")  # which imports for both
    context.set_forkserver_preload(["kvbench.reference.train"])
    crew = [context.Process(target=train_in_a_crew, args=(rank, tmp_path, port)) for rank in range(2)]
    for process in crew:
        process.start()
    for process in crew:
        process.join()
        assert process.exitcode == 0
    (first, progress), (second, _) = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    expected = asdict(alone.progress)
    for lesson in (*progress["curriculum"]["lessons"].values(), *expected["curriculum"]["lessons"].values()):
        lesson["answer_loss"], lesson["lowest"] = round(lesson["answer_loss"], 2), round(lesson["lowest"], 2)
    assert progress["curriculum"] == expected["curriculum"]
    assert (progress["step"], progress["tokens"]) == (expected["step"], expected["tokens"])
    for name, weight in alone.model.state_dict().items():
        assert torch.equal(first[name], second[name])
        assert torch.allclose(first[name], weight, atol=2e-3)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.usefixtures("small")
def test_an_export_is_an_ordinary_checkpoint(architecture: str, tmp_path: Path) -> None:
    trainer = Trainer(tmp_path / "work", 0, QUICK, architecture)
    trainer.export(tmp_path / "model")
    files = {path.name for path in (tmp_path / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"} <= files
    assert sum(path.stat().st_size for path in (tmp_path / "model").iterdir()) < 10_000_000
    loaded = load_model(str(tmp_path / "model"), "cpu", "float32")
    config = loaded.network.config
    assert config.model_type == {"reference": "llama", "reference-qwen": "qwen3"}[architecture]
    assert config.num_key_value_heads < config.num_attention_heads
    token_ids = torch.tensor([loaded.tokenizer.encode(TASKS["base"].example(0, 0).context)])
    trainer.model.set_attn_implementation("sdpa")
    with torch.no_grad():
        ours, theirs = trainer.model(token_ids).logits, loaded.network(token_ids).logits
    assert torch.allclose(ours, theirs, atol=1e-2)


def test_words_keep_their_embeddings_under_another_numbering_and_new_ones_get_ordinary_ones() -> None:
    torch.manual_seed(0)
    table = torch.randn(50, 16) * 0.2 + 1
    earlier = {f"word{number}": number for number in range(50)}
    tokens = {"new": 0} | {f"word{number}": number - 19 for number in range(20, 50)}
    state = {"model.embed_tokens.weight": table, "model.norm.weight": torch.full((16,), 3.0)}
    found = under_tokens(state, earlier, tokens)
    assert torch.equal(found["model.embed_tokens.weight"][1:], table[20:])
    assert torch.equal(found["lm_head.weight"], found["model.embed_tokens.weight"])
    assert torch.equal(found["model.norm.weight"], state["model.norm.weight"])
    new = found["model.embed_tokens.weight"][0]
    assert (new - 1).norm() == pytest.approx((table - 1).norm(dim=1).mean(), rel=0.5)
    assert not (table == new).all(dim=1).any()


def test_the_rate_rises_and_stays_until_it_is_to_fall() -> None:
    """Nothing before the fall depends on where it will be: a training can go on for as long as there is time."""
    constant, falling = ([rate_factor(step, start, 1000) for step in range(1000)] for start in (None, 700))
    assert constant[0] < constant[WARMUP_STEPS] == constant[999] == 1
    assert falling[:700] == constant[:700]
    assert falling[850] == pytest.approx(0.5)
    assert falling[700:] == sorted(falling[700:], reverse=True)
    assert falling[-1] > 0


@torch.no_grad()
def test_a_widened_model_does_what_the_narrow_one_does_until_the_reader_is_spread() -> None:
    torch.manual_seed(0)
    narrow = new_model(toy_tokenizer(), "reference-qwen")
    for layer in narrow.model.layers:
        for part in (layer.self_attn.o_proj, layer.mlp.down_proj):
            torch.nn.init.normal_(part.weight, std=0.1)
    batch = training_batch(toy_tokenizer(), 0, Assignment("base", 5, 0, None))
    tokens = batch.segments >= 0
    wide = new_model(toy_tokenizer(), "reference-qwen", SHAPES["full"])
    widen(wide, narrow)

    def alike() -> float:
        """How much the logits of the two point the same way; a token's own has more in the wide model."""
        wide_logits, narrow_logits = (one.lm_head(states_of(one, batch)[-1])[tokens] for one in (wide, narrow))
        return float(torch.nn.functional.cosine_similarity(wide_logits, narrow_logits, dim=-1).mean())

    widened = alike()
    assert widened > 0.9
    spread_reader(wide)
    assert alike() < widened
    reader = wide.model.layers[READER].self_attn.state_dict()
    for number, layer in enumerate(wide.model.layers):
        same = all(torch.equal(weights, reader[name]) for name, weights in layer.self_attn.state_dict().items())
        assert same == (number == READER or number in COPIED_INTO)
    flat = new_model(toy_tokenizer(), "reference-qwen", SHAPES["small"])
    widen(flat, narrow)
    narrow.model.layers = torch.nn.ModuleList(narrow.model.layers[number] for number in KEPT)
    flat_logits, narrow_logits = (one.lm_head(states_of(one, batch)[-1])[tokens] for one in (flat, narrow))
    assert torch.allclose(flat_logits, narrow_logits, atol=1e-4), (
        "a small model begins as the narrow one with fewer layers"
    )
