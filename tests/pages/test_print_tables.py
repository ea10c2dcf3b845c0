"""Tables in LaTeX: a reader finds the texts as they were, whatever a policy is called."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leaderboards.aggregate.summary import summarise
from leaderboards.downloads.print_tables import PrintTable, result_table
from leaderboards.statistics.paired_difference import StudentTest
from leaderboards.statistics.rank import marks
from tests.support.records.synthetic_records import realistic_records

CAPTION = r"100 % of a_b, & more [+2, +3] #1 – Holm's"
EVERY_SPECIAL = (
    r"_a & b_c %d $x$ #1 {y} ~z ^2 \n | `v` *w* [u](t) <i>s</i> r--q --- &amp; __p__ \| \\"
)
SPECIAL_FIRST = ("[2pt] first", "*starred", "_", "|", "\\", "# heading", "- list")
# What stands for a letter in the text of LaTeX; any other command or special letter is a fault.
LATEX_LETTERS = {
    **{f"\\{letter}": letter for letter in "&%$#_{}"},
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textasciigrave{}": "`",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\textendash{}": "–",
    r"$\circ$": "○",
    r"$\times$": "✕",
    r"$\blacktriangle$": "▲",
    r"$\blacktriangledown$": "▼",
    "$-$": "−",
    "{}": "",
}
LATEX_TOKEN = re.compile(
    "|".join([*map(re.escape, sorted(LATEX_LETTERS, key=len, reverse=True)), r"[^\\&%$#_{}~^<>|`]"])
)
LETTERS = st.characters(exclude_categories=("C", "Z"), max_codepoint=0x17F) | st.sampled_from(
    " &%$#_{}~^\\|`*[]<>-"
)


HEAD = ("policy", "F1")


def captioned(rows: Sequence[Sequence[str]], is_long: bool = False) -> PrintTable:
    return PrintTable(rows, CAPTION, is_long)


def spaced(text: str) -> str:
    return " ".join(text.split())


def read_latex(table: str) -> list[list[str]]:
    """Reads a table as LaTeX does, and fails for a letter that is none in LaTeX's text."""
    caption = table.split("\\caption{")[1].split("\n")[0].removesuffix(" \\\\").removesuffix("}")
    assert latex_text(caption) == spaced(CAPTION)
    inside = table.split("\\toprule\n")[1].split("\\bottomrule")[0].replace("\\midrule\n", "")
    rows = inside.split(" \\\\\n")
    assert rows.pop() == ""
    assert not [row for row in rows if row.startswith(("[", "*"))], "an argument of the row before"
    return [[latex_text(cell) for cell in re.split(r"(?<!\\)&", row)] for row in rows]


def latex_text(cell: str) -> str:
    text, place = "", 0
    assert "--" not in cell, "hyphens that join to a dash"
    while place < len(cell):
        token = LATEX_TOKEN.match(cell, place)
        assert token, f"LaTeX cannot set {cell[place:]!r}"
        text += LATEX_LETTERS.get(token[0], token[0])
        place = token.end()
    return spaced(text)


@given(st.text(LETTERS, min_size=1, max_size=30).filter(str.strip))
@example("a\\")
@example("*a*_b_")
def test_any_name_is_read_as_it_was(name: str) -> None:
    assert read_latex(captioned([HEAD, (name, "–")]).latex()) == [[*HEAD], [spaced(name), "–"]]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_sets_the_table(tmp_path: Path) -> None:
    rows = [HEAD, *((name, "1") for name in (EVERY_SPECIAL, *SPECIAL_FIRST))]
    page = (
        "\\documentclass{article}\\usepackage[T1]{fontenc}\\usepackage{booktabs,amssymb,longtable}\\begin{document}\n"
        f"{captioned(rows).latex()}{captioned(rows, is_long=True).latex()}\\end{{document}}\n"
    )
    (tmp_path / "page.tex").write_text(page, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stdout[-2000:]


# A table of Markdown in GitHub's form: a pipe with a backslash before it is no border.
BORDER = re.compile(r"(?<!\\)\|")


def read_markdown(table: str) -> tuple[str, list[list[str]]]:
    """Reads the caption and the rows of a table, with its signs taken away."""
    caption, _, rest = table.partition("\n\n")
    head, line, *rows = rest.splitlines()
    assert set(line) <= set("| :-")
    cells = [[cell.strip() for cell in BORDER.split(row)[1:-1]] for row in (head, *rows)]
    assert {len(row) for row in cells} == {line.count("|") - 1}
    return plain_of(caption), [[plain_of(cell) for cell in row] for row in cells]


def plain_of(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text).replace("&amp;", "&")


@given(st.text(LETTERS, min_size=1, max_size=30).filter(str.strip))
@example("a\\|b")
@example("*a*_b_")
def test_any_name_is_a_cell_of_markdown(name: str) -> None:
    caption, rows = read_markdown(captioned([HEAD, (name, "–")]).markdown())
    assert caption == spaced(CAPTION)
    assert rows == [[*HEAD], [spaced(name), "–"]]


def test_names_of_policies_are_not_set_in_italics_and_stay_readable() -> None:
    text = captioned([HEAD, ("expected_attention", "1"), ("_hidden_ <b>", "2")]).markdown()
    assert "| expected_attention | 1 |" in text
    assert r"| \_hidden\_ \<b> | 2 |" in text


def test_the_table_in_markdown_has_the_numbers_marks_and_caption_of_that_in_latex_and_every_interval() -> (
    None
):
    rows = summarise(
        realistic_records(policies=("full", "snapkv", "knorm", "random"), ratios=(0.1, 0.9))
    )
    paper = result_table(rows, "agnostic", {"snapkv"}, "Model toy.")
    memo = result_table(rows, "agnostic", {"snapkv"}, "Model toy.", every_interval=True)
    assert (memo.caption, memo.bold, len(memo.rows)) == (paper.caption, paper.bold, len(paper.rows))
    caption, cells = read_markdown(memo.markdown())
    assert caption == spaced(paper.caption)
    by_place = {(row.task, row.policy, row.level): row for row in rows}
    for number, (of_paper, of_memo) in enumerate(
        zip(paper.rows[1:], cells[1:], strict=True), start=1
    ):
        for column, (text, cell) in enumerate(zip(of_paper, of_memo, strict=True)):
            cell = (
                cell.removeprefix("**").removesuffix("**")
                if (number, column) in paper.bold
                else cell
            )
            assert cell.startswith(text), "the numbers and marks are the same"
        ratio, policy = of_paper[0], of_paper[1].partition(" ")[0]
        row = by_place["base", policy, float(ratio or 0)]
        assert f" [{100 * row.right_low:.1f}, {100 * row.right_high:.1f}]" in of_memo[2]


def test_the_marks_of_a_column_are_corrected_over_its_policies() -> None:
    """One that is told from the best alone is not told beside four more of its kind."""
    rng = np.random.default_rng(1)
    best = [(100.0 * (rng.random(40) < 0.9)).astype(np.float64)]
    lower = [np.where(np.arange(40) % 6 == 0, 0.0, best[0]).astype(np.float64)]
    test = StudentTest.from_pairs(best, lower)
    assert test is not None
    assert 0.01 < test.p < 0.05
    assert marks({"best": best, "lower": lower}) == {"best": "best"}
    many = {"best": best, "lower": lower, **{f"copy{number}": lower for number in range(4)}}
    assert set(marks(many)) == set(many), "of five tests each p is five times as large"


def test_results_stand_by_task_level_and_method_with_the_best_in_bold_and_ties_marked() -> None:
    rows = summarise(
        realistic_records(policies=("full", "snapkv", "knorm", "random"), ratios=(0.1, 0.9))
    )
    table = result_table(rows, "agnostic", {"snapkv"}, "Model toy.")
    head, full, *body = table.rows
    assert head == ("ratio", "policy", "base", "hops", "mean")
    assert full[:2] == ("", "full")
    assert [row[:2] for row in body] == [
        (ratio, policy)
        for ratio in ("0.1", "0.9")
        for policy in ("snapkv (adapted)", "knorm", "random")
    ]
    by_place = {(row.task, row.policy, row.level): row for row in rows}
    for number, (ratio, policy, *texts) in enumerate(body, start=2):
        for column, (task, text) in enumerate(
            zip(("base", "hops", "all"), texts, strict=True), start=2
        ):
            row = by_place[task, policy.split(" ")[0], float(ratio)]
            number_text, _, interval = text.partition(" [")
            assert number_text.removesuffix(" ○") == f"{100 * row.right:.1f}"
            assert number_text.endswith(" ○") == ("right" in row.tied_in)
            # The last column alone has room.
            ends = (row.right_low, row.right_high) if task == "all" else None
            assert interval == (f"{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]" if ends else "")
            assert ((number, column) in table.bold) == ("right" in row.best_in)
    assert table.bold
    assert any("○" in text for row in body for text in row)
    best = min(table.bold)
    assert rf"\textbf{{{table.rows[best[0]][best[1]]}}}" in table.latex()
    assert "in bold: the best" in table.caption
