"""``python -m kvbench.benchmarks.drawing`` draws the engine's time over lengths and branches from a suite's file."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from kvbench.benchmarks.measurement import Report
from kvbench.system.module_command import run_module


def frame_of(rows: list[dict[str, Any]], along: str, columns: dict[str, str]) -> pd.DataFrame:
    """Makes one line for each repeat of each measured column."""
    return pd.DataFrame(
        [
            {along: row[along], "seconds": seconds, "time of": name}
            for row in rows
            for column, name in columns.items()
            for seconds in row[column]
        ]
    )


def draw(report: Report, path: Path) -> None:
    """Draws two panels, both with the median and the range of the repeats."""
    details: dict[str, Any] = {row.name: row.details for row in report.results}
    panels: list[tuple[pd.DataFrame, str]] = []
    if "length" in details:
        columns = {"engine": "engine, all policies at two ratios", "prefill": "the model's own prefill"}
        panels.append((frame_of(details["length"]["rows"], "tokens", columns), "tokens"))
    if "branches" in details:
        panels.append((frame_of(details["branches"]["rows"], "branches", {"seconds": "decoding"}), "branches"))
    with sns.axes_style("whitegrid"):
        figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 4), squeeze=False)
        for (frame, along), place in zip(panels, axes[0], strict=True):
            _panel(frame, along, place)
        figure.tight_layout()
        figure.savefig(path, dpi=150, metadata={"Software": None})
        plt.close(figure)


def _panel(frame: pd.DataFrame, along: str, axes: Axes) -> None:
    sns.lineplot(
        frame, x=along, y="seconds", hue="time of", style="time of", markers=True, dashes=False, palette="colorblind",
        estimator="median", errorbar=("pi", 100), ax=axes,
    )  # fmt: skip
    axes.set(xscale="log", yscale="log", xticks=sorted(set(frame[along])), ylabel="processor seconds")
    axes.set_xticklabels([f"{count:,}" for count in sorted(set(frame[along]))])
    axes.minorticks_off()
    axes.legend(title=None)


def main(measured: Path, picture: Path) -> None:
    """Draws the picture of docs/performance.md."""
    draw(Report.model_validate_json(measured.read_text()), picture)


if __name__ == "__main__":
    run_module(main)
