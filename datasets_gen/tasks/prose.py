"""Task ``prose``: running text, whose next tokens are measured and nothing is asked.

The context is compressed; a few words behind it lead over, and how likely the continuation is, token by token, is
``gold_nll`` and ``next_token_accuracy``. Generated, the continuation tells facts of the context once more, in
another order: names and values that only the cache can tell. With ``--data`` it is any text.
"""

import hashlib
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import Question, Span
from datasets_gen.examples.jsonl import mapping_of, read_entries, text_of
from datasets_gen.examples.lexicon import draw_people
from datasets_gen.examples.task import Draft, Request, Task
from datasets_gen.examples.wording import QuestionText, Wording
from datasets_gen.tasks.long_context import lay_out
from datasets_gen.writing.passage import draw_facts
from datasets_gen.writing.prose import prose_of_words
from datasets_gen.writing.questions import answerable
from datasets_gen.writing.relations import ATTRIBUTES

PEOPLE, FACTS, PROSE_WORDS = 3, (2, 3), (60, 120)
CONTEXT, LEAD, CONTINUATION = 150, 10, 60  # words of a given text
WINDOW = CONTEXT + LEAD + CONTINUATION
TITLE = re.compile("= [^=].*[^=] =")


def prose_of(texts: Sequence[str]) -> Task:
    """Makes the task over given texts, cut into stretches of 220 words; the rest of a text is left out, and white space
    becomes a space. Raises :class:`DatasetError` where none is as long."""
    stretches = tuple(
        " ".join(words[start : start + WINDOW])
        for words in map(str.split, texts)
        for start in range(0, len(words) - WINDOW + 1, WINDOW)
    )
    if not stretches:
        raise DatasetError(f"no text of the data has {WINDOW} words: give longer ones")
    digest = hashlib.sha256(ascii(stretches).encode()).hexdigest()[:8]
    return replace(
        PROSE,
        make=partial(_cut, stretches),
        contexts={"quick": min(PROSE.contexts["quick"], len(stretches)), "paper": len(stretches)},
        variant=f"text.{digest}",
        most=len(stretches),
    )


def articles_of(rows: Iterable[tuple[str, object]]) -> tuple[str, ...]:
    """Joins rows of WikiText, each with its place, to articles: a row holds a paragraph or a heading in the field
    ``text``, and the title of an article stands between single equals signs."""
    articles: list[list[str]] = [[]]
    for where, entry in rows:
        text = mapping_of(entry, where).get("text")
        if not isinstance(text, str):
            raise DatasetError(f"{where}: 'text' is no text")
        if TITLE.fullmatch(text.strip()):
            articles.append([])
        articles[-1].append(text)
    return tuple("".join(article) for article in articles)


def read_texts(path: Path, option: str = "--data") -> tuple[str, ...]:
    """Reads the field ``text`` of each row of a JSONL file, or all of any other file as one text; the option names the
    file."""
    if path.suffix == ".jsonl":
        return tuple(
            text_of(mapping_of(entry, where), "text", where) for where, entry in read_entries(path, "text", option)
        )
    try:
        return (path.read_text(encoding="utf-8"),)
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{option} {path} cannot be read as text in UTF-8: give a .txt or .jsonl file") from error


def _cut(stretches: Sequence[str], rng: random.Random, request: Request) -> Draft:
    if request.split != "test":
        raise DatasetError(f"{PROSE.name} over given texts has a test split only, not '{request.split}'")
    words = stretches[request.number].split(" ")
    context, lead, continuation = words[:CONTEXT], words[CONTEXT : CONTEXT + LEAD], words[CONTEXT + LEAD :]
    return Draft(" ".join(context), (), (_continuation(" ".join(lead), " ".join(continuation), ()),))


def _make(rng: random.Random, request: Request) -> Draft:
    """States facts in prose, and then most of them again; the first one said again leads over."""
    people = draw_people(rng, request.split, PEOPLE)
    facts = draw_facts(rng, people, ATTRIBUTES, FACTS)
    rng.shuffle(facts)
    wording = Wording(3, request.held_out)
    statements = [(fact, wording.choose(rng, fact.relation.statements)) for fact in facts]
    depths = sorted(rng.random() for _ in facts)
    passage, distractors = lay_out(statements, depths, prose_of_words(rng, rng.randint(*PROSE_WORDS)))
    again = rng.sample(passage.facts, len(passage.facts))
    lead, *rest = (passage.text[stated.sentence.start : stated.sentence.end] for stated in again)
    spans = tuple(span for stated in again[1:] for span in (stated.value.as_a("answer"), stated.sentence))
    return Draft(passage.text, passage.stated(), (_continuation(lead, " ".join(rest), spans),), distractors)


def _continuation(lead: str, continuation: str, spans: tuple[Span, ...]) -> Question:
    """Returns a question without gold answers, since no answer is judged."""
    return replace(answerable(QuestionText(lead), "", "thing", "forward", spans), golds=(), target=continuation)


PROSE = Task(
    name="prose",
    version="1.0.0",
    description="Running text, of the generators or from --data FILE: how likely its next tokens are, nothing is asked",
    make=_make,
    top_level=0,
    chance=12.6,  # of next tokens: a full stop at every place, the commonest token (of 100 texts, reference tokenizer)
    contexts={"quick": 12, "paper": 100},
    questions_per_context=1,
    instruction="",
    abstentions=(),
    max_new_tokens=1,
    role="text",
)
