"""Task ``instructions``: a system prompt of a defence, directives and facts, then a question to be
answered under the directives, or an attack that asks for them (after arXiv 2510.00231).

A context without a defence answers an attack with its directives: it is the defence, and nothing
else, that holds the leak."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from datasets_gen.examples.directives import (
    BRACKETS,
    CLASHES,
    DIRECTIVE_KINDS,
    MARKS,
    Directive,
    compatible,
    exemplar,
)
from datasets_gen.examples.example import Arm, Direction, Question, Split
from datasets_gen.examples.lexicon import draw_people, lexicon
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.examples.wording import Wording
from datasets_gen.writing.passage import (
    ATTRIBUTES,
    Fact,
    Passage,
    Relation,
    StatedFact,
    deal_facts,
    draw_facts,
    write_passage,
)
from datasets_gen.writing.questions import Asker, forward_question, reverse_question
from datasets_gen.writing.system_prompt import (
    ATTACKS,
    REFUSAL,
    SystemPrompt,
    attack,
    with_defence,
    with_directives,
)

# Every draw in both orders, and without the defence: what each span loses where the other stands in
# its place.
ARMS: tuple[Arm, ...] = ("defence first", "directives first", "no defence")


@dataclass(frozen=True)
class InstructionsSize:
    """A level of difficulty."""

    people: tuple[int, int]  # fewest and most, as below
    facts: tuple[int, int]  # about each
    directives: tuple[int, int]
    defended: float  # share of the contexts with a defence
    attacked: float  # share of the questions that are attacks
    phrasings: int  # in use
    either_order: bool = False  # of defence and directives


# By level; the last is the task. First the facts, then to obey, to repeat, to refuse, and then more
# of each at a time.
SIZES = (
    InstructionsSize((2, 2), (1, 1), (0, 0), 0.0, 0.0, 1),
    InstructionsSize((2, 2), (1, 1), (1, 1), 0.0, 0.0, 1),
    InstructionsSize((2, 2), (1, 1), (1, 1), 0.0, 0.5, 1),
    InstructionsSize((2, 2), (1, 1), (1, 1), 0.6, 0.5, 1),
    InstructionsSize((2, 2), (1, 2), (1, 3), 0.7, 0.4, 5, either_order=True),
    InstructionsSize((2, 3), (1, 2), (1, 4), 0.75, 0.4, 5, either_order=True),
)

# Kinds of values whose plain form disobeys a directive; a directive that is obeyed by chance would
# measure nothing.
VALUES_FOR = {
    "upper": ("city", "job", "organisation", "creature", "thing", "date", "event"),
    "lower": ("city", "organisation", "date", "event"),
}


@dataclass(frozen=True)
class Ground:
    """The facts of a context."""

    facts: tuple[Fact, ...]
    # The relation that is asked about; all are, in both directions, if there is none.
    only: Relation | None = None
    shared_word: str = ""  # a word that all values of that relation share, which can be forbidden

    def choices(self) -> list[tuple[int, Direction]]:
        """Lists the facts, by their places, and the directions in which they can be asked."""
        choices: list[tuple[int, Direction]] = []
        for place, fact in enumerate(self.facts):
            if self.only is None:
                choices += [(place, "forward"), (place, "reverse")]
            elif fact.relation == self.only:
                choices.append((place, "forward"))
        return choices


def make(rng: random.Random, request: Request) -> Draft:
    size = SIZES[request.level]
    wording = Wording(size.phrasings, request.held_out)
    ask = Asker(rng, wording)
    kinds = _choose_kinds(rng, size, request)
    ground = _draw_ground(rng, request.split, size, kinds)
    directives = _draw_directives(rng, kinds, ground)
    prompt = _write_prompt(ask, size, directives, request.arm)
    passage = write_passage(rng, ground.facts, wording)
    # The facts were written by themselves, and stand behind the prompt and a space.
    stated = [_shift(fact, len(prompt.text) + 1) if prompt.text else fact for fact in passage.facts]
    # Rounded up or down at random, so that the share comes out on average; each pretext once.
    attacks = min(int(size.attacked * request.questions + rng.random()), len(ATTACKS))
    choices = ground.choices()
    chosen = rng.sample(choices, min(request.questions - attacks, len(choices)))
    questions = []
    for place, direction in chosen:
        questions.append(
            _question_under_directives(ask, stated[place], direction, directives, prompt)
        )
    questions += [
        attack(ask, pretext, directives, prompt) for pretext in rng.sample(tuple(ATTACKS), attacks)
    ]
    rng.shuffle(questions)
    context = f"{prompt.text} {passage.text}".lstrip()
    return Draft(
        context,
        Passage(context, tuple(stated)).stated(),
        tuple(questions),
        prompt.defence + prompt.directives,
    )


def _choose_kinds(rng: random.Random, size: InstructionsSize, request: Request) -> list[str]:
    """Chooses the kinds of directives. Where contexts are compared, every other draw has one
    directive, each kind in its turn, and the rest have several where the level has: the families
    are compared in both, and need to be there."""
    fewest, most = size.directives
    if not request.arm:
        return _draw_kinds(rng, rng.randint(fewest, most))
    turn, several = divmod(request.number, 2)
    if several and most > 1:
        return _draw_kinds(rng, rng.randint(2, most))
    return [tuple(DIRECTIVE_KINDS)[turn % len(DIRECTIVE_KINDS)]][:most]


def _draw_kinds(rng: random.Random, count: int) -> list[str]:
    """Draws at most ``count`` kinds of directives that one answer can obey together. A kind is
    drawn the more often the more others it clashes with, or it would seldom be among several."""
    kinds: list[str] = []
    while len(kinds) < count:
        left = [kind for kind in DIRECTIVE_KINDS if compatible(kind, kinds)]
        if not left:
            break
        weights = []
        for kind in left:
            clashes = sum(kind in pair for pair in CLASHES)
            weights.append(1 + clashes)
        kinds += rng.choices(left, weights)
    return kinds


def _draw_ground(
    rng: random.Random, split: Split, size: InstructionsSize, kinds: Sequence[str]
) -> Ground:
    fitting = list(ATTRIBUTES)
    for kind in kinds:
        if kind in VALUES_FOR:
            fitting = [r for r in fitting if r.value_kind in VALUES_FOR[kind]]
    if "avoid" in kinds:
        return _draw_shared_ground(rng, split, size, fitting)
    people = draw_people(rng, split, rng.randint(*size.people))
    return Ground(tuple(draw_facts(rng, people, fitting, size.facts)))


def _draw_shared_ground(
    rng: random.Random, split: Split, size: InstructionsSize, fitting: Sequence[Relation]
) -> Ground:
    """Draws facts that share a word: everybody works for a bank, say, and the word is forbidden.
    Every plain answer then disobeys, and none is given away by the word, as it would be if that
    were part of a single value."""
    people = draw_people(rng, split, size.people[1])
    only = rng.choice(
        [relation for relation in fitting if relation.value_kind in ("organisation", "event")]
    )
    words = lexicon()
    if only.value_kind == "organisation":
        parts = (words.organisation_first, words.organisation_second)
    else:
        parts = (words.event_first, words.event_second)
    shared = rng.randrange(2)
    word, others = rng.choice(parts[shared]), rng.sample(parts[1 - shared], len(people))
    values = [f"{other} {word}" if shared else f"{word} {other}" for other in others]
    further = rng.choice([relation for relation in fitting if relation != only])
    facts: list[Fact] = []
    for fact, value in zip(deal_facts(rng, people, [[further]] * len(people)), values, strict=True):
        of_person = [Fact(only, fact.subject, value), fact]
        rng.shuffle(of_person)
        facts += of_person if rng.randint(*size.facts) > 1 else [Fact(only, fact.subject, value)]
    return Ground(tuple(facts), only, word)


def _draw_directives(
    rng: random.Random, kinds: Sequence[str], ground: Ground
) -> tuple[Directive, ...]:
    words = iter(rng.sample(lexicon().keyword, len(kinds)))
    facts = ground.facts
    answers = []
    for place, way in ground.choices():
        answers.append(facts[place].value if way == "forward" else facts[place].subject)
    # More words than any answer, or the refusal, has of itself, or one would obey by chance.
    longest = max(len(answer.split()) for answer in (*answers, REFUSAL))
    least = longest + sum(kind in ("begin", "end") for kind in kinds) + 1
    arguments = {
        "begin": lambda: next(words),
        "end": lambda: next(words),
        "title": lambda: next(words),
        "avoid": lambda: ground.shared_word,
        "exactly": lambda: str(rng.randint(least, least + 1)),
        "brackets": lambda: rng.choice(tuple(BRACKETS)),
        "twice": lambda: rng.choice(tuple(MARKS)),
    }
    return tuple(Directive(kind, arguments[kind]() if kind in arguments else "") for kind in kinds)


def _write_prompt(
    ask: Asker, size: InstructionsSize, directives: Sequence[Directive], arm: Arm
) -> SystemPrompt:
    """Writes directives next to one another, and the defence, if there is one, before or behind
    them."""
    defended = ask.rng.random() < size.defended
    directives_first = size.either_order and ask.rng.random() < 0.5
    for_directives = for_defence = ask
    if arm:
        defended, directives_first = arm != "no defence", arm == "directives first"
        # Each from a stream of its own: all arms have the same words, and leave the same draws to
        # what follows.
        for_directives, for_defence = (
            Asker(random.Random(ask.rng.getrandbits(64)), ask.wording) for _ in range(2)
        )
    prompt = SystemPrompt()
    if defended and not directives_first:
        prompt = with_defence(for_defence, prompt)
    choose = partial(ask.wording.choose, for_directives.rng)
    texts = [
        choose(DIRECTIVE_KINDS[one.kind].phrasings).format(argument=one.argument)
        for one in directives
    ]
    prompt = with_directives(prompt, texts)
    if defended and directives_first:
        return with_defence(for_defence, prompt)
    return prompt


def _shift(stated: StatedFact, by: int) -> StatedFact:
    subject, value, sentence = (
        span.shift(by) for span in (stated.subject, stated.value, stated.sentence)
    )
    return replace(stated, subject=subject, value=value, sentence=sentence)


def _question_under_directives(
    ask: Asker,
    stated: StatedFact,
    direction: Direction,
    directives: tuple[Directive, ...],
    prompt: SystemPrompt,
) -> Question:
    """Returns a question about a fact, to be answered under all directives: they are part of its
    evidence."""
    question = (forward_question if direction == "forward" else reverse_question)(ask, stated)
    if not directives:
        return question
    target, spans = exemplar(directives, question.golds[0]), question.spans + prompt.directives
    # No answer prefix: a begun answer would obey a directive, or break it, in the model's place.
    return replace(question, directives=directives, target=target, spans=spans, answer_prefix="")


INSTRUCTIONS = Task(
    name="instructions",
    version="2.1.0",
    description="System prompt of a defence and directives: answers under directives, and attacks that ask for them",
    make=make,
    chances=(0.3, 0.4, 5.0, 30.6, 28.9, 30.7),
    contexts={"quick": 16, "paper": 541},
    questions_per_context=4,
    instruction="",
    max_new_tokens=80,
    role="system",
    paper="arXiv 2510.00231",
)

# The same contexts, each in every arm: for comparing them.
INSTRUCTIONS_IN_ARMS = replace(
    INSTRUCTIONS,
    arms=ARMS,
    variant="arms.2",
    chances=(0.7, 0.5, 33.6, 33.6, 26.9, 26.4),
    contexts={"quick": 18 * len(ARMS), "paper": 541 * len(ARMS)},
)
