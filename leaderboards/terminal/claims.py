"""The register of claims in a terminal."""

from collections.abc import Sequence

from leaderboards.claims.verdict import Judgement, number_text
from leaderboards.terminal.result_table import Column, ResultTable

STYLES = {"holds": "green", "does not hold": "red", "undecided": "yellow"}


def claims_table(judgements: Sequence[Judgement]) -> ResultTable:
    """Returns a row for each statistic of each claim."""
    columns = (
        Column("claim"),
        Column("part", title="what", of_sentences=True),
        Column("value", right=True, text=lambda value: "-" if value is None else number_text(value)),
        Column("interval", title="95 %", text=_interval),
        Column("threshold"),
        Column("contexts", title="n", right=True, text=lambda n: "-" if n is None else str(n)),
        Column("verdict", style=lambda verdict: STYLES[verdict]),
        Column("why", shown=False),
    )
    rows = [
        (
            one.claim.identifier,
            one.part or one.claim.words,
            None if one.estimate is None else one.estimate.mean,
            None if one.estimate is None else one.estimate.interval,
            f"{one.claim.side} {one.claim.threshold:g}",
            None if one.estimate is None else one.estimate.n,
            one.verdict,
            one.why,
        )
        for one in judgements
    ]
    return ResultTable("claims", columns, rows)


def _interval(interval: tuple[float, float] | None) -> str:
    return "" if interval is None else " to ".join(map(number_text, interval))
