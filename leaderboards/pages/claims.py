"""The page of the register of claims: a table of verdicts, and what is behind each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

from markupsafe import Markup

from leaderboards.claims.declaration import Claim
from leaderboards.claims.verdict import CLAIMS, VERDICTS, Judgement, number_text
from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.drawing import Drawing
from leaderboards.rendering.frames import STRIP, Axis, Frame
from leaderboards.rendering.marks import Dots, PolicyLine, Region
from leaderboards.rendering.style import INK_COLOUR, SERIES_COLOURS, LineStyle
from leaderboards.rendering.templating import render
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.text import p_equation

CLAIMS_PAGE = "claims.html"
COLUMNS = (
    *("claim", "what the text says", "verdict on the claim", "what was measured"),
    *("measured", "n", "threshold", "reported"),
)
MEASURED = LineStyle("measured", 0, "--series-0", SERIES_COLOURS[0], "o", (), 2.6, control=False)
INTERVAL = LineStyle("interval", 1, "--series-0", SERIES_COLOURS[0], "", (), 2.6, control=False)
THRESHOLD = LineStyle("threshold", 2, "--ink-curve", INK_COLOUR, "", (1.5, 1.5), 1.4, control=True)
STEPS = 4  # of the line, about
HALF = 0.5  # of the height
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
    drawing: Markup


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
) -> str:
    """Builds the page as text; the same input gives the same bytes. ``runs``: by the name of the experiment.
    ``sheets``: tables that lie in ``data`` beside it. ``beside``: the model of another architecture."""
    sections = [_section(list(group), runs) for _, group in groupby(judgements, key=lambda one: one.claim.identifier)]
    counts = Counter(one.verdict for one in judgements)
    return render(
        "claims.html.j2",
        model=model,
        beside=beside,
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
    return ClaimSection(claim, tuple(_row(one, judgements) for one in judgements), tuple(runs[name] for name in names))


def _row(one: Judgement, beside: Sequence[Judgement]) -> StatisticRow:
    claim, estimate = one.claim, one.estimate
    threshold = f"{claim.side} {claim.threshold:g}"
    drawing, value, interval = "", "–", ""
    if estimate is not None:
        value = number_text(estimate.mean)
        interval = "" if estimate.interval is None else " to ".join(map(number_text, estimate.interval))
        known = [other.estimate for other in beside if other.estimate is not None]
        ends = [end for other in known for end in (other.mean, *(other.interval or ()))]
        axis = Axis.from_values("", [*ends, claim.threshold], STEPS)  # the same for all statistics of the claim
        title = f"{claim.identifier} {one.part}: {value}, 95 % {interval or 'unknown'}; threshold {threshold}"
        salt = f"{claim.identifier}/{one.part}"
        drawing = interval_drawing(estimate, claim.threshold, claim.side, axis, title, salt)
    return StatisticRow(
        part=one.part,
        value=value,
        interval=interval,
        n="–" if estimate is None else f"{estimate.n:,}",
        threshold=threshold,
        verdict=one.verdict,
        sign=SIGNS[one.verdict],
        p="" if one.p is None else p_equation(one.p),
        why=one.why,
        drawing=Markup(drawing),
    )


def interval_drawing(estimate: Estimate, threshold: float, side: str, axis: Axis, title: str, salt: str) -> str:
    """Draws an estimate on a line, as SVG for a page; the side of the threshold on which a claim holds is set off."""
    ends = {"at least": axis.last, "above": axis.last, "at most": axis.first, "below": axis.first}
    left, right = sorted((threshold, ends.get(side, threshold)))
    region = (Region((left, 0.0), (right, 1.0)),) if left < right else ()
    interval = (
        () if estimate.interval is None else (PolicyLine(INTERVAL, tuple((end, HALF) for end in estimate.interval)),)
    )
    marks = (
        *region,
        PolicyLine(THRESHOLD, ((threshold, 0.0), (threshold, 1.0))),
        *interval,
        Dots(MEASURED, ((estimate.mean, HALF),)),
    )
    frame = Frame(axis, Axis("", (), 0.0, 1.0), box=STRIP)
    return Drawing(frame, marks, title, salt).svg()
