"""The plans that docs/scale.md shows."""

from collections.abc import Mapping
from dataclasses import replace

from kvbench.estimate.constants import Constants
from kvbench.estimate.page import markdown
from kvbench.estimate.request import Request
from kvbench.estimate.shape import Shape

LARGE = Shape("70.6 B, 80 layers", 80, 64, 8, 128, 70_600_000_000, 2)
CATALOGUE = Request(LARGE, tasks="long_context", limit=100, context_tokens=131_072)
EXAMPLES: Mapping[str, Request] = {
    "full catalogue": CATALOGUE,
    "default policies": replace(CATALOGUE, policies=None),
}


def example(name: str) -> str:
    """The plan of that name, as Markdown."""
    return markdown(EXAMPLES[name].plan(Constants.read()))
