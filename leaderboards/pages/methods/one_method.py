"""The page of one method: what it is, how much it keeps on each model, and how it fails."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from leaderboards.aggregate.leading_measures import find_lead
from leaderboards.aggregate.row import SLOT_COVERAGE, SummaryRow
from leaderboards.boards.declaration import TableCell, TableRow
from leaderboards.boards.rank import RANK
from leaderboards.metrics import MEASURES
from leaderboards.metrics.declaration import Measure
from leaderboards.pages.gallery import GalleryPlot, gallery
from leaderboards.pages.methods.all_methods import AboutMethod, measure_cell
from leaderboards.pages.results import Results, distinct_labels
from leaderboards.rendering.style import LineStyle, line_styles
from leaderboards.rendering.templating import ALONE, Neighbours, render
from leaderboards.statistics.bootstrap import Blank
from leaderboards.studies.parts import examples_at, examples_page
from policies.declaration.levels import UNTREATED
from policies.declaration.names import CONTROLS, FULL

# What an answer becomes that the full cache has right, and why.
FAILURES: tuple[tuple[Measure, str], ...] = (
    (MEASURES["lost"], "falls silent"),
    (MEASURES["new_wrong"], "answers wrongly"),
    (MEASURES["confused_rate"], "names another value of the text"),
    (MEASURES["fabricated_rate"], "makes a value up"),
)
COLUMNS = ("right", "full cache", *(words for _, words in FAILURES), "evidence kept")


@dataclass(frozen=True)
class OnModel:
    """Holds how a method does on one model."""

    identifier: str
    title: str
    place: str  # such as "Place 7, 3–12 of 40", or why there is none
    styles: tuple[LineStyle, ...]
    pictures: tuple[GalleryPlot, ...]
    rows: tuple[TableRow, ...]  # a task at a level each


def build_one_method(
    name: str,
    about: AboutMethod,
    arguments: str,
    results: Sequence[Results],
    above: str,
    neighbours: Neighbours = ALONE,
) -> str:
    """Builds the page as text. ``arguments``: that its press ran with. ``above``: the file name of
    the page of all methods."""
    models: list[OnModel] = []
    # One line for a policy on all models, which have other policies each.
    rows = [row for of_setting in results for row in of_setting.rows]
    styles = line_styles(rows)
    labels = distinct_labels(results)
    for number, (of_setting, label) in enumerate(zip(results, labels, strict=True), start=1):
        if any(row.policy == name for row in of_setting.rows):
            title = label or of_setting.model
            models.append(_on_model(name, of_setting, number, title, styles))
    shown = {style.policy: style for model in models for style in model.styles}
    return render(
        "one_method.html.j2",
        ("address.js", "page.js", "hover.js"),
        neighbours,
        name=name,
        about=about,
        arguments=arguments,
        models=models,
        styles=shown,
        columns=COLUMNS,
        above=above,
    )


def _on_model(
    name: str, results: Results, number: int, title: str, styles: Mapping[str, LineStyle]
) -> OnModel:
    beside = (name, *CONTROLS)
    rows = [row for row in results.rows if row.policy in beside]
    task = results.shown[0]
    shown = {row.policy for row in rows if row.task == task}
    return OnModel(
        f"model-{number}",
        title,
        _place(name, results),
        tuple(style for policy, style in styles.items() if policy in shown),
        tuple(_curves(rows, results, styles, number)),
        _rows_of_tasks(name, results, number),
    )


def _curves(
    rows: Sequence[SummaryRow], results: Results, styles: Mapping[str, LineStyle], number: int
) -> list[GalleryPlot]:
    """Draws what leads the mean over tasks; where they have no measure in common, as answers and
    next tokens of a text, what leads each of them."""
    first, *others = results.shown
    leading = _leading(rows, first, results.mode, styles, f"model-{number}")
    if leading:
        return leading
    pictures: list[GalleryPlot] = []
    for task in others:
        for picture in _leading(rows, task, results.mode, styles, f"model-{number}-{task}")[:1]:
            title = f"{task}: {picture.title.lower()}"
            pictures.append(replace(picture, name=f"{task}-{picture.name}", title=title))
    return pictures


def _leading(
    rows: Sequence[SummaryRow], task: str, mode: str, styles: Mapping[str, LineStyle], place: str
) -> list[GalleryPlot]:
    pictures = gallery(rows, task, mode, styles, place)
    return [picture for picture in pictures if picture.leads]


def _place(name: str, results: Results) -> str:
    for standing in results.standings.get((results.mode, results.shown[0]), ()):
        if standing.policy == name:
            rank = standing[RANK]
            if isinstance(rank, Blank):
                return f"No place: {rank.reason}"
            cell: TableCell = RANK.cell(rank)
            if cell.is_blank:
                return f"No place: {cell.reason}"
            return f"Place {cell.text}, {cell.detail}"
    return "No place here"


def _evidence_cell(row: SummaryRow) -> TableCell:
    """Makes the cell of the evidence that is kept, in percent as all others of its row."""
    kept = SLOT_COVERAGE.value(row)
    if kept is None:
        return TableCell.blank("the task marks no evidence")
    return TableCell(f"{100 * kept:.1f}", sort=kept)


def _rows_of_tasks(name: str, results: Results, number: int) -> tuple[TableRow, ...]:
    """Makes a row for each task and level, whose first cell leads to its examples. Those of more
    contexts stand last and have none."""
    lines = []
    for task in results.tasks:
        page = examples_page(task, number)
        for row, line in _lines_of_task(name, results, task):
            first, *others = line.cells
            leading = replace(first, examples=examples_at(page, name, row.at))
            lines.append(replace(line, cells=(leading, *others)))
    for closer in results.closer:
        for task in closer.tasks:
            for row, line in _lines_of_task(name, closer, task):
                lines.append(replace(line, name=f"{line.name}, {row.contexts} contexts"))
    return tuple(lines)


def _lines_of_task(name: str, results: Results, task: str) -> list[tuple[SummaryRow, TableRow]]:
    """Makes a line of each level, beside the row that it shows."""
    rows = [row for row in results.rows if row.task == task]
    full = next((row for row in rows if row.policy == FULL), None)
    measure = find_lead(full).measures[0]
    lines = []
    for row in rows:
        if row.policy == name:
            where = task if row.at == UNTREATED else f"{task}, {row.at.where}"
            cells = [measure_cell(measure, row), measure_cell(measure, full)]
            cells += [measure_cell(failure, row) for failure, _ in FAILURES]
            cells.append(_evidence_cell(row))
            lines.append((row, TableRow(where, tuple(cells))))
    return lines
