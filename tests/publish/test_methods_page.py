"""A run of the suite of the board gets a page of methods, and no other run does."""

from pathlib import Path

from leaderboards.pages.methods.all_methods import places_elsewhere
from tests.support.models.runs import CommandLine


def test_a_run_of_the_board_gets_a_page_of_methods(cli: CommandLine, tmp_path: Path) -> None:
    def run(name: str, *words: str) -> Path:
        site = tmp_path / name
        options = ("--tasks", "base", "--ratios", "0.5", "--limit", 2, "--context-tokens", "native")
        places = ("--model", cli.model, "--out", tmp_path / "runs", "--site", site)
        assert cli("run", *words, *options, *places, "--name", name) == 0, cli.err
        assert (site / "index.html").is_file()
        return site / "methods.html"

    assert not run("plain", "--policies", "knorm").exists()
    page = run("board", "--suite", "board", "--policies", "knorm,keydiff,q8_0")
    text = page.read_text(encoding="utf-8")
    for name in ("knorm", "keydiff", "q8_0", "oracle"):
        assert f'data-name="{name}"' in text
    assert "it removes at most 0.49 of the cache" in text  # of think, which is left out
    assert '<a href="methods.html"' in (page.parent / "index.html").read_text(encoding="utf-8")


def test_places_on_the_board_of_kvpress_are_counted_by_the_mean_of_both_models() -> None:
    places = places_elsewhere()
    assert min(places.values()) == 1
    assert places["kvzip"] < places["keydiff"] < places["snapkv"] < places["random"]
