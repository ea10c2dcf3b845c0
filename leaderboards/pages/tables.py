"""Makes tables of rows: plain values that a template only has to write down."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from leaderboards.aggregate.lead import RANKED, mark_of
from leaderboards.aggregate.row import GER, KEPT_TOKENS, KV_BYTES, REALISED_RATIO, SLOT_COVERAGE, SummaryRow, count_text
from leaderboards.boards.declaration import TableCell, TableRow, heat_of
from leaderboards.figures.gallery import CAUTIONS
from leaderboards.metrics import MEASURES, Measure
from leaderboards.metrics.declaration.sizes import size_text
from leaderboards.rendering.listing import Listing
from leaderboards.statistics.text import interval_text
from policies.declaration.levels import UNTREATED, kind_title, names_of
from policies.declaration.names import CONTROLS, FULL

NOT_RUN = "not run"
BAR_HEIGHT = 10


@dataclass(frozen=True)
class Table:
    """A measure over policy and level."""

    measure: Measure
    beside: str  # what stands under each value
    title: str  # of the columns
    columns: tuple[str, ...]
    reference: TableRow | None  # the full cache, which has one cell for all levels
    methods: tuple[TableRow, ...]
    controls: tuple[TableRow, ...]
    one_level: tuple[TableRow, ...]  # of what has no levels, as int4: one cell each
    notes: tuple[str, ...]

    @property
    def ranked(self) -> bool:
        """Tells whether the best of a column is marked."""
        return self.measure in RANKED

    @property
    def caution(self) -> str:
        """Says what the measure must not be read as, if there is such a thing."""
        return CAUTIONS.get(self.measure, "")


def measure_table(rows: Sequence[SummaryRow], measure: Measure, highest: float, examples: str = "") -> Table:
    """Makes the table of one task and mode, whose ``rows`` these are. ``highest``: the value of full heat.
    ``examples``: the name of the page of examples, if there is one."""
    has_levels = {row.policy for row in rows if row.at != UNTREATED}
    levels = sorted({row.at for row in rows if row.policy in has_levels})
    names = names_of(levels)
    by_place = {(row.policy, row.at): row for row in rows}
    notes: dict[str, list[str]] = {}
    lines: list[TableRow] = []
    one_level: list[TableRow] = []
    reference = None
    for policy in dict.fromkeys(row.policy for row in rows):
        if policy == FULL:
            full = next(row for row in rows if row.policy == FULL)
            reference = TableRow(FULL, (_cell(full, measure, highest, notes, FULL, examples),))
            continue
        if policy not in has_levels:
            alone = by_place[policy, UNTREATED]
            one_level.append(TableRow(policy, (_cell(alone, measure, highest, notes, policy, examples),)))
            continue
        cells = [
            _cell(by_place.get((policy, level)), measure, highest, notes, f"{policy} at {name}", examples)
            for level, name in names.items()
        ]
        lines.append(TableRow(policy, tuple(cells)))
    return Table(
        measure=measure,
        beside=BESIDE[measure.name][0] if measure.name in BESIDE else "95 % interval",
        title=kind_title(levels) if levels else "",
        columns=tuple(names.values()),
        reference=reference,
        methods=tuple(line for line in lines if line.name not in CONTROLS),
        controls=tuple(line for line in lines if line.name in CONTROLS),
        one_level=tuple(one_level),
        notes=tuple(f"{reason} ({_shortened(where)})" for reason, where in notes.items()),
    )


def _cell(
    row: SummaryRow | None,
    measure: Measure,
    highest: float,
    notes: dict[str, list[str]],
    where: str,
    examples: str,
) -> TableCell:
    value = None if row is None else measure.value(row)
    if row is None or value is None:
        reason = NOT_RUN if row is None else row.reason or f"no {measure.title} was recorded"
        notes.setdefault(reason, []).append(where)
        return TableCell(reason=reason, note=list(notes).index(reason) + 1)
    layers = row.ger_by_layer or () if measure is GER else ()
    return TableCell(
        text=count_text(row, measure) or measure.text(value),
        detail=_detail(row, measure),
        heat=heat_of(value, highest),
        sort=value,
        mark=mark_of(row, measure),
        bars=_bars(layers),
        layers=len(layers),
        # Of each table they would be a fifth of the page.
        examples=_examples_at(row, examples) if examples else "",
    )


def _detail(row: SummaryRow, measure: Measure) -> str:
    if measure.name in BESIDE:
        return BESIDE[measure.name][1](row)
    if count_text(row, measure):
        return ""
    return interval_text(measure.interval(row), measure.factor)


def _coverage(row: SummaryRow) -> str:
    coverage = SLOT_COVERAGE.value(row)
    return "–" if coverage is None else f"{coverage:.2f}"


def _size(row: SummaryRow) -> str:
    tokens = KEPT_TOKENS.value(row)
    return "–" if tokens is None else f"{tokens:.0f}, {size_text(KV_BYTES.value(row))}"


# Under each value of a table, where that is not its interval: what it is, and how it is written.
BESIDE: Mapping[str, tuple[str, Callable[[SummaryRow], str]]] = {
    GER.name: ("slot coverage of the evidence; the bars are the GER of each layer taken alone", _coverage),
    REALISED_RATIO.name: ("mean tokens read in a head, mean bytes held for one context", _size),
}


def _examples_at(row: SummaryRow, page: str) -> str:
    """Returns the address of the examples of a row, beside the page."""
    return f"{page}#{urlencode({'policy': row.policy, 'level': str(row.at)})}"


def _shortened(places: Sequence[str], most: int = 12) -> str:
    rest = len(places) - most
    return ", ".join(places[:most]) + (f" and {rest} more" if rest > 0 else "")


def _bars(layers: Sequence[float]) -> str:
    """Draws a small bar chart as an SVG path, whose strokes are the bars."""
    return "".join(
        f"M{index} {BAR_HEIGHT}V{round(BAR_HEIGHT * (1 - share), 1):g}"
        for index, share in enumerate(layers)
        if share > 0
    )


LISTED = tuple(measure for measure in MEASURES.values() if measure.heading)
LISTED_COLUMNS = ("policy", "level", "questions", "contexts", *(measure.heading for measure in LISTED), "reason")


def every_measure(rows: Sequence[SummaryRow], title: str) -> Listing:
    """Writes every measure of every row as text; rates in percent."""
    return Listing(f"Every measure of {title}", LISTED_COLUMNS, tuple(_texts(row) for row in rows))


def _texts(row: SummaryRow) -> tuple[str, ...]:
    numbers = (_number_text(measure, row) for measure in LISTED)
    return (row.policy, row.at.where, str(row.n), str(row.contexts), *numbers, row.reason or "")


def _number_text(measure: Measure, row: SummaryRow) -> str:
    """Writes a number, with its interval for the measures that have a table of their own."""
    value, interval = measure.value(row), measure.interval(row) if measure.table else None
    if value is not None and measure.writer is not None:
        return measure.writer(value)
    if count := count_text(row, measure):
        return count
    if interval is None:
        return measure.text(value)
    return f"{measure.text(value)} ({interval_text(interval, measure.factor, measure.digits)})"
