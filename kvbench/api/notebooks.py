"""Shows pages and figures in a notebook."""

import sys
from html import escape

from policies import LazyModule

pyplot = LazyModule("matplotlib.pyplot")
AROUND = 300  # pixels of a frame beside the rows of a table: heads, key and notes
ROW = 46  # pixels of a row
HIGHEST = 900


def frame_page(page: str, lines: int) -> str:
    """Returns a page in a frame of its own, in which its style touches nothing of the notebook.
    ``lines``: of its table."""
    height = min(HIGHEST, AROUND + ROW * lines)
    style = f"width:100%;height:{height}px;border:0;resize:vertical;color-scheme:light dark"
    return f'<iframe title="kvbench" style="{style}" srcdoc="{escape(page)}"></iframe>'


def show_figures() -> None:
    """Has a notebook show figures of matplotlib, which it does once pyplot has chosen a backend."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        pyplot.switch_backend(pyplot.get_backend())
