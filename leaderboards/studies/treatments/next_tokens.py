"""The study of next tokens: how well a text goes on from a treated cache, by the place in what follows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pandas import DataFrame

from datasets_gen import get_task
from leaderboards.aggregate.lead import ABOVE_CHANCE
from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics import MEASURES
from leaderboards.metrics.declaration.definition import Chapter, Definition, estimates
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.style import LineStyle
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.statistics.columns import with_levels
from leaderboards.studies.declaration import Picture, Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import NONE, curve, estimate_of, full_last, in_numbers, in_percent, line_of
from policies.declaration.levels import UNTREATED, Level, names_of
from policies.declaration.names import FULL

TABLE = "next_tokens"  # of a store (kvbench.store.observed)
TITLE = MEASURES["next_token_accuracy"].title
MOST_PICTURES = 4  # levels that are drawn
LONGEST = 2**17  # tokens of a continuation that have a name


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


def part_name(first_token: int) -> str:
    """Names a part of a continuation.

    >>> [part_name(first) for first in (0, 1, 2, 4)]
    ['token 1', 'token 2', 'tokens 3-4', 'tokens 5-8']
    """
    return f"token {first_token + 1}" if first_token < 2 else f"tokens {first_token + 1}-{2 * first_token}"


def parts_of(table: DataFrame, records: DataFrame) -> Iterator[PlaceResult]:
    """Yields the parts in the order of tasks, policies, levels and places. ``records``: of the same runs, which tell
    the context of each question."""
    draws = records[["task", "question_id", "draw_id"]].drop_duplicates()
    joined = with_levels(table.merge(draws, on=["task", "question_id"], validate="many_to_one"))
    by = ["task", "policy", "level", "first_token"]
    ordered = joined.sort_values(["question_id", "repeat"], kind="stable")
    for (task, policy, level, first), group in ordered.groupby(by, observed=True):
        accuracy, nats = (_over_tokens(group[group[column].notna()], column) for column in ("accuracy", "nats"))
        assert accuracy is not None
        yield PlaceResult(str(task), str(policy), level, int(first), int(group["tokens"].sum()), accuracy, nats)


def _over_tokens(known: DataFrame, column: str) -> Estimate | None:
    """Averages a column over tokens, and resamples contexts."""
    if known.empty:
        return None
    tokens = known["tokens"].astype(float)
    return estimate_of(known[column] * tokens, known["draw_id"], tokens, int(tokens.sum()))


def content_of(given: StudyInput) -> StudyContent:
    """Computes all parts of the page, and its download."""
    rows = list(parts_of(given.tables[TABLE], given.records))
    tasks = list(dict.fromkeys(one.task for one in rows))
    return StudyContent(
        parts=[_section(task, [one for one in rows if one.task == task]) for task in tasks],
        facts=[fact for task in tasks for fact in _facts(task, rows)],
        sheets=[Sheet.of("next-tokens-by-place", "Next tokens by place in the continuation", [*map(vars, rows)])],
    )


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
    policies = sorted(dict.fromkeys(one.policy for one in rows), key=lambda policy: policy != FULL)
    styles = full_last(policies)
    levels = sorted({one.level for one in rows if one.level.amount})
    steps = min(len(levels), MOST_PICTURES)  # equal ones, the first and the last level among them
    drawn = [levels[round(step * (len(levels) - 1) / max(1, steps - 1))] for step in range(steps)]
    return StudySection(
        task,
        task,
        "What follows a compressed text, read token by token, each with the text’s own tokens before it. "
        "Bands are 95 % intervals over contexts.",
        tuple(styles.values()),
        tuple(_picture(task, level, rows, styles) for level in drawn),
        (_by_part(rows, f"{TITLE}, percent", policies, lambda one: in_percent(one.accuracy)),),
        (_by_part(rows, "Nats a token", policies, lambda one: in_numbers(one.nats)),),
    )


def _picture(task: str, level: Level, rows: Sequence[PlaceResult], styles: dict[str, LineStyle]) -> Picture:
    # A part that a single text reaches has no interval, and stands in the table alone.
    drawn = [one for one in rows if one.accuracy.low is not None] or rows
    lines = []
    for policy, style in styles.items():
        own = [one for one in drawn if one.policy == policy and one.level in (level, UNTREATED)]
        # Each at the middle of its part, counted from 1.
        points = [(1.5 * one.first_token + 0.5 if one.first_token else 1.0, one.accuracy) for one in own]
        lines += [line_of(style, points)] if points else []
    ends = sorted({2.0 * one.first_token for one in drawn if one.first_token >= 4})
    axis = Axis.around("token of the continuation", (0.0, *ends) if ends else (0.0, 4.0))
    return curve(f"at {level.where}", "share of tokens right", lines, axis, f"next-tokens/{task}/{level.where}")


def _by_part(
    rows: Sequence[PlaceResult], title: str, policies: Sequence[str], text: Callable[[PlaceResult], str]
) -> Listing:
    """Lists policies at levels against parts of the continuation."""
    places = sorted({one.first_token for one in rows})
    cells = {(one.policy, one.level, one.first_token): text(one) for one in rows}
    lines = sorted({(policies.index(one.policy), one.level) for one in rows})
    names = names_of(level for _, level in lines)
    table = tuple(
        (policies[number], names[level], *(cells.get((policies[number], level, place), NONE) for place in places))
        for number, level in lines
    )
    return Listing(title, ("policy", "level", *map(part_name, places)), table)


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
