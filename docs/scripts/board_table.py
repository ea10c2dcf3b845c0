"""Writes the site of the board and the table of the README: ``python -m docs.scripts.board_table``
makes ``docs/board`` from the records that kvbench ships."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from docs.scripts.markdown import table
from kvbench.board.pieces import Piece, open_board
from kvbench.publish.board.pages import board_parts, publish_parts
from kvbench.publish.parts import Part
from leaderboards.pages.methods.all_methods import AT_HALF, Elsewhere, methods_table
from policies.composition import built_in

SITE = Path(__file__).parents[1] / "board"
ROWS = SITE / "rows.json"
FIRST = 10  # rows that the README shows


def first_board(part: Part) -> dict[str, Any]:
    """Returns the table of a model, as plain data: what was asked, the columns of places and losses,
    and the rows, methods by their place and then controls."""
    shown = methods_table(part.results, "", part.results.model, Elsewhere({}, {}))
    losses = [column for column in shown.columns if column.endswith(f", {AT_HALF:g}")]
    columns = ["place", *losses]
    rows: list[dict[str, Any]] = []
    for line in (*shown.methods, *shown.controls):
        cells = dict(zip(shown.columns, line.cells, strict=True))
        texts: list[str] = []
        for column in columns:
            cell = cells[column]
            text = cell.dash if cell.is_blank else f"{cell.text} {cell.detail}".strip()
            texts.append(text.replace("\n", " "))
        rows.append({"method": line.name, "cells": texts})
    contexts = min(task.contexts for task in part.group.identity.tasks)
    return {
        "model": part.results.model,
        "methods": len(shown.methods),
        "contexts": contexts,
        "columns": columns,
        "rows": rows,
    }


def core_hours(pieces: Sequence[Piece]) -> float:
    """Returns how long the pieces took, each on one core, pauses of their runs among it."""
    seconds = 0.0
    for piece in pieces:
        run = piece.store.run
        if run.finished is not None:
            taken = datetime.fromisoformat(run.finished) - datetime.fromisoformat(run.created)
            seconds += taken.total_seconds()
    return round(seconds / 3600, 1)


def board() -> str:
    """Returns the first rows of the board."""
    content = json.loads(ROWS.read_text(encoding="utf-8"))
    rows: list[Sequence[object]] = []
    for row in content["rows"][:FIRST]:
        policy = built_in(row["method"])
        idea = "" if policy is None else policy.description
        rows.append((f"`{row['method']}`", idea, *row["cells"]))
    header = ("method", "what it keeps", *content["columns"])
    return (
        f"The first {FIRST} of {content['methods']} methods on `{content['model']}`, by place, with "
        f"what they lose at half, in points of {content['contexts']} contexts a task:\n\n"
        f"{table(header, rows)}\n\n"
        f"All answers took {content['core_hours']:g} core hours."
    )


def main() -> None:
    pieces = open_board()
    parts = board_parts(pieces)
    publish_parts(parts, pieces, SITE)
    content = {**first_board(parts[0]), "core_hours": core_hours(pieces)}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    ROWS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
