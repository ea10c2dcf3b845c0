"""A press that removes more from layer to layer."""

from dataclasses import dataclass, field
from typing import Any

from kvpress import PerLayerCompressionPress

from policies.declaration.shape import is_left_whole

RAMP = 0.5  # of what is smaller, the share removed or the share kept


@dataclass
class RampPress(PerLayerCompressionPress):
    """A ratio for each layer that is compressed, rising in even steps from the first to the last; their mean is
    ``ratio``."""

    compression_ratios: list[float] = field(default_factory=list)
    ratio: float = 0.0

    def post_init_from_model(self, model: Any) -> None:
        layers = getattr(model.model, "language_model", model.model).layers
        reach = RAMP * min(self.ratio, 1 - self.ratio)
        compressed = [number for number, layer in enumerate(layers) if not is_left_whole(layer.self_attn)]
        steps = len(compressed) - 1
        self.compression_ratios = [0.0] * len(layers)
        for place, number in enumerate(compressed):
            self.compression_ratios[number] = self.ratio + (reach * (2 * place / steps - 1) if steps else 0.0)
