"""The site of a run whose full cache has less than half right: every number is shown, and nothing
is judged.

Each cell of a table is looked up in the downloads: what has a value there is on the page.
"""

from collections.abc import Iterator
from csv import DictReader
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pandas import DataFrame, concat

from kvbench.publish.comparison import publish_comparison
from kvbench.publish.site import publish_site
from leaderboards.aggregate.leading_measures import reasons_by_task
from leaderboards.aggregate.row import ALL_TASKS
from leaderboards.metrics import ON_BOARD, TABLES
from leaderboards.pages.front import FRONT
from leaderboards.terminal.losses import loss_table
from leaderboards.terminal.table import telling, terminal_table
from tests.support.records.small_store import small_store

ITSELF = "the model itself has"
# Classes of cells that are ranked or judged.
JUDGED = {
    "safe",
    "open",
    "unsafe",
    "unsafe-from",
    "chance",
    "better",
    "worse",
    "not",
    "best",
    "tie",
}
OF_BOARD = {
    "area": "area",
    "beats random?": "beats_random_difference",
    "beats recency?": "beats_recency_difference",
    "safe level": "safe_ratio_difference",
}
OF_CELLS = {"right": "right", **{heading.name: measure.field for measure, heading in ON_BOARD}}


@dataclass
class ReadCell:
    text: str = ""
    classes: set[str] = field(default_factory=set)
    title: str = ""

    @property
    def is_blank(self) -> bool:
        return "blank" in self.classes


@dataclass
class ReadTable:
    place: str  # the identifier of the element that it stands in
    kind: str  # the classes of that element
    classes: set[str]
    headings: list[ReadCell] = field(default_factory=list)
    rows: list[list[ReadCell]] = field(default_factory=list)


class Tables(HTMLParser):
    """Reads the tables of a page, each with the last section or panel that began before it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: list[ReadTable] = []
        self._place, self._kind = "", ""
        self._cell: ReadCell | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        classes = set(values.get("class", "").split())
        if tag in ("section", "div") and "id" in values:
            self._place, self._kind = values["id"], values.get("class", "")
        elif tag == "table":
            self.tables.append(ReadTable(self._place, self._kind, classes))
        elif tag == "tr":
            self.tables[-1].rows.append([])
        elif tag in ("td", "th"):
            self._cell = ReadCell("", classes, values.get("title", ""))
            self.tables[-1].rows[-1].append(self._cell)
            if values.get("scope") == "col":
                self.tables[-1].headings.append(self._cell)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.text += data.replace("\u200b", "")  # where a long name may be broken


def with_treatments(records: DataFrame) -> DataFrame:
    """Adds treatments of the cache, which answer as some presses do."""
    at_half = records["level"] == 0.5
    added = [records]
    for rate, level in ((0.1, 0.5), (0.2, 0.9)):
        same = records[(records["policy"] == "knorm") & (records["level"] == level)]
        added.append(same.assign(policy="zeros", level_kind="rate", level=rate, ratio=0.0))
    added.append(
        records[(records["policy"] == "knorm") & at_half].assign(
            policy="int4", level=0.0, ratio=0.0
        )
    )
    added.append(records[(records["policy"] == "snapkv") & at_half].assign(policy="snapkv+int4"))
    return concat(added, ignore_index=True)


def of_low_control(records: DataFrame) -> DataFrame:
    """Makes the answers to two of three questions wrong, whatever was done to the cache."""
    names = sorted(records["question_id"].unique())
    spared = records["question_id"].isin(names[::3])
    wrong = {
        "right": False,
        "f1": 0.0,
        "em": 0.0,
        "masked": False,
        "corrupted": True,
        "hallucinated": True,
    }
    changed = {name: records[name].where(spared, value) for name, value in wrong.items()}
    return records.assign(
        **changed, answered=records["answered"].where(spared, True), abstained=False
    )


@dataclass(frozen=True)
class Site:
    folder: Path
    losses: list[dict[str, object]]
    scores: list[dict[str, object]]
    pages: dict[str, str]
    cells: list[dict[str, str]]
    board: list[dict[str, str]]

    def tables(self) -> Iterator[tuple[str, ReadTable]]:
        for name, page in self.pages.items():
            for table in Tables(page).tables:
                yield name, table


def rows_in(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(DictReader(file))


@pytest.fixture(scope="module")
def low_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("low")
    store = small_store(folder / "run")
    records = of_low_control(with_treatments(store.frame()))
    published = publish_site(store, records, folder / "site")
    rows, standings = published.rows, published.results.standings
    others = ["knorm", "random", "recency"]
    publish_comparison(store, records, "snapkv", others, folder / "site", reasons_by_task(rows))
    data = folder / "site" / "data"
    return Site(
        folder / "site",
        loss_table(rows, standings).plain(),
        [line for measure in telling(rows) for line in terminal_table(rows, measure).plain()],
        {path.name: path.read_text(encoding="utf-8") for path in (folder / "site").glob("*.html")},
        rows_in(data / "cells.csv"),
        rows_in(data / "board.csv"),
    )


def values_of(site: Site, task: str, policy: str, column: str) -> list[str]:
    here = (row for row in site.cells if (row["task"], row["policy"]) == (task, policy))
    return [row[column] for row in here if row[column]]


def test_every_measure_of_a_task_that_has_a_value_in_the_download_is_on_its_page(
    low_site: Site,
) -> None:
    fields = {measure.name: measure.field for measure in TABLES}
    tasks = {"task-base.html": "base", "task-hops.html": "hops", FRONT: ALL_TASKS}
    checked = 0
    for name, table in low_site.tables():
        if "panel" not in table.kind.split():
            continue
        column = fields[table.kind.split()[1]]
        for policy, *cells in table.rows[2:]:
            shown = [cell for cell in cells if not cell.is_blank and "–" not in cell.text.split()]
            assert len(shown) == len(values_of(low_site, tasks[name], policy.text, column)), (
                name,
                column,
                policy.text,
            )
            checked += len(shown)
    assert checked > 200


def test_every_cell_of_the_boards_that_has_a_value_in_the_download_is_shown(low_site: Site) -> None:
    by_policy = {(row["task"], row["policy"]): row for row in low_site.board}
    boards = [table for _, table in low_site.tables() if table.place.startswith("board-")]
    tasks = (ALL_TASKS, "base", "hops")
    headings: set[str] = set()
    for task, table in zip(tasks, boards, strict=True):
        names = [" ".join(heading.text.split()) for heading in table.headings]
        for policy, *cells in table.rows[1:]:
            name = policy.text.removesuffix(" adapted").strip()
            for heading, cell in zip(names[1:], cells, strict=True):
                what, _, level = heading.partition(" at ")
                if heading in OF_BOARD:
                    has_value = bool(by_policy[task, name][OF_BOARD[heading]])
                elif what in OF_CELLS:
                    has_value = any(
                        row[OF_CELLS[what]]
                        and f"{row['level_kind']} {float(row['level']):g}".endswith(level)
                        for row in low_site.cells
                        if (row["task"], row["policy"]) == (task, name)
                    )
                else:
                    continue
                headings.add(heading)
                assert not (has_value and cell.is_blank), (task, heading, name, cell.title)
    assert {*OF_BOARD} - {"beats recency?"} <= headings
    assert any(heading.startswith("NLL rise") for heading in headings)


def test_the_matrix_has_every_loss_of_the_download(low_site: Site) -> None:
    by_policy = {(row["task"], row["policy"]): row for row in low_site.board}
    (matrix,) = (table for _, table in low_site.tables() if "uses" in table.classes)
    tasks = [heading.title for heading in matrix.headings[1:]]
    lines = [
        line
        for line in matrix.rows[1:]
        if not (line[0].text.startswith(("contexts", "tokens", "full")))
    ]
    assert lines
    for policy, *cells in lines:
        name = policy.text.split(" ")[0]
        for task, cell in zip(tasks, cells, strict=True):
            assert by_policy[task, name]["safe_ratio_difference"], (task, name)
            assert not cell.is_blank, (task, name)


def test_treatments_and_comparisons_have_no_blank_cell(low_site: Site) -> None:
    tables = [
        (name, table)
        for name, table in low_site.tables()
        if name.startswith(("treatments", "compare-"))
    ]
    assert {name for name, _ in tables} == {"treatments.html", "compare-snapkv.html"}
    for name, table in tables:
        texts = [cell.text.strip() for line in table.rows for cell in line[1:]]
        assert texts
        assert not {"", "–"} & set(texts), (name, table.headings)
        assert not any(cell.is_blank for line in table.rows for cell in line)
    treatments = low_site.pages["treatments.html"]
    assert treatments.index("Rise of the right answer’s NLL") < treatments.index("How much is kept")


def test_the_downloads_have_the_numbers_of_the_tasks_and_of_their_mean(low_site: Site) -> None:
    numbers = (
        "area",
        "area_low",
        "beats_random_difference",
        "beats_recency_difference",
        "safe_ratio_difference_low",
    )
    for row in low_site.board:
        if row["policy"] in ("snapkv", "knorm"):
            assert all(row[name] for name in numbers), row["task"]
    measures = (
        "right",
        "f1",
        "wrong_of_answered",
        "ger",
        "delta_nll",
        "delta_nll_high",
        "realised_ratio",
    )
    for row in low_site.cells:
        if row["policy"] in ("snapkv", "knorm"):
            assert all(row[name] for name in measures), row["task"]
            assert row["complete"] == "true"


def test_nothing_of_it_is_ranked_or_judged_and_each_task_is_marked_once(low_site: Site) -> None:
    for name, table in low_site.tables():
        cells = [cell for line in table.rows for cell in line]
        assert not [cell.text for cell in cells if JUDGED & cell.classes], name
        assert not [cell.text for cell in cells if ITSELF in cell.text], (
            f"{name}: a mark in each cell"
        )
    withheld = (
        "rank",
        "safe_ratio",
        "safe_ratio_outcome",
        "safe_ratio_beyond",
        "safe_ratio_unsafe_from",
    )
    verdicts = (
        "beats_random_verdict",
        "beats_random_p",
        "beats_recency_verdict",
        "beats_recency_p",
    )
    for row in low_site.board:
        assert not any(row[column] for column in (*withheld, *verdicts))
        if row["policy"] not in ("full", "oracle", "random", "recency"):
            assert row["rank_reason"].startswith(ITSELF)
    assert {(row["best_in"], row["tied_in"]) for row in low_site.cells} == {("[]", "[]")}
    assert {row["not_mastered"].startswith(ITSELF) for row in low_site.cells} == {True}
    for row in rows_in(low_site.folder / "data/compare-snapkv-verdicts.csv"):
        assert (row["verdict"], row["right_verdict"], row["right_p"]) == ("", "", "")
        assert row["right_difference"]
        assert row["not_mastered"].startswith(ITSELF)
    for task in ("base", "hops"):
        assert low_site.pages[f"task-{task}.html"].count("The model itself has") == 1


def test_programs_and_the_terminal_get_the_numbers_and_the_reason(low_site: Site) -> None:
    assert low_site.scores[0]["measure"] == "delta-nll"
    assert "right" in {line["measure"] for line in low_site.scores}
    for line in low_site.scores:
        assert str(line["not_mastered"]).startswith(ITSELF)
        assert line["value"] is not None or line["policy"] in ("zeros", "int4", "snapkv+int4"), line
    assert low_site.losses
    for line in low_site.losses:
        assert line["verdict"] is None
        assert line["difference"] is not None
        assert ITSELF in str(line["reason"])
