"""The shape of a model: what its weights and its cache weigh."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kvbench.errors import KVBenchError, first_line
from kvbench.hub import look_for_hub
from kvbench.models import model_source


@dataclass(frozen=True)
class Shape:
    """``bytes_per_number``: of weights and of the cache."""

    name: str
    layers: int
    heads: int
    key_heads: int
    head_size: int
    parameters: int
    bytes_per_number: int

    def __post_init__(self) -> None:
        for field in ("layers", "heads", "key_heads", "head_size", "parameters", "bytes_per_number"):
            if getattr(self, field) < 1:
                raise KVBenchError(f"a model has 1 or more {field.replace('_', ' ')}, not {getattr(self, field)}")
        if self.heads % self.key_heads:
            raise KVBenchError(f"{self.heads} heads cannot share {self.key_heads} key heads evenly")

    @property
    def weight_bytes(self) -> int:
        return self.parameters * self.bytes_per_number

    @property
    def cache_bytes(self) -> int:
        """Keys and values of one token."""
        return 2 * self.layers * self.key_heads * self.head_size * self.bytes_per_number

    def prefill_flops(self, tokens: int) -> float:
        """Two for each parameter and token; scores and their sums over half of all pairs of tokens."""
        return 2.0 * self.parameters * tokens + 2.0 * self.layers * self.heads * self.head_size * tokens**2


def shape_of(model: str, bytes_per_number: int) -> Shape:
    """The shape of a model by its configuration, without its weights: a reference model, a folder, or a hub name."""
    source = model_source(model)
    try:
        if source == model and "/" in model:
            look_for_hub()
        config = AutoConfig.from_pretrained(source)
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config)
    except KVBenchError:
        raise
    except Exception as error:  # of the hub, of damaged files
        raise KVBenchError(
            f"the configuration of '{model}' cannot be read ({first_line(error)}): give --layers, --heads, "
            "--key-heads, --head-size and --parameters instead"
        ) from error
    text: Any = config.get_text_config()
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    key_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    return Shape(
        model,
        text.num_hidden_layers,
        text.num_attention_heads,
        key_heads,
        size,
        network.num_parameters(),
        bytes_per_number,
    )
