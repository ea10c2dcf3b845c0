"""The study of next tokens: how well a text goes on from a treated cache, by the place in what follows."""

from leaderboards.metrics.declaration.definition import Chapter, Definition, estimates
from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.next_tokens.page import content_of
from leaderboards.studies.next_tokens.places import TABLE, part_name
from policies.declaration.names import FULL

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
