"""Writes the register of claims: ``claims.json``, and a page with a table and what is behind each verdict."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.publish.site_list import ROOT
from kvbench.store.store import Store
from kvbench.system.files import write_text_atomically
from leaderboards.claims.declaration import Claim
from leaderboards.claims.evidence import Evidence
from leaderboards.claims.verdict import VERDICTS, Judgement, judge
from leaderboards.downloads.claims import register_rows

CLAIMS_FILE = "claims.json"


@dataclass(frozen=True)
class Register:
    """The register of claims of one model, as it was published."""

    judgements: Sequence[Judgement]
    verdict: str
    files: Mapping[str, Path]


def publish_register(
    claims: Sequence[Claim], model: str, larger: str | None, stores: Mapping[str, Store], seed: int, site: Path | None
) -> Register:
    """Judges claims by the stores of their experiments, and writes the register into a folder of the site."""
    judgements = judge(claims, {name: Evidence(store.frame(), seed) for name, store in stores.items()})
    folder = site or ROOT / f"claims-{Path(model).resolve().name}"
    content = {
        "model": model,
        "larger": larger,
        "runs": {name: str(store.folder) for name, store in stores.items()},
        "claims": register_rows(judgements),
    }
    path = folder / CLAIMS_FILE
    write_text_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    counts = Counter(one.verdict for one in judgements)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    verdict = f"{len(claims)} claims in {len(judgements)} statistics on {model}: {told}"
    return Register(judgements, verdict, {"register": path})
