"""Reads the folders that kvpress's evaluation writes: ``predictions.csv``, ``metrics.json`` and ``config.yaml``.

``metrics.json`` is a number (LongBench, InfiniteBench), scores by name (AIME, needle in a haystack), or scores by name
for each task (RULER, LooGLE). A repeated evaluation lies in a numbered folder within the first.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import yaml

from datasets_gen.examples.jsonl import golds_in
from kvbench.system.errors import KVBenchError, first_line
from leaderboards.downloads.tables import Imported
from leaderboards.metrics.judges.text import exact_match, token_f1

PREDICTIONS, METRICS, CONFIG = FILES = ("predictions.csv", "metrics.json", "config.yaml")
GOLDS = ("answer", "answers")
# The entries of a configuration that make another setting of the same data set, with their usual values.
SETTINGS = {
    "fraction": 1.0,
    "max_context_length": None,
    "max_new_tokens": None,
    "compress_questions": False,
    "needle_depth": None,
}


def results_in(folder: Path) -> tuple[list[Imported], list[str]]:
    """Reads all results in a folder and below it, and describes each unreadable one in a line. Raises
    :class:`KVBenchError` if there is no result."""
    if not folder.is_dir():
        raise KVBenchError(f"there is no folder {folder}: give the one that kvpress's evaluation wrote (output_dir)")
    rows, broken = [], []
    for result in _folders(folder):
        try:
            rows.append(read_result(result))
        except KVBenchError as error:
            broken.append(str(error))
    if not rows and not broken:
        raise KVBenchError(f"{folder} holds no results of kvpress: none of {', '.join(FILES)} is in it or below it")
    if not rows:
        raise KVBenchError(
            f"nothing can be imported: {broken[0]}" + (f" (and {len(broken) - 1} more)" if broken[1:] else "")
        )
    return merge_runs(rows), broken


def _folders(folder: Path) -> Iterator[Path]:
    """Yields the folders that hold any of the files, and those that an evaluation left empty."""
    for path in (folder, *sorted(path for path in folder.rglob("*") if path.is_dir())):
        if any((path / name).is_file() for name in FILES) or (path != folder and not any(path.iterdir())):
            yield path


def read_result(folder: Path) -> Imported:
    """Reads one evaluation; raises :class:`KVBenchError` with the file and its fault."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise KVBenchError(f"{folder}: {missing[0]} is missing: the evaluation did not finish, run it again")
    config = _config(folder / CONFIG)
    scores, tasks = _scores(folder / METRICS)
    predictions = _predictions(folder / PREDICTIONS)
    pairs = list(_answer_scores(predictions))
    data_dir = config.get("data_dir")
    return Imported(
        dataset=f"{config['dataset']}/{data_dir}" if data_dir else config["dataset"],
        model=config["model"],
        setting=", ".join(
            f"{name} {config[name]}" for name, usual in SETTINGS.items() if config.get(name, usual) != usual
        ),
        press=config["press_name"],
        ratio=float(config["compression_ratio"]),
        arguments=str(config.get("press_init_command") or ""),
        scores=tuple(scores.items()),
        tasks=tasks,
        predictions=len(predictions),
        answers=len(pairs),
        f1=fmean(f1 for f1, _ in pairs) if pairs else None,
        em=fmean(em for _, em in pairs) if pairs else None,
    )


def _config(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):  # a few lines can mean a billion
            raise ValueError("it has aliases, which kvpress does not write")
        config = yaml.safe_load(text)
    except (yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, first_line(error)) from error
    if not isinstance(config, dict):
        raise _unreadable(path, "it holds no settings")
    for name in ("dataset", "model", "press_name"):
        if not isinstance(config.get(name), str) or not config[name]:
            raise _unreadable(path, f"{name} is {config.get(name)!r:.40}, not a name")
    ratio = config.get("compression_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
        raise _unreadable(path, f"compression_ratio is {ratio!r:.40}, not a share")
    return config


def _scores(path: Path) -> tuple[dict[str, float | None], int]:
    """Returns scores by name, each the mean over the tasks that have it, and the number of tasks."""
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, first_line(error)) from error
    if not isinstance(metrics, dict):
        if metrics is not None and not _is_number(metrics):
            raise _unreadable(path, f"it holds {type(metrics).__name__}, not scores")
        return {"score": _finite(metrics)}, 1
    nested = {task: scores for task, scores in metrics.items() if isinstance(scores, dict)}
    if nested and len(nested) < len(metrics):
        raise _unreadable(path, "some of its entries are tasks and some are scores")
    tables = list(nested.values()) or [metrics]
    names = dict.fromkeys(name for scores in tables for name in scores)
    for scores in tables:
        for name, value in scores.items():
            if value is not None and not _is_number(value):
                raise _unreadable(path, f"'{name}' is {value!r:.40}, not a number")
    means = {name: _mean([scores[name] for scores in tables if name in scores]) for name in names}
    return means, len(tables)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(value: Any) -> float | None:
    return float(value) if _is_number(value) and math.isfinite(value) else None


def _mean(values: Sequence[Any]) -> float | None:
    """Returns None if any value is no number: a mean of the others would be another score."""
    finite = [_finite(value) for value in values]
    known = [value for value in finite if value is not None]
    return fmean(known) if len(known) == len(finite) else None


def _predictions(path: Path) -> pd.DataFrame:
    """Reads the predictions as text, because an answer may be called NaN."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            widths = {len(row) for row in csv.reader(file) if row}
        if len(widths) > 1:  # pandas would take the first column for an index, and shift the others
            raise _unreadable(path, f"its rows have {' or '.join(map(str, sorted(widths)))} columns")
        predictions = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:  # pandas raises ValueErrors
        raise _unreadable(path, first_line(error)) from error
    if "predicted_answer" not in predictions:
        raise _unreadable(path, "it has no column predicted_answer")
    return predictions


def _answer_scores(predictions: pd.DataFrame) -> Iterator[tuple[float, float]]:
    """Yields F1 and EM of every answer that has golds."""
    column = next((name for name in GOLDS if name in predictions), None)
    if column is None:
        return
    for answer, golds in zip(predictions["predicted_answer"], map(golds_in, predictions[column]), strict=True):
        if golds:
            yield max(token_f1(answer, gold) for gold in golds), exact_match(answer, golds)


def merge_runs(rows: Sequence[Imported]) -> list[Imported]:
    """Makes one row of evaluations of the same press with the same arguments, ratio and setting."""
    groups: dict[tuple[object, ...], list[Imported]] = {}
    for row in rows:
        key = (row.dataset, row.model, row.setting, row.press, row.ratio, row.arguments)
        groups.setdefault(key, []).append(row)
    return [_merge(group) if len(group) > 1 else group[0] for group in groups.values()]


def _merge(group: Sequence[Imported]) -> Imported:
    tables: list[Mapping[str, float | None]] = [dict(row.scores) for row in group]
    shared = [name for name in tables[0] if all(name in scores for scores in tables)]
    means = [(row.f1, row.em, row.answers) for row in group if row.f1 is not None and row.em is not None]
    f1s, ems, answers = zip(*means, strict=True) if means else ((), (), ())
    first = group[0]
    return Imported(
        **{
            name: getattr(first, name)
            for name in ("dataset", "model", "setting", "press", "ratio", "arguments", "tasks")
        },
        scores=tuple((name, _mean([scores[name] for scores in tables])) for name in shared),
        predictions=sum(row.predictions for row in group),
        answers=sum(answers),
        f1=fmean(f1s, answers) if means else None,
        em=fmean(ems, answers) if means else None,
        runs=len(group),
    )


def _unreadable(path: Path, reason: str) -> KVBenchError:
    return KVBenchError(f"{path} cannot be read ({reason}): restore it, or run the evaluation again")
