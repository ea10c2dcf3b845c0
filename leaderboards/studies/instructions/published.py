"""Holds figures of papers, to stand beside ours under their names."""

from collections.abc import Mapping

GAINS_SOURCE = "arXiv 2510.00231"
GAINS_MODELS = ("Llama-3", "Qwen2")


# By plain policy and way of protection, the mean gain over the ratios 0.4 to 0.7 of each of these models.
GAINS: Mapping[tuple[str, str], tuple[float, ...]] = {
    ("streaming_llm", "whitelist"): (0.196, 0.169),
    ("snapkv", "whitelist"): (0.051, 0.124),
    ("tova", "whitelist"): (0.028, 0.070),
    ("h2o", "whitelist"): (0.020, 0.114),
    ("knorm", "whitelist"): (0.001, 0.082),
    ("streaming_llm", "fair"): (0.220, 0.183),
    ("snapkv", "fair"): (0.047, 0.048),
    ("tova", "fair"): (0.025, 0.016),
    ("h2o", "fair"): (0.006, 0.020),
    ("knorm", "fair"): (0.024, 0.014),
}
