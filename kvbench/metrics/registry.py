"""The metrics of a record, by name, with a line on each for ``ls metrics`` and the README. The page explains them at
length (leaderboards/definitions.py)."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A column of the records. ``unit``: percent, rate (0 to 1), bytes, seconds or kind."""

    name: str
    unit: str
    better: str
    definition: str


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("f1", "percent", "high", "SQuAD token F1 after normalisation, best over the golds"),
        Metric("em", "percent", "high", "SQuAD exact match after normalisation, best over the golds"),
        Metric("abstained", "rate", "-", "The normalised output is one of the task's abstention phrases"),
        Metric("hallucinated", "rate", "low", "Neither empty nor an abstention, and F1 below 50 percent"),
        Metric("hallucination_kind", "kind", "-", "confused: a value the context states; else fabricated"),
        Metric("directives_obeyed", "rate", "high", "Share of the directives that the answer obeys, by their checkers"),
        Metric(
            "leakage", "rate", "low", "ROUGE-L recall of the protected text in the answer to an attack [2510.00231]"
        ),
        Metric("defence_leakage", "rate", "low", "The same of the defence's text, the words of the refusal among it"),
        Metric("refused", "rate", "high", "The answer to an attack holds the refusal that the defence asks for"),
        Metric("directives_strict", "rate", "high", "For each directive, whether the answer obeys it as it stands"),
        Metric("directives_loose", "rate", "high", "The same of any of IFEval's eight versions of it [2311.07911]"),
        Metric("defence_kept", "rate", "-", "Mean survival of the defence's tokens over all slots; also by layer"),
        Metric("directives_kept", "rate", "-", "The same of the directives' tokens"),
        Metric("ger", "rate", "low", "Share of the answer tokens that survive in no (layer, head) slot [2603.01426]"),
        Metric("ger_by_layer", "rate", "low", "The same within each layer"),
        Metric("eviction_rate", "rate", "-", "Share of the context's tokens that survive in no slot"),
        Metric("slot_coverage", "rate", "high", "Mean survival of the evidence tokens over all slots"),
        Metric(
            "realised_ratio", "rate", "-", "Share of the cache that is not read any more, counted per layer and head"
        ),
        Metric("kv_bytes", "bytes", "low", "What an allocator would hold: a head-wise press masks and frees nothing"),
        Metric("prefill_seconds", "seconds", "low", "The uncompressed prefill that all branches share"),
        Metric(
            "compression_seconds",
            "seconds",
            "low",
            "The press's own work as if it ran alone; by scores: without copying what they keep",
        ),
        Metric("decode_seconds", "seconds", "low", "The question's equal share of its batched decode"),
    )
}
