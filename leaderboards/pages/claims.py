"""The page of the register of claims: a table of verdicts, and what is behind each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath
from typing import Any

from leaderboards.claims.verdict import CLAIMS, UNMET, VERDICTS, Judgement, count_of, number_text
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.templating import render
from leaderboards.statistics.text import p_equation

CLAIMS_PAGE = "claims.html"

SIGNS = {"holds": "✓", "does not hold": "✕", "undecided": "?"}


@dataclass(frozen=True)
class Run:
    name: str  # of its folder
    site: str = ""  # the folder beside that of this page with its pages, if it has any
    folder: str = ""  # where it lies


def register_folder(model: str) -> str:
    """Names the folder that the register of claims of a model has in the folder of all sites."""
    return f"claims-{PurePath(model).name}"


def build_claims(
    model: str,
    judgements: Sequence[Judgement],
    runs: Mapping[str, Run],
    sheets: Sequence[Sheet],
    beside: str | None = None,
    difficulty: str | None = None,
    data: PurePath | None = None,
    larger: str | None = None,
) -> str:
    """Builds the page as text. ``runs``: by the name of the experiment. ``sheets``: tables that lie
    in ``data`` beside it. ``beside``: the model of another architecture. ``difficulty``: the levels
    of tasks. ``data``: the running text of which next tokens are measured. ``larger``: the larger
    model of the family."""
    sections: list[dict[str, Any]] = []
    for claim, group in groupby(judgements, key=lambda one: one.claim):
        own = [runs[name] for name in claim.evidence if name in runs]
        sections.append({"claim": claim, "rows": list(map(_row, group)), "runs": own})
    counts = Counter(one.verdict for one in judgements)
    return render(
        "claims.html.j2",
        model=model,
        beside=beside,
        larger=larger,
        difficulty=difficulty,
        data=data,
        decided=count_of(judgements).words("this model"),
        counts=[(verdict, SIGNS[verdict], counts[verdict]) for verdict in VERDICTS],
        texts=[
            (text, list(group))
            for text, group in groupby(sections, key=lambda section: section["claim"].text)
        ],
        site=next((run.site for run in runs.values() if run.site), ""),
        definitions=CLAIMS.definitions,
        sheets=sheets,
    )


def _row(one: Judgement) -> dict[str, str]:
    estimate = one.estimate
    interval = () if estimate is None else estimate.interval or ()
    return {
        "part": one.part,
        "value": "–" if estimate is None else number_text(estimate.mean),
        "interval": " to ".join(map(number_text, interval)),
        "n": "–" if estimate is None else f"{estimate.n:,}",
        "threshold": f"{one.claim.side} {one.claim.threshold:g}",
        "verdict": one.verdict,
        "sign": SIGNS[one.verdict],
        "unmet": "" if one.is_met else UNMET,
        "p": "" if one.p is None else p_equation(one.p),
        "why": one.why,
    }
