"""Loads what a process needs to run units of a job: its model, and its grid."""

from dataclasses import dataclass

from kvbench.experiments.build_grid import build_grid, leave_out, leave_out_tasks
from kvbench.experiments.catalogue import unfit_for
from kvbench.experiments.grid import Grid
from kvbench.experiments.suites import dtype_of
from kvbench.models.load import LoadedModel, choose_device, choose_dtype, load_model, missing_weights
from kvbench.models.precision import check_dtypes
from kvbench.models.shape import shape_of
from kvbench.prompts.context_length import count_by
from kvbench.prompts.prompt import WITHOUT_TEMPLATE
from kvbench.run.unit import check_first_contexts
from kvbench.store.numerics import NUMERICS
from kvbench.store.run_file import Job
from kvbench.system.console import console
from kvbench.system.process import settle


@dataclass(frozen=True)
class LoadedJob:
    """A job whose model is loaded."""

    model: LoadedModel
    grid: Grid  # what can be run with that model
    missing: dict[str, str]  # policies that cannot run on it, with the reason


def load_job(job: Job, loaded: LoadedModel | None = None) -> LoadedJob:
    """Loads the model of a job, unless it is ``loaded`` already; options that make no sense, and contexts that the
    model cannot read, raise :class:`KVBenchError`, the options before anything is loaded."""
    dtype = dtype_of(job.dtype, job.suite)
    model = loaded if loaded and loaded.name == job.model else None
    before = count_by(job.model)  # a given text is cut by its tokens when the grid is built
    grid = build_grid(job, lambda text: model.count_tokens(text) if model else before(text))
    unfit: dict[str, str] = {}
    if any(policy.check_model for policy in grid.setting.policies) and (
        shape := shape_of(job.model, job.device, dtype)
    ):
        unfit = unfit_for(grid.setting.policies, shape)
        grid = leave_out(grid, unfit, job)
    if NUMERICS.name in grid.setting.tables:
        check_dtypes(grid.setting.numerics.dtypes, choose_device(job.device))
    if loaded and (loaded.name, loaded.network.dtype) == (job.model, choose_dtype(dtype, loaded.device, job.model)):
        model = loaded
    else:
        console.print(f"loading {job.model}", soft_wrap=True)
        model = load_model(job.model, job.device, dtype, job.device_map)
        settle()
        if model.tokenizer.chat_template is None:
            console.print(f"{job.model} has no chat template: {WITHOUT_TEMPLATE}", soft_wrap=True)
    grid = leave_out_tasks(grid, model.tokenizer, job)
    missing = missing_weights(grid.setting.policies, model)
    grid = leave_out(grid, missing, job)
    check_first_contexts(model, grid)
    return LoadedJob(model, grid, unfit | missing)
