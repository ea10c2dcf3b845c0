"""Runs a job on a CPU and on the pretended device, and compares all that is stored."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from kvbench.experiments.build_grid import build_grid
from kvbench.models.load import LoadedModel
from kvbench.store.run_file import Job
from kvbench.store.store import Store
from tests.support.models.devices import work_as
from tests.support.models.pretended_cuda import pretended_cuda
from tests.support.models.runs import execute, timeless
from tests.support.models.where import on_card, on_host

# The plain attention of the pretended device adds in another order than the fused one of a CPU.
RELATIVE, ABSOLUTE = 1e-4, 1e-5

Tables = dict[str, pd.DataFrame]


def tables_of(store: Store) -> Tables:
    """Returns the rows of every table of a run by name, without times."""
    return {
        table.name: timeless(pd.concat([store.read(table, file).to_pandas() for file in files]))
        for table in store.tables
        if (files := store.files(table))
    }


def run(model: LoadedModel, job: Job, folder: Path) -> Store:
    return execute(model, build_grid(job, model.count_tokens), folder, "a test")


def runs_on_both(
    job: Job, folder: Path, dtype: torch.dtype = torch.float32
) -> tuple[Tables, Tables]:
    """Returns the tables of a run on a CPU, which works in the same portions as a card, and on the
    pretended device."""
    with pytest.MonkeyPatch.context() as patch:
        work_as(patch, "cuda")
        of_host = run(on_host(dtype), job, folder / "host")
    with pretended_cuda():
        of_card = run(on_card(dtype), job, folder / "card")
    return tables_of(of_host), tables_of(of_card)


def check_same(job: Job, folder: Path, dtype: torch.dtype = torch.float32) -> Tables:
    """Checks that no answer fails and that all tables are equal on both; returns them."""
    expected, actual = runs_on_both(job, folder, dtype)
    failures = expected["records"].query("status != 'ok'")
    assert failures.empty, failures["reason"].tolist()
    check_equal(expected, actual)
    return expected


def check_equal(expected: Tables, actual: Tables) -> None:
    assert list(expected) == list(actual)
    for name, table in expected.items():
        pd.testing.assert_frame_equal(
            table.reset_index(drop=True),
            actual[name].reset_index(drop=True),
            rtol=RELATIVE,
            atol=ABSOLUTE,
            obj=name,
        )
