"""The page of methods: a table for each model, with a row for each method, its place among all and
what it loses for each use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from leaderboards.aggregate.pooled import Pooled
from leaderboards.aggregate.row import ALL_TASKS, KV_BYTES, SummaryRow
from leaderboards.boards.area_under_curve import BEATS_RANDOM
from leaderboards.boards.board import Standing
from leaderboards.boards.declaration import TableCell, TableRow, blank_reasons
from leaderboards.boards.rank import RANK
from leaderboards.boards.safe_ratio import SAFE_RATIO, difference_text
from leaderboards.metrics import MEASURES
from leaderboards.metrics.declaration import Measure
from leaderboards.pages.results import Results, distinct_labels
from leaderboards.pages.uses import NOT_RUN, Use, all_uses
from leaderboards.rendering.templating import ALONE, Neighbours, render
from leaderboards.statistics.bootstrap import Blank
from leaderboards.statistics.rank import RankInterval
from leaderboards.statistics.safe_ratio import SafeRatio, lowest
from leaderboards.studies.parts import examples_at, examples_page
from policies.declaration.lazy import LazyModule
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import CONTROLS, FULL, paper_address

# A run that is of no board needs nothing of it.
published = LazyModule("leaderboards.studies.published.content")

METHODS_PAGE, METHODS_TITLE = "methods.html", "All methods, with their places"
# Of the cache that is removed, in columns of their own.
RATIOS = {0.5: "half", 0.75: "three quarters"}
AT_HALF = 0.5
Judged = Mapping[tuple[str, str], SafeRatio | Blank]  # by policy and task
NOTHING_UNFIT: Mapping[str, Mapping[str, str]] = {}
SAME = 1e-9  # ratios that differ only by how they are written
WRONG, LEAKAGE = MEASURES["wrong_of_answered"], MEASURES["leakage"]
TIME = MEASURES["compression_of_prefill"]
PLACE, ELSEWHERE, BYTES = "place", "kvpress’s board", "bytes"
NOT_THERE = "kvpress’s board of 8B models does not have it"
NO_SUCH_ROW = "no answer is judged so"
NO_MEAN = "it did not answer all tasks"
SAFE = "safe"
FREES = 99  # percent of the bytes of the full cache: a press that holds more masks tokens alone


@dataclass(frozen=True)
class AboutMethod:
    """Tells what a policy is, whatever the model."""

    family: str
    idea: str  # in plain words
    paper: str
    needs: str  # beside the model, such as a second reading; empty where it needs nothing
    stale: str = ""  # why its answers are of another version; empty where they are not
    caveat: str = ""  # a trap of its code, if there is one
    page: str = ""  # the file name of its own page, if it has one

    @property
    def paper_address(self) -> str:
        """Returns where its paper is to be read; nothing where there is none."""
        return paper_address(self.paper)


@dataclass(frozen=True)
class MethodsTable:
    """Holds the methods on one model, by place."""

    identifier: str
    title: str
    summary: str  # who loses least, in words
    note: str  # what was asked
    columns: tuple[str, ...]
    methods: tuple[TableRow, ...]
    controls: tuple[TableRow, ...]
    unfit: Mapping[str, str]  # methods that cannot run on the model, with the reason

    @property
    def reasons(self) -> list[str]:
        """Says why cells are blank, and why methods are missing."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.unfit.items():
            by_reason.setdefault(reason, []).append(name)
        missing = [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]
        return [*blank_reasons(self.columns, (*self.methods, *self.controls)), *missing]


def build_methods(
    results: Sequence[Results],
    methods: Mapping[str, AboutMethod],
    left_out: Mapping[str, str],
    neighbours: Neighbours = ALONE,
    mine: str = "",
    has_examples: bool = True,
    unfit: Mapping[str, Mapping[str, str]] = NOTHING_UNFIT,
) -> str:
    """Builds the page as text. ``methods``: by policy. ``left_out``: why a method is not there.
    ``unfit``: by model, why a method cannot run on it. ``mine``: the method that is placed among
    the others. ``has_examples``: whether pages of examples lie beside it, to which cells lead."""
    tables = []
    elsewhere = Elsewhere(places_elsewhere(), places_on_models(results, unfit))
    for number, (of_setting, label) in enumerate(
        zip(results, distinct_labels(results), strict=True), start=1
    ):
        title = label or of_setting.model
        identifier = f"methods-{number}"
        examples = number if has_examples else 0
        table = methods_table(of_setting, identifier, title, elsewhere, examples)
        tables.append(replace(table, unfit=unfit.get(of_setting.model, {})))
    return render(
        "methods.html.j2",
        ("address.js", "page.js", "methods.js"),
        neighbours,
        tables=tables,
        methods=methods,
        families=sorted({method.family for method in methods.values() if method.family}),
        left_out=left_out,
        mine=mine,
        ratios={f"{ratio:g}": words for ratio, words in RATIOS.items()},
        tolerance=f"{results[0].tolerance:g}",
    )


def places_elsewhere() -> dict[str, int]:
    """Returns the place of each policy on kvpress's own board, by its mean over both models at half."""
    by_policy: dict[str, list[float]] = {}
    for (_, ratio, policy), score in published.scores("agnostic").items():
        if ratio == AT_HALF:
            by_policy.setdefault(policy, []).append(score)
    means = {policy: sum(values) / len(values) for policy, values in by_policy.items()}
    places: dict[str, int] = {}
    for policy, mean in means.items():
        places[policy] = 1 + sum(other > mean for other in means.values())
    return places


@dataclass(frozen=True)
class Elsewhere:
    """Holds the places that methods have on other boards."""

    published: Mapping[str, int]  # by policy, on kvpress's own board
    models: Mapping[str, Mapping[str, Mapping[str, TableCell]]]  # by mode, model and policy


def places_on_models(
    results: Sequence[Results], unfit: Mapping[str, Mapping[str, str]] = NOTHING_UNFIT
) -> dict[str, dict[str, dict[str, TableCell]]]:
    """Returns by mode the places of all policies on each model, by its label. ``unfit``: by model,
    why a policy cannot run on it."""
    places: dict[str, dict[str, dict[str, TableCell]]] = {}
    for of_setting in results:
        board = of_setting.standings.get((of_setting.mode, of_setting.shown[0]), ())
        cells = {standing.policy: _place_cell(standing) for standing in board}
        for policy, reason in unfit.get(of_setting.model, {}).items():
            cells[policy] = TableCell.blank(reason)
        places.setdefault(of_setting.mode, {})[_label(of_setting)] = cells
    return places


def _label(results: Results) -> str:
    """Names results among others of their mode."""
    return ", ".join(filter(None, [results.model, results.setting]))


def methods_table(
    results: Results, identifier: str, title: str, elsewhere: Elsewhere, examples: int = 0
) -> MethodsTable:
    """Makes the table of one model; methods without a place stand behind all others.
    ``examples``: the number of its results among those of the site, where pages of examples are
    there."""
    uses = all_uses(results)
    standings: dict[str, dict[str, Standing]] = {}  # by policy and task
    for (_, task), of_board in results.standings.items():
        for standing in of_board:
            standings.setdefault(standing.policy, {})[task] = standing
    judged = _judged(results)
    models = elsewhere.models.get(results.mode, {})
    others = [model for model in models if model != _label(results)]
    columns = [PLACE, *(f"place, {model}" for model in others), ELSEWHERE]
    for use in uses:
        columns += [f"{use.name}, {ratio:g}" for ratio in RATIOS]
    columns += ["wrong of answered", "leakage", "time", BYTES]
    methods, controls = [], []
    for policy, by_task in standings.items():
        if policy == FULL:
            continue
        cells = [_place_cell(by_task.get(results.shown[0]))]
        for model in others:
            cells.append(models[model].get(policy, TableCell.blank(NOT_RUN)))
        cells.append(_published_cell(elsewhere.published.get(policy)))
        cells += _loss_cells(policy, judged, uses, examples)
        cells += _cost_cells(policy, results)
        line = TableRow(policy, tuple(cells))
        if policy in CONTROLS:
            controls.append(line)
        else:
            methods.append(line)
    methods.sort(key=_sort_key)
    filled = _filled_columns([*methods, *controls])
    in_words = "; ".join(_use_in_words(use) for use in uses)
    note = f"With the full cache: {in_words}"
    if results.described:
        note = f"{results.described}. {note}"
    return MethodsTable(
        identifier,
        title,
        _summary(results, methods, columns, uses),
        f"{note[:1].upper()}{note[1:]}.",
        tuple(columns[index] for index in filled),
        tuple(_with_columns(line, filled) for line in methods),
        tuple(_with_columns(line, filled) for line in controls),
        unfit={},
    )


def _use_in_words(use: Use) -> str:
    """Says what a use is, and what the full cache has of it."""
    facts = [] if use.full is None else [f"{use.full:.0f}{use.scale}"]
    contexts = f"{use.contexts} contexts"
    if use.tokens is not None:
        contexts += f" of {round(use.tokens, -1):.0f} tokens"
    return f"{use.name} ({', '.join(use.tasks)}): {', '.join([*facts, contexts])}"


def _summary(
    results: Results, lines: Sequence[TableRow], columns: Sequence[str], uses: Sequence[Use]
) -> str:
    """Says who loses least, who does so and frees memory, who is no better than chance, and who is
    safe. ``lines``: of methods, by their place."""
    least: list[str] = []
    for standing in results.standings.get((results.mode, results.shown[0]), ()):
        rank = standing[RANK]
        if isinstance(rank, RankInterval) and not rank.alone and 1 in (rank.rank, rank.low):
            least.append(standing.policy)
    freeing = ""
    # By method, the uses that it is shown to be safe for.
    safe: dict[str, list[str]] = {}
    for line in lines:
        cells = dict(zip(columns, line.cells, strict=True))
        for use in uses:
            if cells[f"{use.name}, {AT_HALF:g}"].detail.split()[-1:] == [SAFE]:
                safe.setdefault(line.name, []).append(use.name)
        held = cells[BYTES].sort
        if not freeing and not cells[PLACE].is_blank and held is not None and held < FREES:
            freeing = line.name
    sentences = []
    in_order = [line.name for line in lines if line.name in least]
    behind = _no_better_than_random(results)
    if least:
        sentences.append(f"Loses least: {', '.join(in_order)}.")
    if freeing and freeing not in in_order[:1]:
        sentences.append(f"First of those that free memory: {freeing}.")
    if behind:
        sentences.append(f"Not better than eviction at random: {', '.join(behind)}.")
    sentences.append(_safe_at_half(safe, uses))
    return " ".join(sentences)


def _safe_at_half(safe: Mapping[str, Sequence[str]], uses: Sequence[Use]) -> str:
    """Names the methods that are safe for every use, and where there are others, those of each use.
    ``safe``: the uses of each method."""
    everywhere = [name for name, of_method in safe.items() if len(of_method) == len(uses)]
    clauses = [f"for every use: {', '.join(everywhere) or 'none'}"]
    for use in uses:
        names = [name for name, of_method in safe.items() if use.name in of_method]
        if len(names) > len(everywhere):
            clauses.append(f"for {use.name}: {', '.join(names)}")
    return f"Shown to be safe at half {'; '.join(clauses)}."


def _no_better_than_random(results: Results) -> list[str]:
    """Lists the methods that are not shown to keep more than the control which evicts at random."""
    names = []
    for standing in results.standings.get((results.mode, results.shown[0]), ()):
        against = standing[BEATS_RANDOM]
        if isinstance(against, Pooled) and against.verdict != "better":
            names.append(standing.policy)
    return names


def _filled_columns(lines: Sequence[TableRow]) -> list[int]:
    """Lists the columns in which a line has a value, such as no leakage where nothing is secret."""
    filled: set[int] = set()
    for line in lines:
        filled.update(index for index, cell in enumerate(line.cells) if not cell.is_blank)
    return sorted(filled)


def _with_columns(line: TableRow, columns: Sequence[int]) -> TableRow:
    return replace(line, cells=tuple(line.cells[index] for index in columns))


def _sort_key(line: TableRow) -> tuple[bool, float]:
    place = line.cells[0].sort
    return place is None, place or 0.0


def _judged(results: Results) -> Judged:
    """Returns what each policy loses in each task, of the most contexts that it was asked of."""
    judged: dict[tuple[str, str], SafeRatio | Blank] = {}
    for looked_at in (results, *results.closer):
        for (_, task), of_board in looked_at.standings.items():
            for standing in of_board:
                safe, before = standing[SAFE_RATIO], judged.get((standing.policy, task))
                if _contexts(safe) >= _contexts(before):
                    judged[standing.policy, task] = safe
    return judged


def _contexts(safe: SafeRatio | Blank | None) -> int:
    return safe.contexts if isinstance(safe, SafeRatio) else 0


def _loss_cells(policy: str, judged: Judged, uses: Sequence[Use], examples: int) -> list[TableCell]:
    """Makes the cells of what a policy loses for each use, at both ratios."""
    cells = []
    for use in uses:
        safe = lowest({task: judged.get((policy, task), Blank(NOT_RUN)) for task in use.tasks})
        for ratio in RATIOS:
            cell = _loss_cell(safe, ratio, use.contexts)
            if examples and not cell.is_blank and not isinstance(safe, Blank):
                page = examples_page((*safe.tasks, *use.tasks)[0], examples)
                level = UNTREATED if safe.kind is None else Level(safe.kind, ratio)
                cell = replace(cell, examples=examples_at(page, policy, level))
            cells.append(cell)
    return cells


def _cost_cells(policy: str, results: Results) -> list[TableCell]:
    """Makes the cells of wrong answers, leakage, time and bytes of a policy."""
    rows = _rows_at(results, policy)
    overall = rows.get(results.shown[0])
    leaking = [row for row in rows.values() if LEAKAGE.value(row) is not None]
    return [
        _mean_cell(WRONG, results, rows),
        measure_cell(LEAKAGE, leaking[0]) if leaking else TableCell.blank(NO_SUCH_ROW),
        _time_cell(overall),
        _bytes_cell(results, policy, rows),
    ]


def _published_cell(place: int | None) -> TableCell:
    if place is None:
        return TableCell.blank(NOT_THERE)
    return TableCell(f"{place}", sort=place)


def _place_cell(standing: Standing | None) -> TableCell:
    """Makes the cell of a place with its interval."""
    if standing is None:
        return TableCell.blank(NOT_RUN)
    rank = standing[RANK]
    if isinstance(rank, Blank):
        return TableCell.blank(rank.reason, rank.short)
    cell: TableCell = RANK.cell(rank)
    return cell


def _loss_cell(safe: SafeRatio | Blank, ratio: float, contexts: int) -> TableCell:
    """Makes the cell of a loss at a ratio: over several tasks of the worst. What has one level has
    the same loss at each. ``contexts``: of the use; the cell says how many it has if it has
    more."""
    if isinstance(safe, Blank):
        return TableCell.blank(safe.reason, safe.short)
    for loss in safe.levels:
        if safe.kind is None or abs(loss.level - ratio) < SAME:
            mean, _, interval = difference_text(loss.difference, safe.tolerance).partition(" ")
            detail = f"{interval} {loss.verdict}" if not safe.withheld else interval
            if loss.contexts > contexts:
                detail = f"n {loss.contexts} {detail}"
            return TableCell(mean, detail.strip(), loss.difference.mean)
    return TableCell.blank("it was not run at this ratio")


def _rows_at(results: Results, policy: str) -> dict[str, SummaryRow]:
    """Returns the rows of a policy by task: at half, or at its only level."""
    rows: dict[str, SummaryRow] = {}
    for row in results.rows:
        is_there = row.ratio is not None and abs(row.ratio - AT_HALF) < SAME
        if row.policy == policy and (is_there or row.level == 0.0):
            rows[row.task] = row
    return rows


def measure_cell(measure: Measure, row: SummaryRow | None) -> TableCell:
    """Makes the cell of a measure; blank where there is no such row or value."""
    if row is None:
        return TableCell.blank(NO_MEAN)
    value = measure.value(row)
    if value is None:
        return TableCell.blank(NO_SUCH_ROW)
    return TableCell(measure.text(value), sort=value)


def _full_rows(results: Results) -> list[SummaryRow]:
    """Lists the rows of the full cache, a task each."""
    return [row for row in results.rows if row.policy == FULL and row.task != ALL_TASKS]


def _mean_cell(measure: Measure, results: Results, rows: Mapping[str, SummaryRow]) -> TableCell:
    """Makes the cell of a measure in the mean over the tasks that have it, as next tokens are no
    answers; blank where the policy did not answer all of these."""
    values: list[float] = []
    for full in _full_rows(results):
        if measure.value(full) is None:
            continue
        value = measure.value(rows[full.task]) if full.task in rows else None
        if value is None:
            return TableCell.blank(NO_MEAN)
        values.append(value)
    if not values:
        return TableCell.blank(NO_SUCH_ROW)
    mean = sum(values) / len(values)
    return TableCell(measure.text(mean), sort=mean)


def _time_cell(row: SummaryRow | None) -> TableCell:
    """Makes the cell of the time that compression takes, in percent of the prefill's: runs of
    several machines stand beside each other."""
    cell = measure_cell(TIME, row)
    return cell if cell.is_blank else replace(cell, text=f"{cell.text} %")


def _bytes_cell(results: Results, policy: str, rows: Mapping[str, SummaryRow]) -> TableCell:
    """Makes the cell of the bytes that are held, in percent of the full cache's, in the mean over
    tasks."""
    shares = []
    for full in _full_rows(results):
        if full.task not in rows:
            continue
        whole, held = KV_BYTES.value(full), KV_BYTES.value(rows[full.task])
        if whole and held is not None:
            shares.append(100 * held / whole)
    if not shares:
        return TableCell.blank(NO_SUCH_ROW)
    mean = sum(shares) / len(shares)
    return TableCell(f"{mean:.0f} %", sort=mean)
