"""A run of the suite of the board gets a page of methods, and no other run does."""

from pathlib import Path

from kvbench.publish.methods import places_elsewhere
from tests.support.models.runs import CommandLine


def test_a_run_of_the_board_gets_a_page_of_methods(cli: CommandLine) -> None:
    options = ("--tasks", "base", "--ratios", "0.5", "--limit", 2, "--context-tokens", "native")
    assert cli("run", "--model", cli.model, "--policies", "knorm", *options, "--name", "plain") == 0
    assert Path("site/plain/index.html").is_file()
    assert not Path("site/plain/methods.html").exists()
    chosen = ("--suite", "board", "--policies", "knorm,keydiff,q8_0", "--name", "board")
    assert cli("run", "--model", cli.model, *chosen, *options) == 0, cli.err
    page = Path("site/board/methods.html")
    text = page.read_text(encoding="utf-8")
    for name in ("knorm", "keydiff", "q8_0", "oracle"):
        assert f'data-name="{name}"' in text
    assert "it removes at most 0.49 of the cache" in text  # of think, which is left out
    assert '<a href="methods.html"' in (page.parent / "index.html").read_text(encoding="utf-8")


def test_places_on_the_board_of_kvpress_are_counted_by_the_mean_of_both_models() -> None:
    places = places_elsewhere()
    assert sorted(places.values())[0] == 1
    assert places["kvzip"] < places["keydiff"] < places["snapkv"] < places["random"]
