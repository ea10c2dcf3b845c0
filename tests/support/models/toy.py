"""Toy models of every architecture that kvpress supports: random weights, built in the test
process."""

import atexit
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from kvpress import BasePress, ScorerPress, attention_patch
from transformers import (
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SiglipVisionConfig,
)

from datasets_gen import TASKS, Example
from kvbench.checks.against_kvpress import (
    as_written,
    build_pipeline,
    is_handed_over_whole,
    texts_for_pipeline,
)
from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import Generation
from kvbench.engine.decode.waves import all_rows, waves
from kvbench.engine.treat.branch import Branch, Trace, clearing_masks, lazy_donor
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.models.load import LoadedModel, wrap_model
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import AnswerEnds, Prompt, build_prompts, chat_template
from policies import POLICIES, Level, Policy, Situation, at_ratios, list_points
from policies.declaration.draws import derive_seed, drawing_from
from tests.support.models.toy_tokenizer import END, word_tokenizer

STEPS = 6  # of an answer
PLENTY = 10**9  # bytes
WINDOW = 32  # tokens, of the sliding layers of the toy Gemma 3 without images
LAYERS, QUERY_HEADS, KEY_HEADS, HEAD_SIZE = 2, 4, 2, 128
# Without a download.
RUNNABLE = {name: policy for name, policy in POLICIES.items() if not policy.needs.weights}
AGNOSTIC = {
    name: policy
    for name, policy in RUNNABLE.items()
    if not (policy.needs.question or policy.needs.spans)
}
# One token in so many ends an answer: some answers of a wave then end early and some do not.
END_EVERY = 20


@cache
def toy_tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer()


@cache
def toy_folder() -> Path:
    """Where the tokenizer lies for presses that load it by the path of the model."""
    folder = Path(tempfile.mkdtemp(prefix="kvbench-toy-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    toy_tokenizer().save_pretrained(folder)
    return folder


def sizes(**more: Any) -> dict[str, Any]:
    """Configuration that all architectures share; weights wide enough that answers depend on the
    cache."""
    tokenizer = toy_tokenizer()
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "head_dim": HEAD_SIZE,
        "intermediate_size": 96,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": QUERY_HEADS,
        "num_key_value_heads": KEY_HEADS,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "initializer_range": 0.25,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        **more,
    }


def sliding_mistral() -> PreTrainedModel:
    """A Mistral whose layers look back at 40 tokens."""
    return MistralForCausalLM(MistralConfig(**sizes(sliding_window=40)))


def gemma3(layer_types: Sequence[str] = ("full_attention",) * LAYERS) -> PreTrainedModel:
    """Without sliding layers, unless asked: kvpress's pipeline cannot mask both kinds under
    transformers 5.2."""
    text = Gemma3TextConfig(
        **sizes(query_pre_attn_scalar=HEAD_SIZE, sliding_window=4096, layer_types=list(layer_types))
    )
    vision = SiglipVisionConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        image_size=28,
        patch_size=14,
    )
    config = Gemma3Config(
        text_config=text, vision_config=vision, mm_tokens_per_image=4, tie_word_embeddings=False
    )
    return Gemma3ForConditionalGeneration(config)


def gemma3_text(
    layer_types: Sequence[str] = ("sliding_attention", "full_attention"),
    window: int = WINDOW,
    key_heads: int = KEY_HEADS,
) -> PreTrainedModel:
    """Gemma 3 without images: a layer that sees 32 tokens comes first, as in the published
    models."""
    config = Gemma3TextConfig(
        **sizes(
            num_hidden_layers=len(layer_types),
            num_key_value_heads=key_heads,
            query_pre_attn_scalar=HEAD_SIZE,
            sliding_window=window,
            layer_types=list(layer_types),
        )
    )
    return Gemma3ForCausalLM(config)


NETWORKS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**sizes())),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**sizes())),
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**sizes())),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**sizes())),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**sizes())),
    "gemma3": gemma3,
    "gemma3_text": gemma3_text,
}


# With others nearly all answers are alike, or none ends early.
SEEDS = {"gemma3": 15, "gemma3_text": 3}


def toy_model(
    architecture: str = "llama", build: Callable[[], PreTrainedModel] | None = None
) -> LoadedModel:
    """A toy model of that architecture, or of another configuration that ``build`` makes."""
    torch.manual_seed(SEEDS.get(architecture, 5))
    network = (build or NETWORKS[architecture])()
    network.set_attn_implementation("sdpa")
    network.config._name_or_path = str(toy_folder())
    tokenizer = toy_tokenizer()
    end: Any = tokenizer.convert_tokens_to_ids(END)
    network.generation_config.eos_token_id = [end, *range(300, len(tokenizer), END_EVERY)]
    return wrap_model(architecture, network, tokenizer, "toy")


model_of = cache(toy_model)  # for tests that leave it as it was


def toy_example(task: str = "base", index: int = 1) -> Example:
    return TASKS[task].example(0, index)


def toy_prompt(
    mode: Mode = "agnostic", task: str = "base", index: int = 1, questions: int | None = None
) -> Prompt:
    """The first prompt of an example, with the first of its questions, by default with all."""
    prompt = build_prompts(toy_tokenizer(), TASKS[task], toy_example(task, index), mode)[0]
    return replace(prompt, questions=prompt.questions[:questions])


def prompt_for(policy: Policy) -> Prompt:
    """A prompt that has what the policy needs: a question to read with the context, or instructions
    to protect."""
    if policy.needs.question:
        return toy_prompt("aware")
    return toy_prompt(task="instructions" if policy.needs.spans else "base", questions=2)


def treat(
    model: LoadedModel,
    policies: Sequence[Policy],
    ratios: Sequence[float],
    prompt: Prompt,
    seed: int = 0,
    budgets: Sequence[int] = (),
    repeats: int = 1,
    rates: Sequence[float] = (),
    levels: Sequence[Level] = (),
) -> Trace:
    levels = [
        *levels,
        *(point.level for point in at_ratios(ratios)),
        *(Level("budget", float(budget)) for budget in budgets),
        *(Level("rate", rate) for rate in rates),
    ]
    points = list_points(levels, repeats)
    donor = lazy_donor(model, lambda: toy_prompt(index=prompt.example.index + 1))
    return prefill(model, prompt, plan(policies, points, prompt, seed, donor=donor))


def largest_row(trace: Trace, steps: int = STEPS) -> int:
    """The bytes of the largest row, and so the least bound with which every branch is decoded."""
    return max(row.size for row in all_rows(waves([trace], steps, 1)))


# The tokens of answers, by policy, ratio and question.
Answers = dict[tuple[str, float, int], tuple[int, ...]]


def by_question(generations: Sequence[Generation]) -> Answers:
    named = {
        (g.branch.treatment.policy.name, g.branch.treatment.ratio, g.question): g.token_ids
        for g in generations
    }
    assert len(named) == len(generations)
    return named


def answers(model: LoadedModel, trace: Trace) -> Answers:
    return by_question(decode(model, trace, STEPS, PLENTY))


def keep_every_third(
    module: Any, hidden_states: Any, keys: torch.Tensor, values: torch.Tensor, *_: Any
) -> Any:
    """A ``compress`` of a press: keeps the first of every three tokens, in all heads."""
    return keys[:, :, ::3], values[:, :, ::3]


def keep_of(branch: Branch) -> torch.Tensor:
    """The keep mask of a branch, bool (layers, num_kv_heads, seq_len)."""
    assert branch.error is None, branch.error
    masks = [cache.keep for cache in branch.layers]
    return torch.stack([mask for mask in masks if mask is not None])


def hooks_left(network: PreTrainedModel) -> list[Any]:
    """All hooks but transformers' own, which are there to stay once hidden states were asked
    for."""
    found = [hook for module in network.modules() for hook in module._forward_hooks.values()]
    found += [hook for module in network.modules() for hook in module._forward_pre_hooks.values()]
    return [hook for hook in found if not hook.__module__.startswith("transformers.")]


Act = Callable[..., Any]


@dataclass
class ActingPress(BasePress):
    """``act(module, hidden_states, keys, values, attentions, kwargs)`` is its ``compress``."""

    act: Act

    def compress(
        self, module: Any, hidden_states: Any, keys: Any, values: Any, attentions: Any, kwargs: Any
    ) -> Any:
        return self.act(module, hidden_states, keys, values, attentions, kwargs)


@dataclass
class ActingScorer(ScorerPress):
    """``act``, called in the same way, is its ``score``."""

    act: Act = lambda *_: None

    def score(
        self, module: Any, hidden_states: Any, keys: Any, values: Any, attentions: Any, kwargs: Any
    ) -> Any:
        return self.act(module, hidden_states, keys, values, attentions, kwargs)


def pressing(name: str, build: Callable[[Situation], BasePress], **fields: Any) -> Policy:
    """A policy around a dummy press."""
    return Policy(
        name=name, family="scorer", paper="-", description="for a test", build=build, **fields
    )


def hiding_keys(queries: torch.Tensor) -> torch.Tensor:
    """Keys, (batch, size), that all queries (batch, queries, size) give the same very low score.

    kvpress hides what a head-wise press masks behind such keys, but often finds none for the
    queries of a random model, or some that hide in part; there are fewer queries than dimensions,
    so that one equation for each can be solved."""
    count, size = queries.shape[1:]
    assert count <= size
    wanted = torch.full((len(queries), count, 1), -1e5, dtype=torch.float64)
    found: torch.Tensor = (torch.linalg.pinv(queries.double()) @ wanted)[..., 0].to(queries.dtype)
    return found


class DecodeListener:
    """A tokenizer that remembers which token ids it was asked to decode."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.heard: list[list[int]] = []
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def decode(self, token_ids: torch.Tensor, **options: Any) -> Any:
        self.heard.append(token_ids.tolist())
        return self._tokenizer.decode(token_ids, **options)


def kvpress_answers(
    model: LoadedModel, context: str, questions: Sequence[str], press: BasePress | None, steps: int
) -> list[list[int]]:
    """Token ids that kvpress's own pipeline decodes for each question."""
    listener = DecodeListener(model.tokenizer)
    pipeline = build_pipeline(model)
    pipeline.tokenizer = listener
    # A pipeline that raises leaves masks.
    with clearing_masks(model), pytest.MonkeyPatch.context() as patched:
        patched.setattr(attention_patch, "search_hyperplane", hiding_keys)
        pipeline(context, questions=list(questions), press=press, max_new_tokens=steps)
    ends = AnswerEnds(model.end_tokens())
    return [ends.until_end(heard)[0] for heard in listener.heard]


def kvpress_answers_branch(
    model: LoadedModel, prompt: Prompt, branch: Branch, steps: int, mode: Mode = "agnostic"
) -> list[list[int]]:
    """What a user of kvpress gets for the questions of a branch: by the policy's baseline, where it
    names one."""
    policy, situation = branch.treatment.policy, branch.treatment.situation
    task = TASKS[prompt.example.task]
    template = chat_template(model.tokenizer, task.role)
    asked = [prompt.questions[number].question for number in branch.treatment.questions]
    parts = texts_for_pipeline(model, task, asked, mode)
    context, questions = prompt.example.context + parts[0][0], [decoded for _, decoded in parts]
    whole = is_handed_over_whole(model, task)
    context = template.head + context if whole else context
    with as_written(model.tokenizer) if whole else nullcontext():
        return _answers_of_policy(
            model, policy, situation, branch.treatment.questions, context, questions, steps
        )


def _answers_of_policy(
    model: LoadedModel,
    policy: Policy,
    situation: Situation,
    numbers: Sequence[int],
    context: str,
    questions: Sequence[str],
    steps: int,
) -> list[list[int]]:
    if policy.while_decoding:
        answers = []
        for number, question in zip(numbers, questions, strict=True):
            seed = derive_seed(situation.seed, situation.example_id, f"answer {number}")
            with drawing_from(seed, model.device):
                answers += kvpress_answers(
                    model, context, [question], policy.press(situation), steps
                )
        return answers
    if policy.baseline is None:
        return kvpress_answers(model, context, questions, policy.press(situation), steps)
    model.network.set_attn_implementation(policy.baseline.attention)
    try:
        return kvpress_answers(model, context, questions, policy.baseline.build(situation), steps)
    finally:
        model.network.set_attn_implementation("sdpa")
