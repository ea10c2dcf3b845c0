"""Writes the measurements of ``bench --suite`` for docs/performance.md."""

from kvbench.benchmarks.measurement import Measurement, Report
from kvbench.system.markdown import table

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
