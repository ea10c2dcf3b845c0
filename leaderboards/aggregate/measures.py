"""The measures that boards are about, and how intervals are written."""

from leaderboards.metrics import MEASURES, Interval

F1, HALLUCINATION, GER = (MEASURES[field] for field in ("f1", "hallucination_rate", "ger"))
REALISED_RATIO, KEPT_TOKENS, KV_BYTES = (MEASURES[field] for field in ("realised_ratio", "kept_tokens", "kv_bytes"))
ABSTENTION, SLOT_COVERAGE = MEASURES["abstention_rate"], MEASURES["slot_coverage"]
OBEYED, LEAKAGE = MEASURES["directives_obeyed"], MEASURES["leakage"]


def written_interval(interval: Interval | None, factor: float = 1, digits: int = 0) -> str:
    """Both ends with a dash between them.

    >>> written_interval((0.25, 0.5), factor=100)
    '25–50'
    """
    return "–" if interval is None else "–".join(f"{end * factor:.{digits}f}" for end in interval)
