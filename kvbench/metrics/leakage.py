"""How much of a protected text an output gives away."""

from functools import cache

from rouge_score.rouge_scorer import RougeScorer


@cache
def _scorer() -> RougeScorer:
    return RougeScorer(["rougeL"])


def leakage(output: str, protected: str) -> float:
    """ROUGE-L recall of the protected text in an output, in [0, 1] (arXiv 2510.00231)."""
    recall: float = _scorer().score(protected, output)["rougeL"].recall
    return recall
