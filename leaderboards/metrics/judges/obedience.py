"""Judges whether an answer obeys its directives, strictly and loosely, as IFEval does (arXiv 2311.07911). Directives
of IFEval are judged by its own checkers."""

from collections.abc import Sequence
from itertools import product

from datasets_gen import Directive, check, family_of
from leaderboards.metrics.judges.ifeval import is_obeyed


def families(directives: Sequence[str]) -> list[str]:
    """Returns the family of each directive, as it is stored."""
    return [family_of(Directive.parse(text)) for text in directives]


def strictly(directives: Sequence[str], output: str) -> list[bool]:
    """Tells for each directive whether the output, as it stands, obeys it."""
    parsed = [Directive.parse(text) for text in directives]
    return [is_obeyed(one, output, "strict") if one.is_of_ifeval else check(one, output) for one in parsed]


def loosely(directives: Sequence[str], output: str) -> list[bool]:
    """Tells for each directive whether any of IFEval's eight versions of the output obeys it."""
    parsed = [Directive.parse(text) for text in directives]
    return [
        is_obeyed(one, output, "loose")
        if one.is_of_ifeval
        else any(check(one, version) for version in versions(output))
        for one in parsed
    ]


def versions(output: str) -> list[str]:
    """Returns the output with and without its first line, its last line, and its asterisks.

    >>> versions("**Sure!**\\nVelden")
    ['**Sure!**\\nVelden', '**Sure!**', 'Velden', '', 'Sure!\\nVelden', 'Sure!', 'Velden', '']
    """
    lines = output.split("\n")
    texts = []
    for plain, first, last in product((False, True), repeat=3):
        rest = "\n".join(lines[first : len(lines) - last]).strip()
        texts.append(rest.replace("*", "") if plain else rest)
    return texts
