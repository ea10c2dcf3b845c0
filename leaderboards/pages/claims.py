"""The page of the register of claims: a table of verdicts, and what is behind each."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import PurePath
from typing import Any

from leaderboards.aggregate.evidence import UNMET
from leaderboards.claims.declaration import Text
from leaderboards.claims.verdict import VERDICTS, Judgement, count_decided, number_text
from leaderboards.downloads.sheets import Sheet
from leaderboards.pages.definitions import CLAIMS
from leaderboards.rendering.templating import ALONE, Neighbours, render
from leaderboards.statistics.text import p_equation

SIGNS = {"holds": "✓", "does not hold": "✕", "undecided": "?"}


@dataclass(frozen=True)
class Run:
    name: str  # of its folder
    site: str = ""  # the folder beside that of this page with its pages, if it has any
    folder: str = ""  # where it lies
    dtype: str = ""  # the type of numbers of the model


def list_dtypes(runs: Iterable[Run]) -> str:
    """Names the types of numbers of some runs."""
    return ", ".join(dict.fromkeys(run.dtype for run in runs if run.dtype))


def build_claims(
    model: str,
    judgements: Sequence[Judgement],
    runs: Mapping[str, Run],
    sheets: Sequence[Sheet],
    beside: str | None = None,
    difficulty: str | None = None,
    data: PurePath | None = None,
    larger: str | None = None,
    neighbours: Neighbours = ALONE,
) -> str:
    """Builds the page as text. ``runs``: by the name of the experiment. ``sheets``: tables that lie
    in ``data`` beside it. ``beside``: the model of another architecture. ``difficulty``: the levels
    of tasks. ``data``: the running text of which next tokens are measured. ``larger``: the larger
    model of the family."""
    sections: dict[Text, list[dict[str, Any]]] = {}
    # groupby takes neighbours alone: judgements come claim by claim.
    for claim, of_claim in groupby(judgements, key=attrgetter("claim")):
        rows = [_row(judgement) for judgement in of_claim]
        runs_of_claim = [runs[name] for name in claim.evidence if name in runs]
        section = {"claim": claim, "rows": rows, "runs": runs_of_claim}
        sections.setdefault(claim.text, []).append(section)
    counts = Counter(judgement.verdict for judgement in judgements)
    sites = [run.site for run in runs.values() if run.site]
    return render(
        "claims.html.j2",
        neighbours=neighbours,
        model=model,
        beside=beside,
        larger=larger,
        dtypes=list_dtypes(runs.values()),
        difficulty=difficulty,
        data=data,
        decided=count_decided(judgements).words("this model"),
        counts=[(verdict, SIGNS[verdict], counts[verdict]) for verdict in VERDICTS],
        texts=list(sections.items()),
        site=sites[0] if sites else "",
        definitions=CLAIMS.definitions,
        sheets=sheets,
    )


def _row(judgement: Judgement) -> dict[str, str]:
    claim, estimate = judgement.claim, judgement.estimate
    value = contexts = "–"
    interval = ""
    if estimate is not None:
        value, contexts = number_text(estimate.mean), f"{estimate.n:,}"
        interval = " to ".join(map(number_text, estimate.interval or ()))
    return {
        "part": judgement.part,
        "value": value,
        "interval": interval,
        "n": contexts,
        "threshold": f"{claim.side} {claim.threshold:g}",
        "verdict": judgement.verdict,
        "sign": SIGNS[judgement.verdict],
        "unmet": "" if judgement.is_met else UNMET,
        "p": "" if judgement.p is None else p_equation(judgement.p),
        "why": judgement.why,
    }
