"""Tasks ``niah_*``: needles that state values of keys, in noise, prose or other needles (arXiv
2404.06654)."""

import random
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Literal

from datasets_gen.examples.errors import DatasetError
from datasets_gen.examples.example import AnswerType, Question, Span
from datasets_gen.examples.task import Draft, Length, Request, Task, digest_rows
from datasets_gen.examples.wording import QuestionText
from datasets_gen.tasks.ruler.form import (
    Needle,
    essays_of_tokens,
    fit,
    lay_out,
    noise_of_tokens,
    occurrences,
    ruler_task,
    vocabulary,
)
from datasets_gen.writing.prose import prose_of_tokens
from datasets_gen.writing.questions import answerable

MAX_NEW_TOKENS = 128
ONE_QUESTION, SEVERAL_QUESTIONS = "1.0.0", "2.0.0"  # versions
NEEDLE = "One of the special magic {kind} for {{subject}} is: {{answer}}."
LEAD = "A special magic {one} is hidden in the text below. Remember it: you will be asked for the {one} afterwards."
LEAD_OF_SEVERAL = (
    "Several special magic {several} are hidden in the text below. Remember them: you will be "
    "asked for the {several} afterwards."
)
QUESTION = "What is the special magic {one} for {keys} that the text mentions?"
QUESTION_OF_SEVERAL = "What are all the special magic {several} for {keys} that the text mentions?"
PREFIX = "The special magic {one} for {keys} mentioned in the provided text is"
PREFIX_OF_SEVERAL = "The special magic {several} for {keys} mentioned in the provided text are"

END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s")
Fill = Callable[[random.Random, Length, Callable[[list[str]], str]], list[str]]
Kind = Literal["word", "number", "uuid"]
Haystack = Literal["noise", "prose", "needles"]
IN_WORDS = {
    "noise": "in sentences of noise, repeated",
    "prose": "in prose",
    "needles": "in a haystack of such needles",
}


@dataclass(frozen=True)
class Form:
    """Tells one of these tasks from the others."""

    name: str
    haystack: Haystack
    key: Kind = "word"
    value: Kind = "number"
    keys: int = 1  # that may be asked for, beside those of the haystack
    values: int = 1  # of each key
    queried: int = 1  # of the keys, in one question

    @property
    def questions(self) -> int:
        """Returns how many questions a context has, each about another key. RULER asks the first:
        what reading a context takes is spent better on several."""
        return self.keys // self.queried

    @property
    def golds(self) -> int:
        return self.values * self.queried

    @property
    def description(self) -> str:
        if self.values > 1:
            stated = f"{self.values} {self.value}s"
        else:
            stated = f"a {self.value}"
        keys = f"a {self.key} as key"
        if self.keys > 1:
            queried = "each" if self.queried == 1 else "all"
            keys = f"each of {self.keys} keys, {queried} of them asked for"
        return f"RULER's needles {IN_WORDS[self.haystack]}: {stated} for {keys}"


FORMS = {
    form.name: form
    for form in (
        Form("niah_single_1", "noise"),
        Form("niah_single_2", "prose"),
        Form("niah_single_3", "prose", value="uuid"),
        Form("niah_multikey_1", "prose", keys=4),
        # RULER has one such key. Its needle looks as those of the haystack do.
        Form("niah_multikey_2", "needles", keys=8),
        Form("niah_multikey_3", "needles", key="uuid", value="uuid", keys=8),
        Form("niah_multivalue", "prose", values=4),
        Form("niah_multiquery", "prose", keys=4, queried=4),
    )
}


def draw_new(rng: random.Random, kind: Kind, used: set[str]) -> str:
    """Draws a key or a value that is not used yet, and adds it to those that are."""
    while True:
        match kind:
            case "word":
                text = f"{rng.choice(vocabulary().adjectives)}-{rng.choice(vocabulary().nouns)}"
            case "number":
                # Seven digits, as RULER has.
                text = str(rng.randint(10**6, 10**7 - 1))
            case "uuid":
                # Not uuid4, which draws from the system and not from the seed.
                text = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        if text not in used:
            used.add(text)
            return text


def _make(
    rng: random.Random, request: Request, length: Length, form: Form, essays: Fill = prose_of_tokens
) -> Draft:
    # No key and no value stands twice, not even in a haystack of needles, or a question might have
    # two answers. RULER draws without looking.
    used: set[str] = set()
    template = NEEDLE.format(kind=f"{form.value}s")

    def draw_needle(key: str, drawn_from: random.Random) -> Needle:
        value = draw_new(drawn_from, form.value, used)
        return Needle(template, {"subject": key, "answer": value})

    keys = [draw_new(rng, form.key, used) for _ in range(form.keys)]
    needles: list[Needle] = []
    for key in keys:
        needles += [draw_needle(key, rng) for _ in range(form.values)]
    # The first keys are asked for: unshuffled their needles would always stand first. RULER
    # shuffles all contexts of a run in one way.
    rng.shuffle(needles)
    # Anywhere, where RULER has 40 places at equal distances.
    depths = length.depths(rng, len(needles))
    lead_template = LEAD if form.golds == 1 else LEAD_OF_SEVERAL
    lead = lead_template.format(one=form.value, several=f"{form.value}s")
    joint = " " if form.haystack == "prose" else "\n"
    write = partial(lay_out, lead, needles=needles, depths=depths, joint=joint)
    # Of one seed, contexts of any length tell and ask the same: the haystack has a generator of its
    # own.
    for_hay, hay = random.Random(rng.getrandbits(64)), list[str | Needle]()
    if form.haystack == "needles":

        def first(number: int) -> list[str | Needle]:
            while len(hay) < number:
                hay.append(draw_needle(draw_new(for_hay, form.key, used), for_hay))
            # Kept from try to try: a longer haystack begins as a shorter one does.
            return hay[:number]

        hay = first(fit(length, lambda number: write(first(number)).text))
    else:
        fill = noise_of_tokens if form.haystack == "noise" else essays
        hay = [*fill(for_hay, length, lambda hay: write(hay).text)]
    laid = write(hay)
    questions: list[Question] = []
    evidence: list[tuple[Span, ...]] = []
    for number in range(min(form.questions, request.questions)):
        queried = keys[number * form.queried : (number + 1) * form.queried]
        places: list[tuple[Span, ...]] = []
        for key in queried:
            # Of several values all are asked for, so that every one is evidence.
            for needle, spans in zip(needles, laid.needles, strict=True):
                if needle.words["subject"] == key:
                    places.append(spans)
        questions.append(_question(form, queried, laid.text, places))
        evidence += places
    others = (spans[0].as_a("distractor") for spans in laid.needles if spans not in evidence)
    stated = occurrences(laid.text, used)
    return Draft(laid.text, stated, tuple(questions), (*laid.distractors, *others))


def _question(
    form: Form, queried: Sequence[str], text: str, spans: Sequence[tuple[Span, ...]]
) -> Question:
    places = tuple(chain.from_iterable(spans))
    golds = tuple(text[span.start : span.end] for span in places if span.kind == "answer")
    keys = queried[-1]
    if len(queried) > 1:
        keys = f"{', '.join(queried[:-1])} and {keys}"
    words = {"one": form.value, "several": f"{form.value}s", "keys": keys}
    kind: AnswerType = "numeral" if form.value == "number" else "thing"
    if form.golds == 1:
        question_text = QuestionText(QUESTION, PREFIX).format(**words)
        return answerable(question_text, golds[0], kind, "forward", places)
    question_text = QuestionText(QUESTION_OF_SEVERAL, PREFIX_OF_SEVERAL).format(**words)
    question = answerable(question_text, golds[0], kind, "forward", places, hops=len(golds))
    target = ", ".join(golds)
    return replace(question, golds=golds, type="part", target=target, every_gold=True)


def _niah(form: Form, essays: Fill = prose_of_tokens, variant: str = "") -> Task:
    # What a chat model writes behind the value is about something else, and several may stand in
    # several sentences.
    end: Literal["sentence", "tokens"] = "sentence" if form.golds == 1 else "tokens"
    make = partial(_make, form=form, essays=essays)
    return ruler_task(
        form.name,
        form.description,
        make,
        MAX_NEW_TOKENS,
        end,
        variant=variant,
        version=ONE_QUESTION if form.questions == 1 else SEVERAL_QUESTIONS,
        questions=form.questions,
    )


def takes_essays(task: Task) -> bool:
    """Tells whether a task hides its needles in prose."""
    return task.name in FORMS and FORMS[task.name].haystack == "prose"


def in_essays(task: Task, texts: Sequence[str]) -> Task:
    """Returns such a task with the sentences of given texts as its prose.

    Raises :class:`DatasetError` where the texts have no words.
    """
    sentences: list[str] = []
    for text in texts:
        plain = " ".join(text.split())
        sentences += filter(None, END_OF_SENTENCE.split(plain))
    if not sentences:
        raise DatasetError("the file of essays= has no words: give another one")
    essays = tuple(sentences)
    fill = partial(essays_of_tokens, essays)
    return _niah(FORMS[task.name], fill, f"essays.{digest_rows(essays)}")


TASKS = tuple(_niah(form) for form in FORMS.values())
