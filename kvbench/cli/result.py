"""Commands return a :class:`Result`, and this is the one place that prints it: as tables, or as one JSON object."""

import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from kvbench.system.console import SafeConsole, console, is_visible, warn
from kvbench.system.errors import KVBenchError
from leaderboards.terminal.result_table import ResultTable

LONGEST = 20_000  # characters of a word: the names of all policies, with options, are fewer
LARGEST, LEAST = 10**15, 1e-15  # of a number: squares and products of such numbers are finite


def check_words(words: Iterable[str]) -> None:
    """Raises :class:`KVBenchError` for a word that no file, table or terminal can take."""
    for word in words:
        if len(word) > LONGEST:
            raise KVBenchError(f"'{word}' has {len(word):,} characters, more than the {LONGEST:,} that are read")
        if strange := next((letter for letter in word if not is_visible(letter)), None):
            raise KVBenchError(
                f"'{word}' holds the character U+{ord(strange):04X}, which cannot be shown: type it again, or rename "
                "what it names"
            )


def check_values(values: Mapping[str, Any]) -> None:
    """Raises :class:`KVBenchError` for a number that cannot be computed with, and a path that leads nowhere. ``values``
    are those of a command's parameters, by name."""
    for parameter, value in values.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, int | float) and (LARGEST < abs(one) < math.inf or 0 < abs(one) < LEAST):
                raise KVBenchError(
                    f"--{parameter.replace('_', '-')} {one} cannot be computed with: give 0, or a number whose size is "
                    f"between {LEAST:g} and {LARGEST:g}"
                )
            if isinstance(one, Path) and str(one).startswith("~"):
                raise KVBenchError(f"{one}: the shell leaves ~ as it is here: write the whole path")
            if isinstance(one, Path):
                try:
                    one.resolve().exists()
                except (OSError, RuntimeError) as error:  # a link that leads to itself, a name that is too long
                    reason = getattr(error, "strerror", None) or "its links lead in a circle"
                    raise KVBenchError(f"{one} is no path ({reason}): name another") from error


VERSION = 4  # of the JSON object; one that lacks or renames anything gets another

AsJSON = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print results, warnings and errors, and no progress.")]

OUTPUT_OPTIONS: Mapping[str, Any] = {"as_json": AsJSON, "quiet": Quiet}


@dataclass(frozen=True)
class Result:
    """A command returns this: tables, a verdict, warnings and the files that it wrote."""

    tables: Sequence[ResultTable] = ()  # those of one name are one table for programs
    verdict: str = ""  # one line, above the tables
    notes: Sequence[str] = ()  # sentences below them
    warnings: Sequence[str] = ()  # sentences that go to standard error
    files: Mapping[str, Path | Sequence[Path]] = field(default_factory=dict)  # by what they are
    is_doubt: bool = False  # whether the verdict warns of what the tables say
    fault: str = ""  # an error, which fails the command once the rest is printed

    def as_json(self, command: str) -> str:
        """Writes the object that ``docs/cli.md`` describes."""
        tables: dict[str, list[dict[str, Any]]] = {}
        for table in self.tables:
            tables.setdefault(table.name, []).extend(table.plain())
        content = {
            "version": VERSION,
            "command": command,
            "verdict": self.verdict or None,
            "tables": tables,
            "notes": self.notes,
            "warnings": self.warnings,
            "files": self.files,
            "error": self.fault or None,
        }
        text = json.dumps(_plain(content), indent=1, allow_nan=False, ensure_ascii=False)
        return "".join(one if is_visible(one) else f"\\u{ord(one):04x}" for one in text)

    def show(self) -> None:
        """Prints the result for people; the places of files go to standard error."""
        output = SafeConsole()
        if self.verdict:
            style = "bold red" if self.fault else "bold yellow" if self.is_doubt else "bold green"
            output.print(self.verdict, style=style, soft_wrap=True)
        for number, table in enumerate(self.tables):
            if number or self.verdict:
                output.print()
            output.print(table)
        for note in self.notes:
            output.print(f"- {note}")
        for warning in self.warnings:
            warn(warning)
        width = max(map(len, self.files), default=0) + 2
        for what, paths in self.files.items():
            for path in paths if isinstance(paths, Sequence) else [paths]:
                console.print(f"{what + ':':<{width}}{path}", soft_wrap=True)


def _plain(value: Any) -> Any:
    """Turns numbers of numpy, numbers that JSON lacks, and paths into what JSON has."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def print_result(name: str, command: Callable[..., Result]) -> Callable[..., None]:
    """Makes a command print its result, and gives it the options that say how."""
    signature = inspect.signature(command)
    of_output = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=annotation)
        for name, annotation in OUTPUT_OPTIONS.items()
    ]

    @wraps(command)
    def called(*, as_json: bool, quiet: bool, **given: Any) -> None:
        console.quiet = quiet
        try:
            check_values(given)
            result = command(**given)
            if as_json:
                print(result.as_json(name), flush=True)
            else:
                result.show()
        finally:
            console.quiet = False
        if result.fault:
            raise KVBenchError(result.fault)

    parameters = [*signature.parameters.values(), *of_output]
    called.__signature__ = signature.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
