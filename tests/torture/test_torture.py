"""A little of ``make torture``: nothing is lost or falsified, nothing hangs and nothing ends in a
traceback."""

from pathlib import Path

import pytest

from kvbench.cli.program import main
from tests.support.models.runs import small_command
from tests.torture.attacks import ATTACKS, Attacker

CASES = {
    "generated bad calls": 5,
    "damaged stores": 2,
    "damaged models": 2,
    # Each takes seconds; tests/store kills runs and fills disks, and tests/checks forges records.
    "kills and signals": 1,
    "full disks": 1,
    "forged records": 2,
}
SLOW = ("kills and signals", "full disks", "forged records")


@pytest.fixture(scope="module")
def attacker(toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Attacker:
    folder = tmp_path_factory.mktemp("attacks")
    assert main([str(word) for word in small_command(toy_folder, folder / "whole")]) == 0
    return Attacker(toy_folder, folder / "whole/runs/x", folder / "attacks")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] if kind in SLOW else []) for kind in ATTACKS],
)
def test_attacks_are_answered_well(attacker: Attacker, kind: str) -> None:
    make, _ = ATTACKS[kind]
    answered = [(seed, *make(attacker, seed)) for seed in range(10_000, 10_000 + CASES[kind])]
    assert [one for one in answered if one[1] != "well"] == []
