"""The register of the texts' tables and figures: every command runs, and makes the sections and the
columns that it is said to make."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest

from docs.scripts.papers import Command, registers
from kvbench.cli.program import main
from leaderboards.claims.registry import claims
from tests.support.models.toy import model_of
from tests.support.tasks.samples_of_ifeval import changed

REGISTERS = registers()
PROBLEMS = Path(__file__).parents[1] / "data" / "gsm8k.jsonl"
COMMANDS = {
    command.name: command for register in REGISTERS.values() for command in register.commands
}
# One context of a few tokens; of many levels one or two, of which a curve has two.
SMALL = "--limit 1 --repeats 1 --max-new-tokens 4 --every-task"
# Ten seconds and more each; others of their texts run in each test run.
SLOW = ("r-why", "f-small", "e-next")
SMALLER: Mapping[str, str] = {
    "f": "--rates 0.02,0.04",
    "f-small": "--rates 0.02,0.04",
    "n": "--suite numerics(dtypes=[fp32,bf16],sampling=greedy) --limit 2 --max-new-tokens 8",
    "r": "--ratios 0.5,0.9 --policies snapkv,knorm --tasks base,hops",
    # Only a model that has an answer right shows what reaches it.
    "r-why": "--model reference --ratios 0.5 --policies snapkv --limit 1 --max-new-tokens 12",
    "p": "--ratios 0.3,0.5 --limit 2",
    "p-fair": "--ratios 0.5 --limit 2",
}


@pytest.fixture(scope="module")
def papers_folder(tmp_path_factory: pytest.TempPathFactory, toy_folder: Path) -> Iterator[Path]:
    """A folder with the rows that the commands name, in the benchmarks' forms, and two models."""
    place = tmp_path_factory.mktemp("papers")
    (place / "gsm8k.jsonl").write_bytes(PROBLEMS.read_bytes())
    rows = []
    for number in range(2):
        rules = f"You write for tea house {number}. Praise no coffee and no milk. Use no commas. Name a town in each line."
        messages = [
            {"role": "system", "content": rules},
            {"role": "user", "content": "Praise tea."},
        ]
        directives = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
        rows.append(
            changed(key=number, prompt=f"{rules} Praise tea.", messages=messages, **directives)
        )
    (place / "ifeval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "articles.txt").write_text(
        "The town lies at a river, which has a bridge and two mills. " * 80
    )
    other = model_of("qwen2")
    other.network.save_pretrained(place / "small")
    other.tokenizer.save_pretrained(place / "small")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        yield place


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in COMMANDS],
)
def test_a_command_makes_the_sections_and_the_columns_of_its_items(
    name: str, papers_folder: Path, toy_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = COMMANDS[name].line
    for other in re.findall(r"--beside runs/(\S+)", line):
        # Its own test may be in another process.
        if not (papers_folder / "runs" / other).exists():
            assert run_smallest(other, papers_folder, toy_folder) == 0, capsys.readouterr().err
    assert run_smallest(name, papers_folder, toy_folder) == 0, capsys.readouterr().err
    check_items(COMMANDS[name], papers_folder / "site" / name)


def run_smallest(name: str, folder: Path, toy_folder: Path) -> int:
    """Runs a command of the register at the smallest size, and what follows it; returns the first
    status that is a fault."""
    models = {"MODEL": toy_folder, "SMALL_MODEL": folder / "small"}
    status = 0
    for line in COMMANDS[name].line.splitlines():
        words = [str(models.get(word, word)) for word in shlex.split(line)]
        assert words[:3] == ["python", "-m", "kvbench"]
        smaller = f"{SMALL} {SMALLER.get(name, '')}" if words[3] == "run" else "--every-task"
        status = status or main([*words[3:], *shlex.split(smaller), "--site", f"site/{name}"])
    return status


def check_items(command: Command, site: Path) -> None:
    pages = [page.read_text() for page in site.rglob(command.page)]
    headings = [heading for page in pages for heading in re.findall(r"<h2[^>]*>(.*?)</h2>", page)]
    for item in command.items:
        assert any(heading.startswith(item.section) for heading in headings), (item.name, headings)
        sheets = [pd.read_csv(sheet) for sheet in site.rglob(f"data/{item.sheet}")]
        assert sheets, item.name
        assert any(
            len(sheet) and set(item.column_names) <= set(sheet.columns) for sheet in sheets
        ), (
            item.name,
            [sorted(sheet.columns) for sheet in sheets],
        )


def test_every_text_has_a_register_and_every_item_stands_there_once() -> None:
    letters = {claim.text.letter for claim in claims().values()}
    assert set(REGISTERS) == letters - {"K"}  # threads, which number no tables
    for register in REGISTERS.values():
        names: Sequence[str] = [
            item.name for command in register.commands for item in command.items
        ]
        names = [*names, *register.to_come]
        assert len(set(names)) == len(names)
    assert not REGISTERS["E"].to_come
    assert not REGISTERS["F"].to_come
