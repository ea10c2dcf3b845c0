"""Reads the numbers of a decoder that its cost depends on."""

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kvbench.handed.scope import find_handed_model
from kvbench.models.names import model_source
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.hub import look_for_hub
from policies import LazyModule

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# They need torch, which a mistyped name of a machine does not wait for.
models = LazyModule("kvbench.models.load")
pretrained = LazyModule("kvbench.models.pretrained")
torch = LazyModule("torch")
transformers = LazyModule("transformers")


@dataclass(frozen=True)
class DecoderShape:
    """The numbers of a decoder that its cost depends on. Sliding layers count as full ones."""

    name: str
    layers: int
    heads: int  # query heads of a layer
    key_heads: int  # heads of a layer that have keys and values
    head_size: int
    parameters: int
    dtype: str  # of weights and cache, as torch names it
    places: int = sys.maxsize  # tokens that the model takes at most

    def __post_init__(self) -> None:
        for field, value in asdict(self).items():
            if not isinstance(value, str) and value < 1:
                raise KVBenchError(f"a model has 1 or more {field.replace('_', ' ')}, not {value}")
        models.check_heads(self.heads, self.key_heads)

    @property
    def bytes_per_number(self) -> int:
        """Returns the bytes of a number of weights or cache."""
        size: int = getattr(torch, self.dtype).itemsize
        return size

    def in_dtype(self, dtype: str) -> Self:
        return replace(self, dtype=dtype)

    @property
    def weight_bytes(self) -> int:
        return self.parameters * self.bytes_per_number

    @property
    def token_bytes(self) -> int:
        """Returns the bytes of keys and values of one token."""
        return 2 * self.layers * self.key_heads * self.head_size * self.bytes_per_number

    def operations(self, tokens: float, pairs: float) -> float:
        """Counts two operations for each parameter and token, and two products over all pairs of
        tokens."""
        of_weights = 2.0 * self.parameters * tokens
        of_attention = 4.0 * self.layers * self.heads * self.head_size * pairs
        return of_weights + of_attention


def read_shape(model: str, dtype: str) -> DecoderShape:
    """Reads the configuration of a reference model, a folder or a hub model, without its weights.
    Raises :class:`KVBenchError` for one that cannot be read, or that nothing here can run."""
    if handed := find_handed_model(model):
        return shape_of_network(model, handed.network, dtype)
    source = model_source(model)
    try:
        if not Path(source).exists():
            look_for_hub()
        config = pretrained.read_config(source)
        models.check_architecture(model, config.architectures or [])
        # On the meta device a network of any size takes no memory.
        with torch.device("meta"):
            network = transformers.AutoModelForCausalLM.from_config(config)
    except KVBenchError:
        raise
    except Exception as error:  # the hub and damaged files raise anything
        advice = "give --layers, --heads, --key-heads, --head-size and --parameters instead"
        unread = f"the configuration of '{model}' cannot be read ({first_line(error)})"
        raise KVBenchError(f"{unread}: {advice}") from error
    return shape_of_network(model, network, dtype)


def shape_of_network(name: str, network: "PreTrainedModel", dtype: str) -> DecoderShape:
    """Reads the numbers of a network, of which the text part alone counts."""
    text: Any = network.config.get_text_config()
    heads = text.num_attention_heads
    key_heads = getattr(text, "num_key_value_heads", None) or heads
    return DecoderShape(
        name,
        layers=text.num_hidden_layers,
        heads=heads,
        key_heads=key_heads,
        head_size=pretrained.read_head_size(text),
        parameters=network.num_parameters(),
        dtype=dtype,
        places=models.longest_read(network),
    )
