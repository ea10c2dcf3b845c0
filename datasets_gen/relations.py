"""What can be said of a person, in several phrasings, and asked in both directions.

``{subject}`` is a full name or, in a chain, a phrase such as "the mentor of Ada Falbrook"; ``{value}`` is a value.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from datasets_gen.example import AnswerType
from datasets_gen.wording import Phrasings


@dataclass(frozen=True)
class Relation:
    """A functional relation from a person to a value: within a context, one subject has one value and one value one
    subject, so that the question is unambiguous in both directions. ``clause`` says the value of an unnamed subject,
    as in "Whose mentor lives in Velden?".

    ``implies``, ``implies_of_value``: the relation that the subject, or the value, may then be said to have as well. To
    ask for it as for something unknown would not be honest; where both are stated of one, neither can be asked for: who
    keeps a heron and owns a canoe has two things.
    """

    name: str
    value_kind: str
    subject_type: AnswerType
    value_type: AnswerType
    statements: Phrasings
    forward: Phrasings
    reverse: Phrasings
    clause: str
    implies: str = ""
    implies_of_value: str = ""


def _attribute(
    name: str,
    kind: str,
    value_type: AnswerType,
    statements: Phrasings,
    forward: Phrasings,
    reverse: Phrasings,
    clause: str,
    implies: str = "",
) -> Relation:
    return Relation(name, kind, "person", value_type, statements, forward, reverse, clause, implies)


def draw_relations(rng: random.Random, pool: Sequence[Relation], count: int) -> list[Relation]:
    """``count`` relations of a pool, in random order, none of which another implies. The pool has one more at least."""
    while True:
        drawn = rng.sample(pool, count)
        if {relation.implies for relation in drawn}.isdisjoint({relation.name for relation in drawn}):
            return drawn


# A job is filed under `thing`: the answer types are those of arXiv 2603.01426, which has no type of its own for it.
ATTRIBUTES: tuple[Relation, ...] = (
    _attribute(
        "home",
        "city",
        "location",
        Phrasings(
            (
                "{subject} lives in {value}.",
                "The home of {subject} is in {value}.",
                "{value} is where {subject} lives.",
            ),
            ("{subject} resides in {value}.",),
        ),
        Phrasings(
            (
                "Where does {subject} live?",
                "In which city is the home of {subject}?",
                "In which city does {subject} live?",
            ),
            ("Where is the home of {subject}?",),
        ),
        Phrasings(("Who lives in {value}?", "Whose home is in {value}?"), ("Who is at home in {value}?",)),
        "lives in {value}",
    ),
    _attribute(
        "job",
        "job",
        "thing",
        Phrasings(
            (
                "{subject} works as a {value}.",
                "The job of {subject} is {value}.",
                "{subject} earns a living as a {value}.",
            ),
            ("{subject} is a {value} by trade.",),
        ),
        Phrasings(("What is the job of {subject}?", "What does {subject} work as?"), ("What is {subject} by trade?",)),
        Phrasings(("Who works as a {value}?", "Whose job is {value}?"), ("Who is a {value} by trade?",)),
        "works as a {value}",
    ),
    _attribute(
        "employer",
        "organisation",
        "organisation",
        Phrasings(
            ("{subject} works for {value}.", "{value} employs {subject}.", "The employer of {subject} is {value}."),
            ("{subject} is on the staff of {value}.",),
        ),
        Phrasings(
            (
                "Who employs {subject}?",
                "Which organisation does {subject} work for?",
                "What is the employer of {subject}?",
            ),
            ("On whose staff is {subject}?",),
        ),
        Phrasings(("Who works for {value}?", "Whom does {value} employ?"), ("Who is on the staff of {value}?",)),
        "works for {value}",
    ),
    _attribute(
        "pet",
        "creature",
        "creature",
        Phrasings(
            ("{subject} keeps a {value}.", "The pet of {subject} is a {value}.", "A {value} belongs to {subject}."),
            ("{subject} looks after a {value}.",),
        ),
        Phrasings(
            ("Which creature does {subject} keep?", "What is the pet of {subject}?"),
            ("Which animal does {subject} look after?",),
        ),
        Phrasings(("Who keeps a {value}?", "Whose pet is a {value}?"), ("Who looks after a {value}?",)),
        "keeps a {value}",
        implies="possession",
    ),
    _attribute(
        "possession",
        "thing",
        "thing",
        Phrasings(
            ("{subject} owns a {value}.", "The {value} is owned by {subject}.", "The {value} belongs to {subject}."),
            ("{subject} has a {value}.",),
        ),
        Phrasings(
            ("Which thing does {subject} own?", "What is owned by {subject}?"), ("Which thing does {subject} have?",)
        ),
        Phrasings(("Who owns a {value}?", "Who is the owner of the {value}?"), ("Who has a {value}?",)),
        "owns a {value}",
    ),
    _attribute(
        "birthday",
        "date",
        "date",
        Phrasings(
            (
                "{subject} was born on {value}.",
                "The birthday of {subject} is {value}.",
                "On {value}, {subject} was born.",
            ),
            ("{subject} came into the world on {value}.",),
        ),
        Phrasings(
            ("When was {subject} born?", "What is the birthday of {subject}?"),
            ("When did {subject} come into the world?",),
        ),
        Phrasings(("Who was born on {value}?", "Whose birthday is {value}?"), ("Who came into the world on {value}?",)),
        "was born on {value}",
    ),
    _attribute(
        "locker",
        "number",
        "numeral",
        Phrasings(
            (
                "{subject} has locker {value}.",
                "Locker {value} is used by {subject}.",
                "The locker of {subject} is {value}.",
            ),
            ("{subject} was given locker {value}.",),
        ),
        Phrasings(
            ("Which locker does {subject} have?", "What is the locker of {subject}?"),
            ("Which locker was {subject} given?",),
        ),
        Phrasings(("Who has locker {value}?", "Who uses locker {value}?"), ("Who was given locker {value}?",)),
        "has locker {value}",
        implies="possession",
    ),
    _attribute(
        "attended",
        "event",
        "event",
        Phrasings(
            (
                "{subject} attended the {value}.",
                "The {value} was attended by {subject}.",
                "{subject} was a guest at the {value}.",
            ),
            ("{subject} went to the {value}.",),
        ),
        Phrasings(
            ("Which event did {subject} attend?", "At which event was {subject} a guest?"),
            ("To which event did {subject} go?",),
        ),
        Phrasings(("Who attended the {value}?", "Who was a guest at the {value}?"), ("Who went to the {value}?",)),
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
        "person",
        Phrasings(
            (f"The {name} of {{subject}} is {{value}}.", f"{{value}} is the {name} of {{subject}}."),
            (f"{{subject}} has {{value}} for a {name}.",),
        ),
        Phrasings(
            (f"Who is the {name} of {{subject}}?", f"What is the name of the {name} of {{subject}}?"),
            (f"Whom does {{subject}} have for a {name}?",),
        ),
        Phrasings(
            (f"Whose {name} is {{value}}?", f"Who has {{value}} as {name}?"),
            (f"Who has {{value}} for a {name}?",),
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
