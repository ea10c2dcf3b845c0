"""Records that another run beside this one has: a policy that is added to a finished run costs itself alone."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kvbench.errors import KVBenchError
from kvbench.store import PROVENANCE, RUN_FILE, Store

PARTS = ("tasks", "policies")  # of an identity, of which runs that are otherwise the same may share some
SIZE = "contexts"  # of a task: records lie in chunks, and a chunk that is not whole is counted again


def adopt(store: Store) -> int:
    """Copies record files that other runs beside this one have, where all that makes them is the same: the model, the
    code, the seed, the mode, the task and the policy with its arguments and ratios. Returns how many."""
    copied = 0
    for other in _siblings(store):
        mine, theirs = _by_name(store, "policies"), _by_name(other, "policies")
        shared = {name for name, policy in mine.items() if policy == theirs.get(name)}
        mine, theirs = _by_name(store, "tasks"), _by_name(other, "tasks")
        tasks = {name for name, task in mine.items() if task == theirs.get(name)}
        for path in other.record_files():
            target = store.folder / path.relative_to(other.folder)
            if path.stem in shared and path.parent.parent.name in tasks and _size(path) > _size(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                partial = target.with_name(f".{target.name}.partial")
                shutil.copyfile(path, partial)
                partial.replace(target)
                copied += 1
    return copied


def _size(path: Path) -> int:
    """Records in a file: a run of fewer contexts has less of the last chunk."""
    try:
        rows: int = pq.read_metadata(path).num_rows
    except (OSError, pa.ArrowInvalid):
        return 0
    return rows


def _siblings(store: Store) -> Iterator[Store]:
    """Other runs whose identity is the same but for its tasks and policies."""
    for path in sorted(store.folder.parent.glob(f"*/{RUN_FILE}")):
        if path.parent.resolve() == store.folder.resolve():
            continue
        try:
            other = Store.open(path.parent)
        except KVBenchError:  # of another version, or damaged: nothing to be had there
            continue
        if _rest(other) == _rest(store):
            yield other


def _rest(store: Store) -> dict[str, Any]:
    return {name: part for name, part in store.run.identity.items() if name not in (*PARTS, *PROVENANCE)}


def _by_name(store: Store, part: str) -> dict[str, Mapping[str, Any]]:
    """Tasks or policies as they are told of, but for how many contexts and which tasks."""
    aside = (SIZE, "tasks")
    return {entry["name"]: {k: v for k, v in entry.items() if k not in aside} for entry in store.run.identity[part]}
