"""Task ``prose``: running text, whose next tokens are measured and nothing is asked.

The context is compressed; a few words behind it lead over, and how likely the continuation is,
token by token, is ``gold_nll`` and ``next_token_accuracy``. Generated, the continuation tells facts
of the context once more, in another order: names and values that only the cache can tell. With
``prose(data=FILE)`` it is any text."""

import random
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import Question, Span
from datasets_gen.examples.jsonl import read_entries, read_mapping, read_text
from datasets_gen.examples.lexicon import draw_people
from datasets_gen.examples.task import Draft, Length, Request, Task, digest_rows
from datasets_gen.examples.wording import QuestionText, Wording
from datasets_gen.tasks.long_context import hide
from datasets_gen.writing.passage import ATTRIBUTES, draw_facts
from datasets_gen.writing.prose import prose_of_words
from datasets_gen.writing.questions import answerable

PEOPLE, FACTS, PROSE_WORDS = 3, (2, 3), (60, 120)
CONTEXT, LEAD, CONTINUATION = 150, 10, 60  # words of a given text
WINDOW = CONTEXT + LEAD + CONTINUATION
LEAST = 40  # words of a text, of which a quarter is then the continuation
TITLE = re.compile("= [^=].*[^=] =")


class TextStretch(NamedTuple):
    """A stretch of a given text: what is compressed, what leads over, and what is measured."""

    context: str
    lead: str
    continuation: str

    @classmethod
    def of(cls, words: Sequence[str], context: int) -> Self:
        """Cuts words; ``context``: how many are compressed."""
        lead = context + LEAD
        return cls(" ".join(words[:context]), " ".join(words[context:lead]), " ".join(words[lead:]))


def prose_task(texts: Sequence[str]) -> Task:
    """Makes the task over given texts, cut into stretches of 220 words; a text that is shorter is
    one stretch, the rest of a longer one is left out, and white space becomes a space. Raises
    :class:`DatasetError` where none has 40 words."""
    stretches: list[TextStretch] = []
    for words in map(str.split, texts):
        if LEAST <= len(words) < WINDOW:
            stretches.append(
                TextStretch.of(words, len(words) - LEAD - min(CONTINUATION, len(words) // 4))
            )
        # Without overlap: no word is measured twice, and none measured is compressed in the next.
        starts = range(0, len(words) - WINDOW + 1, WINDOW)
        stretches += [TextStretch.of(words[start : start + WINDOW], CONTEXT) for start in starts]
    if not stretches:
        raise DatasetError(f"no text of the data has {LEAST} words: give longer ones")
    return replace(_of_stretches(stretches), with_length=partial(_with_length, texts))


def _of_stretches(stretches: Sequence[TextStretch]) -> Task:
    return replace(
        PROSE,
        make=partial(_cut, stretches),
        contexts={"quick": min(PROSE.contexts["quick"], len(stretches)), "paper": len(stretches)},
        variant=f"text.{digest_rows(stretches)}",
        most=len(stretches),
    )


def _with_length(texts: Sequence[str], length: Length) -> Task:
    """Makes the task over given texts with contexts of as many words as make at most so many
    tokens."""
    tokens, count = length.tokens, length.count
    if length.depth is not None:
        raise DatasetError(
            "depth is for generated contexts: a given text states its facts where they are"
        )
    stretches: list[TextStretch] = []
    for words in map(str.split, texts):
        start = 0
        while len(words) - start > LEAD + CONTINUATION:
            left = range(len(words) - start - LEAD - CONTINUATION + 1)
            # As many words as fit, plus one: each has a token at least.
            beyond = bisect_right(
                left[: tokens + 1],
                tokens,
                key=lambda size: count(" ".join(words[start : start + size])),
            )
            if beyond == 1 or beyond == len(left):  # not a word fits, or the text ends before
                break
            end = start + beyond - 1 + LEAD + CONTINUATION
            stretches.append(TextStretch.of(words[start:end], beyond - 1))
            start = end
    if not stretches:
        raise DatasetError(
            f"no text of the data has {tokens:,} tokens and {LEAD + CONTINUATION} words behind "
            f"them: give longer ones, or fewer --context-tokens"
        )
    return _of_stretches(stretches)


def join_articles(rows: Iterable[tuple[str, object]]) -> tuple[str, ...]:
    """Joins rows of WikiText, each with its place, to articles: a row holds a paragraph or a
    heading in the field ``text``, and the title of an article stands between single equals signs.
    Raises :class:`DatasetError` for a row without text."""
    articles: list[list[str]] = [[]]
    for where, entry in rows:
        text = read_mapping(entry, where).get("text")
        if not isinstance(text, str):
            raise DatasetError(f"{where}: 'text' is no text")
        if TITLE.fullmatch(text.strip()):
            articles.append([])
        articles[-1].append(text)
    return tuple("".join(article) for article in articles)


def read_texts(path: Path, option: str = "data=") -> tuple[str, ...]:
    """Reads the field ``text`` of each row of a JSONL file, or all of any other file as one text.
    Raises :class:`DatasetError` for a file that is not there, or is no text."""
    if path.suffix == ".jsonl":
        return tuple(
            read_text(read_mapping(entry, where), "text", where)
            for where, entry in read_entries(path, "text")
        )
    try:
        return (path.read_text(encoding="utf-8"),)
    except OSError as error:
        raise DatasetError(f"{option}{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{option}{path} cannot be read as text in UTF-8: give a .txt or .jsonl file"
        ) from error


def _cut(stretches: Sequence[TextStretch], rng: random.Random, request: Request) -> Draft:
    stretch = stretches[request.number]
    return Draft(stretch.context, (), (_continuation(stretch.lead, stretch.continuation, ()),))


def _make(rng: random.Random, request: Request) -> Draft:
    """States facts in prose, and then most of them again; the first one said again leads over."""
    people = draw_people(rng, request.split, PEOPLE)
    facts = draw_facts(rng, people, ATTRIBUTES, FACTS)
    rng.shuffle(facts)
    wording = Wording(3, request.held_out)
    statements = [(fact, wording.choose(rng, fact.relation.statements)) for fact in facts]
    depths = sorted(rng.random() for _ in facts)
    passage, distractors = hide(statements, depths, prose_of_words(rng, rng.randint(*PROSE_WORDS)))
    # In another order, or the text itself would tell which sentence comes next.
    again = rng.sample(passage.facts, len(passage.facts))
    lead, *rest = (passage.text[stated.sentence.start : stated.sentence.end] for stated in again)
    spans: list[Span] = []
    # The first one leads over: it is read and not measured.
    for stated in again[1:]:
        spans += (stated.value.as_a("answer"), stated.sentence)
    question = _continuation(lead, " ".join(rest), tuple(spans))
    return Draft(passage.text, passage.stated(), (question,), distractors)


def _continuation(lead: str, continuation: str, spans: tuple[Span, ...]) -> Question:
    """Returns a question without gold answers, since no answer is judged."""
    return replace(
        answerable(QuestionText(lead), "", "thing", "forward", spans), golds=(), target=continuation
    )


PROSE = Task(
    name="prose",
    version="1.0.0",
    description="Running text, of the generators or of prose(data=FILE): how likely its next tokens are, nothing is asked",
    make=_make,
    # Of next tokens: a full stop at every place, the commonest token (of 100 texts, reference
    # tokenizer).
    chances=(12.6,),
    contexts={"quick": 12, "paper": 100},
    questions_per_context=1,
    instruction="",
    abstentions=(),
    max_new_tokens=1,
    role="text",
)
