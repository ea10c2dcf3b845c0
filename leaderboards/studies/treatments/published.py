"""Figures that texts report of their own models and tasks, to stand beside ours."""

from collections.abc import Mapping
from dataclasses import dataclass

TEXT_F = "KV Cache is More Robust Than You Think"
TEXT_E = "Effect of KV Cache Error on Inference Accuracy"
LARGE, SMALL = "Qwen2.5 7B, published", "Qwen2.5 1.5B, published"  # of text F, on GSM8K
IFEVAL, NEXT_TOKEN = "IFEval, published", "next token, published"  # of text E, on Llama 3.2 1B
FIGURES = (LARGE, SMALL, IFEVAL, NEXT_TOKEN)
FRESH = "unit=value,phase=every_step,persistence=transient"
BY_COUNTS = "83 (by its counts 53), 85 (by its counts 61)"  # the text's own counts give other shares than it prints


@dataclass(frozen=True)
class PublishedRow:
    """What texts report of a treatment, in percent of the clean cache."""

    words: str
    policies: tuple[str, ...]  # that do the same here, the nearest form first
    level: float
    figures: Mapping[str, str]


PUBLISHED = (
    PublishedRow(
        "Gaussian noise, 2 % of the entries",
        (f"gaussian({FRESH})", "gaussian"),
        0.02,
        {LARGE: "2 (0.02 of 0.87)", SMALL: "0 (0.00 of 0.66)"},
    ),
    PublishedRow(
        "rows of another prompt, 30 %",
        (f"distractor({FRESH})", "distractor"),
        0.3,
        {LARGE: "57 (0.50 of 0.87)", SMALL: "11 (0.07 of 0.66)"},
    ),
    *(
        PublishedRow(
            f"Gaussian noise in the {words} quarter of the layers, 2 %",
            (f"gaussian(layers={layers},{FRESH})", f"gaussian(layers={layers})"),
            0.02,
            {LARGE: figure},
        )
        for words, layers, figure in (("third", "Q3", "99 (0.86 of 0.87)"), ("last", "Q4", "14 (0.12 of 0.87)"))
    ),
    PublishedRow("8 bits", ("int8",), 0.0, {IFEVAL: "98", NEXT_TOKEN: "91"}),
    PublishedRow("4 bits", ("int4",), 0.0, {IFEVAL: "98", NEXT_TOKEN: "115"}),
    PublishedRow("uniform(-1, 1)", ("multiplicative_uniform",), 1.0, {IFEVAL: "83", NEXT_TOKEN: BY_COUNTS}),
    PublishedRow("uniform(0, 2)", ("multiplicative_uniform(low=0,high=2)",), 1.0, {NEXT_TOKEN: "“random tokens”"}),
    PublishedRow("uniform(-1.5, 1.5)", ("multiplicative_uniform(low=-1.5,high=1.5)",), 1.0, {NEXT_TOKEN: "61"}),
    PublishedRow("normal(0, 0.25)", ("multiplicative_normal(std=0.25)",), 1.0, {NEXT_TOKEN: "80"}),
    PublishedRow("normal(0, 0.5)", ("multiplicative_normal",), 1.0, {NEXT_TOKEN: "61"}),
    PublishedRow("wrong signs", ("sign_flip",), 0.05, {NEXT_TOKEN: "“catastrophic”"}),
)
