"""Figures of texts, to stand beside ours under their names."""

from dataclasses import dataclass

TEXT_F = "KV Cache is More Robust Than You Think"
TEXT_E = "Effect of KV Cache Error on Inference Accuracy"
CLEAN_LARGE, CLEAN_SMALL = 0.87, 0.66  # of text F, without a fault
LARGE, SMALL = "Qwen2.5 7B, published", "Qwen2.5 1.5B, published"
IFEVAL, NEXT_TOKEN = "IFEval, published", "next token, published"


@dataclass(frozen=True)
class OfTextF:
    """A row: right answers to GSM8K with a fault, of those with the clean cache. None where the text has no figure."""

    words: str
    policies: tuple[str, ...]  # that do the same here, the nearest form first
    rate: float
    large: float | None = None
    small: float | None = None


FRESH = "unit=value,phase=every_step,persistence=transient"
FAULTS = (
    OfTextF("Gaussian noise, 2 % of the entries", (f"gaussian({FRESH})", "gaussian"), 0.02, 0.02, 0.00),
    OfTextF("rows of another prompt, 30 %", (f"distractor({FRESH})", "distractor"), 0.3, 0.50, 0.07),
    OfTextF(
        "Gaussian noise in the third quarter of the layers, 2 %",
        (f"gaussian(layers=Q3,{FRESH})", "gaussian(layers=Q3)"),
        0.02,
        0.86,
    ),
    OfTextF(
        "Gaussian noise in the last quarter of the layers, 2 %",
        (f"gaussian(layers=Q4,{FRESH})", "gaussian(layers=Q4)"),
        0.02,
        0.12,
    ),
)
