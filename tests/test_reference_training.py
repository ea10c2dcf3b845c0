"""How the reference model is made: packed sequences, and training that goes on after a kill."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import kvbench.reference.train as train
from kvbench.reference.batches import QUESTIONS, ROW_LENGTH, ROWS, Batch, make_batch, row_starts
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
    chosen = batch.labels >= 0
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
            asked = (batch.segments[row] == number) & (batch.labels[row] >= 0)
            if not asked.any():  # did not fit
                continue
            learned = tokenizer.decode(batch.labels[row][asked])
            assert learned == f" {question.golds[0]}<|end|>"
    assert (batch.labels[batch.segments <= 0] < 0).all()


def test_copying_is_seeded_by_step_and_unknown_to_a_new_model() -> None:
    torch.manual_seed(0)
    model = new_model(toy_tokenizer())
    loss = copying_loss(model, 0, 0)
    assert loss.item() > 5
    assert copying_loss(model, 0, 0).item() == loss.item()
    assert copying_loss(model, 1, 0).item() != loss.item()


def test_an_answer_counts_when_all_its_tokens_are_right_on_the_test_split(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = toy_tokenizer()
    kinds = {"base", "hops_1", "hops_2", "hops_3", "unanswerable"}
    asked: list[tuple[str, int | None]] = []

    def listening(tokenizer, seed, split, first, count, level):  # type: ignore[no-untyped-def]
        asked.append((split, level))
        return make_batch(tokenizer, seed, split, first, count, level)

    def knowing(but: int | None) -> Callable[..., torch.Tensor]:
        """Logits of a model that knows every token, but never says the token ``but``."""

        def logits(model: object, batch: Batch, chosen: torch.Tensor) -> torch.Tensor:
            known = torch.nn.functional.one_hot(batch.labels[chosen], len(tokenizer)).float()
            return known if but is None else known.index_fill(1, torch.tensor(but), -1.0)

        return logits

    monkeypatch.setattr(train, "make_batch", listening)
    monkeypatch.setattr(train, "answer_logits", knowing(None))
    model = new_model(tokenizer)
    assert exact_matches(model, tokenizer, 0) == dict.fromkeys(kinds, 100.0)
    assert set(asked) == {("test", None)}
    monkeypatch.setattr(train, "answer_logits", knowing(tokenizer.eos_token_id))
    assert exact_matches(model, tokenizer, 0) == dict.fromkeys(kinds, 0.0)
    monkeypatch.setattr(train, "answer_logits", knowing(tokenizer.encode(" don't")[-1]))
    assert exact_matches(model, tokenizer, 0) == {**dict.fromkeys(kinds, 100.0), "unanswerable": 0.0}


def test_questions_that_do_not_fit_are_left_out_and_the_others_fill_the_rows(batch: Batch) -> None:
    width = batch.layout.context_width
    assert batch.segments.shape[1] == width + ROWS * ROW_LENGTH
    for row, example in enumerate(batch.examples):
        numbers = batch.segments[row, width:].unique().tolist()
        packed = max(numbers)
        assert [n for n in numbers if n > 0] == list(range(1, packed + 1))
        assert 1 < packed <= len(example.questions) <= QUESTIONS
        if packed < len(example.questions):
            assert (batch.segments[row, width:] > 0).float().mean() > 0.7
    whole = make_batch(toy_tokenizer(), 0, "test", 0, 5, None)  # an evaluation leaves none out
    asked = [int(of_row.max()) for of_row in whole.segments]
    assert asked == [len(example.questions) for example in whole.examples]


def test_the_names_on_the_way_stand_where_the_answer_is_asked_for() -> None:
    tokenizer = toy_tokenizer()
    whole = make_batch(tokenizer, 0, "test", 0, 6, None)
    lengths = set()
    for row, example in enumerate(whole.examples):
        for number, question in enumerate(example.questions, 1):
            mine = whole.segments[row] == number
            bridges = whole.bridges[:, row, mine]
            lengths.add(len(question.bridges))
            if not question.bridges:
                assert (bridges < 0).all()
                continue
            asked_at = int((whole.labels[row, mine] >= 0).nonzero()[0])
            assert (bridges >= 0).nonzero()[:, 1].tolist() == [asked_at, asked_at]
            for label, name in zip(bridges[:, asked_at], (question.bridges[0], question.bridges[-1]), strict=True):
                assert name.startswith(str(tokenizer.decode(label)).strip())
    assert lengths == {0, 1, 2}


def test_rows_are_filled_in_the_order_of_the_questions() -> None:
    half = ROW_LENGTH // 2
    assert row_starts([half + 1, half, half - 1]) == [0, ROW_LENGTH, half + 1]
    assert row_starts([ROW_LENGTH, 1]) == [0, ROW_LENGTH]


def curve_of(trainer: Trainer) -> list[dict[str, str]]:
    return list(csv.DictReader(trainer.curve.read_text().splitlines()))


def test_training_goes_on_after_a_kill_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "train_tokenizer", lambda seed: train_tokenizer(seed, contexts=100))
    monkeypatch.setattr(train, "EVALUATION_CONTEXTS", 16)
    monkeypatch.setattr(train, "COPY_STEPS", 1)
    monkeypatch.setattr(train, "COPY_BATCH", 2)
    monkeypatch.setattr(train, "BATCH_SIZE", 2)

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
