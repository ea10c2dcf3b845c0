"""``python -m kvbench site``: the page of a run."""

from pathlib import Path
from typing import Annotated

import typer

from kvbench.console import console
from kvbench.publish import publish_site
from kvbench.store import Store


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a run, such as runs/x.")],
    out: Annotated[Path, typer.Option(help="Folder that index.html is written to.")] = Path("site"),
) -> None:
    store = Store.open(run)
    pages, _ = publish_site(store, store.frame(), out)
    console.print("\n".join(f"page: {page}" for page in pages), soft_wrap=True)
