"""Makes models with real shapes and random weights: time and memory do not depend on what a model knows."""

from dataclasses import dataclass, replace

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from datasets_gen import TASKS, Task
from kvbench.models.load import LoadedModel, wrap_model
from kvbench.models.shipped import folder_of
from kvbench.prompts.context_length import lengthen

ANSWER = 16  # tokens: random weights end no answer


@dataclass(frozen=True)
class LlamaShape:
    """The sizes with which a Llama is built; a plan needs less (:class:`kvbench.estimate.shape.DecoderShape`)."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    vocabulary: int = 8192


TINY = LlamaShape("tiny", 32, 64, 2, 4, 2, 16)
SMALL = LlamaShape("of the reference model, 4 layers", 128, 256, 4, 4, 2, 32)
OF_100_MILLION = LlamaShape("100 M parameters", 768, 2048, 15, 12, 4, 64)
OF_8_BILLION = LlamaShape("Llama-3.1-8B", 4096, 14336, 32, 32, 8, 128, 128256)


def random_model(shape: LlamaShape, positions: int, device: torch.device, dtype: torch.dtype) -> LoadedModel:
    """Makes a model of a shape for sequences of so many tokens, with the reference model's tokenizer."""
    folder = folder_of("reference")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = positions
    network = random_network(shape, positions, device, dtype)
    for name, token in (("bos", tokenizer.bos_token_id), ("eos", tokenizer.eos_token_id)):
        setattr(network.generation_config, f"{name}_token_id", token)
    network.set_attn_implementation("sdpa")
    network.config._name_or_path = str(folder)
    return wrap_model(shape.name, network, tokenizer, f"random weights of {shape.name}")


def random_network(shape: LlamaShape, positions: int, device: torch.device, dtype: torch.dtype) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        head_dim=shape.head_size,
        max_position_embeddings=positions,
        tie_word_embeddings=shape.hidden < OF_8_BILLION.hidden,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            return LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)


def task_of(model: LoadedModel, tokens: int, answer: int = ANSWER) -> Task:
    """Returns ``long_context`` with contexts of so many tokens."""
    (task,) = lengthen([TASKS["long_context"]], tokens, None, model.count_tokens, model.name)
    return replace(task, max_new_tokens=answer)
