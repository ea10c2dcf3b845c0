"""Levels: how much a treatment does to a cache. Each kind of level is declared here, once.

What reads levels (the command line, the store, the statistics, the pages) asks the kind, and never
for its name."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import product

from policies.declaration.names import LevelError

MOST_VALUES = 1000
MOST_TOKENS = 10_000_000
MOST_BITS = 23  # of a mantissa, in float32
A_LITTLE = 1e-6  # of a token: or 1 - (1 - 63/96) of 96 tokens comes to 62.99, and kvpress keeps 62


@dataclass(frozen=True)
class LevelKind:
    """Declares what a number asks of a treatment."""

    name: str  # in records; with two dashes, the option that picks one level of a run
    plural: str  # with two dashes, the option that gives the levels of a run
    help: str  # of that option
    # The values of the option's text, ascending and each once; LevelError in one line for any other
    # text.
    parse: Callable[[str], tuple[float, ...]]
    # The value at which nothing is done: 0 of the cache removed. Infinite where there is no such
    # value, as no number of tokens keeps every context whole.
    nothing: float
    typical: float  # a value at which a press is built to be looked at
    title: str  # what the value is, above a table
    axis: str  # the same below a curve
    default: str = ""  # the option's text where none is given, or empty
    few: str = ""  # the same in a comparison
    # At which hallucination and GER stand on the board, where they were run.
    usual: tuple[float, ...] = ()
    note: str = ""  # follows the title of the table that a run prints
    doubling: bool = False  # an axis doubles from one tick to the next
    # The share of the tokens to remove, of a value and the length of the context; None if it
    # removes no tokens.
    share: Callable[[float, int], float | None] = lambda value, length: None
    not_comparable: str = (
        ""  # why there is no safe value and no cliff by this kind, if there is none
    )

    @property
    def option(self) -> str:
        return f"--{self.plural}"

    @property
    def has_origin(self) -> bool:
        """Tells whether the untreated cache has a place on an axis of this kind."""
        return math.isfinite(self.nothing)

    @property
    def removes(self) -> bool:
        """Tells whether tokens are removed: a fault damages what it finds, and fewer bits store all
        of it."""
        return self.share(self.typical, 1) is not None

    def amount(self, value: float) -> float:
        """Returns a number that ascends with what is done to the cache."""
        return abs(value - self.nothing) if self.has_origin else -value


@dataclass(frozen=True, order=True)
class Level:
    """A value of a kind, which is given by its name: ``Level("ratio", 0.5)``."""

    kind: str
    value: float

    def __str__(self) -> str:
        """Returns the number, without the noise of binary fractions."""
        return f"{self.value:.6g}"

    @property
    def where(self) -> str:
        return f"{self.kind} {self}"

    @property
    def declared(self) -> LevelKind:
        return LEVEL_KINDS[self.kind]

    @property
    def amount(self) -> float:
        return self.declared.amount(self.value)

    def share(self, length: int) -> float | None:
        """Returns the share of a context of ``length`` tokens to remove; None where no tokens are
        removed."""
        return self.declared.share(self.value, length)

    @property
    def fixed_share(self) -> float | None:
        """Returns the share to remove where it is the same for a context of any length; else
        None."""
        share = self.share(1)
        # Shorter and longer than any context: a budget keeps all of the one and nearly nothing of
        # the other.
        if share == self.share(100 * MOST_TOKENS):
            return share
        return None


@dataclass(frozen=True, order=True)
class Point:
    """A level, and which draw of a random treatment; ``repeat`` is 0 for the first draw and for
    other treatments."""

    level: Level
    repeat: int = 0

    @property
    def where(self) -> str:
        if self.repeat:
            return f"{self.level.where}, repeat {self.repeat}"
        return self.level.where


def _decimal(number: str, text: str) -> Decimal:
    try:
        value = Decimal(number.strip())
        # ``1e999999`` is a Decimal too, and as an int it would have a million digits.
        if value.is_finite() and value.adjusted() <= 6 and value.as_tuple().exponent >= -50:  # type: ignore[operator]
            return value
    except InvalidOperation:
        pass
    raise LevelError(f"{text}: '{number}' is not a number")


def parse_numbers(text: str, plural: str) -> tuple[Decimal, ...]:
    """Reads ``0.1,0.5`` or ``0.1:0.9:0.1`` (first, last, step): numbers ascending, each once;
    ``plural`` names the kind. Raises :class:`LevelError` for any other text.

    Counted in decimals: in floats 0.1 + 0.2 would ask for 0.30000000000000004, and keep one token
    less."""
    option = f"--{plural} {text}"
    if not text.strip():
        raise LevelError(f"--{plural} names no number: give such as 0.1,0.5, or leave it out")
    values: set[Decimal] = set()
    for part in text.split(","):
        numbers = [_decimal(number, option) for number in part.split(":")]
        if len(numbers) == 1:
            values.add(numbers[0])
        elif len(numbers) == 3:
            first, last, step = numbers
            if step <= 0 or last < first:
                raise LevelError(
                    f"{option}: a range is first:last:step with a step above 0 and last >= first"
                )
            if last - first > step * MOST_VALUES:
                raise LevelError(
                    f"{option}: that is more than {MOST_VALUES} {plural}: take a larger step"
                )
            # Whole steps alone: 0.1:0.9:0.3 ends at 0.7.
            steps = int((last - first) / step)
            values.update(first + step * count for count in range(steps + 1))
        else:
            raise LevelError(
                f"{option}: give numbers such as 0.1,0.5 or a range such as 0.1:0.9:0.1"
            )
    return tuple(sorted(values))


def parse_shares(text: str, plural: str, meaning: str, whole: bool = False) -> tuple[float, ...]:
    """Returns shares in [0, 1), or with ``whole`` in [0, 1], as :func:`parse_numbers` reads them.

    Raises :class:`LevelError` for any other text.
    """
    shares = []
    for number in parse_numbers(text, plural):
        share = float(number) + 0.0  # -0 is 0
        # A rate of 1 damages every row; a ratio of 1 would leave none to read, and kvpress refuses
        # it.
        if not 0 <= share <= 1 or (share == 1 and not whole):
            end = "]" if whole else ")"
            raise LevelError(
                f"--{plural} {text}: {number} is outside [0, 1{end}: a {plural[:-1]} is {meaning}"
            )
        shares.append(share)
    return tuple(shares)


def parse_budgets(text: str) -> tuple[float, ...]:
    """Reads ``64,128,256``, tokens to keep in every head: counts ascending, each once.

    Raises :class:`LevelError` for any other text.
    """
    budgets = set()
    most_digits = len(str(MOST_TOKENS))
    for part in text.split(","):
        count = part.strip()
        # Python reads no number of more than some thousand digits.
        is_short = count.isdecimal() and len(count) <= most_digits
        if not is_short or not 0 < int(count) < MOST_TOKENS:
            raise LevelError(
                f"--budgets {text}: '{count}' is no count of tokens: give such as 64,128,256"
            )
        budgets.add(float(int(count)))
    return tuple(sorted(budgets))


def parse_bits(text: str) -> tuple[float, ...]:
    """Reads counts of bits as :func:`parse_numbers` does; raises :class:`LevelError` for any other
    text."""
    counts = parse_numbers(text, "bits")
    for count in counts:
        if count != int(count) or not 0 <= count <= MOST_BITS:
            raise LevelError(f"--bits {text}: {count} is no count of bits from 0 to {MOST_BITS}")
    return tuple(float(count) + 0.0 for count in counts)


RATIO = LevelKind(
    name="ratio",
    plural="ratios",
    help="0.1,0.5 or first:last:step, in [0, 1).",
    parse=partial(parse_shares, plural="ratios", meaning="the share of the cache removed"),
    nothing=0.0,
    typical=0.5,
    title="asked ratio: the share of the cache to remove",
    axis="asked ratio",
    default="0.1:0.9:0.2",
    few="0.3,0.5,0.7,0.9",  # which the default run has too: its records serve
    usual=(0.5, 0.9),
    share=lambda ratio, length: ratio,
)
BUDGET = LevelKind(
    name="budget",
    plural="budgets",
    help="Instead of ratios: tokens to keep in every head, such as 64,128.",
    parse=parse_budgets,
    nothing=math.inf,
    typical=64.0,
    title="asked budget: tokens of each context to keep in every head",
    axis="asked budget, in tokens of a head",
    note="by the tokens kept in a head",
    doubling=True,
    share=lambda budget, length: max(
        0.0, 1 - (budget + A_LITTLE) / length
    ),  # nothing of a context within it
    not_comparable="asked by budget, which is another ratio for every length",
)
RATE = LevelKind(
    name="rate",
    plural="rates",
    help="Of faults: shares of the cache to damage, such as 0.01,0.1, in [0, 1].",
    parse=partial(
        parse_shares, plural="rates", meaning="the share of the cache that is hit", whole=True
    ),
    nothing=0.0,
    typical=0.05,
    title="asked rate: the share of rows, values or tokens that a fault hits",
    axis="asked rate",
    default="0,0.01,0.02,0.05,0.1,0.2,0.5",
    few="0.02,0.1,0.5",
    usual=(0.02, 0.1),
)
BITS = LevelKind(
    name="bits",
    plural="bits",
    help="Of the mantissa: how many low bits to set to zero, such as 4,8.",
    parse=parse_bits,
    nothing=0.0,
    typical=4.0,
    title="asked bits: the low bits of every mantissa that are set to zero",
    axis="masked bits of the mantissa",
    default="0:6:2",
    few="2,4,6",
    usual=(2, 6),
)
LEVEL_KINDS: dict[str, LevelKind] = {kind.name: kind for kind in (RATIO, BUDGET, RATE, BITS)}
EVICTION = (RATIO.name, BUDGET.name)  # the kinds that a policy takes unless it declares others
UNTREATED = Level(RATIO.name, RATIO.nothing)  # the one level of the full cache
NO_LEVEL = "no level"  # in words, of what has that one alone


def at_ratios(ratios: Iterable[float]) -> tuple[Point, ...]:
    return tuple(Point(Level(RATIO.name, ratio)) for ratio in ratios)


def list_points(levels: Iterable[Level], repeats: int = 1) -> tuple[Point, ...]:
    draws = range(repeats)
    return tuple(Point(level, repeat) for level, repeat in product(levels, draws))


def by_kind(levels: Iterable[Level]) -> dict[str, tuple[float, ...]]:
    """Returns the values of levels, ascending and each once, by the name of their kind."""
    values: dict[str, list[float]] = {}
    for level in sorted(set(levels)):
        values.setdefault(level.kind, []).append(level.value)
    return {kind: tuple(of_kind) for kind, of_kind in values.items()}


def kinds_apart(levels: Iterable[Level]) -> dict[str, list[Level]]:
    """Sorts levels, each once, into a list for each kind. The untreated cache counts as no level of
    a kind, but where there is no other level.

    >>> list(kinds_apart([Level("rate", 0.5), UNTREATED, Level("ratio", 0.5)])), list(kinds_apart([UNTREATED]))
    (['ratio', 'rate'], ['ratio'])
    """
    every = set(levels)
    treated = sorted(every - {UNTREATED}) or sorted(every)
    groups = {}
    for kind in LEVEL_KINDS:
        of_kind = [level for level in treated if level.kind == kind]
        if of_kind:
            groups[kind] = of_kind
    return groups


def name_levels(levels: Iterable[Level]) -> dict[Level, str]:
    """Names each level by its value, and by its kind too where kinds differ. ``all`` is where
    policies without levels stand, which are the same at every level of the others.

    >>> list(name_levels([Level("rate", 0.5), UNTREATED]).values())
    ['0.5', 'all']
    >>> list(name_levels([Level("bits", 2.0), Level("rate", 0.5)]).values())
    ['bits 2', 'rate 0.5']
    """
    every = list(levels)
    kinds = {level.kind for level in every if level != UNTREATED}
    names = {}
    for level in every:
        names[level] = level.where if len(kinds) > 1 else str(level)
    if UNTREATED in names and kinds and UNTREATED.kind not in kinds:
        names[UNTREATED] = "all"
    return names


def shared_levels(first: Iterable[Level], second: Iterable[Level]) -> list[Level]:
    """Returns the levels of the cells in which two policies meet, of those at which each was run. A
    policy without levels, such as int4, or with a single one of another kind, is the same at each
    level of the other. None where both have several levels of different kinds, or no equal one of
    the same kind.

    >>> ratios = [Level("ratio", 0.5), Level("ratio", 0.9)]
    >>> shared_levels([UNTREATED], ratios) == ratios
    True
    >>> [level.where for level in shared_levels([Level("rate", 0.1)], ratios)]
    ['ratio 0.5', 'ratio 0.9']
    >>> shared_levels([Level("ratio", 0.3)], ratios)
    []
    """
    levels, others = sorted(set(first)), sorted(set(second))
    if levels == [UNTREATED]:
        return others
    if others == [UNTREATED]:
        return levels
    kinds = {level.kind for level in levels}
    if any(level.kind in kinds for level in others):
        return [level for level in levels if level in others]
    if len(others) == 1:
        return levels
    return others if len(levels) == 1 else []


def level_of_side(cell: Level, run_at: Iterable[Level]) -> Level:
    """Returns the level at which a policy was run whose answers stand in a cell: the cell's, or its
    only one."""
    levels = list(run_at)
    return cell if cell in levels else levels[0]


def level_words(level: Level) -> str:
    """Names the level of one side of a comparison."""
    return NO_LEVEL if level == UNTREATED else level.where


def kind_title(levels: Iterable[Level]) -> str:
    """Returns what the values of levels are, as it stands above a table."""
    kind = LEVEL_KINDS.get(kind_name(levels))
    return kind.title if kind else "asked level"


def kind_name(levels: Iterable[Level]) -> str:
    """Returns the name of the kind of levels, or ``level`` for several kinds."""
    kinds = {level.kind for level in levels if level != UNTREATED}
    return kinds.pop() if len(kinds) == 1 else "level"
