"""Publishes the register of claims of a model: its page, and the file that other tools read."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvbench.cli.result import Result
from kvbench.publish.downloads import write_sheets
from kvbench.publish.places import name_of_place
from kvbench.publish.published import published_stores
from kvbench.publish.site_list import CLAIMS, ROOT, enlist, link_sites, site_of_run
from kvbench.store.store import Store
from kvbench.system.files import write_text_atomically
from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import Claim
from leaderboards.claims.verdict import VERDICTS, count_of, judge
from leaderboards.downloads.tables import register_rows, register_sheet
from leaderboards.pages.claims import CLAIMS_PAGE, Run, build_claims, register_folder
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
    """Judges claims by the stores of their experiments, and writes the register into a folder of the site."""
    stores = dict(zip(stores, published_stores(list(stores.values())), strict=True))
    evidence = {}
    for name, store in stores.items():
        tables = {table.name: store.study_table(table).to_pandas() for table in store.study_tables}
        evidence[name] = Evidence(store.frame(), seed, tables, name=name)
    judgements = judge(claims, evidence)
    folder = site or ROOT / register_folder(str(Path(model).resolve()))
    folders = {name: name_of_place(store.folder) for name, store in stores.items()}
    named, other, size = (
        name_of_place(model),
        *(one and name_of_place(one) for one in (beside, larger)),
    )
    text, count = None if data is None else Path(name_of_place(data)), count_of(judgements)
    given = {
        "model": named,
        "beside": other,
        "larger": size,
        "difficulty": difficulty,
        "data": text and str(text),
    }
    counted = {"decided": count.decided, "precondition_met": count.met}
    content = given | counted | {"runs": folders, "claims": register_rows(judgements)}
    register, page = folder / CLAIMS_FILE, folder / CLAIMS_PAGE
    write_text_atomically(register, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    sheet = register_sheet(judgements)
    write_sheets(folder, [sheet])
    runs = {
        name: Run(one.folder.name, site_of_run(folder, one), folders[name])
        for name, one in stores.items()
    }
    write_text_atomically(
        page, build_claims(named, judgements, runs, [sheet], other, difficulty, text, size)
    )
    enlist(folder, CLAIMS, [page], list(stores.values()))
    link_sites(folder)
    counts = Counter(one.verdict for one in judgements)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    verdict = (
        f"{count.words(model)}; {len(claims)} claims in {len(judgements)} statistics: {summary}"
    )
    return Result([claims_table(judgements)], verdict, files={"page": page, "register": register})
