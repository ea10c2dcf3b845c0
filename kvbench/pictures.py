"""``python -m kvbench.pictures``: the pictures of the README, from the committed learning curve and a built page."""

import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import pandas as pd
import seaborn as sns
import typer
from matplotlib.figure import Figure

from kvbench.errors import KVBenchError

KINDS = {
    "base": "base",
    "hops_1": "hops, 1 fact",
    "hops_2": "hops, 2 facts",
    "hops_3": "hops, 3 facts",
    "unanswerable": "unanswerable",
}
PAGE_SIZE = (1280, 1500)


def learning_curve(path: Path) -> None:
    """Exact match by kind of question over the tokens seen."""
    curve = pd.read_csv(str(files("kvbench.reference").joinpath("learning_curve.csv")))
    long = curve.rename(columns=KINDS).melt("tokens", list(KINDS.values()), "questions", "exact match, percent")
    long["million tokens"] = long.tokens / 1e6
    with sns.axes_style("whitegrid"):
        figure = Figure(figsize=(8, 4), layout="constrained")
        axes = figure.subplots()
    sns.lineplot(
        long,
        x="million tokens",
        y="exact match, percent",
        hue="questions",
        style="questions",
        palette="colorblind",
        ax=axes,
    )
    axes.set_ylim(0, 100)
    sns.despine(ax=axes)
    sns.move_legend(axes, "center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(path, dpi=150, metadata={"Software": None})


def screenshot(page: Path, path: Path) -> None:
    """The top of a page as headless Chromium shows it."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise KVBenchError("no chromium is installed: apt-get install chromium")
    if not page.is_file():
        raise KVBenchError(f"there is no page at {page}: build it with make run")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking"]
        size = f"--window-size={PAGE_SIZE[0]},{PAGE_SIZE[1]}"
        command = [browser, *flags, size, f"--user-data-dir={profile}", f"--screenshot={path.resolve()}"]
        subprocess.run([*command, page.resolve().as_uri()], check=True, capture_output=True, timeout=120)


def main(
    page: Annotated[Path, typer.Option(help="The page of a run.")] = Path("site/index.html"),
    out: Annotated[Path, typer.Option(help="Folder of the pictures.")] = Path("docs"),
) -> None:
    """Draws the learning curve and takes a picture of the page."""
    out.mkdir(parents=True, exist_ok=True)
    learning_curve(out / "learning_curve.png")
    screenshot(page, out / "page.png")


if __name__ == "__main__":
    typer.run(main)
