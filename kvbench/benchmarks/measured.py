"""What was measured, on which machine, with which versions, and how far the repeats are apart."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict

import kvbench
from kvbench.identity import device_name, git_state, package_versions
from kvbench.process import processor_name


class Measured(BaseModel):
    """One row of the table. ``repeats``: the value of every repeat, of which ``value`` is the median; ``details``:
    what it was computed from. ``met`` is null where there is no target in one number. ``load_average``: of the machine
    at the end, over a minute, what was measured included."""

    model_config = ConfigDict(extra="forbid")

    name: str
    what: str
    unit: str
    target: str
    value: float
    lowest: float
    highest: float
    repeats: list[float]
    met: bool | None
    created: str
    git_revision: str | None
    git_dirty: bool | None
    load_average: float
    details: dict[str, object]


class Report(BaseModel):
    """Rows that were measured on one machine with the same versions. ``tiny``: on tiny shapes."""

    model_config = ConfigDict(extra="forbid")

    kvbench: str
    versions: dict[str, str]
    device: str
    processor: str
    cores: int
    threads: int
    tiny: bool
    results: list[Measured] = []

    @classmethod
    def on(cls, device: torch.device, tiny: bool) -> "Report":
        """Of this machine, still without rows."""
        return cls(
            kvbench=kvbench.__version__,
            versions=package_versions(),
            device=device_name(device),
            processor=processor_name(),
            cores=os.cpu_count() or 1,
            threads=torch.get_num_threads(),
            tiny=tiny,
        )

    def continued(self, path: Path) -> "Report":
        """With the rows of the file, if there is one of the same machine and versions."""
        try:
            former = Report.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return self
        alike = former.model_copy(update={"results": []}) == self.model_copy(update={"results": []})
        return former if alike else self

    def with_row(self, row: Measured, order: Sequence[str]) -> "Report":
        """That row in place of a former one of its name. ``order``: of the names."""
        rows = {one.name: one for one in (*self.results, row)}
        return self.model_copy(update={"results": sorted(rows.values(), key=lambda one: order.index(one.name))})


def measured(
    name: str,
    what: str,
    unit: str,
    target: str,
    repeats: Sequence[float],
    met: Callable[[float], bool] | None,
    **details: object,
) -> Measured:
    """The median of the repeats against the target."""
    value = statistics.median(repeats)
    revision, dirty = git_state(Path(str(kvbench.__file__)).parent)
    return Measured(
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
    """Of this process on a CPU, whatever else it runs at the same time; on a GPU until all of it is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        started = time.perf_counter()
        work()
        torch.cuda.synchronize(device)
        return time.perf_counter() - started
    started = time.process_time()
    work()
    return time.process_time() - started
