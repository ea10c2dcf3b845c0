"""``python -m kvbench import-kvpress`` shows results of kvpress's own evaluation, on a page of
their own.

Each evaluation is a folder of ``predictions.csv``, ``metrics.json`` and ``config.yaml``.
``metrics.json`` is a number (LongBench), scores by name (AIME, needle in a haystack), or scores by
name for each task (RULER, LooGLE).
"""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer
import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from rich.text import Text

from datasets_gen.examples.jsonl import golds_in
from kvbench.cli.result import Result
from kvbench.publish.downloads import write_sheets
from kvbench.publish.places import distinct_names, name_of_place, without_places
from kvbench.publish.site_list import enlist_results, find_neighbours
from kvbench.system.errors import KVBenchError, fault_of_fields, first_line
from kvbench.system.files import make_folder, write_text_atomically
from leaderboards.downloads.tables import Imported, imported_sheet
from leaderboards.metrics.judges.text import exact_match, token_f1
from leaderboards.pages.imported import IMPORTED, build_imported
from leaderboards.terminal.result_table import ResultTable

PREDICTIONS, METRICS, CONFIG = FILES = ("predictions.csv", "metrics.json", "config.yaml")
Name = Annotated[str, Field(min_length=1)]
Scores = dict[str, float | None]
METRICS_FORMS: TypeAdapter[Any] = TypeAdapter(
    float | Scores | dict[str, Scores] | None, config=ConfigDict(strict=True)
)
# Of model_kwargs: kvpress itself chooses it by what is installed, and eager for
# ObservedAttentionPress alone.
ATTENTION = "attn_implementation"
FP8_CONFIG = "quantization_config"  # which kvpress puts there where fp8 is asked for
RULER, RULER_QA = "ruler", "qa"


def command(
    results: Annotated[
        Path, typer.Argument(help="A folder that kvpress's evaluation wrote, or a folder of such.")
    ],
    site: Annotated[Path, typer.Option(help="Folder that imported.html is written to.")] = Path(
        "site"
    ),
) -> Result:
    """Reads predictions.csv, metrics.json and config.yaml of each evaluation; fails at the end if
    one is broken."""
    rows, broken = results_in(results)
    make_folder("--site", site)
    shown, unread = rows_with_names(rows), [without_places(line) for line in broken]
    sheet = imported_sheet(shown)
    write_sheets(site, [sheet])
    neighbours = find_neighbours(site)
    page = build_imported(name_of_place(results), shown, unread, [sheet], neighbours)
    write_text_atomically(site / IMPORTED, page)
    models = [row.model for row in shown]
    enlist_results(site, IMPORTED, models, [row.dataset for row in shown])
    table = ResultTable.from_sheet(sheet.name, sheet, Text(f"{len(rows)} rows of kvpress"))
    fault = ""
    if broken:
        count = f"{len(broken)} folders could not be read and are left out"
        fault = f"{count}, all others are on the page"
    warnings = [f"left out: {line}" for line in broken]
    unknown: list[str] = []
    for row in rows:
        unknown += row.unknown
    if unknown:
        fields = f"fields that kvbench does not know ({', '.join(dict.fromkeys(unknown))})"
        warnings.append(f"{CONFIG} has {fields}: results are kept apart by them")
    return Result([table], warnings=warnings, files={"page": site / IMPORTED}, fault=fault)


def rows_with_names(rows: Sequence[Imported]) -> list[Imported]:
    """Returns the results as they are published: without places of the machine that they come
    from."""
    models = distinct_names(row.model for row in rows)
    shown = []
    for row in rows:
        setting, arguments = without_places(row.setting), without_places(row.arguments)
        shown.append(replace(row, model=models[row.model], setting=setting, arguments=arguments))
    return shown


class _PlainLoader(yaml.SafeLoader):
    """Reads an object of Python as the plain data that it is written with, and makes no object.
    kvpress writes such objects where fp8 or another quantisation is asked for."""


def _plain_data(loader: yaml.SafeLoader, _: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


_PlainLoader.add_multi_constructor("tag:yaml.org,2002:python/", _plain_data)


class _Config(BaseModel):
    """The entries of ``config.yaml``: those of ``EvaluationConfig`` in evaluate.py of kvpress 0.5.5
    and before.

    The first entries name a result. ``device``, ``output_dir`` and ``log_level`` change no answer.
    All others are the setting, also those that kvbench does not know: rows are ranked among those
    of equal settings alone.
    """

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    dataset: Name
    data_dir: str | int | None = None
    model: Name
    press_name: Name
    compression_ratio: Annotated[float, Field(ge=0, le=1, strict=True)]
    press_init_command: str | None = None
    device: Any = None
    output_dir: Any = None
    log_level: Any = None

    query_aware: bool = False  # earlier versions of kvpress call it compress_questions
    fp8: bool = False
    fraction: float = 1.0
    max_context_length: int | str | None = None
    max_new_tokens: int | None = None
    seed: int = 42
    needle_depth: float | list[float] | None = None
    key_channel_compression_ratio: float | None = None
    threshold: float | None = None
    compression_interval: int | None = None
    target_size: int | None = None
    hidden_states_buffer_size: int | None = None
    model_kwargs: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _by_new_names(cls, entries: Any) -> Any:
        """Reads ``compress_questions`` under its new name; entries of nothing are as if they were
        not there."""
        if not isinstance(entries, dict):
            return entries
        entries = {str(name): value for name, value in entries.items() if value is not None}
        if "compress_questions" in entries:
            former = entries.pop("compress_questions")
            if entries.setdefault("query_aware", former) != former:
                raise ValueError("compress_questions and query_aware are one setting, and differ")
        return entries

    @property
    def setting(self) -> str:
        """Names every entry that makes another setting of the same data set; those of kvpress that
        are not set, and have no value of their own, are left out."""
        entries = {name: getattr(self, name) for name in SETTINGS}
        entries |= self.model_extra or {}
        arguments = self._model_arguments
        arguments.pop(ATTENTION, None)
        entries |= arguments
        texts = []
        for name, value in entries.items():
            if value is not None:
                texts.append(f"{name} {_entry_text(value)}")
        return ", ".join(texts)

    @property
    def _model_arguments(self) -> dict[str, Any]:
        """Returns the arguments of the model; ``dtype`` was called ``torch_dtype``."""
        arguments: dict[str, Any] = {}
        for name, value in (self.model_kwargs or {}).items():
            arguments[name.removeprefix("torch_")] = value
        if self.fp8:
            arguments.pop(FP8_CONFIG, None)
        return arguments

    @property
    def arguments(self) -> str:
        """Tells how the press was built, and the attention that it ran with."""
        attention = self._model_arguments.get(ATTENTION)
        parts = (self.press_init_command, f"{ATTENTION} {attention}" if attention else None)
        return ", ".join(filter(None, parts))


_first = list(_Config.model_fields).index("query_aware")
SETTINGS = [name for name in list(_Config.model_fields)[_first:] if name != "model_kwargs"]


def _entry_text(value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(map(_entry_text, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def results_in(folder: Path) -> tuple[list[Imported], list[str]]:
    """Reads all results in a folder and below it, and describes each unreadable one in a line;
    raises :class:`KVBenchError` where there are none."""
    if not folder.is_dir():
        advice = "give the one that kvpress's evaluation wrote (output_dir)"
        raise KVBenchError(f"there is no folder {folder}: {advice}")
    rows, broken = [], []
    # Sorted, as a file system lists folders in any order.
    for result in sorted(_folders_of_results(folder)):
        try:
            rows.append(read_result(result))
        except KVBenchError as error:
            broken.append(str(error))
    if not rows:
        if broken:
            reason = broken[0]
        else:
            reason = f"none of {', '.join(FILES)} is in it or below it"
        raise KVBenchError(f"{folder} holds no results of kvpress: {reason}")
    return rows, broken


def _folders_of_results(folder: Path) -> set[Path]:
    """Finds the folders that have a file of an evaluation, and those that one has left empty."""
    folders: set[Path] = set()
    for path in folder.rglob("*"):
        if path.name in FILES:
            folders.add(path.parent)
        elif path.is_dir() and not any(path.iterdir()):
            folders.add(path)
    return folders


def read_result(folder: Path) -> Imported:
    """Reads one evaluation; raises :class:`KVBenchError` with the file and its fault."""
    for name in FILES:
        if not (folder / name).is_file():
            reason = f"{name} is missing: the evaluation did not finish, run it again"
            raise KVBenchError(f"{folder}: {reason}")
    # `path` is the file that is read at the moment, which the error names.
    path = folder / CONFIG
    try:
        config = _Config.model_validate(yaml.load(path.read_text(encoding="utf-8"), _PlainLoader))
        path = folder / METRICS
        metrics = METRICS_FORMS.validate_python(json.loads(path.read_text(encoding="utf-8")))
        path = folder / PREDICTIONS
        predictions = _predictions(path)
    except (ValidationError, yaml.YAMLError, OSError, ValueError, RecursionError) as error:
        reason = first_line(error)
        if isinstance(error, ValidationError):
            reason = fault_of_fields(error)
        advice = "restore it, or run the evaluation again"
        raise KVBenchError(f"{path} cannot be read ({reason}): {advice}") from error
    dataset = config.dataset
    if config.data_dir:
        dataset = f"{dataset}/{name_of_place(str(config.data_dir))}"
    scores, tasks = _mean_scores(metrics)
    f1, exact_matches = [], []
    for row in predictions:
        judged = _judge(row, config.dataset)
        if judged is not None:
            f1.append(judged[0])
            exact_matches.append(judged[1])
    return Imported(
        dataset=dataset,
        model=config.model,
        setting=config.setting,
        press=config.press_name,
        ratio=config.compression_ratio,
        arguments=config.arguments,
        unknown=tuple(config.model_extra or ()),
        scores=tuple(scores.items()),
        tasks=tasks,
        predictions=len(predictions),
        answers=len(f1),
        f1=fmean(f1) if f1 else None,
        em=fmean(exact_matches) if exact_matches else None,
    )


def _judge(row: Mapping[str, str], dataset: str) -> tuple[float, float] | None:
    """Returns F1 and exact match of one prediction, in percent; None without a gold answer. RULER
    asks for all values of a list, its questions of category qa aside, where each gold is a right
    answer: so does its own score."""
    output, golds = row["predicted_answer"], golds_in(row.get("answer", row.get("answers", "")))
    if not golds:
        return None
    is_list = dataset.startswith(RULER) and row.get("task", "").split("_")[0] != RULER_QA
    if is_list:
        f1 = token_f1(output, " ".join(golds))
        return f1, 100.0 * (f1 == 100)  # in any order
    best = max(token_f1(output, gold) for gold in golds)
    return best, exact_match(output, golds)


def _mean_scores(metrics: Any) -> tuple[Scores, int]:
    """Returns scores by name, each the mean over the tasks that have it, and the number of
    tasks."""
    if not isinstance(metrics, dict):
        return {"score": _mean([metrics])}, 1
    by_task = [scores for scores in metrics.values() if isinstance(scores, dict)]
    tables = by_task or [metrics]
    values: dict[str, list[float | None]] = {}
    for scores in tables:
        for name, score in scores.items():
            values.setdefault(name, []).append(score)
    return {name: _mean(scores) for name, scores in values.items()}, len(tables)


def _mean(values: Sequence[float | None]) -> float | None:
    """Returns None if any value is no number: a mean of the others would be another score."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(finite) if len(finite) == len(values) else None


def _predictions(path: Path) -> list[dict[str, str]]:
    """Reads the predictions; raises ValueError where the file is no table of them."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        # The reader puts what it has no column, or no value, for under None.
        if None in row or None in row.values():
            raise ValueError("its rows have other numbers of columns than its header")
    if not rows or "predicted_answer" not in rows[0]:
        raise ValueError("it has no column predicted_answer")
    return rows
