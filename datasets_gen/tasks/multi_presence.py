"""Task ``multi_presence``: the same people mentioned again, with other values at other times.

"In 1990 Ada Falbrook lived in Velden. In 2004 Ada Falbrook lived in Farlen." Which of the mentions
is meant depends on the year, on the value, or on the order of the years, which is not that of the
sentences."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Literal

from pydantic import TypeAdapter

from datasets_gen.examples.example import AnswerType, Direction, Question, Span, StatedValue
from datasets_gen.examples.lexicon import draw_people, draw_values, lexicon
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.examples.wording import Phrasings, Wording, tables
from datasets_gen.writing.passage import write
from datasets_gen.writing.questions import answerable, draw_of_kinds, unanswerable

Slot = Literal["value", "year", "subject"]
Form = Literal["value", "year", "subject", "order"]


@dataclass(frozen=True)
class Period:
    """A relation that is stated for a year."""

    name: str
    value_kind: str
    value_type: AnswerType
    statements: Phrasings
    value: Phrasings  # asks for a word of a statement, given the two others; likewise the next two
    year: Phrasings
    subject: Phrasings
    first: Phrasings  # asks for the value by its place in time, likewise the next
    last: Phrasings

    @property
    def look_up(self) -> Mapping[Slot, Phrasings]:
        return {"value": self.value, "year": self.year, "subject": self.subject}


PERIODS = tuple(
    TypeAdapter(Period).validate_python({"name": name, **fields})
    for name, fields in tables()["periods"].items()
)


@dataclass(frozen=True)
class MultiPresenceSize:
    """A level of difficulty."""

    people: tuple[int, int]  # fewest and most, as below
    mentions: tuple[int, int]  # of each for a relation
    periods: tuple[int, int]
    forms: tuple[Form, ...]  # of the questions, as often as they stand here
    phrasings: int  # in use
    shared: bool = False  # whether people share years and values


LOOK_UPS: tuple[Form, ...] = ("value", "value", "year", "subject")
EVERY_FORM: tuple[Form, ...] = (*LOOK_UPS, "value", "year", "order", "order")
# First the year or value alone tells the answer, then the name does too, then people share years
# and values and both are needed; then the order of the years, and all of the task.
SIZES = (
    MultiPresenceSize((1, 1), (2, 3), (1, 1), ("value", "year"), 1),
    MultiPresenceSize((2, 3), (1, 1), (1, 1), LOOK_UPS, 1),
    MultiPresenceSize((2, 2), (2, 2), (1, 1), LOOK_UPS, 1, shared=True),
    MultiPresenceSize((2, 2), (2, 2), (1, 1), EVERY_FORM, 1, shared=True),
    MultiPresenceSize((2, 2), (2, 3), (1, 2), EVERY_FORM, 3, shared=True),
    MultiPresenceSize((2, 3), (2, 3), (1, 2), EVERY_FORM, 3, shared=True),
)
UNANSWERABLE_SHARE = 0.12
KNOWN_SHARE = 0.75  # of the names that have no answer are those of people in the text
LIFETIME = 60  # years, in which all of a text lies


@dataclass(frozen=True)
class Mention:
    """Holds what a sentence states: its words, and where they stand in the text."""

    period: Period
    words: Mapping[str, str]
    places: Mapping[str, tuple[int, int]]
    sentence: Span

    @property
    def year(self) -> int:
        return int(self.words["year"])


@dataclass(frozen=True)
class MultiPresenceStory:
    """Everything that the text says, in its order, and a name that it does not say."""

    people: list[str]
    stranger: str
    mentions: list[Mention]

    def select_mentions(self, period: Period, person: str) -> list[Mention]:
        """Lists the mentions of a person for a relation, in the order of the text."""
        return [m for m in self.mentions if m.period is period and m.words["subject"] == person]

    def carried_on(self, period: Period, person: str, year: int) -> str | None:
        """Returns what a reader may take to be true of a person in a year: the last value that is
        said of the person by then. Who lived somewhere in 1960, and in 1970 elsewhere, may have
        lived there in 1964."""
        last: Mention | None = None
        for mention in self.select_mentions(period, person):
            if mention.year <= year and (last is None or mention.year > last.year):
                last = mention
        if last is None:
            return None
        return last.words["value"]

    def years(self) -> list[int]:
        return sorted({m.year for m in self.mentions})


def make(rng: random.Random, request: Request) -> Draft:
    size = SIZES[request.level]
    wording = Wording(size.phrasings, request.held_out)
    *people, stranger = draw_people(rng, request.split, rng.randint(*size.people) + 1)
    mentions: list[Mention] = []
    text = ""
    for period, words in _happenings(rng, size, people):
        start = len(text) + 1 if text else 0
        sentence, places = write(wording.choose(rng, period.statements), words, start)
        text = f"{text} {sentence}" if text else sentence
        mentions.append(Mention(period, words, places, Span("fact", start, len(text))))
    story = MultiPresenceStory(people, stranger, mentions)
    # The drawing ends only when there are so many: each mention can be asked in each of these
    # forms.
    count = min(request.questions, len(mentions) * len(set(size.forms) - {"order"}))

    def draw(form: Form, missing: bool) -> Question:
        if form == "order":
            return _order(rng, wording, story, missing)
        return _look_up(rng, wording, story, form, missing)

    questions = draw_of_kinds(rng, count, size.forms, UNANSWERABLE_SHARE, draw)
    stated: list[StatedValue] = []
    for mention in mentions:
        for slot, place in mention.places.items():
            stated.append(StatedValue(mention.words[slot], *place))
    return Draft(text, tuple(stated), questions)


def _happenings(
    rng: random.Random, size: MultiPresenceSize, people: list[str]
) -> list[tuple[Period, dict[str, str]]]:
    """Draws the statements, in random order.

    At first every year and every value occurs once. Then people share them, so that neither alone
    tells which sentence is meant."""
    periods = rng.sample(PERIODS, rng.randint(*size.periods))
    lived: list[tuple[Period, str]] = []
    for person in people:
        for period in rng.sample(periods, rng.randint(1, len(periods))):
            lived += [(period, person)] * rng.randint(*size.mentions)
    # Years are dealt out behind this, so that their order is not that of the sentences.
    rng.shuffle(lived)
    earliest, latest = lexicon().year
    birth = rng.randint(earliest, latest + 1 - LIFETIME)
    draw = partial(_draw_shared, size) if size.shared else _draw_unshared
    drawn = draw(rng, lived, birth)
    happenings = []
    for (period, person), (value, year) in zip(lived, drawn, strict=True):
        words = {"subject": person, "value": value, "year": str(year)}
        happenings.append((period, words))
    return happenings


def _draw_unshared(
    rng: random.Random, lived: Sequence[tuple[Period, str]], birth: int
) -> list[tuple[str, int]]:
    """Draws a value and a year for each statement; no other statement has either of them."""
    counts = Counter(period.name for period, _ in lived)
    values: dict[str, list[str]] = {}
    for period, _ in lived:
        if period.name not in values:
            values[period.name] = draw_values(rng, period.value_kind, counts[period.name])
    years = rng.sample(range(birth, birth + LIFETIME), len(lived))
    drawn = []
    for (period, _), year in zip(lived, years, strict=True):
        # Taken away, so that no other statement has it.
        value = values[period.name].pop()
        drawn.append((value, year))
    return drawn


def _draw_shared(
    size: MultiPresenceSize, rng: random.Random, lived: Sequence[tuple[Period, str]], birth: int
) -> list[tuple[str, int]]:
    """Draws from as many values and years as one person needs, and one more: no two statements have
    the same value and year, and no two of one person and relation share either."""
    count = size.mentions[1] + 1
    years = rng.sample(range(birth, birth + LIFETIME), count)
    values: dict[str, list[str]] = {}
    for period, _ in lived:
        if period.name not in values:
            values[period.name] = draw_values(rng, period.value_kind, count)
    while True:
        drawn: list[tuple[str, int]] = []
        stated: set[tuple[str, str, int]] = set()
        taken: dict[tuple[str, str], list[tuple[str, int]]] = {}
        for period, person in lived:
            before = taken.setdefault((period.name, person), [])
            # There always is one: values and years are one more than anybody needs.
            pair = rng.choice(_free_pairs(values[period.name], years, before))
            before.append(pair)
            drawn.append(pair)
            stated.add((period.name, *pair))
        # Two people with the same value in the same year: who it was would have two answers. All is
        # drawn again.
        if len(stated) == len(drawn):
            return drawn


def _free_pairs(
    values: Sequence[str], years: Sequence[int], taken: Sequence[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Lists the pairs of a value and a year that share neither with a pair that is taken."""
    taken_values, taken_years = set(), set()
    for value, year in taken:
        taken_values.add(value)
        taken_years.add(year)
    free_years = [year for year in years if year not in taken_years]
    free: list[tuple[str, int]] = []
    for value in values:
        if value not in taken_values:
            free += product([value], free_years)
    return free


def _look_up(
    rng: random.Random, wording: Wording, story: MultiPresenceStory, slot: Slot, missing: bool
) -> Question:
    """Asks for the third word of a sentence, given two of them; unanswerable when the two are not
    of one sentence, nor of one that a reader would carry on."""
    mention = rng.choice(story.mentions)
    period = mention.period
    words = dict(mention.words)
    if missing:
        words |= UNSTATED[slot](rng, story, mention)
    text = wording.choose_question(rng, period.look_up[slot]).format(**words)
    direction: Direction = "forward" if slot == "value" else "reverse"
    answer_types: Mapping[Slot, AnswerType] = {
        "value": period.value_type,
        "year": "date",
        "subject": "person",
    }
    if missing:
        return unanswerable(text, answer_types[slot], direction)
    spans = [Span("answer", *mention.places[slot])]
    for other, place in mention.places.items():
        if other != slot:
            spans.append(Span("subject", *place))
    spans.append(mention.sentence)
    return answerable(text, words[slot], answer_types[slot], direction, tuple(spans))


def _order(
    rng: random.Random, wording: Wording, story: MultiPresenceStory, missing: bool
) -> Question:
    """Asks what came first or last: all mentions of the person must be read to know."""
    mention = rng.choice(story.mentions)
    period, person = mention.period, mention.words["subject"]
    phrasings, pick = rng.choice(((period.first, min), (period.last, max)))
    template = wording.choose_question(rng, phrasings)
    if missing:
        stated = {m.words["subject"] for m in story.mentions if m.period is period}
        others = [name for name in story.people if name not in stated]
        person = story.stranger
        if others and rng.random() < KNOWN_SHARE:
            person = rng.choice(others)
        question = unanswerable(template.format(subject=person), period.value_type, "forward")
        return replace(question, type="manipulated")
    mentions = story.select_mentions(period, person)
    # One person has no two mentions of a relation in one year.
    answer = pick(mentions, key=lambda m: m.year)
    subjects, sentences = [], []
    for m in mentions:
        subjects.append(Span("subject", *m.places["subject"]))
        sentences.append(m.sentence)
    spans = (Span("answer", *answer.places["value"]), *subjects, *sentences)
    text = template.format(subject=person)
    value = answer.words["value"]
    question = answerable(text, value, period.value_type, "forward", spans, hops=len(mentions))
    return replace(question, type="manipulated")


def _without_value(
    rng: random.Random, story: MultiPresenceStory, mention: Mention
) -> dict[str, str]:
    """Draws a person and a year for which the text says nothing of the person, nor for any year
    before."""
    years = story.years()
    free = []
    for person, year in product(story.people, years):
        if story.carried_on(mention.period, person, year) is None:
            free.append((person, year))
    if free and rng.random() < KNOWN_SHARE:
        person, year = rng.choice(free)
    else:
        person, year = story.stranger, rng.choice(years)
    return {"subject": person, "year": str(year)}


def _without_year(
    rng: random.Random, story: MultiPresenceStory, mention: Mention
) -> dict[str, str]:
    """Draws a person and a value of which the text does not say that they go together."""
    stated = set()
    for other in story.mentions:
        if other.period is mention.period:
            stated.add((other.words["subject"], other.words["value"]))
    # Sorted, as the order of a set of texts is another one in each process.
    values = sorted({value for _, value in stated})
    free = [pair for pair in product(story.people, values) if pair not in stated]
    if free and rng.random() < KNOWN_SHARE:
        person, value = rng.choice(free)
    else:
        person, value = story.stranger, rng.choice(values)
    return {"subject": person, "value": value}


def _without_subject(
    rng: random.Random, story: MultiPresenceStory, mention: Mention
) -> dict[str, str]:
    """Draws a value, and a year in which nobody has it: who has it before is said to have another
    one since."""
    period, years = mention.period, story.years()
    values = sorted({m.words["value"] for m in story.mentions if m.period is period})
    free = []
    for value, year in product(values, years):
        held = {story.carried_on(period, person, year) for person in story.people}
        if value not in held:
            free.append((value, year))
    if not free:
        # Nobody is said to have anything by the year before the first.
        free = [(mention.words["value"], min(years) - 1)]
    value, year = rng.choice(free)
    return {"value": value, "year": str(year)}


# The words that are not of one sentence, by what is asked for.
UNSTATED: Mapping[Slot, Callable[[random.Random, MultiPresenceStory, Mention], dict[str, str]]] = {
    "value": _without_value,
    "year": _without_year,
    "subject": _without_subject,
}


MULTI_PRESENCE = Task(
    name="multi_presence",
    version="1.1.0",
    description="People mentioned again with other values in other years: which mention is meant, and which came first",
    make=make,
    chances=(15.5, 16.7, 14.1, 12.4, 11.9, 11.7),
    contexts={"quick": 12, "paper": 100},
    paper="arXiv 2603.01426",
    questions_per_context=10,
)
