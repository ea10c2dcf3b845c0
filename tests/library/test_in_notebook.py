"""What a notebook shows: the matrix, pages and figures in light and dark, and progress; and Ctrl-C in
a cell."""

import html
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

import kvbench
import kvbench.execution.execute
from kvbench.api import notebooks
from kvbench.experiments.collect import collect
from kvbench.store.store import Store
from kvbench.system import console
from tests.support.models.runs import SHORT


@pytest.fixture(scope="module")
def small(small_run: Store) -> kvbench.RunResult:
    return kvbench.load(small_run.folder)


def page_in(frame: str) -> str:
    matched = re.fullmatch(r'<iframe [^>]*srcdoc="(.*)"></iframe>', frame, re.DOTALL)
    assert matched is not None
    return html.unescape(matched[1])


def test_a_result_is_the_matrix_of_the_first_page(
    small: kvbench.RunResult, small_site: Path
) -> None:
    page = page_in(small._repr_html_())
    on_site = (small_site / "index.html").read_text(encoding="utf-8")
    cells = re.findall(
        r'<td class="(?:safe|open|unsafe|withheld)[^>]*>.*?</td>', on_site, re.DOTALL
    )
    assert cells
    assert all(cell in page for cell in cells)
    assert "prefers-color-scheme: dark" in page
    assert "<script" not in page.replace('<script type="application/json">', "")
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "").replace(
        "http://www.w3.org/2000/svg", ""
    )


def test_figures_are_those_that_are_written(small: kvbench.RunResult) -> None:
    figure = small.figure("right")
    assert isinstance(figure, Figure)
    assert figure.get_size_inches()[0] == pytest.approx(3.3)
    of_task = small.figure("right", task="hops", width="8cm")
    assert "hops" in of_task.get_suptitle()
    for arguments, sentence in {
        ("no such", ""): "unknown figure 'no such'",
        ("right", "no such"): "no figure right of the task",
    }.items():
        with pytest.raises(kvbench.KVBenchError, match=sentence):
            small.figure(*arguments)
    with pytest.raises(kvbench.KVBenchError, match="is no width of a figure"):
        small.figure(width="wide")


def test_a_notebook_is_told_to_show_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []
    shell = ModuleType("IPython")
    vars(shell)["get_ipython"] = lambda: object()
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setattr(notebooks.pyplot, "switch_backend", chosen.append, raising=False)
    monkeypatch.setattr(notebooks.pyplot, "get_backend", lambda: "inline", raising=False)
    notebooks.show_figures()
    assert chosen == ["inline"]


class Handle:
    """Stands for a line below a cell."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, content: dict[str, str], raw: bool) -> None:
        assert raw
        self.lines.append(content["text/plain"])


def test_progress_writes_one_line_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    handle, times = Handle(), iter([0.0, 1.0, 1.1, 2.0, 2.1])

    def display(content: dict[str, str], raw: bool, display_id: bool) -> Handle:
        handle.update(content, raw)
        return handle

    module = ModuleType("IPython.display")
    vars(module)["display"] = display
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    progress = console.ProgressInNotebook(clock=lambda: next(times))
    bar = progress.add_task("base 0-4", total=4)
    for _ in range(4):
        progress.advance(bar)
    assert handle.lines == [
        "base 0-4 1 of 4, 0:00:01",
        "base 0-4 3 of 4, 0:00:02",
        "base 0-4 4 of 4, 0:00:02",
    ]
    monkeypatch.setattr(console, "console", Console(force_jupyter=True))
    assert isinstance(console.progress_bar(), console.ProgressInNotebook)


def test_an_interrupt_ends_in_order_and_the_same_call_goes_on(
    toy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def interrupted(model: Any, task: Any, examples: Any, grid: Any) -> Any:
        if asked:
            raise KeyboardInterrupt
        asked.append(task.name)
        return collect(model, task, examples, grid)

    options: dict[str, Any] = {
        "tasks": ["base", "hops"],
        "policies": "knorm",
        "ratios": 0.5,
        "limit": 1,
        "context_tokens": "native",
        "max_new_tokens": SHORT,
        "out": tmp_path / "runs",
        "site": tmp_path / "site",
        "name": "x",
    }
    with monkeypatch.context() as patch:
        patch.setattr(kvbench.execution.execute, "collect", interrupted)
        with pytest.raises(kvbench.KVBenchError, match=r"interrupted: what was finished is kept"):
            kvbench.run(toy_folder, **options)
    begun = Store.open(tmp_path / "runs" / "x")
    assert begun.run.reason == "interrupted"
    assert len(begun.record_files()) > 0
    before = {path: path.stat().st_mtime_ns for path in begun.record_files()}
    assert kvbench.run(toy_folder, **options).fault == ""
    assert {path: path.stat().st_mtime_ns for path in before} == before
