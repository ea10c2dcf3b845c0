"""The comparison with llama.cpp: which policies stand for its types, and what the table says."""

import json
from pathlib import Path

import pytest

from docs.scripts import engines
from docs.scripts.engines import PAIRS, breaks, name_policies
from kvbench.experiments.catalogue import find_policy


@pytest.mark.parametrize("pair", PAIRS)
def test_each_pair_of_types_has_its_policies(pair: tuple[str, str]) -> None:
    """Each says in its name what it stores, and when."""
    names = name_policies(*pair)
    for name in names.values():
        assert find_policy(name).name == name
    is_of_both = pair[0] == pair[1]
    assert ("tensor=" in names["stored"]) is not is_of_both
    assert "phase=write" not in names["stored"]
    assert "phase=write" in names["written"]
    assert {"phase=write", "rotate=hadamard"} <= set(
        names["written_turned"].partition("(")[2].removesuffix(")").split(",")
    )


def test_a_pair_breaks_where_more_than_a_fifth_of_the_needles_is_lost() -> None:
    assert not breaks(right=8, full=10, needles=10)
    assert breaks(right=7, full=10, needles=10)
    assert not breaks(right=7, full=8, needles=10), "what the engine itself misses is not lost"


def test_the_table_has_a_row_for_the_full_cache_and_for_each_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = engines.EngineRow("q4_0", "f16", 3, 2, stored=0, written=1, written_turned=4, same=5)
    measured = {"needles": 10, "tokens": 600, "llama_cpp_full": 9, "full": 10}
    content = {"qwen": measured | {"pairs": [vars(row)]}}
    (tmp_path / "engines.json").write_text(json.dumps(content))
    monkeypatch.setattr(engines, "RESULTS", tmp_path / "engines.json")
    lines = engines.engines().splitlines()
    assert lines[0].startswith("`qwen`, 10 needles of 600 tokens")
    assert lines[-2] == "| f16 | f16 | 9 | – | 10 | – | – | – |"
    assert lines[-1] == "| q4_0 | f16 | 3 | 2 | 0 | 1 | 4 | 5 |"
