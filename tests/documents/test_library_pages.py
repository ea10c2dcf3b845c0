"""The reference of the library says what is there, and its notebook runs."""

import ast
import inspect
import json
import os
import re
from pathlib import Path

import pytest

import kvbench
from docs.scripts import first_press
from docs.scripts.tables import BLOCKS

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
NOTEBOOK = json.loads(first_press.NOTEBOOK.read_text(encoding="utf-8"))
SECONDS = 60  # of all cores


def test_every_public_name_and_every_argument_is_described() -> None:
    text = BLOCKS["library"]()
    assert text in PAGE.read_text(encoding="utf-8")
    for name in kvbench.__all__:
        value = getattr(kvbench, name)
        assert f"## `kvbench.{name}`" in text
        if isinstance(value, type):
            continue
        (section,) = [part for part in text.split("\n## ") if f"`kvbench.{name}`\n" in part[:40]]
        for argument in inspect.signature(value).parameters:
            assert f"| `{argument}` |" in section, (name, argument)
        assert "```python" in section
        # Where a colon stands in the text, griffe takes what is before it for a type.
        assert re.search(r"\| returns \| [A-Z]", section)


def test_examples_of_the_reference_are_python() -> None:
    fences = PAGE.read_text(encoding="utf-8").split("```python\n")[1:]
    assert len(fences) > 7
    for fence in fences:
        ast.parse(fence.partition("```")[0])


def test_the_notebook_has_ten_cells_that_were_run() -> None:
    cells = NOTEBOOK["cells"]
    assert len(cells) == 10
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    kinds = set()
    for cell in code:
        ast.parse("".join(cell["source"]))
        for output in cell["outputs"]:
            assert output["output_type"] != "error"
            kinds.update(output.get("data", {}))
    assert kinds == {"text/plain", "image/png"}
    assert first_press.PICTURE.is_file()


@pytest.mark.slow
def test_the_notebook_runs_in_a_minute(tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    before = os.times()
    notebook = first_press.execute(tmp_path)
    spent = os.times()  # of the kernel, which has ended
    used = spent.children_user + spent.children_system
    assert used - before.children_user - before.children_system < SECONDS
    outputs = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            outputs.append(str(output.get("text", "")) + str(output.get("data", "")))
    assert "LoudValues(sinks=4): right, on base: " in "".join(outputs)
    assert "image/png" in "".join(outputs)
    assert (tmp_path / "runs").is_dir()
