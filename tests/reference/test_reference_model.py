"""The models that ship with the package: they answer, and on them every policy equals kvpress's own
pipeline."""

import json
import string
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from datasets_gen import NATIVE, TASKS, Task
from docs.scripts.evaluate_reference import FIRST_CONTEXTS, first_scores, measure
from kvbench.checks.against_kvpress import compare
from kvbench.checks.model import measure_reads
from kvbench.experiments.catalogue import choose_policies
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel, load_model
from kvbench.models.names import REFERENCE_MODELS, reference_folder
from kvbench.prompts.mode import Mode
from policies import Policy, at_ratios
from tests.support.models.engine_paths import first_of_each_path
from tests.support.models.runs import by_policy

EVERY_POLICY = choose_policies(None, list(TASKS.values()), "agnostic")
BASE = TASKS["base"]
# Contexts of each task, the first of those that the README's scores are measured on, in the slow
# tests.
SAMPLE = 24
LUCK = 0.12  # by which the mean over so few contexts may differ from that over all
every_model = pytest.mark.parametrize("name", REFERENCE_MODELS)
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


@cache
def loaded(name: str) -> LoadedModel:
    return load_model(name, "cpu", "float32")


@pytest.fixture(scope="module")
def reference() -> LoadedModel:
    return loaded("reference")


def full_cache_scores(name: str) -> dict[str, Any]:
    """What ``python docs/scripts/evaluate_reference.py`` wrote beside the weights."""
    content: dict[str, Any] = json.loads((reference_folder(name) / "full_cache.json").read_text())
    return content


@every_model
def test_it_is_small_and_an_ordinary_checkpoint(name: str) -> None:
    assert sum(path.stat().st_size for path in reference_folder(name).iterdir()) < 11_000_000
    assert list(reference_folder(name).glob("*.safetensors"))
    config = loaded(name).network.config
    assert config.model_type == {"reference": "llama", "reference-narrow": "qwen3"}[name]
    assert config.num_key_value_heads < config.num_attention_heads
    assert loaded(name).tokenizer.chat_template


@every_model
@every_task
def test_the_tokenizer_gives_back_every_text_and_knows_its_words(name: str, task: Task) -> None:
    """On the test split, whose full names are new but whose words are not."""
    tokenizer = loaded(name).tokenizer
    tokens = spelled = 0
    for example in task.generate(5, 10):
        for text in (
            f" {example.context}",
            *(f"\n{question.text}" for question in example.questions),
        ):
            token_ids = tokenizer.encode(text)
            assert tokenizer.decode(token_ids) == text
            tokens += len(token_ids)
            spelled += sum(
                tokenizer.convert_ids_to_tokens(number) in set(string.ascii_letters)
                for number in token_ids
            )
    assert spelled < 0.02 * tokens


@every_model
def test_the_scores_of_the_readme_are_those_of_these_weights(name: str) -> None:
    assert full_cache_scores(name)["fingerprint"] == loaded(name).fingerprint


@pytest.mark.parametrize(
    ("name", "task"),
    [
        # The narrow model is the control: its fingerprint is compared above, and one task shows
        # that it answers so. Contexts of `long_context` take as long as those of four others.
        pytest.param(
            name,
            task,
            id=f"{task.name}-{name}",
            marks=[pytest.mark.slow]
            if ("narrow" in name and task is not BASE) or task.name == "long_context"
            else [],
        )
        for name in REFERENCE_MODELS
        for task in TASKS.values()
    ],
)
def test_it_answers_the_first_contexts_as_when_the_readme_was_written(
    name: str, task: Task
) -> None:
    """Scores over every kind of question, but for one answer of each kind: another processor may
    round elsewhere."""
    expected = [row for row in full_cache_scores(name)["first_scores"] if row["task"] == task.name]
    found = first_scores(
        task.name, measure(loaded(name), task, FIRST_CONTEXTS, full_cache_scores(name)["seed"])
    )
    assert [(row["questions"], row["n"]) for row in found] == [
        (row["questions"], row["n"]) for row in expected
    ]
    for row, before in zip(found, expected, strict=True):
        for score, percent in (("f1", 100), ("em", 100), ("directives_obeyed", 1), ("leakage", 1)):
            assert (row[score] is None) == (before[score] is None)
            if row[score] is not None:
                assert row[score] == pytest.approx(before[score], abs=1.01 * percent / before["n"])


@pytest.mark.slow
@every_model
@every_task
def test_it_answers_with_the_full_cache_as_well_as_the_readme_says(name: str, task: Task) -> None:
    rows = full_cache_scores(name)["scores"][NATIVE]
    (whole,) = (row for row in rows if (row["task"], row["questions"]) == (task.name, "all"))
    frame = measure(loaded(name), task, SAMPLE, full_cache_scores(name)["seed"])
    for score in ("f1", "directives_obeyed"):
        if whole[score] is not None:
            scale = 100 if score == "f1" else 1
            assert abs(frame[score].astype(float).mean() - whole[score]) < LUCK * scale


def test_the_default_reads_through_many_routes(reference: LoadedModel) -> None:
    """With any layer destroyed, or three slots of ten, it answers on: no single read is all that it
    has."""
    profile = measure_reads(
        reference, TASKS["base"], None, FIRST_CONTEXTS, full_cache_scores("reference")["seed"]
    )
    assert profile.undisturbed > 85
    assert profile.worst_layer <= 25
    assert profile.slots <= 10


def test_the_narrow_one_reads_in_one_layer() -> None:
    """It is the control: what is true of routes must be false of a model that has one."""
    seed = full_cache_scores("reference-narrow")["seed"]
    profile = measure_reads(loaded("reference-narrow"), TASKS["base"], None, FIRST_CONTEXTS, seed)
    assert profile.undisturbed > 85
    assert profile.worst_layer > 60
    assert profile.upper_half < 10


MODES: tuple[Mode, ...] = ("agnostic", "aware")
# One of each architecture.
EVERYWHERE = [(name, mode) for mode in MODES for name in REFERENCE_MODELS]


def assert_equals_kvpress(
    name: str,
    mode: Mode,
    policies: list[Policy],
    tasks: tuple[str, ...],
    ratios: tuple[float, ...],
    asked: int | None = None,
) -> None:
    """Each cell through kvpress's own pipeline, in float32; of each context the first questions, or
    all."""
    examples = [TASKS[task].example(11, 0) for task in tasks]
    work = [(TASKS[one.task], replace(one, questions=one.questions[:asked])) for one in examples]
    counts = [(TASKS[task], 1) for task in tasks]
    grid = Grid(counts, policies, at_ratios(ratios), mode=mode)
    comparison = compare(loaded(name), work, grid)
    assert comparison.unequal == []
    questions = sum(len(example.questions) for _, example in work)
    assert len(comparison.cells) == questions * (len(ratios) * (len(policies) - 1) + 1)


def test_policies_of_every_path_equal_kvpress_token_for_token() -> None:
    """One of each path through the engine: the toy models try all (tests/engine), and slow tests
    all of them here."""
    assert_equals_kvpress(
        *EVERYWHERE[0], first_of_each_path(EVERY_POLICY), ("hops",), (0.6,), asked=2
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), EVERYWHERE)
def test_every_policy_equals_kvpress_at_every_ratio_and_everywhere(name: str, mode: Mode) -> None:
    assert_equals_kvpress(name, mode, EVERY_POLICY, ("base", "hops"), (0.0, 0.3, 0.6, 0.9))


def test_at_ratio_zero_every_policy_is_the_full_cache(reference: LoadedModel) -> None:
    task = TASKS["base"]
    grid = Grid([(task, 1)], EVERY_POLICY, at_ratios((0.0,)), seed=3)
    records = by_policy(collect(reference, task, [task.example(3, 0)], grid))
    expected = [record.output_token_ids for record in records["full"]]
    for policy, answers in records.items():
        assert [record.output_token_ids for record in answers] == expected, policy
        assert all(record.realised_ratio == 0 for record in answers)
