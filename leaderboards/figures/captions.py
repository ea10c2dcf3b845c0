"""Captions: what stands under a figure in a paper, so that it is read without its heading and without the page."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from leaderboards.aggregate.row import ALL_TASKS, SummaryRow
from leaderboards.figures.gallery import GalleryPlot
from leaderboards.figures.heatmaps import HeatMap, Key
from leaderboards.rendering.marks import Band

BANDS = "Bands are 95 % intervals by a bootstrap over contexts."
NONE_ADAPTED: Mapping[str, str] = MappingProxyType({})
MODES = {
    "agnostic": "The cache is compressed before the question is seen.",
    "aware": "The cache is compressed with the question in view.",
}


def picture_caption(picture: GalleryPlot, data: str) -> str:
    """Returns the caption of a curve or a scatter. ``data``: of :func:`data_sentences`."""
    drawing = picture.plot.drawing
    better = picture.unit.partition("; ")[2]
    bands = BANDS if any(isinstance(mark, Band) for mark in drawing.marks) else ""
    first = f"{drawing.title}{f'; {better}' if better else ''}."
    return " ".join(filter(None, (first, bands, data, picture.note)))


def map_caption(heat_map: HeatMap, key: Key, where: str, data: str) -> str:
    """Returns the caption of one layer of a heat map."""
    measure, option = key
    first = (
        f"{heat_map.title}: {heat_map.headings[measure]}; {where}, {heat_map.choices[1].title} {option}. "
        f"A row for each {heat_map.corner}, a column for each {heat_map.column_title.partition(':')[0]}."
    )
    return " ".join(filter(None, (first, data, heat_map.note)))


def data_sentences(
    rows: Sequence[SummaryRow], task: str, mode: str, model: str, adapted: Mapping[str, str] = NONE_ADAPTED
) -> str:
    """Says of which model, contexts and way of compression the numbers of a task are, and which policies ran with other
    arguments than their papers'. ``adapted``: these arguments by policy."""
    board_rows = [row for row in rows if (row.task, row.mode) == (task, mode) and row.n]
    tasks = dict.fromkeys(name for row in board_rows for name in row.mean_of)
    fewest = min((row.fewest_contexts for row in board_rows), default=0)
    contexts = f"{fewest} context{'s' * (fewest != 1)}"
    data = contexts
    if task == ALL_TASKS:
        data = f"at least {contexts} of each task; means are over {', '.join(tasks)}"
    texts = "; ".join(f"{policy}: {arguments}" for policy, arguments in adapted.items())
    others = f" Adapted (other arguments than the paper’s): {texts}." if texts else ""
    return f"Model {model}; {data}. {MODES[mode]}{others}"


def captions_page(captions: Sequence[tuple[str, str]], origin: str) -> str:
    """Returns all captions as Markdown, each under the name of its file. ``origin``: where the numbers are from."""
    return "\n".join((f"{origin}\n", *(f"## {stem}\n\n{caption}\n" for stem, caption in captions)))
