"""How the reference model is made: packed sequences, and training that goes on after a kill."""

import csv
from pathlib import Path

import pytest
import torch

import kvbench.reference.train as train
from kvbench.reference.batches import Batch, make_batch
from kvbench.reference.tokenizer import SPECIAL_TOKENS, train_tokenizer
from kvbench.reference.train import CurvePoint, Trainer, answer_logits, copying_loss, exact_matches, new_model
from toy import toy_tokenizer


@pytest.fixture(scope="module")
def batch() -> Batch:
    return make_batch(toy_tokenizer(), 0, "train", 0, 5, 3)


def test_packed_attention_equals_a_dense_mask(batch: Batch) -> None:
    torch.manual_seed(0)
    model = new_model(toy_tokenizer())
    for layer in model.model.layers:  # new layers add nothing; here they must
        torch.nn.init.normal_(layer.self_attn.o_proj.weight, std=0.3)
    chosen = batch.weights > 0
    order = torch.arange(batch.token_ids.shape[1])
    segments = batch.segments
    same = (segments[:, :, None] == segments[:, None, :]) | (segments == 0)[:, None, :]
    visible = same & (order[:, None] >= order)
    with torch.no_grad():
        packed = answer_logits(model, batch, chosen)
        model.set_attn_implementation("sdpa")
        dense = model.model(
            input_ids=batch.token_ids,
            position_ids=batch.positions,
            attention_mask=visible[:, None],
            use_cache=False,
        ).last_hidden_state
    assert torch.allclose(packed, model.lm_head(dense[chosen]), atol=1e-4)


def test_every_question_goes_on_from_its_own_context(batch: Batch) -> None:
    for row in range(len(batch.examples)):
        segments, positions = batch.segments[row], batch.positions[row]
        context = int((segments == 0).sum())
        for number in range(1, int(segments.max()) + 1):
            places = positions[segments == number]
            assert torch.equal(places, torch.arange(context, context + len(places)))


def test_answers_are_what_is_learned(batch: Batch) -> None:
    tokenizer = toy_tokenizer()
    for row, example in enumerate(batch.examples):
        for number, question in enumerate(example.questions, 1):
            asked = (batch.segments[row] == number) & (batch.weights[row] == 1)
            learned = tokenizer.decode(batch.labels[row][asked])
            assert learned == f" {question.golds[0]}<|end|>"
    context = batch.weights[batch.segments == 0]
    assert torch.isclose(context[context > 0], torch.tensor(0.02)).all()


def test_copying_is_seeded_by_step_and_unknown_to_a_new_model() -> None:
    torch.manual_seed(0)
    model = new_model(toy_tokenizer())
    loss = copying_loss(model, 0, 0)
    assert loss.item() > 5
    assert copying_loss(model, 0, 0).item() == loss.item()
    assert copying_loss(model, 1, 0).item() != loss.item()


def test_exact_match_is_counted_on_the_test_split() -> None:
    torch.manual_seed(0)
    rates = exact_matches(new_model(toy_tokenizer()), toy_tokenizer(), 0)
    assert set(rates) == {"base", "hops_1", "hops_2", "hops_3", "unanswerable"}
    assert all(0 <= rate <= 100 for rate in rates.values())


def curve_of(trainer: Trainer) -> list[dict[str, str]]:
    return list(csv.DictReader(trainer.curve.read_text().splitlines()))


def test_training_goes_on_after_a_kill_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "train_tokenizer", lambda seed: train_tokenizer(seed, contexts=100))
    monkeypatch.setattr(train, "EVALUATION_CONTEXTS", 16)
    monkeypatch.setattr(train, "COPY_STEPS", 1)
    monkeypatch.setattr(train, "COPY_BATCH", 2)
    monkeypatch.setattr(train, "BATCH_SIZES", (2,) * 5)

    def steps(trainer: Trainer, count: int) -> None:
        for _ in range(count):
            trainer.step()

    undisturbed = Trainer(tmp_path / "undisturbed", 0, 10)
    steps(undisturbed, 5)
    first = Trainer(tmp_path / "killed", 0, 10)
    steps(first, 3)
    first.save()
    steps(first, 1)  # lost with the kill
    first.evaluate()
    second = Trainer(tmp_path / "killed", 0, 10)
    assert second.progress.step == 3
    assert curve_of(second) == []  # the row of the lost step is gone
    steps(second, 2)
    weights, expected = second.model.state_dict(), undisturbed.model.state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    second.evaluate()
    rows = curve_of(second)
    assert [int(row["step"]) for row in rows] == [5]
    assert list(rows[0]) == list(CurvePoint.__dataclass_fields__)


def test_an_export_is_an_ordinary_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "train_tokenizer", lambda seed: train_tokenizer(seed, contexts=100))
    trainer = Trainer(tmp_path / "work", 0, 10)
    trainer.export(tmp_path / "model")
    files = {path.name for path in (tmp_path / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"} <= files
    assert sum(path.stat().st_size for path in (tmp_path / "model").iterdir()) < 10_000_000


def test_special_tokens_come_first() -> None:
    tokenizer = toy_tokenizer()
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(train.FIRST_WORD))
