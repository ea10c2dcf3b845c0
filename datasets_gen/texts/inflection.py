"""Takes from a word what its language writes at it: contractions, possessives, articles, particles.

What is taken off is no part of a name or value: "서울에" says "in Seoul", "l'eau" says "the water",
and "İstanbul'da" says "in Istanbul"."""

import re
from functools import lru_cache

import regex

from datasets_gen.texts.folding import FLAGS

_NOT = re.compile(r"\b(do|does|did|is|are|was|were|has|have|had|could|would|should)n'?t\b")
_POSSESSIVE = regex.compile(r"(?<=\p{L}\p{M}*)'s$", FLAGS)
# French and Italian articles and prepositions before a vowel.
_ELISION = regex.compile(
    r"^(?:l|d|qu|c|j|m|n|s|t|jusqu|lorsqu|puisqu|dell|nell|all|sull|dall|un)'(?=\p{L}{3})|^[LDQ](?:u)?'(?=\p{Ll}{3})",
    FLAGS,
)
# What Turkish writes behind the apostrophe of a name.
_TURKISH = regex.compile(
    r"(?<=\p{L}{2})'(?:[dt][ae](?:n|ki)?|[yns]?[ıiuüae]|[yn]?[ıiuü]n|n[dt][ae]n?|[yn]?l[ae]|l[ıiuü]|d[ıiuü]r|t[ıiuü]r)$",
    FLAGS | regex.IGNORECASE,
)
# Particles, copulas and titles that follow a Korean noun without a space.
_PARTICLES = (
    "은 는 이 가 을 를 에 에서 에게 에게서 께 께서 한테 으로 로 으로서 로서 와 과 의 도 만 "
)
_PARTICLES += "까지 부터 보다 처럼 같이 "
_PARTICLES += "마다 조차 마저 밖에 이나 나 이랑 랑 하고 이며 며 이고 고 입니다 이다 다 예요 이에요 였습니다 이었습니다 "
_PARTICLES += (
    "이었다 였다 인 이라고 라고 이라는 라는 이란 란 이야 야 님 씨 쯤 정도 들 년 월 일 이죠 죠 "
)
_PARTICLES += "이네요 네요 이어서 "
_PARTICLES += "여서 이지만 지만 이라 라"
_LONGEST_FIRST = sorted(_PARTICLES.split(), key=len, reverse=True)
_MOST_PARTICLES = 3  # one behind the other, as in "까지만은"
# Conjunctions and prepositions that Arabic and Hebrew write before a noun without a space.
_ARABIC = regex.compile(r"^(?:[وف]?[بلك]|[وف])(?=\p{Arabic}{3})", FLAGS)
_HEBREW = regex.compile(r"^(?:ו?[בלמשכה]|ו)(?=\p{Hebrew}{3})", FLAGS)
_SEMITIC = regex.compile(r"^[\p{Arabic}\p{Hebrew}]", FLAGS)


def without_contractions(text: str) -> str:
    """Writes out the contractions of an English text in small letters: "isn't", "can't", "it's".

    >>> without_contractions("she can’t say; it's klaus's")
    "she can not say; it is klaus's"
    """
    text = text.replace("’", "'").replace("‘", "'")
    text = _NOT.sub(r"\1 not", text)
    text = re.sub(r"\b(?:cannot|can'?t)\b", "can not", text)
    text = re.sub(r"\bwon'?t\b", "will not", text)
    text = re.sub(r"\bi'?m\b", "i am", text)
    text = re.sub(r"\bi'd\b", "i would", text)
    text = re.sub(r"\b(i|we|you|they)'ve\b", r"\1 have", text)
    return re.sub(r"\b(it|there|that|what|here|where|he|she|who)'s\b", r"\1 is", text)


@lru_cache(maxsize=16384)
def without_apostrophes(word: str, folded: str) -> tuple[str, ...]:
    """Returns the forms of a word with apostrophes, the word as a whole first. A contraction is
    several words.

    >>> without_apostrophes("Klaus's", "klaus's"), without_apostrophes("l'eau", "l'eau")
    (('klaus',), ('leau', 'eau'))
    """
    written_out = without_contractions(folded)
    written_out = _POSSESSIVE.sub("", written_out)
    forms = [written_out.replace("'", "")]
    word = word.replace("’", "'").replace("ʼ", "'")
    if elided := _ELISION.match(word):
        forms.append(folded[elided.end() :].replace("'", ""))
    if _TURKISH.search(word):
        # At the last apostrophe, as a name may have one of its own.
        forms.append(folded.replace("’", "'").replace("ʼ", "'").rpartition("'")[0])
    return tuple(forms)


@lru_cache(maxsize=16384)
def korean_stems(word: str) -> tuple[str, ...]:
    """Returns a Korean word, and what is left of it without particles.

    >>> korean_stems("서울에서는")[:2], "서울" in korean_stems("서울에서는"), korean_stems("서울대")
    (('서울에서는', '서울에서'), True, ('서울대',))
    """
    stems = {word: None}
    shortened = [word]
    for _ in range(_MOST_PARTICLES):
        shorter = []
        for stem in shortened:
            for particle in _LONGEST_FIRST:
                if stem.endswith(particle) and len(stem) > len(particle):
                    shorter.append(stem[: -len(particle)])
        shortened = shorter
        stems |= dict.fromkeys(shortened)
    return tuple(stems)


def semitic_stems(word: str) -> tuple[str, ...]:
    """Returns an Arabic or Hebrew word, and what is left of it without what is written before a
    noun.

    >>> semitic_stems("بالقاهرة")[1], semitic_stems("للقاهرة")[1]
    ('القاهرة', 'القاهرة')
    """
    if not _SEMITIC.match(word):
        return (word,)
    for prefix in (_ARABIC, _HEBREW):
        if before := prefix.match(word):
            stem = word[before.end() :]
            # "For the" is written with one letter less.
            if word.startswith("لل"):
                return (word, f"ا{stem}")
            return (word, stem)
    return (word,)
