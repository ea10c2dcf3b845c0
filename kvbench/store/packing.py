"""Packs a run: one file for each table, small enough to lie in a repository, and read like any other
run.

All that is scored stays, and the texts of all answers. Left out are lists by layer, and, of all
contexts but some examples, where tokens end, which survive, and the tokens of answers: these are
most of the bytes."""

from collections.abc import Collection, Sequence
from pathlib import Path
from shutil import copytree

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kvbench.store.press_sources import FOLDER as SOURCES
from kvbench.store.run_file import RUN_FILE, PolicyIdentity, RunFile
from kvbench.store.store import Store, write_parquet
from kvbench.store.tables import CONTEXTS, QUESTIONS, RECORDS
from kvbench.system.errors import KVBenchError
from kvbench.system.files import write_text_atomically
from leaderboards.metrics import METRICS

EXAMPLES_OF = 20  # of so many contexts one keeps all of its answers' tokens
OF_EXAMPLES = ("token_kept", "output_token_ids")
BY_LAYER = tuple(name for name in METRICS if name.endswith("_by_layer"))
Mask = npt.NDArray[np.bool_]


def pack(
    store: Store,
    folder: Path,
    tasks: Collection[str] | None = None,
    policies: Collection[str] | None = None,
    examples_of: int = EXAMPLES_OF,
) -> Store:
    """Writes the answers of a run, of some tasks and policies or of all, into a folder of its own,
    and opens it. Raises :class:`KVBenchError` where there are none."""
    packed = _packed_part(store.run, tasks, policies, examples_of)
    identity = packed.identity
    records = _some(store.table(RECORDS), "task", [task.name for task in identity.tasks])
    records = _some(records, "policy", [policy.name for policy in identity.policies])
    if not records.num_rows:
        raise KVBenchError(f"{store.folder} has no such answers: there is nothing to pack")
    about = {}
    for table in (CONTEXTS, QUESTIONS):
        about[table.name] = _some(store.table(table), "task", records["task"].unique().to_pylist())
    about[CONTEXTS.name] = _without_ends(about[CONTEXTS.name], examples_of)
    for name in BY_LAYER:
        records = _blank(records, name, np.ones(len(records), dtype=bool))
    is_no_example = _are_no_examples(records, about[QUESTIONS.name], examples_of)
    for name in OF_EXAMPLES:
        records = _blank(records, name, is_no_example)
    order = [(name, "ascending") for name in RECORDS.key]
    for name, rows in {**about, RECORDS.name: records.sort_by(order)}.items():
        write_parquet(folder / f"{name}.parquet", rows, is_packed=True)
    if (store.folder / SOURCES).is_dir():
        copytree(store.folder / SOURCES, folder / SOURCES, dirs_exist_ok=True)
    write_run_file(folder, packed)
    return Store.open(folder)


def write_run_file(folder: Path, run: RunFile) -> None:
    """Writes ``run.json`` of a packed run."""
    write_text_atomically(folder / RUN_FILE, run.model_dump_json(indent=1) + "\n")


def _some(rows: pa.Table, column: str, values: Sequence[str]) -> pa.Table:
    return rows.filter(pc.is_in(rows[column], pa.array(values, pa.string())))


def _blank(rows: pa.Table, column: str, where: Mask) -> pa.Table:
    """Makes a column null in some rows."""
    kind = rows.schema.field(column)
    values = pc.if_else(pa.array(where), pa.scalar(None, kind.type), rows[column])
    return rows.set_column(rows.schema.get_field_index(column), kind, values)


def _without_ends(contexts: pa.Table, examples_of: int) -> pa.Table:
    """Empties where tokens end, which only drawings of examples look at."""
    is_example = pa.array(contexts["example_index"].to_numpy() % examples_of == 0)
    ends = pc.if_else(is_example, contexts["token_ends"], pa.scalar(b"", pa.binary()))
    place = contexts.schema.get_field_index("token_ends")
    return contexts.set_column(place, contexts.schema.field(place), ends)


def _are_no_examples(records: pa.Table, questions: pa.Table, examples_of: int) -> Mask:
    """Tells by record whether its context is none of the examples."""
    key = list(QUESTIONS.key)
    contexts = questions.select([*key, "example_index"]).to_pandas()
    joined = records.select(key).to_pandas().merge(contexts, how="left", on=key)
    is_no_example: Mask = joined["example_index"].to_numpy() % examples_of != 0
    return is_no_example


def _packed_part(
    run: RunFile,
    tasks: Collection[str] | None,
    policies: Collection[str] | None,
    examples_of: int,
) -> RunFile:
    """Returns what ``run.json`` says of the part that is packed."""
    identity = run.identity
    chosen = [task for task in identity.tasks if tasks is None or task.name in tasks]
    names = [task.name for task in chosen]
    packed_policies: list[PolicyIdentity] = []
    for policy in identity.policies:
        of_policy = tuple(name for name in policy.tasks if name in names)
        if of_policy and (policies is None or policy.name in policies):
            packed_policies.append(policy.model_copy(update={"tasks": of_policy}))
    parts = {"tasks": tuple(chosen), "policies": tuple(packed_policies)}
    # Its tables of studies are left out.
    changes = {**parts, "tables": (), "options": {}}
    packed = {"identity": identity.model_copy(update=changes), "examples_of": examples_of}
    return run.model_copy(update=packed)
