"""Figures for print: one for each task, mode and measure, in the formats that are asked for."""

from pathlib import Path

import pytest
from matplotlib.image import imread

from kvbench.cli import main
from leaderboards import F1, curve_drawing, summarise
from synthetic_records import realistic_records
from test_cli import run_arguments


def test_a_figure_has_a_heading_and_a_legend_and_is_large_enough_for_print(tmp_path: Path) -> None:
    rows = summarise(realistic_records(contexts=3))
    drawing = curve_drawing(rows, "base", "agnostic", F1)
    drawing.save(tmp_path / "f1.svg", "F1, percent: base")
    text = (tmp_path / "f1.svg").read_text()
    for words in ("F1, percent: base", "snapkv", "random", "asked ratio"):
        assert words in text, words
    assert text.count(">snapkv<") == 1, "one entry, though its line may be in pieces"
    drawing.save(tmp_path / "f1.png", "F1, percent: base")
    assert imread(tmp_path / "f1.png").shape[:2] == (1380, 1800)
    drawing.save(tmp_path / "f1.pdf", "F1, percent: base")
    assert (tmp_path / "f1.pdf").read_bytes().startswith(b"%PDF")


def test_the_command_draws_every_measure_of_every_task(
    toy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(run_arguments(toy_folder, tmp_path)) == 0
    run, out = str(tmp_path / "runs/x"), tmp_path / "figures"
    assert main(["figures", run, "--out", str(out), "--formats", "svg,pdf"]) == 0
    names = {path.name for path in out.iterdir()}
    assert len(names) == 2 * 3 * 3  # formats, measures, and two tasks with their mean
    assert {"f1-base-agnostic.svg", "ger-all-agnostic.pdf", "hallucination-hops-agnostic.svg"} <= names
    capsys.readouterr()
    assert main(["figures", run, "--out", str(out), "--formats", "pgn"]) == 1
    assert "unknown format 'pgn': did you mean 'png'" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["figures", run, "--out", str(tmp_path / "file")]) == 1
    assert "cannot be written" in capsys.readouterr().err
