"""``python -m kvbench score`` scores the stored outputs again, without a model."""

from rich.text import Text

from kvbench.cli.parameters import Run
from kvbench.cli.result import Result
from kvbench.publish.site import publish_summary
from kvbench.store.scoring import rescore
from kvbench.store.store import Store
from kvbench.system.files import working_in
from leaderboards.aggregate.summary import COLUMNS
from leaderboards.terminal.result_table import Column, ResultTable


def command(run: Run) -> Result:
    store = Store.open(run)
    with working_in(run):
        total, changed = rescore(store)
    # Behind the lock, which it takes by itself: one process holds a folder once.
    publish_summary(store, store.frame(COLUMNS))
    view = Text(f"{total:,} records scored, {changed:,} changed")
    table = ResultTable(
        "scored", (Column("records"), Column("changed")), [(total, changed)], view=view
    )
    return Result([table], files={"summary": run / "summary.json"})
