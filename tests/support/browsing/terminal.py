"""What people see in a terminal."""

import io

from rich.console import Console, RenderableType


def printed(*shown: RenderableType, width: int = 80) -> str:
    """Returns what is printed, in lines of that width and without colours."""
    file = io.StringIO()
    Console(width=width, file=file).print(*shown)
    return file.getvalue()
