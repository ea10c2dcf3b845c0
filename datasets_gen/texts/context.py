"""Finds values in a context, which is long: only what stands around a candidate is cut into
tokens."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

import regex

from datasets_gen.texts.folding import FLAGS, composed, fold
from datasets_gen.texts.matching import Item, Place, TextTokens, needle_for, read_item, read_items
from datasets_gen.texts.numbers import WORDS_OF_NUMBERS
from datasets_gen.texts.tokens import Token, scan

# Characters on either side of a candidate, up to the next white space: enough for a date and its
# article.
BESIDE = 64
_SKIPPED = "'’ʼ."  # may stand within a word, and are no letters of its key
_MAY_BE_NUMBER = regex.compile(rf"[\p{{Nd}}\p{{No}}]+|\b(?:{'|'.join(WORDS_OF_NUMBERS)})", FLAGS)


class Context:
    """Finds values in a text that is read once."""

    def __init__(self, text: str) -> None:
        self.text = composed(text)
        self._scanned: dict[tuple[int, int, bool], TextTokens] = {}

    def places_of(self, value: str, as_written: bool = False) -> tuple[Place, ...]:
        """Finds where a value stands, as one item, or else each item of a list. Places where it
        stands in the same letters, capital and small, go before all others: "us" is not "US"."""
        value = composed(value)
        places = self._places(read_item(value, as_written))
        if not places:
            of_items = list(map(self._places, read_items(value, as_written)))
            if all(of_items):
                # Of a list all items must stand there, or none of it is evidence.
                places = list(chain.from_iterable(of_items))
        in_same_letters = [(start, end) for start, end in places if self.text[start:end] == value]
        return tuple(dict.fromkeys(in_same_letters or places))

    def _places(self, item: Item) -> list[Place]:
        places = []
        for start, end in self._windows(item):
            view = self._tokens(start, end, item.by_worth)
            for first, last in item.places(view):
                begin = _start(view.tokens[first], item.keys[0])
                places.append((start + begin, start + _end(view.tokens[last], item.keys[-1])))
        return places

    def _tokens(self, start: int, end: int, by_worth: bool) -> TextTokens:
        key = (start, end, by_worth)
        if key not in self._scanned:
            self._scanned[key] = TextTokens(scan(self.text[start:end], by_worth))
        return self._scanned[key]

    @cached_property
    def _folded(self) -> tuple[str, Sequence[int]]:
        """Returns the text as keys are written, with the place in the text of each of its
        characters."""
        # Then small letters have the places of the text itself, and no list of them is needed.
        if self.text.isascii() and not any(mark in self.text for mark in _SKIPPED):
            return self.text.lower(), range(len(self.text))
        pieces: list[str] = []
        places: list[int] = []
        for place, character in enumerate(self.text):
            if character not in _SKIPPED:
                piece = fold(character)
                pieces.append(piece)
                places += [place] * len(piece)
        return "".join(pieces), places

    def _windows(self, item: Item) -> list[Place]:
        """Returns the parts of the text that may hold an item, in order; no two overlap."""
        if not item.keys:
            return []
        folded, places = self._folded
        if item.by_worth:
            candidates: Iterable[Place] = (
                match.span() for match in _MAY_BE_NUMBER.finditer(folded)
            )
        else:
            # The rarer the part that is looked for, the fewer windows are cut into tokens.
            candidates = _occurrences(self._rarest(item.keys), folded)
        beside = BESIDE + 2 * sum(map(len, item.keys))
        windows: list[Place] = []
        for first, behind in candidates:
            # Behind the last character itself: between it and the next there may be marks that were
            # left out.
            start, end = places[first], places[behind - 1] + 1
            if windows and end < windows[-1][1] - beside:
                continue  # the window before has it, with what stands beside it
            start, end = self._widened(start, end, beside)
            if windows and start < windows[-1][1]:
                windows[-1] = (windows[-1][0], end)
            else:
                windows.append((start, end))
        return windows

    def _rarest(self, keys: Sequence[str]) -> str:
        """Chooses of the keys of an item the one that fewest parts of the text hold."""
        folded, _ = self._folded
        return min(map(needle_for, keys), key=folded.count)

    def _widened(self, start: int, end: int, beside: int) -> Place:
        """Adds what stands beside a candidate, up to white space where there is any."""
        start, end = max(0, start - beside), min(len(self.text), end + 2 * beside)
        space_before = self.text.rfind(" ", max(0, start - beside), start)
        space_behind = self.text.find(" ", end, end + beside)
        if space_before >= 0:
            start = space_before
        if space_behind >= 0:
            end = space_behind
        return start, end


def _occurrences(needle: str, text: str) -> Iterable[Place]:
    place = text.find(needle)
    while place >= 0:
        yield place, place + len(needle)
        place = text.find(needle, place + 1)


def _start(token: Token, key: str) -> int:
    """Returns where a key begins in its token: behind a preposition that is written at it."""
    shorter = token.keys.index(key) > 0 and not token.is_number and token.keys[0].endswith(key)
    if shorter:
        return max(token.start, token.end - len(key))
    return token.start


def _end(token: Token, key: str) -> int:
    """Returns where a key ends in its token: before a particle that is written at it."""
    shorter = token.keys.index(key) > 0 and not token.is_number and token.keys[0].startswith(key)
    if shorter:
        return min(token.end, token.start + len(key))
    return token.end
