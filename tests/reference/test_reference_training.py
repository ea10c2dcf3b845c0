"""How the reference models are made: packed sequences, lessons of growing difficulty, and going on after a kill."""

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict

import pytest
import torch

import kvbench.reference.train as train
import kvbench.reference.training.batches as batches
import kvbench.reference.training.read_profile as read_profile
from datasets_gen import TASKS, Task
from kvbench.prompts.mode import Mode
from kvbench.reference.train import exact_matches
from kvbench.reference.training.architecture import ARCHITECTURES, new_model
from kvbench.reference.training.batches import (
    DEPTHS,
    PLACES,
    QUESTIONS,
    ROW_LENGTH,
    ROWS,
    Batch,
    evaluation_batch,
    row_starts,
    training_batch,
)
from kvbench.reference.training.lessons import (
    FIRST,
    FIRST_BATCHES,
    FIRST_SHARE,
    LITTLE_HIDDEN,
    MASTERED,
    MOST_EXAMPLES,
    PATIENCE,
    SETTLED,
    SHARES,
    Assignment,
    Curriculum,
)
from kvbench.reference.training.losses import (
    FIRST_WORD,
    answer_logits,
    bridge_loss,
    copying_loss,
    referent_loss,
    states_of,
)
from kvbench.reference.training.state import Progress
from kvbench.reference.training.tokenizer import SPECIAL_TOKENS
from tests.support.models.toy import toy_tokenizer

TAUGHT = ("base", "hops", "arithmetic", "instructions")  # short contexts; answers of a word, of steps, and of a text
every_task = pytest.mark.parametrize("name", TAUGHT)
every_architecture = pytest.mark.parametrize("architecture", ARCHITECTURES)


def batch_of(name: str, mode: Mode | None = "agnostic") -> Batch:
    """A training batch of a task itself."""
    return training_batch(toy_tokenizer(), 0, Assignment(name, TASKS[name].top_level, 0, mode))


# --- batches


@every_architecture
@pytest.mark.parametrize("name", ["hops", "instructions"])
def test_packed_attention_equals_a_dense_mask(architecture: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PLACES", 1500)
    torch.manual_seed(0)
    model = new_model(toy_tokenizer(), architecture)
    for layer in model.model.layers:  # new layers add nothing; here they must
        torch.nn.init.normal_(layer.self_attn.o_proj.weight, std=0.3)
    batch = batch_of(name)
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
    assert torch.allclose(packed, model.lm_head(dense[chosen]), atol=1e-3)


@every_task
def test_every_question_goes_on_from_its_own_context(name: str) -> None:
    batch = batch_of(name)
    for row in range(len(batch.examples)):
        segments, positions = batch.segments[row], batch.positions[row]
        context = int((segments == 0).sum())
        for number in range(1, int(segments.max()) + 1):
            places = positions[segments == number]
            assert torch.equal(places, torch.arange(context, context + len(places)))


@every_task
def test_answers_are_what_is_learned_with_all_their_steps_and_directives(name: str) -> None:
    tokenizer, batch = toy_tokenizer(), batch_of(name)
    learned = 0
    for row, example in enumerate(batch.examples):
        for number, question in enumerate(example.questions, 1):
            asked = (batch.segments[row] == number) & (batch.labels[row] >= 0)
            if asked.any():  # or it did not fit
                learned += 1
                assert tokenizer.decode(batch.labels[row][asked]) == f" {question.perfect_output}<|end|>"
    assert learned >= len(batch.examples)
    assert (batch.labels[batch.segments <= 0] < 0).all()


def test_bridges_are_the_names_on_the_way_one_after_the_other_read_where_the_answer_is_asked_for() -> None:
    tokenizer, batch = toy_tokenizer(), batch_of("hops")
    chains = 0
    for row, example in enumerate(batch.examples):
        for number, question in enumerate(example.questions, 1):
            mine = batch.segments[row] == number
            known = [of_depth[row][mine & (of_depth[row] >= 0)].tolist() for of_depth in batch.bridges]
            if not mine.any() or not question.bridges:
                assert known == [[]] * DEPTHS
                continue
            chains += 1
            names = [*question.bridges, *[question.bridges[-1]] * DEPTHS][:DEPTHS]
            assert known == [[tokenizer.encode(f" {name}")[0]] for name in names]
            (place,) = (mine & (batch.bridges[0, row] >= 0)).nonzero()
            assert place == (mine & (batch.labels[row] >= 0)).nonzero()[0]
    assert chains > 5


def test_referents_are_the_names_that_sentences_without_one_are_about() -> None:
    tokenizer, batch = toy_tokenizer(), batch_of("coreference")
    meant = 0
    for row, example in enumerate(batch.examples):
        places = (batch.referents[row] >= 0).nonzero().flatten().tolist()
        assert all(batch.segments[row, place] == 0 for place in places)
        for place in places:
            before = str(tokenizer.decode(batch.token_ids[row, : place + 1])).removesuffix(".")
            name = str(tokenizer.decode(batch.referents[row, place])).strip()
            sentence = before.rsplit(". ")[-1]
            assert any(value.startswith(name) for value in example.stated_values)
            assert name in before
            assert name not in sentence
            meant += 1
    assert meant > 10
    assert (batch_of("base").referents < 0).all(), "its sentences say the names"


def test_a_batch_without_bridges_and_referents_has_no_loss_of_them() -> None:
    model, batch = new_model(toy_tokenizer()), batch_of("arithmetic")
    with torch.no_grad():
        states = states_of(model, batch)
        assert float(bridge_loss(model, batch, states)) == 0 == float(referent_loss(model, batch, states))


@every_task
def test_the_instruction_is_said_where_it_is_wanted(name: str) -> None:
    task, tokenizer = TASKS[name], toy_tokenizer()
    modes: tuple[Mode | None, ...] = ("agnostic", "aware", None)
    for mode in modes:
        batch = batch_of(name, mode)
        text = tokenizer.decode(batch.token_ids[0][batch.segments[0] == 1])
        question = batch.examples[0].questions[0].text
        assert question in text
        if task.instruction:
            assert (f"{task.instruction} {question}" in text) == (mode == "agnostic")
            assert (f"{question} {task.instruction}" in text) == (mode == "aware")


@every_task
def test_questions_that_do_not_fit_are_left_out_and_the_others_fill_the_rows(name: str) -> None:
    batch = batch_of(name)
    width = batch.layout.context_width
    row_length, rest = divmod(batch.segments.shape[1] - width, ROWS)
    assert rest == 0 or len(batch.examples[0].questions) < ROWS
    for row, example in enumerate(batch.examples):
        numbers = batch.segments[row, width:].unique().tolist()
        packed = max(numbers)
        assert [n for n in numbers if n > 0] == list(range(1, packed + 1))
        assert 1 <= packed <= len(example.questions) <= QUESTIONS
        if packed < len(example.questions) and row_length == ROW_LENGTH:
            assert (
                batch.segments[row, width:] > 0
            ).float().mean() > 0.5  # the longest chains leave no room for a second
    assert batch.token_ids.numel() <= 1.5 * PLACES


def test_an_evaluation_leaves_no_question_out() -> None:
    for name in TAUGHT:
        whole = evaluation_batch(toy_tokenizer(), TASKS[name], 0, 3, 4)
        assert [int(of_row.max()) for of_row in whole.segments] == [len(e.questions) for e in whole.examples]
        assert [example.id for example in whole.examples] == [f"{name}/test/0/{index}" for index in range(3, 7)]


@every_task
def test_a_confident_model_is_asked_nothing_that_cannot_be_answered(name: str) -> None:
    assigned = Assignment(name, TASKS[name].top_level, 0, "agnostic")
    batch = training_batch(toy_tokenizer(), 0, assigned, confident=True)
    assert all(question.answerable for example in batch.examples for question in example.questions)
    texts = {question.text for example in batch_of(name).examples for question in example.questions}
    assert {question.text for question in batch.examples[0].questions} <= texts


def test_a_batch_set_in_prose_is_longer_and_one_of_running_text_says_so() -> None:
    plain = training_batch(toy_tokenizer(), 0, Assignment("base", 5, 0, None))
    prosaic = training_batch(toy_tokenizer(), 0, Assignment("base", 5, 0, None, words=300, running=True))
    assert prosaic.layout.context_width > plain.layout.context_width + 250
    assert prosaic.running
    assert not plain.running
    asked = [[question.text for question in example.questions] for example in prosaic.examples]
    assert asked == [[question.text for question in example.questions] for example in plain.examples[: len(asked)]]


def test_rows_are_filled_in_the_order_of_the_questions() -> None:
    half = ROW_LENGTH // 2
    assert row_starts([half + 1, half, half - 1], ROW_LENGTH) == [0, ROW_LENGTH, half + 1]
    assert row_starts([ROW_LENGTH, 1], ROW_LENGTH) == [0, ROW_LENGTH]


# --- lessons


def taught(curriculum: Curriculum, name: str, level: int, loss: float, times: int) -> int:
    """The level after so many batches of a task."""
    for _ in range(times):
        curriculum.note(Assignment(name, level, 0, None), loss)
    return curriculum.lessons[name].level


def together() -> Curriculum:
    """Past what is practised most."""
    curriculum = Curriculum()
    for name, level in FIRST.items():
        curriculum.lessons[name].level = level + 1
    return curriculum


def test_a_level_is_left_when_it_is_mastered_and_settled() -> None:
    curriculum = together()
    assert taught(curriculum, "multi_entity", 0, MASTERED / 2, SETTLED - 1) == 0
    assert taught(curriculum, "multi_entity", 0, MASTERED / 2, 1) == 1
    assert curriculum.lessons["multi_entity"].batches == 0
    assert taught(curriculum, "multi_entity", 1, 2 * MASTERED, 3 * SETTLED) == 1, "not mastered"
    again = taught(curriculum, "multi_entity", 0, 0.0, 3 * SETTLED)
    assert again == 1, "what is repeated of lower levels does not count"
    assert curriculum.lessons["long_context"].level == 0


def test_a_level_is_left_when_nothing_is_learned_there_any_more() -> None:
    curriculum = together()
    assert taught(curriculum, "multi_entity", 0, 0.5, PATIENCE) == 0
    assert taught(curriculum, "multi_entity", 0, 0.5, 1) == 1
    falling = [5 * 0.99**batch for batch in range(2 * PATIENCE)]
    curriculum = together()
    for loss in falling:
        assert taught(curriculum, "multi_entity", 0, loss, 1) == 0


def test_every_task_is_taught_and_each_batch_takes_new_examples() -> None:
    assert SHARES.keys() == TASKS.keys()
    curriculum = together()
    seen: dict[str, int] = dict.fromkeys(TASKS, 0)
    for number in range(400):
        assigned = curriculum.assign(0, number)
        assert assigned.first == number * MOST_EXAMPLES
        assert 0 <= assigned.level <= curriculum.lessons[assigned.task].level
        seen[assigned.task] += 1
        curriculum.note(assigned, 1.0)
    for name, share in SHARES.items():
        assert abs(seen[name] / 400 - share / sum(SHARES.values())) < 0.05


def test_what_is_mastered_is_practised_less() -> None:
    curriculum = together()
    for lesson in curriculum.lessons.values():
        lesson.answer_loss = MASTERED
    before = Counter(curriculum.assign(0, number).task for number in range(2000))
    curriculum.lessons["knowledge"].answer_loss = MASTERED / 100
    curriculum.lessons["base"].answer_loss = 100 * MASTERED
    after = Counter(curriculum.assign(0, number).task for number in range(2000))
    assert after["knowledge"] < before["knowledge"] / 2
    assert after["base"] > 2 * before["base"]
    assert min(after.values()) > 0


def test_the_first_levels_of_some_come_first_until_they_are_mastered_or_long_enough() -> None:
    curriculum = Curriculum()
    for name, last in FIRST.items():
        for level in range(last + 1):
            assigned = [curriculum.assign(0, number) for number in range(400)]
            begun = {other for other in TASKS if curriculum.lessons[other].level > 0}
            assert {one.task for one in assigned} == begun | {name}, "others stay in practice once they are begun"
            most = [one for one in assigned if one.task == name]
            assert len(most) >= 0.9 * FIRST_SHARE * len(assigned)
            assert {one.level for one in most} == {level}
            assert {one.hidden for one in most} == {LITTLE_HIDDEN}, "no chain is learned where a link is missing"
            assert taught(curriculum, name, level, 0.5, 2 * PATIENCE) == level, "a guess does not end it"
            left = FIRST_BATCHES - 2 * PATIENCE if level else 2 * SETTLED
            assert taught(curriculum, name, level, 0.5 if level else 0.0, left) == level + 1
    assigned = [curriculum.assign(0, number) for number in range(200)]
    assert {one.task for one in assigned} == set(TASKS)
    assert {one.hidden for one in assigned} == {LITTLE_HIDDEN, 1.0}


def test_the_same_is_assigned_after_a_restart() -> None:
    def teach(progress: Progress, first: int, last: int) -> list[Assignment]:
        assigned = []
        for number in range(first, last):
            assigned.append(progress.curriculum.assign(7, number))
            progress.curriculum.note(assigned[-1], 1 / (number + 1))
        return assigned

    undisturbed, first = Progress(), Progress()
    expected = teach(undisturbed, 0, 600)
    teach(first, 0, 250)
    second = Progress.of(asdict(first))
    assert teach(second, 250, 600) == expected[250:]
    assert second == undisturbed


# --- losses


def test_copying_is_seeded_by_step_and_unknown_to_a_new_model() -> None:
    torch.manual_seed(0)
    model = new_model(toy_tokenizer())
    loss = copying_loss(model, 0, 0)
    assert loss.item() > 5
    assert copying_loss(model, 0, 0).item() == loss.item()
    assert copying_loss(model, 1, 0).item() != loss.item()


def test_an_answer_counts_when_all_its_tokens_are_right_on_the_test_split(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = toy_tokenizer()
    read: list[Batch] = []

    def listening(*arguments: object) -> Batch:
        read.append(evaluation_batch(*arguments))  # type: ignore[arg-type]
        return read[-1]

    def knowing(but: int | None) -> Callable[..., torch.Tensor]:
        """Logits of a model that knows every token, but never says the token ``but``."""

        def logits(model: object, batch: Batch, chosen: torch.Tensor, layouts: object) -> torch.Tensor:
            known = torch.nn.functional.one_hot(batch.labels[chosen], len(tokenizer)).float()
            return known if but is None else known.index_fill(1, torch.tensor(but), -1.0)

        return logits

    tasks = {name: TASKS[name] for name in TAUGHT}
    monkeypatch.setattr(train, "TASKS", tasks)
    monkeypatch.setattr(train, "evaluation_batch", listening)
    monkeypatch.setattr(read_profile, "answer_logits", knowing(None))
    model = new_model(tokenizer)
    assert exact_matches(model, tokenizer, 0) == dict.fromkeys(tasks, 100.0)
    assert {example.split for batch in read for example in batch.examples} == {"test"}
    monkeypatch.setattr(read_profile, "answer_logits", knowing(tokenizer.eos_token_id))
    assert exact_matches(model, tokenizer, 0) == dict.fromkeys(tasks, 0.0)
    monkeypatch.setattr(read_profile, "answer_logits", knowing(tokenizer.encode(" don't")[-1]))
    rates = exact_matches(model, tokenizer, 0)

    def answerable(task: Task) -> float:
        asked = [q.answerable for index in range(train.EVALUATION_CONTEXTS) for q in task.example(0, index).questions]
        return 100 * sum(asked) / len(asked)

    assert (rates["base"], rates["hops"]) == (answerable(tasks["base"]), answerable(tasks["hops"]))
    assert rates["arithmetic"] == 100


def test_batches_hold_fewer_examples_than_each_has_for_itself() -> None:
    shortest = training_batch(toy_tokenizer(), 0, Assignment("base", 0, 0, None))
    assert len(shortest.examples) < MOST_EXAMPLES / 10


def test_special_tokens_come_first() -> None:
    tokenizer = toy_tokenizer()
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == list(range(FIRST_WORD))


def test_a_batch_of_single_questions_has_more_contexts() -> None:
    def places(name: str) -> tuple[int, int]:
        batch = training_batch(toy_tokenizer(), 0, Assignment(name, TASKS[name].top_level, 0, None))
        return len(batch.examples), batch.token_ids.numel()

    (single, of_single), (many, of_many) = places("arithmetic"), places("base")
    assert single > 1.5 * many
    assert max(of_single, of_many) <= PLACES * 1.1  # the row that does not fit was longer than the others
