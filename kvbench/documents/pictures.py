"""``python -m kvbench.documents.pictures`` makes the pictures of the README and of docs from built pages."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from kvbench.system.errors import KVBenchError
from kvbench.system.module_command import run_module

PAGE_SIZE = (1280, 1500)


def screenshot(page: Path, path: Path, part: str = "") -> None:
    """Takes a picture of the top of a page, or of one of its sections, with headless Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise KVBenchError("no chromium is installed: apt-get install chromium")
    if not page.is_file():
        raise KVBenchError(f"there is no page at {page}: build it with make run")
    with tempfile.TemporaryDirectory() as profile:
        visible = page
        if part:  # a screenshot begins at the top, whatever an address says
            visible = Path(profile) / page.name
            style = f"<style>header, section:not(#{part}) {{ display: none }}</style></head>"
            visible.write_text(page.read_text(encoding="utf-8").replace("</head>", style, 1), encoding="utf-8")
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking"]
        size = f"--window-size={PAGE_SIZE[0]},{PAGE_SIZE[1]}"
        command = [browser, *flags, size, f"--user-data-dir={profile}", f"--screenshot={path.resolve()}"]
        subprocess.run([*command, visible.resolve().as_uri()], check=True, capture_output=True, timeout=120)


def main(
    page: Annotated[Path, typer.Option(help="The page of a run.")] = Path("site/default/index.html"),
    comparison: Annotated[Path, typer.Option(help="The page of a comparison.")] = Path(
        "site/compare/compare-LoudValuesPress.html"
    ),
    suite: Annotated[Path, typer.Option(help="The page of the suite instructions.")] = Path(
        "site/instructions/instructions.html"
    ),
    results: Annotated[Path, typer.Option(help="The results of that suite.")] = Path(
        "runs/instructions/instructions.json"
    ),
    out: Annotated[Path, typer.Option(help="Folder of the pictures.")] = Path("docs"),
) -> None:
    """Takes pictures of the pages, and keeps what the README quotes."""
    out.mkdir(parents=True, exist_ok=True)
    screenshot(page, out / "page.png")
    screenshot(page.with_name("examples-base.html"), out / "examples.png")
    screenshot(comparison, out / "comparison.png")
    screenshot(suite, out / "instructions.png", "plane")
    shutil.copyfile(results, out / "instructions.json")


if __name__ == "__main__":
    run_module(main)
