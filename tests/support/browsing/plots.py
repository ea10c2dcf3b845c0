"""What the page's script reads from the data of a plot."""

import json
from typing import Any

from leaderboards.rendering.drawing import Plot


def told_by(plot: Plot) -> dict[str, Any]:
    """The names of its lines, and its spots, each with its policy, place, level and lines as they are shown."""
    data: dict[str, Any] = json.loads(plot.data())

    def text(part: str | int) -> str:
        return str(data["texts"][part] if isinstance(part, int) else part).replace("\t", "95 % interval ")

    return data | {"spots": [[*spot[:3], *map(text, spot[3:])] for spot in data["spots"]]}
