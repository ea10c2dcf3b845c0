"""Reads the folders that kvpress's evaluation writes: ``predictions.csv``, ``metrics.json`` and ``config.yaml``.

``metrics.json`` is a number (LongBench, InfiniteBench), scores by name (AIME, needle in a haystack), or scores by name
for each task (RULER, LooGLE). A repeated evaluation lies in a numbered folder within the first.
"""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from datasets_gen.examples.jsonl import golds_in
from kvbench.system.errors import KVBenchError, fault_of_fields, first_line
from leaderboards.downloads.tables import Imported
from leaderboards.metrics.judges.text import exact_match, token_f1

PREDICTIONS, METRICS, CONFIG = FILES = ("predictions.csv", "metrics.json", "config.yaml")
SETTINGS = ("fraction", "max_context_length", "max_new_tokens", "compress_questions", "needle_depth")
Name = Annotated[str, Field(min_length=1)]
Scores = dict[str, float | None]
METRICS_FORMS: TypeAdapter[Any] = TypeAdapter(float | Scores | dict[str, Scores] | None, config=ConfigDict(strict=True))


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
        usual = {name: type(self).model_fields[name].default for name in SETTINGS}
        return ", ".join(
            f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
            for name, default in usual.items()
            if (value := getattr(self, name)) != default
        )


def results_in(folder: Path) -> tuple[list[Imported], list[str]]:
    """Reads all results in a folder and below it, and describes each unreadable one in a line. Raises
    :class:`KVBenchError` if there is no result."""
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
    if not rows and not broken:
        raise KVBenchError(f"{folder} holds no results of kvpress: none of {', '.join(FILES)} is in it or below it")
    if not rows:
        more = f" (and {len(broken) - 1} more)" if broken[1:] else ""
        raise KVBenchError(f"nothing can be imported: {broken[0]}{more}")
    return merge_runs(rows), broken


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
    except ValidationError as error:
        forms = "it is no number, no scores by name, and no scores by name of each task"
        raise _unreadable(path, fault_of_fields(error) if path.name == CONFIG else forms) from error
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, first_line(error)) from error
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


def merge_runs(rows: Sequence[Imported]) -> list[Imported]:
    """Makes one row of evaluations of the same press with the same arguments, ratio and setting."""
    groups: dict[tuple[object, ...], list[Imported]] = {}
    for row in rows:
        key = (row.dataset, row.model, row.setting, row.press, row.ratio, row.arguments)
        groups.setdefault(key, []).append(row)
    return [_merge(group) if len(group) > 1 else group[0] for group in groups.values()]


def _merge(group: Sequence[Imported]) -> Imported:
    tables = [dict(row.scores) for row in group]
    shared = [name for name in tables[0] if all(name in scores for scores in tables)]
    judged = [row for row in group if row.answers]
    weights = [row.answers for row in judged]
    return replace(
        group[0],
        scores=tuple((name, _mean([scores[name] for scores in tables])) for name in shared),
        predictions=sum(row.predictions for row in group),
        answers=sum(weights),
        f1=fmean([row.f1 or 0.0 for row in judged], weights) if judged else None,
        em=fmean([row.em or 0.0 for row in judged], weights) if judged else None,
        runs=len(group),
    )


def _unreadable(path: Path, reason: str) -> KVBenchError:
    return KVBenchError(f"{path} cannot be read ({reason}): restore it, or run the evaluation again")
