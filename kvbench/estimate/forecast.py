"""Forecasts how long a run takes on this machine, before it begins."""

import torch

from kvbench.estimate.constants import Constants
from kvbench.estimate.load import load_of
from kvbench.estimate.machine import this_machine
from kvbench.estimate.page import hours
from kvbench.estimate.plan import Plan
from kvbench.estimate.shape import shape_of_network
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.run.workers import Workers

SHARED = 0.75  # of its speed has a process beside others, with which it shares the memory
PAGE_SECONDS = 10.0  # that records, statistics and pages of a small run take


def forecast_of(model: LoadedModel, grid: Grid) -> str:
    """Says in one line about how long a run takes, by the speed of this machine as it is now. Of a GPU it says nothing:
    none was at hand to try it on."""
    if model.device.type != "cpu":
        return ""
    network, threads = model.network, torch.get_num_threads()
    workers = Workers(model, sum(contexts for _, contexts in grid.tasks)).count
    torch.set_num_threads(1 if workers > 1 else threads)
    try:
        machine = this_machine(network.config.get_text_config().hidden_size, network.dtype.itemsize)
    finally:
        torch.set_num_threads(threads)
    shape = shape_of_network(model.name, network, network.dtype.itemsize)
    loads = [load_of(grid, task, contexts, tokenizer=model.tokenizer) for task, contexts in grid.tasks]
    seconds = sum(Plan(loads, shape, machine, Constants.read()).seconds.values()) / workers
    seconds /= SHARED if workers > 1 else 1.0
    return f"forecast: about {hours(seconds + PAGE_SECONDS)} on this machine, the page included"
