"""Takes from an output what its reader is not told: thinking, stop strings and Markdown.

Order and edge cases follow common harnesses: thinking goes before anything else, since a stop
string may stand in it (lm-evaluation-harness, pull request 3700); everything through the last
closing mark is thinking, as a chat template may have opened it in the prompt; and thinking that is
never closed leaves nothing (lighteval, issue 869)."""

import re

from datasets_gen.texts.folding import composed

_TAGS = "(?:seed:)?(?:think|thinking|thought|thoughts|reasoning)"
_OPENS = re.compile(
    rf"<{_TAGS}>|\[THINK\]|◁think▷|<\|START_THINKING\|>|<\|channel\|>(?:analysis|commentary)<\|message\|>",
    re.IGNORECASE,
)
_CLOSES = re.compile(
    rf"</{_TAGS}>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>|<\|channel\|>final<\|message\|>|\Aanalysis.*?assistantfinal",
    re.IGNORECASE | re.DOTALL,
)
# The mark of a turn with its role, where an output begins with it.
_BEGINS = re.compile(
    r"\s*(?:<s>|<bos>|<\|begin_of_text\|>)?\s*(?:(?:<\|im_start\|>|<start_of_turn>)(?:assistant|model)\s*"
    r"|<\|start_header_id\|>assistant<\|end_header_id\|>\s*|<\|assistant\|>\s*|\[/INST\]\s*|<\|START_RESPONSE\|>\s*)",
    re.IGNORECASE,
)
# Marks that end a turn, and those that begin another.
_ENDS = re.compile(
    r"<\|(?:im_end|im_start|eot_id|eom_id|end_of_text|endoftext|end|return|start|user|system|start_header_id"
    r"|END_OF_TURN_TOKEN|END_RESPONSE)\|>|</s>|<eos>|<end_of_turn>|<start_of_turn>|<｜end▁of▁sentence｜>|\[INST\]",
    re.IGNORECASE,
)
# A model that was not trained to chat goes on with another question.
_NEXT = re.compile(
    r"\n\s*(?:#+ *|\*\*)?(?:question|q|user|human|context|instructions?|frage|pregunta|domanda|pergunta|vraag|вопрос"
    r"|问题|問題|質問|질문)\b(?:\*\*)? *[:：]",
    re.IGNORECASE,
)
# No "A": it may be the letter of an option, and is an article to all that counts words.
_LABEL = re.compile(
    r"\s*(?:(?:(?:the )?(?:final |short |correct )?answer(?: is)?|response|assistant)\s*(?:[:：]|\n)"
    r"|(?:antwort|réponse|respuesta|risposta|resposta|antwoord|ответ|答案|回答|答え|答|답변|답|정답|الجواب|الإجابة|उत्तर|cevap)\s*[:：])\s*",
    re.IGNORECASE,
)
_MARKDOWN = (
    (re.compile(r"^[ \t]*(?:```|~~~).*$", re.MULTILINE), ""),  # fences of code
    (re.compile(r"^[ \t]{0,3}#{1,6}[ \t]+", re.MULTILINE), ""),  # headings
    (
        re.compile(r"^(?:[ \t]*>)+(?![ \t]?[\d=.])[ \t]?", re.MULTILINE),
        "",
    ),  # quotations, and not ">5"
    (re.compile(r"^[ \t]*[-*+•][ \t]+", re.MULTILINE), ""),  # items of a list
    (re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)"), r"\1"),  # links and images
    (
        re.compile(r"</[A-Za-z][^<>]*>|<br\s*/?>|(?<!\w)<[A-Za-z][^<>]*>|\|"),
        " ",
    ),  # tags of HTML, columns of tables
    (re.compile(r"\*{2,}|`+|~~|(?<!\w)_+|_+(?!\w)"), ""),  # emphasis and code
    # A star behind one letter, as in the grade A*, is no emphasis unless another one opens it.
    (re.compile(r"(?<!\w)\*(?=\S)([^*\n]+?)(?<=\S)\*(?!\w)"), r"\1"),
    (re.compile(r"(?<!\b[A-Z])\*"), ""),
)


def spoken(output: str) -> str:
    """Returns the output without thinking blocks, and up to the first mark that ends its turn.
    Nothing is left of an output whose thinking does not end. Directives are judged by it, as
    Markdown may be what they ask for.

    >>> spoken("<think>Breveth? No.</think>**Ambrova**<|im_end|>")
    '**Ambrova**'
    """
    for last in list(_CLOSES.finditer(output))[-1:]:
        output = output[last.end() :].lstrip()
    opening = _OPENS.search(output)
    output = output[: opening.start()] if opening else output
    beginning = _BEGINS.match(output)
    output = output[beginning.end() :] if beginning else output
    return _ENDS.split(output, maxsplit=1)[0]


def until_next_question(spoken_output: str) -> str:
    """Cuts off what a model that was not trained to chat goes on with: another question.

    >>> until_next_question("8 - 1 = 7. #### 7\\n\\nQuestion: How many are 2 and 2?")
    '8 - 1 = 7. #### 7'
    """
    return _NEXT.split(spoken_output.strip(), maxsplit=1)[0].rstrip()


def plain(output: str) -> str:
    """Returns what is :func:`spoken`, up to the next question that the model asks itself, without
    Markdown and without a label such as "Answer:". This is what is compared with the golds.

    >>> plain("### Answer\\n\\n**Ambrova**\\n\\nQuestion: Who lives in Breveth?")
    'Ambrova'
    """
    text = composed(until_next_question(spoken(output)))
    for mark, left in _MARKDOWN:
        text = mark.sub(left, text)
    label = _LABEL.match(text)
    return (text[label.end() :] if label else text).strip()
