"""Directives: rules for an answer, each of which the answer alone shows to be obeyed or not."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import regex

from datasets_gen.examples.errors import DatasetError, unknown_name
from datasets_gen.examples.wording import Phrasings, read_phrasings
from datasets_gen.texts.folding import FLAGS, LETTER, composed
from datasets_gen.texts.words import parts_in, words_as_written, words_in

# The kinds of directives of IFEval (arXiv 2311.07911): the family stands before the colon. They are
# judged by the official checkers, which are not here.

# What the checker of each kind takes; it would draw at random what is not given.
ARGUMENTS: Mapping[str, Mapping[str, type]] = {
    "change_case:capital_word_frequency": {"capital_frequency": int, "capital_relation": str},
    "change_case:english_capital": {},
    "change_case:english_lowercase": {},
    "combination:repeat_prompt": {"prompt_to_repeat": str},
    "combination:two_responses": {},
    "detectable_content:number_placeholders": {"num_placeholders": int},
    "detectable_content:postscript": {"postscript_marker": str},
    "detectable_format:constrained_response": {},
    "detectable_format:json_format": {},
    "detectable_format:multiple_sections": {"num_sections": int, "section_spliter": str},
    "detectable_format:number_bullet_lists": {"num_bullets": int},
    "detectable_format:number_highlighted_sections": {"num_highlights": int},
    "detectable_format:title": {},
    "keywords:existence": {"keywords": list},
    "keywords:forbidden_words": {"forbidden_words": list},
    "keywords:frequency": {"frequency": int, "keyword": str, "relation": str},
    "keywords:letter_frequency": {"let_frequency": int, "let_relation": str, "letter": str},
    "language:response_language": {"language": str},
    "length_constraints:nth_paragraph_first_word": {
        "first_word": str,
        "nth_paragraph": int,
        "num_paragraphs": int,
    },
    "length_constraints:number_paragraphs": {"num_paragraphs": int},
    "length_constraints:number_sentences": {"num_sentences": int, "relation": str},
    "length_constraints:number_words": {"num_words": int, "relation": str},
    "punctuation:no_comma": {},
    "startend:end_checker": {"end_phrase": str},
    "startend:quotation": {},
}


FILLER = "indeed"  # what an answer is filled up with, where it must have more words than it needs
BRACKETS: Mapping[str, tuple[str, str]] = {
    "square": ("[", "]"),
    "round": ("(", ")"),
    "curly": ("{", "}"),
}
MARKS: Mapping[str, str] = {"slash": " / ", "semicolon": "; ", "comma": ", "}


@dataclass(frozen=True, slots=True)
class Directive:
    """A rule for an answer."""

    kind: str  # names a checker; a kind of IFEval has a colon
    argument: str = ""  # a word, a number or the name of a mark; of IFEval, the arguments as JSON

    def __str__(self) -> str:
        """Returns the stored form: ``kind`` or ``kind argument``."""
        return f"{self.kind} {self.argument}".rstrip()

    @classmethod
    def parse(cls, text: str) -> "Directive":
        """Reads the stored form; raises :class:`DatasetError` if the kind is unknown."""
        kind, _, argument = text.partition(" ")
        directive = cls(kind, argument)
        directive_family(directive)
        return directive

    @property
    def is_of_ifeval(self) -> bool:
        return ":" in self.kind


@dataclass(frozen=True)
class DirectiveKind:
    """Declares a kind of directive."""

    family: str
    phrasings: Phrasings
    obeys: Callable[[str, str], bool]  # of the argument and an output of one word at least
    # Takes from a text what the directive makes it say.
    undo: Callable[[str, str], str] = lambda _, text: text


def words_without_punctuation(text: str) -> list[str]:
    """Lists the words of a text without punctuation, in small letters: the case of a word is
    another directive."""
    return words_in(text)


def _begins(word: str, output: str) -> bool:
    # In a script without spaces a word is several characters, each of which counts as one.
    wanted = words_in(word)
    return words_in(output)[: len(wanted)] == wanted


def _ends(word: str, output: str) -> bool:
    wanted = words_in(word)
    return words_in(output)[-len(wanted) :] == wanted


def _avoids(word: str, output: str) -> bool:
    """Looks for the word as a part of others with a hyphen or an apostrophe, too."""
    wanted, parts = parts_in(word), parts_in(output)
    return all(parts[place : place + len(wanted)] != wanted for place in range(len(parts)))


def _without(word: str, text: str) -> str:
    """Takes a word out of a text, as a whole word where its script sets spaces."""
    letter = rf"[{LETTER}]"
    pattern = rf"(?<!{letter}){regex.escape(composed(word))}(?!{letter})"
    return str(regex.sub(pattern, " ", composed(text), flags=FLAGS | regex.IGNORECASE))


def _is_titled(word: str, output: str) -> bool:
    """Compares the title letter by letter, as a whole word; only a bracket may stand before it."""
    titled = re.match(r"[\[({]?Title: (.*)", composed(output).strip(), re.DOTALL)
    wanted = words_as_written(composed(word))
    if titled is None or not titled[1].startswith(composed(word)):
        return False
    return words_as_written(titled[1])[: len(wanted)] == wanted


def _is_wrapped(output: str, opening: str, closing: str) -> bool:
    """Accepts one pair of marks, or one around each of the two halves that a mark of ``twice``
    divides."""
    if _is_in_one_pair(output.strip(), opening, closing):
        return True
    for mark in MARKS.values():
        halves = output.split(mark.strip())
        if len(halves) == 2:
            return all(_is_in_one_pair(half.strip(), opening, closing) for half in halves)
    return False


def _is_in_one_pair(whole: str, opening: str, closing: str) -> bool:
    if len(whole) < 2 or not whole.startswith(opening) or not whole.endswith(closing):
        return False
    inside = whole[1:-1]
    return (
        bool(words_without_punctuation(inside)) and opening not in inside and closing not in inside
    )


def _is_doubled(name: str, output: str) -> bool:
    """Compares the words on both sides of the mark, which stands there once."""
    sides = [words_as_written(composed(side)) for side in output.split(MARKS[name].strip())]
    return len(sides) == 2 and sides[0] == sides[1]


def _said_first(name: str, text: str) -> str:
    """Returns the text before the mark; all of a text without the mark, or with nothing before
    it."""
    first, _, _ = text.partition(MARKS[name].strip())
    return first if first.strip() else text


_PHRASINGS = read_phrasings("directives")
# The name of each kind, its family, its checker and, where it has one, what undoes it.
_KINDS: tuple[tuple[Any, ...], ...] = (
    ("begin", "position", _begins),
    ("end", "position", _ends),
    # Letters of a script without case obey this one and the next.
    ("upper", "case", lambda _, output: not any(map(str.islower, output))),
    ("lower", "case", lambda _, output: not any(map(str.isupper, output))),
    ("avoid", "words", _avoids, _without),
    (
        "exactly",
        "length",
        lambda count, output: len(words_without_punctuation(output)) == int(count),
    ),
    ("title", "title", _is_titled),
    ("brackets", "wrapping", lambda name, output: _is_wrapped(output, *BRACKETS[name])),
    ("quotes", "wrapping", lambda _, output: _is_wrapped(output, '"', '"')),
    ("twice", "repetition", _is_doubled, _said_first),
)
DIRECTIVE_KINDS: Mapping[str, DirectiveKind] = {
    kind: DirectiveKind(family, _PHRASINGS[kind], *ways) for kind, family, *ways in _KINDS
}

# Kinds that one answer cannot obey together, or only in a way that the directives do not tell:
# whether a first word is said twice, whether a title is written in capitals or counts as a word.
_CLASHING = (
    "begin title",
    "begin twice",
    "end twice",
    "upper lower",
    "brackets quotes",
    "exactly twice",
    "title twice",
    "title exactly",
    "title upper",
    "title lower",
    "title quotes",
)
CLASHES = frozenset(frozenset(pair.split()) for pair in _CLASHING)


def directive_kind(directive: Directive) -> DirectiveKind:
    """Returns the kind of a directive. Raises :class:`DatasetError` for one that is not
    registered."""
    if directive.kind not in DIRECTIVE_KINDS:
        raise DatasetError(unknown_name("directive", directive.kind, DIRECTIVE_KINDS))
    return DIRECTIVE_KINDS[directive.kind]


def check_argument(directive: Directive) -> None:
    """Raises :class:`DatasetError` for a directive of unknown kind, or with an argument that nobody
    could obey."""
    takes_word = "{argument}" in directive_kind(directive).phrasings.common[0]
    form, takes = ("", "no word")
    if directive.kind == "exactly":
        form, takes = r"[1-9]\d{0,3}", "a number of words"
    elif directive.kind in ("brackets", "twice"):
        names = BRACKETS if directive.kind == "brackets" else MARKS
        form, takes = "|".join(names), f"one of {', '.join(names)}"
    elif takes_word:
        form, takes = r"[\p{L}\p{M}\p{N}]+", "one word"
    if not regex.fullmatch(form, directive.argument, FLAGS):
        raise DatasetError(f"'{directive}': {directive.kind} takes {takes}")


def directive_family(directive: Directive) -> str:
    """Names the family of a directive's kind. Raises :class:`DatasetError` for one that is not
    registered."""
    if not directive.is_of_ifeval:
        return directive_kind(directive).family
    if directive.kind not in ARGUMENTS:
        raise DatasetError(unknown_name("directive", directive.kind, ARGUMENTS))
    return directive.kind.partition(":")[0]


def compatible(kind: str, others: Collection[str]) -> bool:
    """Tells whether one answer can obey a directive of this kind and of each of the others."""
    return kind not in others and all(frozenset((kind, other)) not in CLASHES for other in others)


def check(directive: Directive, output: str) -> bool:
    """Tells whether the output, as it stands, obeys the directive. An output without a word obeys
    none. Raises :class:`DatasetError` for a directive of a kind that there is not."""
    obeys = directive_kind(directive).obeys
    return bool(words_without_punctuation(output)) and obeys(directive.argument, output)


def share_obeyed(directives: Sequence[Directive], output: str) -> float:
    """Returns the share of the directives that the output obeys, from 0 to 1; 1 where there is none
    to disobey. Raises as :func:`check` does."""
    if not directives:
        return 1.0
    obeyed = sum(check(directive, output) for directive in directives)
    return obeyed / len(directives)


def undo(directives: Sequence[Directive], text: str) -> str:
    """Takes from a text what the directives forbid and what they make it say again. Raises
    :class:`DatasetError` for a directive of a kind that there is not."""
    for directive in directives:
        text = directive_kind(directive).undo(directive.argument, text)
    return text


def exemplar(directives: Sequence[Directive], answer: str) -> str:
    """Writes an answer as it should be given under directives that go together, in whatever order.

    Words first, then their case, then twice, then what is put around it all.

    >>> exemplar([Directive("brackets", "square"), Directive("begin", "walnut")], "Velden")
    '[walnut Velden]'
    """
    arguments = {directive.kind: directive.argument for directive in directives}
    head: list[str] = []
    if "begin" in arguments:
        head = [arguments["begin"]]
    elif "title" in arguments:
        head = ["Title:", arguments["title"]]
    tail = [arguments["end"]] if "end" in arguments else []
    body = [word for word in answer.split() if word != arguments.get("avoid")]
    # Of an answer that is too long already this is negative, and nothing is added: it disobeys.
    missing = int(arguments.get("exactly", 0)) - len(head + body + tail)
    text = " ".join([*head, *body, *[FILLER] * missing, *tail])
    if "upper" in arguments:
        text = text.upper()
    if "lower" in arguments:
        text = text.lower()
    if "twice" in arguments:
        text = text + MARKS[arguments["twice"]] + text
    if "brackets" in arguments:
        opening, closing = BRACKETS[arguments["brackets"]]
        return opening + text + closing
    return f'"{text}"' if "quotes" in arguments else text
