"""The page of the register of claims: a table of verdicts, and what is behind each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

from leaderboards.claims.declaration import Claim
from leaderboards.claims.verdict import CLAIMS, VERDICTS, Judgement, number_text
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.templating import render
from leaderboards.statistics.text import p_equation

CLAIMS_PAGE = "claims.html"
COLUMNS = (
    *("claim", "what the text says", "verdict on the claim", "what was measured"),
    *("measured", "n", "threshold", "reported"),
)
SIGNS = {"holds": "✓", "does not hold": "✕", "undecided": "?"}


@dataclass(frozen=True)
class Run:
    """A run behind a claim."""

    name: str  # of its folder
    site: str = ""  # the folder beside that of this page with its pages, if it has any
    folder: str = ""  # where it lies


@dataclass(frozen=True)
class StatisticRow:
    """One statistic of a claim, as texts."""

    part: str
    value: str
    interval: str
    n: str
    threshold: str
    verdict: str
    sign: str
    p: str
    why: str


@dataclass(frozen=True)
class ClaimSection:
    """A claim and what is behind its verdicts."""

    claim: Claim
    rows: tuple[StatisticRow, ...]
    runs: tuple[Run, ...]


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
) -> str:
    """Builds the page as text; the same input gives the same bytes. ``runs``: by the name of the experiment.
    ``sheets``: tables that lie in ``data`` beside it. ``beside``: the model of another architecture. ``difficulty``:
    the levels of tasks."""
    sections = [_section(list(group), runs) for _, group in groupby(judgements, key=lambda one: one.claim.identifier)]
    counts = Counter(one.verdict for one in judgements)
    return render(
        "claims.html.j2",
        model=model,
        beside=beside,
        difficulty=difficulty,
        counts=[(verdict, SIGNS[verdict], counts[verdict]) for verdict in VERDICTS],
        columns=COLUMNS,
        texts=[(text, list(group)) for text, group in groupby(sections, key=lambda section: section.claim.text)],
        site=next((run.site for run in runs.values() if run.site), ""),
        definitions=CLAIMS.definitions,
        sheets=sheets,
    )


def _section(judgements: Sequence[Judgement], runs: Mapping[str, Run]) -> ClaimSection:
    claim = judgements[0].claim
    names = [name for name in claim.evidence if name in runs]
    return ClaimSection(claim, tuple(map(_row, judgements)), tuple(runs[name] for name in names))


def _row(one: Judgement) -> StatisticRow:
    estimate = one.estimate
    value = "–" if estimate is None else number_text(estimate.mean)
    interval = "" if estimate is None or estimate.interval is None else " to ".join(map(number_text, estimate.interval))
    return StatisticRow(
        part=one.part,
        value=value,
        interval=interval,
        n="–" if estimate is None else f"{estimate.n:,}",
        threshold=f"{one.claim.side} {one.claim.threshold:g}",
        verdict=one.verdict,
        sign=SIGNS[one.verdict],
        p="" if one.p is None else p_equation(one.p),
        why=one.why,
    )
