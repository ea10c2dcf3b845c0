"""A little of ``make torture``: nothing is lost or falsified, nothing hangs and nothing ends in a traceback."""

from pathlib import Path

import pytest

from tests.torture.attacks import ATTACKS, Attacker

CASES = {
    "generated bad calls": 60,
    "damaged stores": 10,
    "damaged models": 8,
    "kills and signals": 2,
    "full disks": 2,
    "forged records": 6,
}


@pytest.fixture(scope="module")
def attacker(toy_folder: Path, toy_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Attacker:
    return Attacker(toy_folder, toy_run / "runs/x", tmp_path_factory.mktemp("attacks"))


@pytest.mark.parametrize("kind", ATTACKS)
def test_attacks_are_answered_well(attacker: Attacker, kind: str) -> None:
    make, _ = ATTACKS[kind]
    answered = [(seed, *make(attacker, seed)) for seed in range(10_000, 10_000 + CASES[kind])]
    assert [one for one in answered if one[1] != "well"] == []
