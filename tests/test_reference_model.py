"""The model that ships with the package: it answers, and on it every policy equals kvpress's own pipeline."""

import json
from collections import defaultdict
from importlib.resources import files
from pathlib import Path

import pytest

from datasets_gen import TASKS
from kvbench.bench import compare
from kvbench.collect import collect
from kvbench.engine.decode import waves
from kvbench.engine.prefill import prefill
from kvbench.engine.treatment import plan
from kvbench.models import LoadedModel, load_model
from kvbench.prompt import Mode, build_prompts
from kvbench.setting import Setting
from policies import POLICIES

# Contexts of the test split, those of the scores in the README, and what the full cache reaches on them (F1, percent).
SAMPLE, SEED = 200, 1
FULL_CACHE_F1 = {"base": 90.0, "hops": 75.0}
EVERY_POLICY = list(POLICIES.values())


@pytest.fixture(scope="module")
def reference() -> LoadedModel:
    return load_model("reference", "cpu", "float32")


def test_it_is_small_and_an_ordinary_checkpoint(reference: LoadedModel) -> None:
    folder = Path(str(files("kvbench.reference").joinpath("model")))
    assert sum(path.stat().st_size for path in folder.iterdir()) < 10_000_000
    assert list(folder.glob("*.safetensors"))
    config = reference.network.config
    assert config.model_type == "llama"
    assert config.num_key_value_heads < config.num_attention_heads
    assert reference.tokenizer.chat_template


def test_the_scores_of_the_readme_are_those_of_these_weights(reference: LoadedModel) -> None:
    measured = json.loads(files("kvbench.reference").joinpath("full_cache.json").read_text())
    assert measured["fingerprint"] == reference.fingerprint


@pytest.mark.parametrize("task", FULL_CACHE_F1)
def test_it_answers_with_the_full_cache(reference: LoadedModel, task: str) -> None:
    chosen = TASKS[task]
    examples = list(chosen.generate(SEED, SAMPLE))
    records = collect(reference, chosen, examples, Setting([POLICIES["full"]], ()))["full"]
    scores = [record.f1 for record in records if record.f1 is not None]
    assert len(scores) == sum(len(example.questions) for example in examples)
    assert sum(scores) / len(scores) >= FULL_CACHE_F1[task]


@pytest.mark.parametrize("mode", ["agnostic", "aware"])
def test_every_policy_equals_kvpress_token_for_token(reference: LoadedModel, mode: Mode) -> None:
    """All registered policies, four ratios, both tasks, each cell through kvpress's own pipeline, in float32."""
    work = [(TASKS[name], TASKS[name].example(11, 0)) for name in ("base", "hops")]
    comparison = compare(reference, work, Setting(EVERY_POLICY, (0.0, 0.3, 0.6, 0.9), mode=mode))
    assert comparison.unequal == []
    questions = sum(len(example.questions) for _, example in work)
    assert comparison.compared == questions * (4 * (len(POLICIES) - 1) + 1)


def test_at_ratio_zero_every_policy_is_the_full_cache(reference: LoadedModel) -> None:
    task = TASKS["base"]
    records = collect(reference, task, [task.example(3, 0)], Setting(EVERY_POLICY, (0.0,)))
    expected = [record.output_token_ids for record in records["full"]]
    for policy, answers in records.items():
        assert [record.output_token_ids for record in answers] == expected, policy
        assert all(record.realised_ratio == 0 for record in answers)


def test_a_small_memory_bound_makes_more_waves_and_changes_no_token(reference: LoadedModel) -> None:
    task = TASKS["hops"]
    example = task.example(3, 1)
    answers = defaultdict(list)
    for bound in (10**9, 2_000_000):
        records = collect(reference, task, [example], Setting(EVERY_POLICY, (0.5, 0.9), max_kv_bytes=bound))
        answers[bound] = [record.output_token_ids for group in records.values() for record in group]
    assert answers[10**9] == answers[2_000_000]
    prompt = build_prompts(reference.tokenizer, task, example, "agnostic")[0]
    trace = prefill(reference, prompt, plan(EVERY_POLICY, (0.5, 0.9), prompt, 0))
    few, many = (waves(trace, task.max_new_tokens, bound) for bound in (10**9, 2_000_000))
    assert len(many) > len(few)
    assert sum(map(len, many)) == sum(map(len, few)) == len(trace.branches)


def test_compression_breaks_it(reference: LoadedModel) -> None:
    """A benchmark on which nothing breaks shows nothing: random eviction of nine tenths costs most of the answers."""
    task = TASKS["base"]
    examples = list(task.generate(5, 6))
    policies = [POLICIES[name] for name in ("full", "random", "oracle")]
    records = collect(reference, task, examples, Setting(policies, (0.9,)))

    def mean_f1(policy: str) -> float:
        scores = [record.f1 or 0.0 for record in records[policy]]
        return sum(scores) / len(scores)

    assert mean_f1("random") < mean_f1("full") / 2
    assert mean_f1("oracle") > mean_f1("random")
