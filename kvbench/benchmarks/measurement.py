"""Measurements with their machine, their versions, and the range of their repeats."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict

import kvbench
from kvbench.experiments.identify import device_name, git_state, package_versions
from kvbench.system.errors import KVBenchError
from kvbench.system.markdown import table
from kvbench.system.process import processor_name


class Measurement(BaseModel):
    """One row of the table of targets."""

    model_config = ConfigDict(extra="forbid")

    name: str
    what: str
    unit: str
    target: str
    value: float  # the median of the repeats
    lowest: float
    highest: float
    repeats: list[float]  # the value of every repeat
    met: bool | None  # whether the target is met; null if the target is not one number
    created: str
    git_revision: str | None
    git_dirty: bool | None
    load_average: float  # of the machine at the end, over a minute, with the measured work
    details: dict[str, object]  # the figures from which the value was computed


class Report(BaseModel):
    """Rows that were measured on one machine with the same versions."""

    model_config = ConfigDict(extra="forbid")

    kvbench: str
    versions: dict[str, str]
    device: str
    processor: str
    cores: int
    threads: int
    tiny: bool  # measured on tiny shapes
    results: list[Measurement] = []

    @classmethod
    def on(cls, device: torch.device, tiny: bool) -> "Report":
        """Describes this machine, without rows."""
        return cls(
            kvbench=kvbench.__version__,
            versions=package_versions(),
            device=device_name(device),
            processor=processor_name(),
            cores=os.cpu_count() or 1,
            threads=torch.get_num_threads(),
            tiny=tiny,
        )

    def with_rows_of(self, path: Path) -> "Report":
        """Adds the rows of the file, if there is one. Raises :class:`KVBenchError` for a file that is no report of the
        same machine and versions: it would be lost."""
        try:
            former = Report.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return self
        except (OSError, ValueError) as error:
            raise KVBenchError(f"--out {path} is no report of this suite: give another file") from error
        described = [name for name in Report.model_fields if name != "results"]
        if differing := [name for name in described if getattr(former, name) != getattr(self, name)]:
            raise KVBenchError(f"--out {path} is a report with other {', '.join(differing)}: give another file")
        return former

    def with_row(self, row: Measurement, order: Sequence[str]) -> "Report":
        """Adds a row, or replaces the row of that name; ``order`` sorts the names."""
        rows = {one.name: one for one in (*self.results, row)}
        return self.model_copy(update={"results": sorted(rows.values(), key=lambda one: order.index(one.name))})


def measurement(
    name: str,
    what: str,
    unit: str,
    target: str,
    repeats: Sequence[float],
    met: Callable[[float], bool] | None,
    **details: object,
) -> Measurement:
    """Compares the median of the repeats with the target."""
    value = statistics.median(repeats)
    revision, dirty = git_state(Path(str(kvbench.__file__)).parent)
    return Measurement(
        name=name,
        what=what,
        unit=unit,
        target=target,
        value=value,
        lowest=min(repeats),
        highest=max(repeats),
        repeats=list(repeats),
        met=met(value) if met else None,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        git_revision=revision,
        git_dirty=dirty,
        load_average=round(os.getloadavg()[0], 2),
        details=details,
    )


def seconds_of(device: torch.device, work: Callable[[], object]) -> float:
    """Returns the processor time of this process on a CPU; on a GPU, the time until all work is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        started = time.perf_counter()
        work()
        torch.cuda.synchronize(device)
        return time.perf_counter() - started
    started = time.process_time()
    work()
    return time.process_time() - started


HEADER = ("row", "measured", "lowest to highest", "target", "met")


def markdown(report: Report) -> str:
    """Writes the machine, and a table with a line for each row."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    machine = f"{report.processor}, {report.cores} cores, {report.threads} threads; {versions}."
    return f"{machine}\n\n{table(HEADER, map(_line, report.results))}"


def _line(row: Measurement) -> tuple[str, ...]:
    met = "–" if row.met is None else "yes" if row.met else "**no**"
    value, lowest, highest = (f"{number:.3g}" for number in (row.value, row.lowest, row.highest))
    return (
        f"`{row.name}`",
        f"{value} {row.unit}",
        f"{lowest} to {highest}",
        row.target,
        met,
    )
