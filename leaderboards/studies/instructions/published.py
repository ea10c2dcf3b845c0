"""Figures of papers, to stand beside ours under their names."""

from collections.abc import Mapping
from dataclasses import dataclass

GAINS_SOURCE = "arXiv 2510.00231"
GAINS_MODELS = ("Llama-3", "Qwen2")


@dataclass(frozen=True)
class Published:
    """A mean protection gain over the ratios 0.4 to 0.7, by model in the order of :data:`GAINS_MODELS`."""

    gains: tuple[float, ...]


# By plain policy and way of protection.
GAINS: Mapping[tuple[str, str], Published] = {
    ("streaming_llm", "whitelist"): Published((0.196, 0.169)),
    ("snapkv", "whitelist"): Published((0.051, 0.124)),
    ("tova", "whitelist"): Published((0.028, 0.070)),
    ("h2o", "whitelist"): Published((0.020, 0.114)),
    ("knorm", "whitelist"): Published((0.001, 0.082)),
    ("streaming_llm", "fair"): Published((0.220, 0.183)),
    ("snapkv", "fair"): Published((0.047, 0.048)),
    ("tova", "fair"): Published((0.025, 0.016)),
    ("h2o", "fair"): Published((0.006, 0.020)),
    ("knorm", "fair"): Published((0.024, 0.014)),
}
