"""``python -m docs.scripts.first_press`` runs the notebook of a first press, and keeps what it shows.

Its page among the documents is made from it (``docs/scripts/tables.py``)."""

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

# Run by its path, a script finds its own folder alone: the root holds the packages.
sys.path.insert(0, str(Path(__file__).parents[2]))

from kvbench.system.files import write_text_atomically
from policies import LazyModule

nbclient = LazyModule("nbclient")
nbformat = LazyModule("nbformat")

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebooks" / "first_press.ipynb"
PICTURE = NOTEBOOK.with_suffix(".png")
SECONDS = 1500  # of a cell, on a busy machine
KEPT = ("text/plain", "image/png")  # a frame in HTML is shown by a notebook alone
LONGEST = 10  # lines of an output on the page


def execute(folder: Path) -> Any:
    """Runs the notebook in a folder, and returns it with its outputs."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    client = nbclient.NotebookClient(notebook, timeout=SECONDS, resources=place)
    client.execute()
    return notebook


def first_press() -> str:
    """Returns the notebook as Markdown: its words, its code, and what it shows."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                parts.append(f"![{text.splitlines()[-1]}](notebooks/{PICTURE.name})")
            elif "text/plain" in data:
                lines = "".join(data["text/plain"]).splitlines()[:LONGEST]
                shown = "\n".join(line.rstrip() for line in lines)
                parts.append(f"```text\n{shown}\n```")
    return "\n\n".join(parts)


def main() -> None:
    """Runs the notebook, and writes it with its outputs, and its picture."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = execute(Path(folder))
    for cell in notebook.cells:
        cell.metadata = {}
        outputs = []
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            for kind in set(data) - set(KEPT):
                del data[kind]
            is_printed = output.get("name") == "stdout"
            if is_printed or output["output_type"] == "execute_result" or "image/png" in data:
                outputs.append(output)
            if data:
                output["metadata"] = {}
            if "image/png" in data:
                PICTURE.write_bytes(base64.b64decode(data["image/png"]))
        if cell.cell_type == "code":
            cell.outputs = outputs
    write_text_atomically(NOTEBOOK, nbformat.writes(notebook) + "\n")


if __name__ == "__main__":
    main()
