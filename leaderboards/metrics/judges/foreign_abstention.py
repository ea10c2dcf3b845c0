"""Tells an abstention in a language other than English by the commonest phrases of fifteen others.

A sentence that goes on to answer behind a "but" is an answer, as in English.
"""

import regex

from datasets_gen.texts.folding import FLAGS, fold

# What begins a first sentence.
_BEGINS = (
    r"(?:das |es )?wei(?:ß|ss) ich (?:es |das )?(?:leider )?nicht|ich (?:wei(?:ß|ss)|kann) "
    r"(?:es |das |dies |die frage )?(?:leider )?nicht"
    r"|(?:der|dieser|im) text (?:sagt|erwähnt|nennt|gibt|enthält|wird|steht|verrät)[^,;]* (?:nicht|keine?|nichts)"
    r"|keine (?:angaben?|informationen?|information|ahnung)|unbekannt"
    r"|(?:das|dies|es) (?:wird|ist|steht|geht)[^,;]* nicht (?:erwähnt|angegeben|genannt|bekannt|gesagt|im text|hervor)",
    r"(?:désolé,? )?je ne (?:le )?sais pas|je n'en sais rien|je l'ignore|on ne (?:le )?sait pas|inconnu"
    r"|le (?:texte|passage|document) ne (?:le )?(?:dit|mentionne|précise|indique|donne|contient)[^,;]* pas"
    r"|aucune (?:information|mention|idée|indication)|(?:ce|cela|il) n'est pas (?:mentionné|précisé|indiqué|dit|connu)",
    r"(?:lo siento,? )?(?:yo )?no (?:lo )?s[eé]|no se (?:sabe|menciona|indica|especifica|dice)"
    r"|no hay (?:información|datos|respuesta)"
    r"|el (?:texto|pasaje|documento|contexto) no (?:lo )?(?:dice|menciona|indica|especifica|contiene)|desconocido"
    r"|no (?:tengo|puedo) |ni idea|no está (?:mencionado|indicado|especificado)",
    r"(?:io )?non (?:lo )?so|il (?:testo|brano) non (?:lo )?(?:dice|menziona|specifica|indica)|non si sa|sconosciuto"
    r"|non (?:è|viene) (?:menzionat|specificat|indicat|not|dett)\w*",
    r"(?:eu )?não sei|o (?:texto|trecho) não (?:o )?(?:diz|menciona|informa|especifica|indica)|desconhecido"
    r"|não (?:há|tenho|é possível|é mencionad|foi mencionad|está)\w*",
    r"(?:dat |ik )?weet (?:ik )?(?:het |dat )?niet|de tekst (?:zegt|vermeldt|noemt|geeft)[^,;]* niet|onbekend",
    r"(?:к сожалению,? )?(?:я )?не знаю|неизвестно"
    r"|(?:это |в тексте (?:это )?)?не (?:указан|упомина|сказан|упомянут|известн)\w*"
    r"|текст (?:этого |об этом )?не |(?:в тексте )?нет (?:информации|данных|ответа)"
    r"|невозможно (?:определить|ответить|сказать)",
    r"(?:ja )?nie wiem|nie wiadomo|tekst (?:tego )?nie |nieznan\w*|δεν (?:ξερω|γνωριζω|αναφερ|ειναι γνωστο)\w*"
    r"|το κειμενο δεν",
    r"(?:أنا )?لا (?:أعرف|أعلم|أدري|يمكن|يوجد|يذكر)|لم (?:يذكر|يُذكر|يرد)|غير (?:معروف|مذكور)|النص لا",
    r"(?:抱歉|对不起|對不起)?[,， ]*(?:我|我们|我們)?(?:不知道|不清楚|无法|無法|不确定|不確定|不了解)"
    r"|(?:根据)?(?:文中|文章|文本|上下文|原文|材料|文章中|文本中)(?:里|中)?(?:并|並)?(?:没有|沒有|未|不)|(?:没有|沒有|并未|並未|未)(?:提到|提及|说明|說明|给出|相关)"
    r"|未知|不详|不詳",
    r"tôi không (?:biết|rõ)|không (?:rõ|biết|có thông tin|được đề cập)|ไม่(?:ทราบ|รู้|ได้ระบุ|ได้กล่าว|มีข้อมูล)|ฉันไม่(?:ทราบ|รู้)",
)
# What may stand anywhere in one: the verb of these languages comes last.
_HOLDS = (
    r"(?:わか|分か|判)り(?:かね)?ません|(?:わか|分か)らない|知りません|知らない|不明(?:です|だ|である)?$|答えられ(?:ません|ない)"
    r"|(?:記載|言及|書かれて|述べられて|示されて|触れられて).{0,8}(?:ません|ない|なし)",
    r"모르겠|모릅니다|몰라|모른다|알 수 없|알수없|언급되(?:지 않|어 있지 않)|나와 있지 않|나오지 않"
    r"|정보가 없|확인할 수 없"
    r"|명시되(?:지 않|어 있지 않)|답할 수 없",
    r"(?:पता|मालूम|ज्ञात|उल्लेख|जानकारी) नहीं|नहीं (?:पता|जानत|बताया|मालूम)",
    r"bilmiyorum|bilinmiyor|bilemiyorum|belirtilm(?:emiş|iyor)|bahsedilm(?:emiş|iyor)|bilgi yok|söylenm(?:emiş|iyor)",
)
_ABSTAINS = regex.compile(rf"^(?:{'|'.join(_BEGINS)})|(?:{'|'.join(_HOLDS)})", FLAGS)
_ANSWERS_AFTER_ALL = regex.compile(
    r"[,;:] ?(?:aber|doch|mais|pero|ma|mas|maar|но|однако|ale|αλλά)\b|但|不过|不過|[がけど]、|でも|하지만|지만"
    r"|لكن|लेकिन|\bama\b",
    FLAGS,
)


def abstains_abroad(sentence: str) -> bool:
    """Tells whether a first sentence abstains in one of the languages.

    >>> abstains_abroad("Ich weiß es nicht"), abstains_abroad("わかりません")
    (True, True)
    >>> abstains_abroad("Je ne sais pas, mais Paris")
    False
    """
    text = fold(sentence).replace("’", "'").strip(" \"'“”«»")
    return _ABSTAINS.search(text) is not None and _ANSWERS_AFTER_ALL.search(text) is None
