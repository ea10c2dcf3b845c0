"""Relations are what can be said of a person, in several phrasings, and asked in both directions.

``{subject}`` is a full name or, in a chain, a phrase such as "the mentor of Ada Falbrook"; ``{value}`` is a value.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from datasets_gen.examples.example import AnswerType
from datasets_gen.examples.wording import Phrasings, phrasings


@dataclass(frozen=True)
class Relation:
    """A functional relation from a person to a value: within a context, one subject has one value and one value one
    subject, so that the question is unambiguous in both directions."""

    name: str
    value_kind: str  # of the lexicon
    value_type: AnswerType
    statements: Phrasings
    forward: Phrasings
    reverse: Phrasings
    clause: str  # says the value of an unnamed subject, as in "Whose mentor lives in Velden?"
    # The relation that the subject, or the value, may then be said to have as well. To ask for it as for something
    # unknown would not be honest; where both are stated of one, neither can be asked for: who keeps a heron and owns a
    # canoe has two things.
    implies: str = ""
    implies_of_value: str = ""


def draw_relations(rng: random.Random, pool: Sequence[Relation], count: int) -> list[Relation]:
    """Draws ``count`` relations of a pool, of which none implies another. The pool has one more at least."""
    while True:
        drawn = rng.sample(pool, count)
        if {relation.implies for relation in drawn}.isdisjoint({relation.name for relation in drawn}):
            return drawn


# A job is filed under `thing`: the answer types are those of arXiv 2603.01426, which has no type of its own for it.
ATTRIBUTES: tuple[Relation, ...] = (
    Relation(
        "home",
        "city",
        "location",
        phrasings(
            "{subject} lives in {value}.",
            "The home of {subject} is in {value}.",
            "{value} is where {subject} lives.",
            held_out=["{subject} resides in {value}."],
        ),
        phrasings(
            "Where does {subject} live?",
            "In which city is the home of {subject}?",
            "In which city does {subject} live?",
            held_out=["Where is the home of {subject}?"],
            answer_prefix="{subject} lives in",
        ),
        phrasings("Who lives in {value}?", "Whose home is in {value}?", held_out=["Who is at home in {value}?"]),
        "lives in {value}",
    ),
    Relation(
        "job",
        "job",
        "thing",
        phrasings(
            "{subject} works as a {value}.",
            "The job of {subject} is {value}.",
            "{subject} earns a living as a {value}.",
            held_out=["{subject} is a {value} by trade."],
        ),
        phrasings(
            "What is the job of {subject}?",
            "What does {subject} work as?",
            held_out=["What is {subject} by trade?"],
            answer_prefix="{subject} works as a",
        ),
        phrasings("Who works as a {value}?", "Whose job is {value}?", held_out=["Who is a {value} by trade?"]),
        "works as a {value}",
    ),
    Relation(
        "employer",
        "organisation",
        "organisation",
        phrasings(
            "{subject} works for {value}.",
            "{value} employs {subject}.",
            "The employer of {subject} is {value}.",
            held_out=["{subject} is on the staff of {value}."],
        ),
        phrasings(
            "Who employs {subject}?",
            "Which organisation does {subject} work for?",
            "What is the employer of {subject}?",
            held_out=["On whose staff is {subject}?"],
            answer_prefix="{subject} works for",
        ),
        phrasings("Who works for {value}?", "Whom does {value} employ?", held_out=["Who is on the staff of {value}?"]),
        "works for {value}",
    ),
    Relation(
        "pet",
        "creature",
        "creature",
        phrasings(
            "{subject} keeps a {value}.",
            "The pet of {subject} is a {value}.",
            "A {value} belongs to {subject}.",
            held_out=["{subject} looks after a {value}."],
        ),
        phrasings(
            "Which creature does {subject} keep?",
            "What is the pet of {subject}?",
            held_out=["Which animal does {subject} look after?"],
            answer_prefix="{subject} keeps a",
        ),
        phrasings("Who keeps a {value}?", "Whose pet is a {value}?", held_out=["Who looks after a {value}?"]),
        "keeps a {value}",
        implies="possession",
    ),
    Relation(
        "possession",
        "thing",
        "thing",
        phrasings(
            "{subject} owns a {value}.",
            "The {value} is owned by {subject}.",
            "The {value} belongs to {subject}.",
            held_out=["{subject} has a {value}."],
        ),
        phrasings(
            "Which thing does {subject} own?",
            "What is owned by {subject}?",
            held_out=["Which thing does {subject} have?"],
            answer_prefix="The thing that belongs to {subject} is the",
        ),
        phrasings("Who owns a {value}?", "Who is the owner of the {value}?", held_out=["Who has a {value}?"]),
        "owns a {value}",
    ),
    Relation(
        "birthday",
        "date",
        "date",
        phrasings(
            "{subject} was born on {value}.",
            "The birthday of {subject} is {value}.",
            "On {value}, {subject} was born.",
            held_out=["{subject} came into the world on {value}."],
        ),
        phrasings(
            "When was {subject} born?",
            "What is the birthday of {subject}?",
            held_out=["When did {subject} come into the world?"],
            answer_prefix="{subject} was born on",
        ),
        phrasings(
            "Who was born on {value}?", "Whose birthday is {value}?", held_out=["Who came into the world on {value}?"]
        ),
        "was born on {value}",
    ),
    Relation(
        "locker",
        "number",
        "numeral",
        phrasings(
            "{subject} has locker {value}.",
            "Locker {value} is used by {subject}.",
            "The locker of {subject} is {value}.",
            held_out=["{subject} was given locker {value}."],
        ),
        phrasings(
            "Which locker does {subject} have?",
            "What is the locker of {subject}?",
            held_out=["Which locker was {subject} given?"],
            answer_prefix="The locker of {subject} is",
        ),
        phrasings("Who has locker {value}?", "Who uses locker {value}?", held_out=["Who was given locker {value}?"]),
        "has locker {value}",
        implies="possession",
    ),
    Relation(
        "attended",
        "event",
        "event",
        phrasings(
            "{subject} attended the {value}.",
            "The {value} was attended by {subject}.",
            "{subject} was a guest at the {value}.",
            held_out=["{subject} went to the {value}."],
        ),
        phrasings(
            "Which event did {subject} attend?",
            "At which event was {subject} a guest?",
            held_out=["To which event did {subject} go?"],
            answer_prefix="{subject} attended the",
        ),
        phrasings(
            "Who attended the {value}?", "Who was a guest at the {value}?", held_out=["Who went to the {value}?"]
        ),
        "attended the {value}",
    ),
)

# Where people have lawyers and coaches "lawyer" would be a fair answer to what the lawyer of somebody works as.
BESIDE_BONDS = tuple(relation for relation in ATTRIBUTES if relation.name != "job")


def _bond(name: str) -> Relation:
    return Relation(
        name,
        "person",
        "person",
        phrasings(
            f"The {name} of {{subject}} is {{value}}.",
            f"{{value}} is the {name} of {{subject}}.",
            held_out=[f"{{subject}} has {{value}} for a {name}."],
        ),
        phrasings(
            f"Who is the {name} of {{subject}}?",
            f"What is the name of the {name} of {{subject}}?",
            held_out=[f"Whom does {{subject}} have for a {name}?"],
            answer_prefix=f"The {name} of {{subject}} is",
        ),
        phrasings(
            f"Whose {name} is {{value}}?",
            f"Who has {{value}} as {name}?",
            held_out=[f"Who has {{value}} for a {name}?"],
        ),
        f"has {{value}} as {name}",
        implies_of_value="job",
    )


# Directed all of them: the spouse of a spouse is oneself, whatever the passage states. No one has them as a job either.
# Bonds of teaching are nearly the same: who has a tutor may be said to have a teacher. What is not stated is therefore
# asked for as a lawyer of those who have a teacher, and the other way round.
TEACHERS: tuple[Relation, ...] = tuple(_bond(name) for name in ("mentor", "tutor", "coach", "teacher"))
LAWYER = _bond("lawyer")
BONDS: tuple[Relation, ...] = (*TEACHERS, LAWYER)
