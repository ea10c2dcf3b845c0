"""Lists the words of a text in any script, where they are counted or compared one by one."""

import regex

from datasets_gen.texts.folding import FLAGS, LETTER, SPACELESS, fold

# A word keeps its apostrophes and hyphens; of a script without spaces each character is one, as
# people count them.
_WORD = regex.compile(
    rf"[{SPACELESS}][\p{{M}}ﾞﾟ]*|[{LETTER}--_]+(?:['’\-][{LETTER}--_]+)*",
    FLAGS,
)
# Every part of a word by itself; and an emoji, which may be what a text is about.
_PART = regex.compile(rf"[{SPACELESS}][\p{{M}}ﾞﾟ]*|[{LETTER}--_]+|\p{{Emoji_Presentation}}", FLAGS)


def words_as_written(text: str) -> list[str]:
    """Lists the words of a text without punctuation.

    >>> words_as_written("Well-known, isn't it? दिल्ली 東京")
    ['Well-known', "isn't", 'it', 'दिल्ली', '東', '京']
    """
    return list(_WORD.findall(text))


def words_in(text: str) -> list[str]:
    """Lists the same as they are compared: in small letters, in one form of Unicode."""
    return [fold(word) for word in words_as_written(text)]


def parts_in(text: str) -> list[str]:
    """Lists the words of a text, those with hyphens and apostrophes part by part, as they are
    compared.

    >>> parts_in("Can't share: walnut_7")
    ['can', 't', 'share', 'walnut', '7']
    """
    return [fold(part) for part in _PART.findall(text)]
