"""Chooses the day that a chat template is told in a run: a run that goes on tomorrow, or takes answers of a run beside
it, sends the same prompts."""

from datetime import date
from pathlib import Path

from kvbench.store.run_file import RUN_FILE, Job, RunFile, read_run_file
from kvbench.system.clock import today
from kvbench.system.errors import KVBenchError
from kvbench.system.files import user_path


def with_date(job: Job, out: Path, name: str | None = None) -> Job:
    """Returns the job with the day that is given, else that of the run of this name, else that of the latest run in the
    folder ``out`` whose model was told one, else today. Raises :class:`KVBenchError` for a text that is no day."""
    if job.date is not None:
        try:
            return job.model_copy(update={"date": date.fromisoformat(job.date).isoformat()})
        except ValueError as error:
            raise KVBenchError(f"--date {job.date}: give a day as 2026-11-28") from error
    runs = {
        folder.name: run
        for folder, run in _runs_in(out)
        if run.identity.date and _is_of(job.model, run)
    }
    begun = runs.get(name or "") or max(runs.values(), key=lambda run: run.created, default=None)
    return job.model_copy(update={"date": begun.identity.date if begun else today()})


def _runs_in(out: Path) -> list[tuple[Path, RunFile]]:
    runs = []
    for file in sorted(out.glob(f"*/{RUN_FILE}")):
        try:
            runs.append((file.parent, read_run_file(file.parent)))
        except (KVBenchError, OSError):  # of another version, or damaged: its own run says so
            continue
    return runs


def _is_of(model: str, run: RunFile) -> bool:
    """Tells whether a run is of this model, by its name or by the place that two names lead to."""
    names = (model, run.identity.model)
    return names[0] == names[1] or len({user_path(name).resolve() for name in names}) == 1
