"""A press that removes more from layer to layer."""

from dataclasses import dataclass, field
from typing import Any

from kvpress import PerLayerCompressionPress

RAMP = 0.5  # of what is smaller, the share removed or the share kept


@dataclass
class RampPress(PerLayerCompressionPress):
    """A ratio for each layer, rising in even steps from the first to the last; their mean is ``ratio``."""

    compression_ratios: list[float] = field(default_factory=list)
    ratio: float = 0.0

    def post_init_from_model(self, model: Any) -> None:
        layers = getattr(model.model, "language_model", model.model).layers
        reach = RAMP * min(self.ratio, 1 - self.ratio)
        last = max(1, len(layers) - 1)
        self.compression_ratios = [self.ratio + reach * (2 * number / last - 1) for number in range(len(layers))]
