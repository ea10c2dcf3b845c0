"""``python -m kvbench score``: the stored outputs, scored again without a model."""

from kvbench.cli.parameters import Run
from kvbench.publish.site import publish_summary
from kvbench.store.scoring import rescore
from kvbench.store.store import Store
from kvbench.system.console import console
from leaderboards.aggregate.summary import COLUMNS


def command(run: Run) -> None:
    store = Store.open(run)
    total, changed = rescore(store)
    publish_summary(store, store.frame(COLUMNS))
    console.print(f"{total:,} records scored, {changed:,} changed; summary in {run / 'summary.json'}", soft_wrap=True)
