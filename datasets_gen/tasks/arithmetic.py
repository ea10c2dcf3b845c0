"""Task ``arithmetic``: stories in which the numbers of one or two people change step by step."""

import random
from dataclasses import dataclass, field, replace

from datasets_gen.examples.example import Question, Span, SpanKind, StatedValue
from datasets_gen.examples.lexicon import draw_people, lexicon
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.examples.wording import QuestionText, Wording, read_phrasings
from datasets_gen.writing.passage import write
from datasets_gen.writing.questions import answerable

# What can happen, by name: to the subject, and for a gift to the other as well.
EVENTS = read_phrasings("stories")
START, QUESTIONS = EVENTS.pop("start"), EVENTS.pop("question")
EQUATIONS = {"packs": 2}  # to write for an event, where it is not one


@dataclass(frozen=True)
class ArithmeticSize:
    """A level of difficulty."""

    steps: tuple[int, int]  # fewest and most equations of the person asked about
    start: int  # the most that anyone starts with
    events: tuple[str, ...]
    pairs: float  # share of the stories with a second person who has numbers of their own
    phrasings: int  # in use


ALL_ALONE = ("gain", "loss", "packs", "times")
# By level; the last is the task. First an addition, then a chain of two, then every operation, then
# whose number it is.
SIZES = (
    ArithmeticSize((1, 1), 9, ("gain",), 0.0, 1),
    ArithmeticSize((1, 2), 9, ("gain", "loss"), 0.0, 1),
    ArithmeticSize((1, 3), 20, ALL_ALONE, 0.0, 1),
    ArithmeticSize((1, 3), 20, (*ALL_ALONE, "gift"), 1.0, 1),
    ArithmeticSize((2, 4), 20, (*ALL_ALONE, "gift"), 0.7, 3),
    ArithmeticSize((2, 5), 20, (*ALL_ALONE, "gift"), 0.7, 3),
)
OTHER_STEPS = 3  # at most, of a person who is there to be told apart
MOST = 99  # that anyone ever has; the least is 0
LARGEST_CHANGE = 9
LARGEST_FACTOR = 5
MARKER = "####"


@dataclass
class Account:
    """Holds what one person has at this point of the story, and the steps that lead there."""

    name: str
    left: int  # equations to come
    count: int
    equations: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    sentences: int = 0

    def book(self, sign: str, number: int) -> None:
        result = {"+": self.count + number, "-": self.count - number, "*": self.count * number}[
            sign
        ]
        self.equations.append(f"{self.count} {sign} {number} = {result}.")
        self.count = result
        self.left -= 1


@dataclass
class ArithmeticStory:
    """The text so far."""

    item: str
    text: str = ""
    stated: list[StatedValue] = field(default_factory=list)  # names and numbers in order of mention

    def tell(self, template: str, words: dict[str, str], accounts: list[Account]) -> None:
        """Adds a sentence that all of ``accounts`` are worked out from."""
        self.text += " " if self.text else ""
        start = len(self.text)
        sentence, ranges = write(template, {"item": self.item, **words}, start)
        self.text += sentence
        places: dict[str, Span] = {}
        for slot, place in ranges.items():
            if slot != "item":
                kind: SpanKind = "subject" if slot in ("subject", "other") else "answer"
                places[slot] = Span(kind, *place)
        for slot, span in places.items():
            self.stated.append(StatedValue(words[slot], span.start, span.end))
        for account in accounts:
            account.spans.append(Span("fact", start, len(self.text)))
            for slot, span in places.items():
                names_another = slot in ("subject", "other") and words[slot] != account.name
                if not names_another:
                    account.spans.append(span)
            account.sentences += 1


def make(rng: random.Random, request: Request) -> Draft:
    size = SIZES[request.level]
    wording = Wording(size.phrasings, request.held_out)
    story, accounts = _story(rng, request, size, wording)
    while len({account.count for account in accounts}) < len(accounts):  # the name would not matter
        story, accounts = _story(rng, request, size, wording)
    fewest, most = size.steps
    # Who has too few steps, or too many, is there to be told apart and is not asked about.
    fitting = [account for account in accounts if fewest <= len(account.equations) <= most]
    questions = []
    for account in rng.sample(fitting, min(request.questions, len(fitting))):
        questions.append(
            _question(
                wording.choose_question(rng, QUESTIONS).format(
                    item=story.item, subject=account.name
                ),
                account,
            )
        )
    return Draft(story.text, tuple(story.stated), tuple(questions))


def _story(
    rng: random.Random, request: Request, size: ArithmeticSize, wording: Wording
) -> tuple[ArithmeticStory, list[Account]]:
    """Draws a story, and what its people have at its end; the first of them takes a number of steps
    of the size."""
    steps = [rng.randint(*size.steps)]
    if rng.random() < size.pairs:
        steps.append(rng.randint(size.steps[0], OTHER_STEPS))
    # Different ones, or the names would not matter; two at least, as items are in the plural.
    starts = rng.sample(range(2, size.start + 1), len(steps))
    people = draw_people(rng, request.split, len(steps))
    accounts = [Account(*of_one) for of_one in zip(people, steps, starts, strict=True)]
    story = ArithmeticStory(rng.choice(lexicon().item))
    # In random order, as the first of them is the one with a number of steps of the size.
    for account in rng.sample(accounts, len(accounts)):
        words = {"subject": account.name, "number": str(account.count)}
        story.tell(wording.choose(rng, START), words, [account])
    while any(account.left > 0 for account in accounts):
        acting: list[Account] = []  # each as often as it has steps left
        for account in accounts:
            acting += [account] * account.left
        account = rng.choice(acting)
        others = [candidate for candidate in accounts if candidate is not account]
        other = others[0] if others else None
        _happen(rng, story, wording, rng.choice(size.events), account, other)
    return story, accounts


def _happen(
    rng: random.Random,
    story: ArithmeticStory,
    wording: Wording,
    event: str,
    account: Account,
    other: Account | None,
) -> None:
    """Tells an event and books it on every account that it changes, unless it cannot happen here:
    too long to work out, or out of what one can have. A gain or a loss can always happen, or
    both."""
    if EQUATIONS.get(event, 1) > account.left:
        return
    room, size = MOST - account.count, 0
    if event == "packs":
        number, size = rng.randint(2, LARGEST_FACTOR), rng.randint(2, LARGEST_FACTOR)
        possible = number * size <= room
    elif event == "times":
        number = rng.choice((2, 3))
        possible = 0 < account.count * number <= MOST
    else:
        if other and other.left:
            handed_over = min(account.count, MOST - other.count)
        else:
            handed_over = 0
        limit = {"gain": room, "loss": account.count, "gift": handed_over}[event]
        possible = limit >= 2  # as items are in the plural
        number = rng.randint(2, min(limit, LARGEST_CHANGE)) if possible else 0
    if not possible:
        return
    words, changed = {"subject": account.name, "number": str(number)}, [account]
    if event == "packs":
        words["size"] = str(size)
        # Two equations: what the packs hold, and what is there then.
        account.equations.append(f"{number} * {size} = {number * size}.")
        account.left -= 1
        account.book("+", number * size)
    else:
        account.book({"gain": "+", "loss": "-", "gift": "-", "times": "*"}[event], number)
    if event == "gift" and other:
        words["other"] = other.name
        changed.append(other)
        other.book("+", number)
    story.tell(wording.choose(rng, EVENTS[event]), words, changed)


def _question(text: QuestionText, account: Account) -> Question:
    target = " ".join([*account.equations, f"{MARKER} {account.count}"])
    question = answerable(
        text, str(account.count), "numeral", "forward", tuple(account.spans), hops=account.sentences
    )
    return replace(question, type="part", target=target)


ARITHMETIC = Task(
    name="arithmetic",
    version="1.0.0",
    description="Word problems of two to five steps over small numbers, answered with the steps written out",
    make=make,
    chances=(11.4, 12.7, 2.8, 3.3, 2.9, 2.2),
    contexts={"quick": 24, "paper": 700},
    questions_per_context=1,
    instruction=f"Write each step, then {MARKER} and the number.",
    # Five steps of nine tokens, the marker and two digits, where digits are tokens.
    max_new_tokens=64,
    answer_marker=MARKER,
)
