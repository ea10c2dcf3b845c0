"""A reader of `long_context`: it passes over the prose, which names no one, and knows the phrasings of facts."""

import re
from collections.abc import Iterator
from functools import cache

from datasets_gen.relations import ATTRIBUTES, Relation
from datasets_gen.wording import Phrasings

NAME = r"[A-Z][a-z]+ [A-Z][a-z]+"
VALUES = {"number": r"\d+", "date": r"\d+ [A-Z][a-z]+ \d+"}
WORDS = r"[A-Za-z][A-Za-z' -]*"


@cache
def pattern(template: str, kind: str) -> re.Pattern[str]:
    escaped = re.escape(template).replace(r"\{subject\}", f"(?P<subject>{NAME})")
    return re.compile(escaped.replace(r"\{value\}", f"(?P<value>{VALUES.get(kind, WORDS)})"))


def readings(text: str, phrasings: str) -> Iterator[tuple[Relation, str, dict[str, str]]]:
    """(relation, template, subject and value) of each way to read a text; ``phrasings``: a field of a relation."""
    for relation in ATTRIBUTES:
        written: Phrasings = getattr(relation, phrasings)
        for template in (*written.common, *written.held_out):
            if found := pattern(template, relation.value_kind).fullmatch(text):
                yield relation, template, found.groupdict()


def sentences(text: str) -> list[str]:
    return [sentence.strip() for sentence in re.findall(r"[^.]+\.", text)]


def names_someone(sentence: str) -> bool:
    return re.search(NAME, sentence) is not None


def statements(context: str) -> set[tuple[str, str, str]]:
    """(relation, subject, value) of every sentence that names someone; each must be readable in one way only."""
    stated = set()
    for sentence in filter(names_someone, sentences(context)):
        found = list(readings(sentence, "statements"))
        assert len(found) == 1, f"{sentence!r} reads as {found}"
        relation, _, words = found[0]
        stated.add((relation.name, words["subject"], words["value"]))
    return stated


def solve(question: str, context: str) -> set[str]:
    """Every answer that the context gives; the question must be readable in one way only."""
    asked = [*readings(question, "forward"), *readings(question, "reverse")]
    assert len(asked) == 1, f"{question!r} reads as {asked}"
    relation, _, words = asked[0]
    known = [(subject, value) for name, subject, value in statements(context) if name == relation.name]
    if "subject" in words:
        return {value for subject, value in known if subject == words["subject"]}
    return {subject for subject, value in known if value == words["value"]}
