"""The results of ``kvbench.doctor`` and ``kvbench.plan``: a verdict, and the tables behind it."""

from html import escape
from typing import TYPE_CHECKING

from kvbench.cli.result import Result
from policies import LazyModule

if TYPE_CHECKING:
    from pandas import DataFrame

pandas = LazyModule("pandas")


class ShownResult:
    """A result that a command prints: its tables are pandas frames here.

    Attributes:
        shown: What the command prints.
        warnings: What has to be known beside it, in sentences.
        notes: What can be done next, or what the numbers rest on.
        fault: What went wrong, in a line; empty where nothing did.
    """

    def __init__(self, shown: Result) -> None:
        self.shown = shown

    @property
    def warnings(self) -> list[str]:
        return list(self.shown.warnings)

    @property
    def notes(self) -> list[str]:
        return list(self.shown.notes)

    @property
    def fault(self) -> str:
        return self.shown.fault

    def _repr_html_(self) -> str:
        """Returns its verdict and its first table, as a notebook shows them."""
        verdict = f"<p>{escape(self.shown.verdict)}</p>" if self.shown.verdict else ""
        for frame in self.tables().values():
            return f"{verdict}{frame.to_html(index=False)}"
        return verdict

    def tables(self) -> "dict[str, DataFrame]":
        """Returns the tables that ``--json`` prints, by name."""
        frames: dict[str, DataFrame] = {}
        for table in self.shown.tables:
            columns = [column.name for column in table.columns]
            frames[table.name] = pandas.DataFrame(list(table.rows), columns=columns)
        return frames


class DoctorResult(ShownResult):
    """What was found of a press, or of a model.

    Attributes:
        verdict: Such as ``sound``, or what is broken.
        is_sound: Whether nothing is.
    """

    @property
    def verdict(self) -> str:
        return self.shown.verdict

    @property
    def is_sound(self) -> bool:
        return not self.shown.fault

    def findings(self) -> "DataFrame":
        """Returns a line for each check: its outcome, which is ``ok``, ``note``, ``unchecked`` or
        ``wrong``, and what was found."""
        return next(iter(self.tables().values()))

    def __repr__(self) -> str:
        return f"<DoctorResult {self.verdict}>"


class PlanResult(ShownResult):
    """What a run would take; ``notes`` has the assumptions."""

    def table(self) -> "DataFrame":
        """Returns what a run takes, a line for each number."""
        return self.tables()["figures"]

    def __repr__(self) -> str:
        lines = [f"{name}: {amount}" for name, amount in self.table().itertuples(index=False)]
        return "\n".join(lines)
