"""Chooses the day that a chat template is told in a run: a run that goes on tomorrow, or takes
answers of a run beside it, sends the same prompts."""

from datetime import date
from pathlib import Path

from kvbench.store.run_file import RUN_FILE, Job, RunFile, read_run_file
from kvbench.system.clock import today
from kvbench.system.errors import KVBenchError
from kvbench.system.files import user_path


def with_date(job: Job, out: Path, name: str | None = None) -> Job:
    """Returns the job with the day that is given, else that of the run of this name, else that of
    the latest run in the folder ``out`` whose model was told one, else today. Raises
    :class:`KVBenchError` for a text that is no day."""
    if job.date is not None:
        try:
            day = date.fromisoformat(job.date).isoformat()
        except ValueError as error:
            raise KVBenchError(f"--date {job.date}: give a day as 2026-11-28") from error
        return job.model_copy(update={"date": day})
    runs: dict[str, RunFile] = {}
    for folder, run in _runs_in(out):
        if run.identity.date and _has_model(run, job.model):
            runs[folder.name] = run
    begun = runs.get(name or "")
    if begun is None:
        begun = max(runs.values(), key=lambda run: run.created, default=None)
    day = begun.identity.date if begun else today()
    return job.model_copy(update={"date": day})


def _runs_in(out: Path) -> list[tuple[Path, RunFile]]:
    """Reads the runs of a folder."""
    runs = []
    for file in sorted(out.glob(f"*/{RUN_FILE}")):
        try:
            runs.append((file.parent, read_run_file(file.parent)))
        except (KVBenchError, OSError):  # of another version, or damaged: its own run says so
            continue
    return runs


def _has_model(run: RunFile, model: str) -> bool:
    """Tells whether a run is of this model, by its name or by the place that two names lead to."""
    other = run.identity.model
    return model == other or user_path(model).resolve() == user_path(other).resolve()
