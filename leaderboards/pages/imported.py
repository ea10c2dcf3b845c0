"""Makes the page of results of another tool's evaluation: marked as such, and never mixed with
ours."""

from collections.abc import Sequence

from leaderboards.downloads.sheets import Sheet
from leaderboards.downloads.tables import Imported
from leaderboards.rendering.templating import ALONE, Listing, Neighbours, render

BLANK = "–"
IMPORTED = "imported.html"
RESULT_COLUMNS = (
    *("press", "ratio", "rank", "score, by kvpress", "F1, by kvbench", "EM, by kvbench"),
    *("answers", "other scores, by kvpress", "arguments"),
)


def build_imported(
    source: str,
    rows: Sequence[Imported],
    broken: Sequence[str] = (),
    sheets: Sequence[Sheet] = (),
    neighbours: Neighbours = ALONE,
) -> str:
    """Returns the page as text; the same input gives the same bytes. ``broken``: what could not be
    read, a line each. ``sheets``: tables that lie in ``data`` beside it."""
    groups: dict[tuple[str, str, str], list[Imported]] = {}
    for row in rows:
        groups.setdefault((row.dataset, row.model, row.setting), []).append(row)
    sections = []
    for number, key in enumerate(sorted(groups), start=1):
        dataset, *setting = key
        group = groups[key]
        in_order = sorted(group, key=lambda row: (-_value(row), row.press, row.ratio))
        texts = tuple(_texts(row, group) for row in in_order)
        section = {
            "identifier": f"section-{number}",
            "title": dataset,
            "note": ", ".join(filter(None, setting)),
            "results": Listing(f"Results on {dataset}", RESULT_COLUMNS, texts),
        }
        sections.append(section)
    return render(
        "imported.html.j2",
        neighbours=neighbours,
        source=source,
        sections=sections,
        broken=broken,
        sheets=sheets,
    )


def _texts(row: Imported, rows: Sequence[Imported]) -> tuple[str, ...]:
    headline, value = row.headline
    others = []
    for name, score in row.scores:
        if name != headline:
            others.append(f"{name} {_number_text(score)}")
    return (
        row.press,
        f"{row.ratio:.6g}",
        _rank(row, rows),
        f"{headline} {_number_text(value)}" if headline else BLANK,
        _number_text(row.f1, ".1f"),
        _number_text(row.em, ".1f"),
        str(row.predictions),
        ", ".join(others) or BLANK,
        row.arguments or BLANK,
    )


def _rank(row: Imported, rows: Sequence[Imported]) -> str:
    """Returns one more than there are better ones by the same score; equals share a rank, and no
    score has none."""
    name, value = row.headline
    if value is None:
        return BLANK
    rank = 1
    for other in rows:
        other_name, _ = other.headline
        rank += other_name == name and _value(other) > value
    return str(rank)


def _value(row: Imported) -> float:
    value = row.headline[1]
    if value is None:
        return float("-inf")
    return value


def _number_text(value: float | None, form: str = ".5g") -> str:
    if value is None:
        return BLANK
    return f"{value:{form}}"
