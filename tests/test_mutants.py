"""The list of mutants fits the code: ``make mutants`` tries them."""

import pytest

from tests.mutants import MUTANTS, Mutant, fits


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_every_mutant_still_fits_its_file(mutant: Mutant) -> None:
    assert fits(mutant), f"change the text of this mutant in tests/mutants.py: {mutant}"


@pytest.mark.parametrize(
    "folder",
    [
        *("kvbench/engine", "kvbench/store", "leaderboards/metrics", "leaderboards/statistics"),
        *("leaderboards/pages", "leaderboards/downloads", "leaderboards/terminal"),
    ],
)
def test_every_part_that_decides_what_is_said_has_mutants(folder: str) -> None:
    assert sum(mutant.file.startswith(folder) for mutant in MUTANTS) >= 3
