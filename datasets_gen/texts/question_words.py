"""Tells what a question asks for by its question word, in the languages that most people write.

Two questions about a text ask for the like where they have the same word: what answers one of them
would be another answer to the other."""

from functools import lru_cache

import regex

from datasets_gen.texts.folding import FLAGS, fold

# By language; a word that says more stands before one that is a part of it.
_WORDS = (
    "who whom whose where when why how",
    "wer wem wen wessen wo wohin woher wann warum wieso wie",
    "qui où quand pourquoi comment combien quel quelle quels quelles",
    "quién quiénes qué quien dónde donde cuándo cuando cuánto cuántos cuánta cuántas cuál cuáles "
    "cómo",
    "chi dove quando quanto quanti quante quale quali perché come",
    "quem onde quantos quantas qual quais",
    "wie waar wanneer hoeveel welke welk waarom",
    "кто кого кому где куда откуда когда сколько какой какая какое какие почему как что",
    "kto gdzie kiedy ile jaki jaka jakie dlaczego",
    "kim nerede nereye nereden nerde kaç hangi neden nasıl",
    "ποιος ποια ποιο που ποτε ποσα ποσο ποσοι γιατι πως",
    "من أين متى كم لماذا كيف ما ماذا",
    "कौन किसने किस कहाँ कहां कब कितने कितनी कितना क्यों कैसे क्या",
)
_SPACED = frozenset(map(fold, " ".join(_WORDS).split()))
_SPACELESS = regex.compile(
    "どこ|誰|だれ|いつ|いくつ|いくら|何人|何個|何歳|何年|何月|何日|何時|何|どの|どれ|なぜ|どう"
    "|哪里|哪裡|哪儿|哪年|哪天|哪个|哪個|谁|誰|什么时候|什麼時候|何时|何時|多少|几|幾|什么|什麼|为什么|怎么"
    "|어디|누구|누가|언제|몇|얼마|무엇|무슨|어느|어떤|왜|ที่ไหน|ใคร|เมื่อไร|เมื่อไหร่|กี่|เท่าไร|อะไร",
    FLAGS,
)
_WORD = regex.compile(r"[\p{L}\p{M}]+(?:['’][\p{L}\p{M}]+)?", FLAGS)
# Behind these, "what" asks for anything; else for what the next word names, as in "what colour" and
# "which town".
_AUXILIARIES = (
    "is are was were do does did has have had can could will would should may might s of "
)
_AUXILIARIES += "the a an in on at to"


@lru_cache(maxsize=4096)
def question_word(question: str) -> str:
    """Returns what a question asks by; two questions with the same ask for the like. Empty where no
    word tells.

    >>> question_word("Where was Marie born?"), question_word("What colour is it?"), question_word("How many owls?")
    ('where', 'which colour', 'how many')
    >>> question_word("彼女はどこに住んでいますか。"), question_word("Name the town.")
    ('どこ', '')
    """
    words = [fold(word).replace("’", "'").partition("'")[0] for word in _WORD.findall(question)]
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word in ("what", "which"):
            if following in _AUXILIARIES.split() or not following:
                return word
            return f"which {following}"
        if word == "how":
            return f"how {following}"
        if word in _SPACED:
            return word
    spaceless = _SPACELESS.search(question)
    return spaceless[0] if spaceless else ""
