"""Tells a gold that says that there is no answer from one that is an answer."""

from functools import lru_cache

import regex

from datasets_gen.texts.folding import FLAGS, fold

I_DO_NOT_KNOW = regex.compile(r"i (?:don['’]t|do not) know\.?", FLAGS | regex.IGNORECASE)
# Forms of public data sets (SQuAD 2.0, MS MARCO, QuAC, Qasper, LongBench), and what people write in
# tables.
# "None" and "no" are not among them: they answer other questions.
_NO_ANSWER = regex.compile(
    r"""(?:
      (?:this\ |the\ )?(?:question\ )?(?:is\ |are\ )?(?:un-?answerable|not\ answerable|un-?known|undetermined)
        (?:\ from\ (?:the\ |this\ )?(?:text|context|passage))?
    | (?:there\ is\ )?no\ (?:correct\ |valid\ |possible\ )?answer(?:\ (?:is\ )?(?:present|found|available|possible|given|provided|exists))?
    | (?:the\ )?(?:answer|question|information|it|this)?\ ?(?:is\ )?not\ (?:mentioned|stated|given|provided|specified|known|available|found|answerable|enough\ information|applicable|sure)
        (?:\ (?:in|by|from)\ (?:the\ |this\ )?(?:text|context|passage|document|article))?
    | (?:there\ is\ )?(?:not\ enough|insufficient|no)\ (?:information|info|evidence|data|context)(?:\ (?:is\ )?(?:available|given|provided))?
    | (?:it\ )?(?:can\ ?not|can't|cannot)\ (?:be\ (?:answered|determined|known|inferred)|answer|tell|say|determine)
        (?:\ from\ (?:the\ |this\ )?(?:text|context|passage))?
    | i\ (?:don't|do\ not|can't|cannot)\ (?:know|tell|say)|idk|don't\ know|cannotanswer|noanswer
    | n\ ?/\ ?a|\[\ ?\]|\{\ ?\}|\[\ ?['"]\ ?['"]\ ?\]|null
    | 不知道|未知|无法回答|無法回答|没有答案|沒有答案|文中未提及|未提及|无法确定|わからない|わかりません|分かりません|不明|回答不能|答えられない
    | 모름|모르겠습니다|알\ 수\ 없음|알\ 수\ 없습니다|답변\ 불가|답변할\ 수\ 없음
    | ich\ weiß\ (?:es\ )?nicht|ich\ weiss\ (?:es\ )?nicht|unbekannt|nicht\ beantwortbar|keine\ antwort
    | je\ ne\ sais\ pas|inconnu|pas\ de\ réponse|sans\ réponse|no\ (?:lo\ )?s[eé]|desconocido|sin\ respuesta|no\ hay\ respuesta
    | non\ (?:lo\ )?so|sconosciuto|nessuna\ risposta|não\ sei|desconhecido|sem\ resposta|не\ знаю|неизвестно|нет\ ответа
    | لا\ أعرف|لا\ أعلم|غير\ معروف|لا\ إجابة|पता\ नहीं|मुझे\ नहीं\ पता|अज्ञात|δεν\ (?:γνωριζω|ξερω)|αγνωστο|bilmiyorum|bilinmiyor|cevap\ yok
    )""",  # noqa: E501
    FLAGS | regex.VERBOSE,
)
_AROUND = " \t\n.!。\"'“”«»"


@lru_cache(maxsize=4096)
def says_no_answer(gold: str) -> bool:
    """Tells whether all of a gold says that nothing answers its question.

    >>> says_no_answer("No Answer Present."), says_no_answer("[]"), says_no_answer("none"), says_no_answer("不知道。")
    (True, True, False, True)
    """
    text = fold(gold).replace("’", "'").strip(_AROUND)
    return _NO_ANSWER.fullmatch(" ".join(text.split())) is not None
