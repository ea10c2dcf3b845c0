"""The shape of a model, from which the size of its weights and of its cache follows."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from kvbench.models.load import check_architecture, check_heads, longest_read
from kvbench.models.names import model_source
from kvbench.models.pretrained import read_config
from kvbench.models.shape import head_size_of, windows_of
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.hub import look_for_hub


@dataclass(frozen=True)
class DecoderShape:
    """The numbers of a decoder that its cost depends on."""

    name: str
    layers: int
    heads: int  # query heads of a layer
    key_heads: int  # heads of a layer that have keys and values
    head_size: int
    parameters: int
    bytes_per_number: int  # in weights and cache
    places: int = sys.maxsize  # tokens that the model takes at most
    sliding: int = 0  # layers that hold the newest tokens of a context alone
    window: int = 1  # how many tokens these hold

    def __post_init__(self) -> None:
        for field, value in asdict(self).items():
            if field not in ("name", "sliding") and value < 1:
                raise KVBenchError(f"a model has 1 or more {field.replace('_', ' ')}, not {value}")
        check_heads(self.heads, self.key_heads)

    @property
    def weight_bytes(self) -> int:
        return self.parameters * self.bytes_per_number

    def token_bytes(self, tokens: int) -> float:
        """Counts the bytes of keys and values of one token, in the mean over a context of so many."""
        layers = self.layers - self.sliding * max(0.0, 1 - self.window / tokens)
        return 2 * layers * self.key_heads * self.head_size * self.bytes_per_number

    def operations(self, tokens: float, pairs: float) -> float:
        """Counts two operations for each parameter and token, and two products over all pairs of a token that reads
        and a token that is read."""
        return 2.0 * self.parameters * tokens + 4.0 * self.layers * self.heads * self.head_size * pairs


def shape_of(model: str, bytes_per_number: int) -> DecoderShape:
    """Reads the configuration of a reference model, a folder or a hub model, without its weights."""
    source = model_source(model)
    try:
        if not Path(source).exists():
            look_for_hub()
        config = read_config(source)
        check_architecture(model, config.architectures or [])
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config)
    except KVBenchError:
        raise
    except Exception as error:  # the hub and damaged files raise anything
        raise KVBenchError(
            f"the configuration of '{model}' cannot be read ({first_line(error)}): give --layers, --heads, "
            "--key-heads, --head-size and --parameters instead"
        ) from error
    return shape_of_network(model, network, bytes_per_number)


def shape_of_network(name: str, network: PreTrainedModel, bytes_per_number: int) -> DecoderShape:
    text: Any = network.config.get_text_config()
    heads, windows = text.num_attention_heads, windows_of(text)
    key_heads = getattr(text, "num_key_value_heads", None) or heads
    sizes = text.num_hidden_layers, heads, key_heads, head_size_of(text), network.num_parameters(), bytes_per_number
    return DecoderShape(name, *sizes, longest_read(network), len(windows), max(windows, default=1))
