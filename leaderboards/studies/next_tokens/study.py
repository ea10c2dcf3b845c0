"""The study of next tokens: how well a text goes on from a treated cache, by the place in what follows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from pandas import DataFrame

from datasets_gen import get_task
from leaderboards.aggregate.lead import ABOVE_CHANCE
from leaderboards.downloads.sheets import Sheet
from leaderboards.figures.panels import BandedLine, fitted, panel
from leaderboards.metrics import MEASURES
from leaderboards.metrics.declaration.definition import Chapter, Definition, estimates
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import LineStyle, policy_styles
from leaderboards.statistics.bootstrap import Estimate, resampled_means
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Picture, Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.treatments.parts import in_percent
from policies.declaration.levels import UNTREATED, Level, names_of
from policies.declaration.names import FULL

TABLE = "next_tokens"  # of a store (kvbench.store.observed)


@dataclass(frozen=True)
class PlaceResult:
    """Holds what a policy at a level comes to in one part of the continuations of a task."""

    task: str
    policy: str
    level: Level
    first_token: int  # from 0 on
    tokens: int  # of all texts
    accuracy: Estimate
    nats: Estimate | None  # None where no text has a number

    @property
    def middle(self) -> float:
        """Returns the place halfway to where the part ends, counted from 1."""
        return 1.5 * self.first_token + 0.5 if self.first_token else 1.0


def part_name(first_token: int) -> str:
    """Names a part of a continuation.

    >>> [part_name(first) for first in (0, 1, 2, 4)]
    ['token 1', 'token 2', 'tokens 3-4', 'tokens 5-8']
    """
    return f"token {first_token + 1}" if first_token < 2 else f"tokens {first_token + 1}-{2 * first_token}"


def parts_of(table: DataFrame, records: DataFrame) -> list[PlaceResult]:
    """Returns the parts in the order of tasks, policies, levels and places. ``records``: of the same runs, which tell
    the context of each question."""
    draws = records[["task", "question_id", "draw_id"]].drop_duplicates()
    joined = with_levels(table.merge(draws, on=["task", "question_id"], validate="many_to_one"))
    return list(_parts(joined.sort_values(["question_id", "repeat"], kind="stable")))


def _parts(joined: DataFrame) -> Iterator[PlaceResult]:
    by = ["task", "policy", "level", "first_token"]
    for (task, policy, level, first), group in joined.groupby(by, observed=True):
        accuracy, nats = (_estimate(group, column) for column in ("accuracy", "nats"))
        assert accuracy is not None
        yield PlaceResult(str(task), str(policy), level, int(first), int(group["tokens"].sum()), accuracy, nats)


def _estimate(group: DataFrame, column: str) -> Estimate | None:
    """Averages a column over tokens, and resamples contexts."""
    known = group[group[column].notna()]
    if known.empty:
        return None
    weights = known["tokens"].to_numpy(dtype=np.float64)
    totals = known[column].to_numpy(dtype=np.float64) * weights
    drawn = resampled_means(totals, known["draw_id"].to_numpy(dtype=str), 0, weights=weights)
    return Estimate.of(float(totals.sum() / weights.sum()), drawn, int(weights.sum()))


TITLE = MEASURES["next_token_accuracy"].title
MOST_PICTURES = 4  # levels that are drawn


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, and its download."""
    rows = parts_of(given.tables[TABLE], given.records)
    tasks = list(dict.fromkeys(one.task for one in rows))
    return StudyContent(
        parts=[_section(task, [one for one in rows if one.task == task]) for task in tasks],
        facts=[fact for task in tasks for fact in _facts(task, rows)],
        sheets=[Sheet.of("next-tokens-by-place", "Next tokens by place in the continuation", list(map(_row, rows)))],
    )


def _row(one: PlaceResult) -> dict[str, object]:
    """Returns the columns of the download; estimates stay whole, as their kinds tell how they are spread."""
    return {name: getattr(one, name) for name in PlaceResult.__dataclass_fields__}


def _facts(task: str, rows: Sequence[PlaceResult]) -> Iterator[tuple[str, str]]:
    """Tells what the full cache has, and whether that is enough, by the rule of the boards."""
    full = [one for one in rows if (one.task, one.policy) == (task, FULL)]
    tokens = sum(one.tokens for one in full)
    percent = 100 * sum(one.accuracy.mean * one.tokens for one in full) / tokens
    least = get_task(task).chance + ABOVE_CHANCE
    yield f"Full cache, {task}", f"{percent:.1f} % of {tokens:,} tokens right"
    if percent < least:
        yield "Tells nothing", f"the model cannot do {task}, which takes {least:.0f} %"


def _section(task: str, rows: Sequence[PlaceResult]) -> StudySection:
    policies = list(dict.fromkeys(one.policy for one in rows))
    policies.sort(key=lambda policy: policy != FULL)
    styles = policy_styles(policies)
    levels = _some_levels(sorted({one.level for one in rows if one.level.amount}))
    return StudySection(
        task,
        task,
        "What follows a compressed text, read token by token, each with the text’s own tokens before it. "
        "Bands are 95 % intervals over contexts.",
        tuple(styles.values()),
        tuple(_picture(task, level, rows, styles) for level in levels),
        (_list_parts(rows, f"{TITLE}, percent", policies, lambda one: in_percent(one.accuracy)),),
        (_list_parts(rows, "Nats a token", policies, lambda one: _in_nats(one.nats)),),
    )


def _some_levels(levels: Sequence[Level]) -> list[Level]:
    """Returns levels at equal steps, the first and the last among them."""
    if len(levels) <= MOST_PICTURES:
        return list(levels)
    return [levels[round(step * (len(levels) - 1) / (MOST_PICTURES - 1))] for step in range(MOST_PICTURES)]


def _picture(task: str, level: Level, rows: Sequence[PlaceResult], styles: dict[str, LineStyle]) -> Picture:
    paths = []
    # A part that a single text reaches has no interval, and stands in the table alone.
    known = [one for one in rows if one.accuracy.low is not None]
    drawn = known or rows
    for policy, style in styles.items():
        of_one = [one for one in drawn if one.policy == policy and one.level in (level, UNTREATED)]
        if of_one:
            bands = (tuple(float(getattr(one.accuracy, end)) for one in of_one) for end in ("low", "high"))
            points = tuple((one.middle, one.accuracy.mean) for one in of_one)
            paths.append(BandedLine(style, points, *(bands if known else ())))
    ends = sorted({2.0 * one.first_token for one in drawn if one.first_token >= 4})
    horizontal = Axis.around("token of the continuation", (0.0, *ends) if ends else (0.0, 4.0))
    title = f"{TITLE} over the place in the continuation: {task} at {level.where}"
    drawing = panel(paths, horizontal, fitted(paths), title, f"next-tokens/{task}/{level.where}")
    return Picture(f"at {level.where}", "share of tokens right", Markup(drawing))


def _list_parts(
    rows: Sequence[PlaceResult], title: str, policies: Sequence[str], text: Callable[[PlaceResult], str]
) -> Listing:
    """Lists policies at levels against parts of the continuation."""
    places = sorted({one.first_token for one in rows})
    cells = {(one.policy, one.level, one.first_token): text(one) for one in rows}
    lines = sorted({(policies.index(one.policy), one.level) for one in rows})
    names = names_of(level for _, level in lines)
    table = tuple(
        (policies[number], names[level], *(cells.get((policies[number], level, place), "–") for place in places))
        for number, level in lines
    )
    return Listing(title, ("policy", "level", *map(part_name, places)), table)


def _in_nats(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    ends = "" if estimate.interval is None else " [{:z.2f} to {:z.2f}]".format(*estimate.interval)
    return f"{estimate.mean:z.2f}{ends}"


LONGEST = 2**17  # tokens of a continuation that have a name


def _takes(given: StudyInput) -> bool:
    """Takes runs with the full cache whose table of next tokens has rows."""
    table = given.tables.get(TABLE)
    return table is not None and FULL in set(table["policy"])


CHAPTER = Chapter(
    "next-tokens",
    "Next tokens by place",
    (
        Definition(
            "Place in the continuation",
            "The tokens by which a running text goes on, counted from the first one behind the words that lead over. "
            "Their parts double: token 1, token 2, tokens 3 to 4, and so on; the last part of a text ends with it. "
            "Accuracy and nats are means over all tokens of a part, with intervals over contexts; a token whose "
            "likelihood is no number is not right, and its part of that text is left out of the nats.",
            "accuracy = right tokens / tokens; nats = −1/n · Σ log p(token i | cache, tokens before i)",
            names=(
                *("first_token", "tokens", *estimates("accuracy", "nats"), "continuation"),
                *(part_name(0 if place == 0 else 2 ** (place - 1)) for place in range(LONGEST.bit_length() + 1)),
            ),
        ),
    ),
)
STUDY = Study(
    name="next-tokens",
    title="Next tokens",
    lead="A running text is compressed and goes on from what is left. How many of its next tokens does the model still "
    "expect, and for how long?",
    takes=_takes,
    find=content_of,
    chapter=CHAPTER,
    tables=(TABLE,),
)
