"""Commands return a :class:`Result`, and this is the one place that prints it: as tables, or as one
JSON object."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from kvbench.system.console import SafeConsole, can_write, console, is_visible, warn
from kvbench.system.errors import GateError, KVBenchError
from leaderboards.terminal.result_table import ResultTable

VERSION = 5  # of the JSON object; one that lacks or renames anything gets another


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
    failed_gate: str = ""  # why a gate fails, which ends the command with a status of its own

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
            "error": self.fault or self.failed_gate or None,
        }
        # Numbers of numpy become Python's, and those that JSON lacks null.
        data = to_json(
            content, indent=1, inf_nan_mode="null", fallback=lambda number: number.item()
        )
        return "".join(_visible(letter) for letter in data.decode())

    def print(self, command: str, as_json: bool) -> None:
        """Prints the result; raises :class:`KVBenchError` for a fault of it, and
        :class:`GateError` where a gate fails."""
        if as_json:
            text = self.as_json(command)
            # Where the terminal cannot write a letter JSON escapes it, which programs read alike.
            print(text if can_write(text) else json.dumps(json.loads(text), indent=1), flush=True)
        else:
            self.show()
        if self.fault:
            raise KVBenchError(self.fault)
        if self.failed_gate:
            raise GateError(self.failed_gate)

    def show(self) -> None:
        """Prints the result for people; the places of files go to standard error."""
        output = SafeConsole()
        if self.verdict:
            output.print(self.verdict, style=self._verdict_style, soft_wrap=True)
        tables = [table for table in self.tables if not table.is_empty]
        for number, table in enumerate(tables):
            if number or self.verdict:
                output.print()
            output.print(table)
        for note in self.notes:
            output.print(f"- {note}")
        for warning in self.warnings:
            warn(warning)
        width = max(map(len, self.files), default=0) + 2
        for name, paths in self.files.items():
            listed = paths if isinstance(paths, Sequence) else [paths]
            for path in listed:
                console.print(f"{name + ':':<{width}}{path}", soft_wrap=True)

    @property
    def _verdict_style(self) -> str:
        if self.fault or self.failed_gate:
            return "bold red"
        return "bold yellow" if self.is_doubt else "bold green"


def _visible(letter: str) -> str:
    """Writes a letter as JSON may have it where a terminal could take it for a command."""
    return letter if is_visible(letter) else f"\\u{ord(letter):04x}"


class UnmasteredError(KVBenchError):
    """Ends a run before any policy: the model cannot answer its questions. The table of its answers
    and the remedies come with it."""

    def __init__(self, message: str, table: ResultTable, remedies: Sequence[str]) -> None:
        super().__init__(message)
        self.table = table
        self.remedies = remedies

    @property
    def shown(self) -> Result:
        """Returns what a command shows of it."""
        return Result([self.table], notes=self.remedies, fault=str(self))
