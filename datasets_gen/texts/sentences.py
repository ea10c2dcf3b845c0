"""Finds the sentence around a place of a text, in any script."""

from bisect import bisect_right

import regex

from datasets_gen.texts.folding import CLOSERS, FLAGS

MOST_CHARACTERS = 600  # of what is taken for a sentence: a text without full stops is none
_END = regex.compile(
    rf"[.!?…]+[{CLOSERS}]*(?=\s)|[。！？｡．؟۔।॥։።]+[{CLOSERS}]*\s*|\n+|(?<=\n)(?=\S)",
    FLAGS,
)
# A full stop ends no sentence behind an initial, an abbreviation, or a number before the name of a
# thing in German.
_ABBREVIATED = regex.compile(
    r"(?:\b\p{Lu}|\b(?i:mr|mrs|ms|dr|prof|st|no|nr|vs|etc|approx|fig|sr|jr|inc|ltd|co|ca|e\.g|i\.e|z\.b|bzw|mme|sra?))\.$",
    FLAGS,
)
_GOES_ON = regex.compile(r"\s+\p{Ll}", FLAGS)


class Sentences:
    """Holds where the sentences of a text begin; the end of a line ends a sentence too."""

    def __init__(self, text: str) -> None:
        self.text = text
        ends = (match for match in _END.finditer(text) if not self._is_abbreviation(match))
        self.starts = [0, *dict.fromkeys(match.end() for match in ends)]

    def _is_abbreviation(self, match: "regex.Match[str]") -> bool:
        if match[0] != ".":
            return False
        is_short = (
            _ABBREVIATED.search(self.text, max(0, match.start() - 8), match.end()) is not None
        )
        return is_short or _GOES_ON.match(self.text, match.end()) is not None

    def around(self, start: int, end: int) -> tuple[int, int]:
        """Returns the characters of the sentences that a place stands in, without white space
        around them."""
        first = self.starts[bisect_right(self.starts, start) - 1]
        # By the last character of the place: the one behind it may begin the next sentence.
        following = bisect_right(self.starts, max(start, end - 1))
        last = len(self.text)
        if following < len(self.starts):
            last = self.starts[following]
        if last - first > MOST_CHARACTERS:
            first, last = self._words_around(first, start, end, last)
        sentence = self.text[first:last]
        sentence_start = last - len(sentence.lstrip())
        sentence_end = first + len(sentence.rstrip())
        # The place itself is never cut, even where it begins or ends with white space.
        return min(sentence_start, start), max(sentence_end, end)

    def _words_around(self, first: int, start: int, end: int, last: int) -> tuple[int, int]:
        """Takes so many characters around a place, from the beginning of a word to the end of
        one."""
        beside = max(0, MOST_CHARACTERS - (end - start)) // 2
        first = max(first, start - beside)
        last = min(last, end + beside)
        before = regex.search(r"\s", self.text[first:start])
        if before:
            first += before.end()
        after = regex.search(r"\s\S*$", self.text[end:last])
        if after:
            last = end + after.start()
        return first, last
