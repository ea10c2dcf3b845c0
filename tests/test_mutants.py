"""The list of mutants fits the code: ``make mutants`` tries them."""

import pytest

from tests.mutants import MUTANTS, Mutant, fits


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_mutant_still_fits_its_file(mutant: Mutant) -> None:
    assert fits(mutant), f"change the text of this mutant in tests/mutants.py: {mutant}"


def test_there_are_mutants_of_the_engine_metrics_statistics_and_store() -> None:
    assert len(MUTANTS) >= 20
    for folder in ("kvbench/engine", "leaderboards/metrics", "leaderboards/statistics", "kvbench/store"):
        assert sum(mutant.file.startswith(folder) for mutant in MUTANTS) >= 4, folder
