"""``python -m kvbench import-kvpress`` shows results of kvpress's own evaluation, on a page of their own.

Each evaluation is a folder of ``predictions.csv``, ``metrics.json`` and ``config.yaml``. ``metrics.json`` is a number
(LongBench), scores by name (AIME, needle in a haystack), or scores by name for each task (RULER, LooGLE).
"""

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from rich.text import Text

from datasets_gen.examples.jsonl import golds_in
from kvbench.cli.result import Result
from kvbench.publish.downloads import write_sheets
from kvbench.publish.site_list import link_pages
from kvbench.system.errors import KVBenchError, fault_of_fields, first_line
from kvbench.system.files import make_folder, write_text_atomically
from leaderboards.downloads.tables import Imported, imported_sheet
from leaderboards.metrics.judges.text import exact_match, token_f1
from leaderboards.pages.imported import IMPORTED, build_imported
from leaderboards.terminal.result_table import ResultTable

PREDICTIONS, METRICS, CONFIG = FILES = ("predictions.csv", "metrics.json", "config.yaml")
SETTINGS = ("fraction", "max_context_length", "max_new_tokens", "compress_questions", "needle_depth")
Name = Annotated[str, Field(min_length=1)]
Scores = dict[str, float | None]
METRICS_FORMS: TypeAdapter[Any] = TypeAdapter(float | Scores | dict[str, Scores] | None, config=ConfigDict(strict=True))


def command(
    results: Annotated[Path, typer.Argument(help="A folder that kvpress's evaluation wrote, or a folder of such.")],
    site: Annotated[Path, typer.Option(help="Folder that imported.html is written to.")] = Path("site"),
) -> Result:
    """Reads predictions.csv, metrics.json and config.yaml of each evaluation; fails at the end if one is broken."""
    rows, broken = results_in(results)
    make_folder("--site", site)
    sheet = imported_sheet(rows)
    write_sheets(site, [sheet])
    write_text_atomically(site / IMPORTED, build_imported(str(results), rows, broken, [sheet]))
    link_pages(site)
    table = ResultTable.of_sheet(sheet.name, sheet, Text(f"{len(rows)} rows of kvpress"))
    fault = f"{len(broken)} folders could not be read and are left out, all others are on the page" if broken else ""
    left_out = [f"left out: {line}" for line in broken]
    return Result([table], warnings=left_out, files={"page": site / IMPORTED}, fault=fault)


class _Config(BaseModel):
    """The entries of ``config.yaml`` that tell one result from another; the :data:`SETTINGS` with usual values."""

    dataset: Name
    data_dir: str | int | None = None
    model: Name
    press_name: Name
    compression_ratio: Annotated[float, Field(ge=0, le=1, strict=True)]
    press_init_command: str | None = None
    fraction: float = 1.0
    max_context_length: int | str | None = None
    max_new_tokens: int | None = None
    compress_questions: bool = False
    needle_depth: float | None = None

    @property
    def setting(self) -> str:
        """Names the entries that make another setting of the same data set."""
        unusual = self.model_dump(include={*SETTINGS}, exclude_defaults=True)
        texts = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in unusual.items()}
        return ", ".join(f"{name} {texts[name]}" for name in SETTINGS if name in texts)


def results_in(folder: Path) -> tuple[list[Imported], list[str]]:
    """Reads all results in a folder and below it, and describes each unreadable one in a line."""
    if not folder.is_dir():
        raise KVBenchError(f"there is no folder {folder}: give the one that kvpress's evaluation wrote (output_dir)")
    rows, broken = [], []
    folders = {path.parent for name in FILES for path in folder.rglob(name)}
    folders |= {path for path in folder.rglob("*") if path.is_dir() and not any(path.iterdir())}  # left empty
    for result in sorted(folders):
        try:
            rows.append(read_result(result))
        except KVBenchError as error:
            broken.append(str(error))
    if not rows:
        reason = broken[0] if broken else f"none of {', '.join(FILES)} is in it or below it"
        raise KVBenchError(f"{folder} holds no results of kvpress: {reason}")
    return rows, broken


def read_result(folder: Path) -> Imported:
    """Reads one evaluation; raises :class:`KVBenchError` with the file and its fault."""
    for name in FILES:
        if not (folder / name).is_file():
            raise KVBenchError(f"{folder}: {name} is missing: the evaluation did not finish, run it again")
    path = folder / CONFIG
    try:
        config = _Config.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        path = folder / METRICS
        metrics = METRICS_FORMS.validate_python(json.loads(path.read_text(encoding="utf-8")))
        path = folder / PREDICTIONS
        predictions = _predictions(path)
    except (ValidationError, yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        reason = fault_of_fields(error) if isinstance(error, ValidationError) else first_line(error)
        raise KVBenchError(f"{path} cannot be read ({reason}): restore it, or run the evaluation again") from error
    scores, tasks = _mean_scores(metrics)
    pairs = [
        (max(token_f1(row["predicted_answer"], gold) for gold in golds), exact_match(row["predicted_answer"], golds))
        for row in predictions
        if (golds := golds_in(row.get("answer", row.get("answers", ""))))
    ]
    return Imported(
        dataset=f"{config.dataset}/{config.data_dir}" if config.data_dir else config.dataset,
        model=config.model,
        setting=config.setting,
        press=config.press_name,
        ratio=config.compression_ratio,
        arguments=config.press_init_command or "",
        scores=tuple(scores.items()),
        tasks=tasks,
        predictions=len(predictions),
        answers=len(pairs),
        f1=fmean(f1 for f1, _ in pairs) if pairs else None,
        em=fmean(em for _, em in pairs) if pairs else None,
    )


def _mean_scores(metrics: Any) -> tuple[Scores, int]:
    """Returns scores by name, each the mean over the tasks that have it, and the number of tasks."""
    if not isinstance(metrics, dict):
        return {"score": _mean([metrics])}, 1
    nested = [scores for scores in metrics.values() if isinstance(scores, dict)]
    tables = nested or [metrics]
    names = dict.fromkeys(name for scores in tables for name in scores)
    return {name: _mean([scores[name] for scores in tables if name in scores]) for name in names}, len(tables)


def _mean(values: Sequence[float | None]) -> float | None:
    """Returns None if any value is no number: a mean of the others would be another score."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(finite) if len(finite) == len(values) else None


def _predictions(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if any(None in row or None in row.values() for row in rows):
        raise ValueError("its rows have other numbers of columns than its header")
    if not rows or "predicted_answer" not in rows[0]:
        raise ValueError("it has no column predicted_answer")
    return rows
