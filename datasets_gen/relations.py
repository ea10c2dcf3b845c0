"""What can be said of a person, in several phrasings, and asked in both directions.

``{subject}`` is a full name or, in a chain, a phrase such as "the mentor of Ada Falbrook"; ``{value}`` is a value.
"""

from dataclasses import dataclass

from datasets_gen.example import AnswerType


@dataclass(frozen=True)
class Relation:
    """A functional relation from a person to a value: within a context, one subject has one value and one value one
    subject, so that the question is unambiguous in both directions. ``clause`` says the value of an unnamed subject,
    as in "Whose mentor lives in Velden?"."""

    name: str
    value_kind: str
    subject_type: AnswerType
    value_type: AnswerType
    statements: tuple[str, ...]
    forward: tuple[str, ...]
    reverse: tuple[str, ...]
    clause: str


def _attribute(
    name: str,
    kind: str,
    value_type: AnswerType,
    statements: tuple[str, ...],
    forward: tuple[str, ...],
    reverse: tuple[str, ...],
    clause: str,
) -> Relation:
    return Relation(name, kind, "person", value_type, statements, forward, reverse, clause)


# A job is filed under `thing`: the answer types are those of arXiv 2603.01426, which has no type of its own for it.
ATTRIBUTES: tuple[Relation, ...] = (
    _attribute(
        "home",
        "city",
        "location",
        ("{subject} lives in {value}.", "The home of {subject} is in {value}.", "{value} is where {subject} lives."),
        ("Where does {subject} live?", "In which city is the home of {subject}?", "In which city does {subject} live?"),
        ("Who lives in {value}?", "Whose home is in {value}?"),
        "lives in {value}",
    ),
    _attribute(
        "job",
        "job",
        "thing",
        ("{subject} works as a {value}.", "The job of {subject} is {value}.", "{subject} earns a living as a {value}."),
        ("What is the job of {subject}?", "What does {subject} work as?"),
        ("Who works as a {value}?", "Whose job is {value}?"),
        "works as a {value}",
    ),
    _attribute(
        "employer",
        "organisation",
        "organisation",
        ("{subject} works for {value}.", "{value} employs {subject}.", "The employer of {subject} is {value}."),
        ("Who employs {subject}?", "Which organisation does {subject} work for?", "What is the employer of {subject}?"),
        ("Who works for {value}?", "Whom does {value} employ?"),
        "works for {value}",
    ),
    _attribute(
        "pet",
        "creature",
        "creature",
        ("{subject} keeps a {value}.", "The pet of {subject} is a {value}.", "A {value} belongs to {subject}."),
        ("Which creature does {subject} keep?", "What is the pet of {subject}?"),
        ("Who keeps a {value}?", "Whose pet is a {value}?"),
        "keeps a {value}",
    ),
    _attribute(
        "possession",
        "thing",
        "thing",
        ("{subject} owns a {value}.", "The {value} is owned by {subject}.", "{subject} is proud of a {value}."),
        ("Which thing does {subject} own?", "What is owned by {subject}?"),
        ("Who owns a {value}?", "Who is the owner of the {value}?"),
        "owns a {value}",
    ),
    _attribute(
        "birthday",
        "date",
        "date",
        ("{subject} was born on {value}.", "The birthday of {subject} is {value}.", "On {value}, {subject} was born."),
        ("When was {subject} born?", "What is the birthday of {subject}?"),
        ("Who was born on {value}?", "Whose birthday is {value}?"),
        "was born on {value}",
    ),
    _attribute(
        "locker",
        "number",
        "numeral",
        (
            "{subject} has locker {value}.",
            "Locker {value} is used by {subject}.",
            "The locker of {subject} is {value}.",
        ),
        ("Which locker does {subject} have?", "What is the locker of {subject}?"),
        ("Who has locker {value}?", "Who uses locker {value}?"),
        "has locker {value}",
    ),
    _attribute(
        "attended",
        "event",
        "event",
        (
            "{subject} attended the {value}.",
            "The {value} was attended by {subject}.",
            "{subject} was a guest at the {value}.",
        ),
        ("Which event did {subject} attend?", "At which event was {subject} a guest?"),
        ("Who attended the {value}?", "Who was a guest at the {value}?"),
        "attended the {value}",
    ),
)


def _bond(name: str) -> Relation:
    return Relation(
        name,
        "person",
        "person",
        "person",
        (f"The {name} of {{subject}} is {{value}}.", f"{{value}} is the {name} of {{subject}}."),
        (f"Who is the {name} of {{subject}}?", f"What is the name of the {name} of {{subject}}?"),
        (f"Whose {name} is {{value}}?", f"Who has {{value}} as {name}?"),
        f"has {{value}} as {name}",
    )


# Directed all of them: the spouse of a spouse is oneself, whatever the passage states. No one has them as a job either.
BONDS: tuple[Relation, ...] = tuple(_bond(name) for name in ("mentor", "tutor", "coach", "teacher", "lawyer"))
