"""What measures a card is tried without one, so that the first minute on a card is not spent on a
typing error."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import docs.scripts.gpu
import docs.scripts.gpu_parts
import docs.scripts.tables
from docs.scripts.gpu import Report, about, main, measure, take, without_values
from docs.scripts.gpu_parts import PARTS, SMALL, Card, Part, Value
from kvbench.estimate.machines import MACHINES, TABLE, card_machine, find_card
from kvbench.studies.registry import SUITES
from kvbench.system.errors import KVBenchError
from policies import POLICIES
from tests.support.models.pretended_cuda import pretended_cuda
from tests.support.wording import assert_says

H100 = "NVIDIA H100 80GB HBM3"
ABOUT = {
    "card": H100,
    "device": "cuda",
    "small": False,
    "date": "2026-12-01",
    "revision": "abc",
    "source": "x",
}


@pytest.fixture
def document_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for docs and for the package."""
    monkeypatch.setattr(docs.scripts.gpu, "RESULT", tmp_path / "gpu.json")
    monkeypatch.setattr(docs.scripts.gpu, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setattr(docs.scripts.tables, "DOCS", tmp_path)
    (tmp_path / "measured.json").write_text("{}")
    return tmp_path


def part(
    name: str, make: Callable[[Card], Iterator[Value]], *rows: str, seconds: float = 60
) -> Part:
    return Part(name, seconds, dict.fromkeys(rows, "s"), make)


def one(row: str, value: float) -> Callable[[Card], Iterator[Value]]:
    return lambda _: iter([Value(row, value)])


def failing(_: Card) -> Iterator[Value]:
    yield Value("b", 2.0)
    raise ZeroDivisionError("by hand")


def rows_by_name(path: Path) -> dict[str, dict[str, Any]]:
    return {row["row"]: row for row in json.loads(path.read_text())["rows"]}


@pytest.mark.slow
def test_every_part_runs_at_small_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor goes by the name of a card, whose data sheet and forecast stand beside what is
    measured."""
    monkeypatch.setattr(Card, "name", H100)
    monkeypatch.setattr(docs.scripts.gpu_parts, "FIVE", (0.3, 0.7))
    main(["--small", "--device", "cpu", "--json", str(tmp_path / "gpu.json")])
    content = json.loads((tmp_path / "gpu.json").read_text())
    rows = rows_by_name(tmp_path / "gpu.json")
    assert set(content["seconds"]) == {one.name for one in PARTS}
    missing = {name: row["note"] for name, row in rows.items() if row["measured"] is None}
    # A processor counts no peaks, and at small sizes no natural model is loaded.
    assert {name.split(":")[0] for name in missing if "peak" not in name} == {
        "`smollm2`, float32",
        "`smollm2`, bfloat16",
    }
    assert all(
        "not in the cache" in note or note == "not measured on this device"
        for note in missing.values()
    )
    for what in ("every policy", "every task", "every suite"):
        row = rows[f"{what}: answers equal to the CPU's, float32"]
        assert row["measured"] == 1.0, row["note"]
        assert "failed" not in row["note"]
    assert all(
        row["plan"] > 0
        for name, row in rows.items()
        if name.endswith((": prefill", ": presses", ": answers"))
    )
    assert set(content["constants"]) == set(docs.scripts.gpu.CONSTANTS)
    assert all(
        0 < share <= 1 for name, share in content["constants"].items() if name != "layer_seconds"
    )
    monkeypatch.setattr(docs.scripts.tables, "DOCS", tmp_path)
    assert f"measured on {H100}, {content['date']}" in docs.scripts.tables.gpu()
    with pytest.raises(KVBenchError, match="a trial"):
        take(tmp_path / "gpu.json")


def test_every_part_runs_on_the_pretended_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few policies, as the pretended device is slow."""
    few = replace(
        SMALL,
        lengths=(150, 160),
        policies="snapkv",
        treatments=("int4",),
        tasks=("base",),
        answer=4,
    )
    monkeypatch.setattr(docs.scripts.gpu, "SMALL", few)
    monkeypatch.setattr(docs.scripts.gpu_parts, "default_policies", lambda: [POLICIES["knorm"]])
    monkeypatch.setattr(docs.scripts.gpu_parts, "BESIDE_PIPELINE", ("keydiff",))
    suites = {**SUITES, "bytes": replace(SUITES["bytes"], policies="int4,knorm+int8")}
    monkeypatch.setattr(docs.scripts.gpu_parts, "SUITES", suites)
    monkeypatch.setattr("kvbench.experiments.suites.SUITES", suites)
    # Each ratio, and each pass whose time is measured, does what another does.
    monkeypatch.setattr(docs.scripts.gpu_parts, "FIVE", (0.5,))
    monkeypatch.setattr(docs.scripts.gpu_parts, "CALLS", 2)
    with pretended_cuda():
        main(["--small", "--device", "cuda", "--json", str(tmp_path / "gpu.json")])
    notes = {
        name: row["note"]
        for name, row in rows_by_name(tmp_path / "gpu.json").items()
        if row["measured"] is None
    }
    assert all("smollm2" in name or "over the card's" in name for name in notes), notes
    assert json.loads((tmp_path / "gpu.json").read_text())["card"] == "pretended"


def test_without_a_card_nothing_is_begun(tmp_path: Path) -> None:
    with pytest.raises(KVBenchError, match="no CUDA device"):
        main(["--json", str(tmp_path / "gpu.json")])
    assert not (tmp_path / "gpu.json").exists()


def test_a_part_that_fails_is_noted_and_the_others_go_on(tmp_path: Path) -> None:
    parts = [part("first", failing, "b", "c"), part("second", one("d", 4.0), "d")]
    card = Card("cpu", SMALL)
    measure(card, Report(tmp_path / "x.json", parts, about(card)), parts, 1)
    rows = rows_by_name(tmp_path / "x.json")
    assert [rows[name]["measured"] for name in "bcd"] == [2.0, None, 4.0]
    assert rows["c"]["note"] == "failed: ZeroDivisionError: by hand"


def test_a_run_that_is_cut_keeps_what_it_has(tmp_path: Path) -> None:
    def cut(_: Card) -> Iterator[Value]:
        yield Value("c", 3.0)
        raise KeyboardInterrupt

    parts = [part("first", one("b", 2.0), "b"), part("second", cut, "c", "d")]
    with pytest.raises(KeyboardInterrupt):
        measure(Card("cpu", SMALL), Report(tmp_path / "x.json", parts, ABOUT), parts, 1)
    assert [row["measured"] for row in rows_by_name(tmp_path / "x.json").values()] == [
        2.0,
        3.0,
        None,
    ]


def test_no_part_is_begun_when_the_time_is_over_or_takes_longer_than_it_may(tmp_path: Path) -> None:
    def endless(_: Card) -> Iterator[Value]:
        while card.device:
            pass
        yield Value("b", 1.0)

    card = Card("cpu", SMALL)

    parts = [part("first", endless, "b", seconds=0.2), part("second", one("c", 2.0), "c")]
    measure(card, Report(tmp_path / "x.json", parts, ABOUT), parts, 1)
    rows = rows_by_name(tmp_path / "x.json")
    assert "took longer than 0 s" in rows["b"]["note"]
    assert rows["c"]["measured"] == 2.0
    measure(card, Report(tmp_path / "y.json", parts, ABOUT), parts, 0)
    assert {row["note"] for row in rows_by_name(tmp_path / "y.json").values()} == {
        "not begun: the 0 minutes were over"
    }


def test_plan_takes_the_shares_that_were_measured_on_a_card(document_folder: Path) -> None:
    parts = [part("first", one("b", 2.0), "b", "c")]
    report = Report(document_folder / "theirs.json", parts, ABOUT)
    report.constants = {"compute_share": 0.5, "reading_share": 0.25, "layer_seconds": 1e-4}
    report.add(Value("b", 2.0, 1.5))
    take(report.path)
    measured = json.loads((document_folder / "measured.json").read_text())
    flops, _, _, bandwidth, memory = TABLE["machines"]["h100"]
    machine = card_machine("h100", measured["h100"])
    assert (machine.flops, machine.bandwidth, machine.memory) == (
        0.5 * flops,
        0.25 * bandwidth,
        memory,
    )
    assert machine.layer_seconds == 1e-4
    assert_says(machine.source, H100, "2026-12-01", "make gpu", "50% of the operations")
    measured_row, row_without_value = docs.scripts.tables.gpu().splitlines()
    assert_says(measured_row, "b: 2 s", "`plan` 1.5", H100, "2026-12-01")
    assert_says(row_without_value, "c: not measured")
    assert card_machine("a100", measured.get("a100")).source.startswith("a projection")


def test_a_card_is_known_by_the_name_of_its_driver() -> None:
    names = {
        H100: "h100",
        "NVIDIA GeForce RTX 4090": "rtx4090",
        "NVIDIA A100-SXM4-80GB": "a100",
        "Tesla T4": "",
    }
    assert {name: find_card(name) for name in names} == names
    assert "h200" in MACHINES


def test_the_rows_are_those_of_the_parts() -> None:
    assert list(rows_by_name(docs.scripts.gpu.RESULT)) == list(without_values().rows), (
        "docs/gpu.json has other rows: make gpu"
    )
