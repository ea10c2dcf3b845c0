"""Publishes the register of claims of a model: its page, and the file that other tools read."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.cli.result import Result
from kvbench.publish.downloads import write_sheets
from kvbench.publish.places import name_of_place
from kvbench.publish.published import published_stores
from kvbench.publish.site_list import CLAIMS, ROOT, enlist, find_neighbours, site_of_run
from kvbench.store.store import Store
from kvbench.system.files import write_text_atomically
from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import Claim
from leaderboards.claims.verdict import VERDICTS, count_decided, judge
from leaderboards.downloads.tables import register_rows, register_sheet
from leaderboards.pages.claims import Run, build_claims, list_dtypes
from leaderboards.pages.front import CLAIMS_PAGE, register_folder
from leaderboards.terminal.verdicts import claims_table

CLAIMS_FILE = "claims.json"


def publish_register(
    claims: Sequence[Claim],
    model: str,
    stores: Mapping[str, Store],
    seed: int,
    site: Path | None,
    beside: str | None = None,
    difficulty: str | None = None,
    data: Path | None = None,
    larger: str | None = None,
) -> Result:
    """Judges claims by the stores of their experiments, and writes the register into a folder of
    the site; raises :class:`KVBenchError` where a file cannot be written."""
    stores = dict(zip(stores, published_stores(list(stores.values())), strict=True))
    folder = site or ROOT / register_folder(str(Path(model).resolve()))
    evidence: dict[str, Evidence] = {}
    places: dict[str, str] = {}
    runs: dict[str, Run] = {}
    for name, store in stores.items():
        evidence[name] = _evidence(name, store, seed)
        places[name] = name_of_place(store.folder)
        site_of_store = site_of_run(folder, store)
        dtype = store.identity.dtype
        runs[name] = Run(store.folder.name, site_of_store, places[name], dtype)
    judgements = judge(claims, evidence)
    count = count_decided(judgements)
    names = _Names(
        model=name_of_place(model),
        beside=beside and name_of_place(beside),
        larger=larger and name_of_place(larger),
        data=None if data is None else Path(name_of_place(data)),
    )
    content = {
        "model": names.model,
        "beside": names.beside,
        "larger": names.larger,
        # The default is the faster one of the machine.
        "dtype": list_dtypes(runs.values()),
        "difficulty": difficulty,
        "data": names.data and str(names.data),
        "decided": count.decided,
        "precondition_met": count.decidable,
        "runs": places,
        "claims": register_rows(judgements),
    }
    register, page = folder / CLAIMS_FILE, folder / CLAIMS_PAGE
    write_text_atomically(register, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    sheet = register_sheet(judgements)
    write_sheets(folder, [sheet])
    text = build_claims(
        names.model,
        judgements,
        runs,
        [sheet],
        names.beside,
        difficulty,
        names.data,
        names.larger,
        find_neighbours(folder),
    )
    write_text_atomically(page, text)
    decided = f"{count.decided} of {count.decidable} decided"
    enlist(folder, CLAIMS, [page], list(stores.values()), decided)
    counts = Counter(judgement.verdict for judgement in judgements)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    size = f"{len(claims)} claims in {len(judgements)} statistics"
    verdict = f"{count.words(model)}; {size}: {summary}"
    files = {"page": page, "register": register}
    return Result([claims_table(judgements)], verdict, files=files)


@dataclass(frozen=True)
class _Names:
    """The models and the text of a register, with names in place of their places."""

    model: str
    beside: str | None
    larger: str | None
    data: Path | None


def _evidence(name: str, store: Store, seed: int) -> Evidence:
    """Reads what an experiment has measured."""
    tables = {table.name: store.study_table(table).to_pandas() for table in store.study_tables}
    return Evidence(store.frame(), seed, tables, name=name)
