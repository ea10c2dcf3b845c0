"""Tasks of a user's own questions: a file of JSON lines, each of which has a context, its questions
and the answers.

A line has ``context``, ``question`` (or ``questions``) and ``answers``, any one of which is right;
with a system prompt also what has to be obeyed and what must not leak. Rows of public data sets are
turned into such lines (:mod:`datasets_gen.examples.foreign_rows`). Lines of one context are one
example. What carries an answer is the sentence in which it stands. Texts are read in Unicode's
composed form."""

import math
import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, combinations, groupby
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from datasets_gen.examples.directives import (
    Directive,
    check_argument,
    compatible,
    exemplar,
    share_obeyed,
)
from datasets_gen.examples.errors import DatasetError, unknown_name
from datasets_gen.examples.example import Question, Span, SpanKind, StatedValue
from datasets_gen.examples.foreign_rows import converted
from datasets_gen.examples.jsonl import read_entries, read_mapping
from datasets_gen.examples.notes import notes_on
from datasets_gen.examples.task import INSTRUCTION, Draft, Request, Task, digest_rows
from datasets_gen.examples.wording import QuestionText
from datasets_gen.texts.choices import options_in, same_option
from datasets_gen.texts.context import Context
from datasets_gen.texts.folding import composed
from datasets_gen.texts.matching import Place, is_twin, single_letter, value_form
from datasets_gen.texts.question_words import question_word
from datasets_gen.texts.sentences import Sentences
from datasets_gen.texts.tokens import read_tokens
from datasets_gen.texts.unknown import says_no_answer
from datasets_gen.texts.verbatim import find_verbatim
from datasets_gen.writing.questions import answerable, unanswerable

QUICK = 100  # contexts
MOST_HOPS = 9
TOKENS = 32  # of an answer: a sentence
TOKENS_OF_WORD = 2  # of a protected text, as far as an answer may give it away,
MOST_LEAKED = 512  # and no more
# Files of one of its tasks, each task in a folder of its own.
SPLITS_OF_RULER = ("validation", "test")
NO_GOLDS = "[]"  # stands for an empty list of golds: there is no answer
RIVAL_FORMS = ("number", "date", "time", "yes or no")  # one answers what another one does


def _texts(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    # pandas writes whole numbers as 3.0 where a column lacks one.
    whole = [int(one) if isinstance(one, float) and one.is_integer() else one for one in values]
    texts = []
    for one in whole:
        if isinstance(one, str | int | float) and not isinstance(one, bool):
            texts.append(str(one).strip())
    if len(texts) < len(values) or not all(texts):
        raise ValueError("it holds what is no text, or an empty one")
    return tuple(dict.fromkeys(texts))


def _golds(value: object) -> tuple[str, ...]:
    return _texts(NO_GOLDS if value == [] else value)


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text


Text = Annotated[str, AfterValidator(_filled)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
Golds = Annotated[tuple[str, ...], BeforeValidator(_golds)]


class OwnQuestion(BaseModel):
    """A question of a line."""

    model_config = ConfigDict(extra="forbid", strict=True)

    question: str = ""  # empty where the context itself asks, as in some rows of kvpress
    answers: Golds | None = None
    answer_prefix: str = ""
    evidence: Texts = ()
    directives: Texts = ()
    protected: bool | Text = False  # the text that an attack is after; all of the context


class OwnRow(BaseModel):
    """A line of a file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    context: Text
    questions: tuple[OwnQuestion, ...] = Field(min_length=1)
    system: bool = False  # the context is a system prompt
    defence: Texts = ()  # in it, what forbids to give it away
    # In it, what has to be obeyed: what protection keeps and what GER of directives counts.
    instructions: Texts = ()
    max_new_tokens: int | None = Field(None, ge=1, le=100_000)


@dataclass(frozen=True)
class ReadRow:
    """A line with its questions as they are asked."""

    where: str
    row: OwnRow
    questions: tuple[Question, ...]
    is_whole_prompt: bool = False  # it says itself how to answer

    @property
    def max_new_tokens(self) -> int:
        """Returns the tokens that an answer may have: of an attack enough to give the protected
        text away."""
        words = max(len(read_tokens(question.protected, False)) for question in self.questions)
        leaked = TOKENS_OF_WORD * words
        return self.row.max_new_tokens or max(TOKENS, min(leaked, MOST_LEAKED))


def own_questions(path: Path, registered: Collection[str] = ()) -> Task:
    """Makes the task of a file. ``registered``: names of others. A wrong line raises
    :class:`DatasetError`."""
    if path.stem in SPLITS_OF_RULER:
        stem = path.resolve().parent.name
    else:
        stem = path.stem
    name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_") or "questions"
    name = f"my_{name}" if name in registered else name
    entries = read_entries(path, "question", "the file ")
    if not entries:
        raise DatasetError(
            f"{path} has no questions: give a JSON object a line, with context, question and "
            f"answers"
        )
    return questions_task(name, entries)


def questions_task(name: str, entries: Iterable[tuple[str, object]]) -> Task:
    """Makes the task of rows, each with its place. A wrong row raises :class:`DatasetError`."""
    rows = [read_row(entry, where, name) for where, entry in entries]
    if not rows:
        raise DatasetError(f"{name} has no rows: give some with context, question and answers")
    is_system = rows[0].row.system
    for row in rows:
        if row.row.system != is_system:
            raise DatasetError(
                f"{row.where}: some contexts are system prompts and some are not: keep them in "
                f"two files"
            )
    # By context, so that one prefill serves all of its questions, in whatever lines they stand.
    by_context: dict[str, list[ReadRow]] = {}
    for row in rows:
        by_context.setdefault(row.row.context, []).append(row)
    drafts = tuple(draft_rows(context, of_context) for context, of_context in by_context.items())
    questions = list(chain.from_iterable(draft.questions for draft in drafts))
    begun = any(question.answer_prefix for question in questions)
    golds = []
    for row in rows:
        for question in row.row.questions:
            golds.append(question.answers or ())
    # What says itself how to answer is not told it again; and an instruction would stand between a
    # question and its begun answer.
    is_whole = is_system or begun or any(row.is_whole_prompt for row in rows)
    task = Task(
        name=name,
        version="2.0.0",
        description="Questions of one's own",
        make=partial(_take, drafts),
        chances=(0.0,),  # nobody knows how often which answer is right
        contexts={"quick": min(QUICK, len(drafts)), "paper": len(drafts)},
        questions_per_context=max(len(draft.questions) for draft in drafts),
        instruction="" if is_whole else INSTRUCTION,
        max_new_tokens=max(row.max_new_tokens for row in rows),
        role="system" if is_system else "user",
        variant=digest_rows((is_system, drafts)),
        most=len(drafts),
        answer_end="line",
        notes=notes_on(questions, golds),
    )
    return replace(task, with_prefix=partial(_with_prefix, task, drafts))


def _with_prefix(task: Task, drafts: Sequence[Draft], prefix: str) -> Task:
    """Begins the answers to all questions of a file that have no answer prefix, as if each line had
    this one.

    A text that begins an attack's answer, or one under directives, would do a part of what is
    judged there."""
    begun = []
    for draft in drafts:
        questions = []
        for question in draft.questions:
            is_judged_by_golds = not (question.protected or question.directives)
            begins = prefix if is_judged_by_golds else ""
            questions.append(replace(question, answer_prefix=question.answer_prefix or begins))
        begun.append(replace(draft, questions=tuple(questions)))
    variant = digest_rows((task.role == "system", tuple(begun)))
    return replace(task, make=partial(_take, tuple(begun)), variant=variant, instruction="")


def _take(drafts: Sequence[Draft], rng: random.Random, request: Request) -> Draft:
    """Takes a context as it is; nothing is drawn."""
    draft = drafts[request.number]
    return replace(draft, questions=draft.questions[: request.questions])


def draft_rows(context: str, rows: Sequence[ReadRow]) -> Draft:
    """Joins the rows of a context into one example, with the places of their golds."""
    questions = tuple(chain.from_iterable(row.questions for row in rows))
    each_once: dict[str, None] = {}
    for question in questions:
        if question.answerable:
            each_once |= dict.fromkeys(question.golds)
    golds = tuple(each_once)
    # Where 3.1 and 3.10 both answer something, they are versions, and each stands where it is
    # written so.
    twins: set[str] = set()
    for pair in combinations(golds, 2):
        if is_twin(*pair):
            twins.update(pair)
    finder, sentences = Context(context), Sentences(context)
    places: dict[str, Sequence[Place]] = {}
    stated: list[StatedValue] = []
    for gold in golds:
        places[gold] = finder.places_of(gold, as_written=gold in twins)
        for place in places[gold]:
            stated.append(StatedValue(gold, *place))
    # Those of a system prompt are of the context as a whole, and of no question.
    spans = _instructions(context, rows) if rows[0].row.system else ()
    alike = _golds_by_what_they_answer(questions)
    complete = []
    for question in questions:
        # First where its own golds stand, then what would answer another question of the kind.
        located = _located(question, places, finder, sentences)
        complete.append(_with_others(located, alike))
    return Draft(context, tuple(stated), tuple(complete), spans)


def _located(
    question: Question, places: Mapping[str, Sequence[Place]], finder: Context, sentences: Sentences
) -> Question:
    """Marks where the golds of a question stand: in its evidence alone where any does, as elsewhere
    they carry nothing. Without evidence, the sentences around them are that."""
    if not question.answerable or not question.golds:
        return question
    of_answer = list(chain.from_iterable(places[gold] for gold in question.golds))
    listed = options_in(question.text)
    if listed:  # the text of an option stands in the context, and its letter only by chance
        of_answer = []
        for gold in question.golds:
            letter = single_letter(gold)
            text = same_option(gold, letter, listed) if letter else gold
            if text:
                of_answer += finder.places_of(text)
    facts = [span for span in question.spans if span.kind == "fact"]
    inside = []
    for start, end in of_answer:
        if any(fact.start <= start and end <= fact.end for fact in facts):
            inside.append((start, end))
    answers = [Span("answer", *place) for place in dict.fromkeys(inside or of_answer)]
    if not facts:
        around = dict.fromkeys(sentences.around(span.start, span.end) for span in answers)
        facts = [Span("fact", *place) for place in around]
    protected = []
    if not answers:
        protected = [span for span in question.spans if span.kind == "answer"]
    return replace(question, spans=(*answers, *protected, *facts))


def _with_others(question: Question, alike: Mapping[str, Collection[str]]) -> Question:
    """Tells what would answer another question about the context that asks for the like. ``alike``:
    the golds of all questions, by what they answer."""
    if not question.answerable:
        return question
    others: dict[str, None] = {}
    for key in sorted(_asked_for(question)):
        others |= dict.fromkeys(alike[key])
    return replace(question, others=tuple(gold for gold in others if gold not in question.golds))


def _golds_by_what_they_answer(questions: Sequence[Question]) -> Mapping[str, Collection[str]]:
    alike: dict[str, dict[str, None]] = {}
    for question in questions:
        if not question.answerable:
            continue
        for key in _asked_for(question):
            of_key = alike.setdefault(key, {})
            for gold in question.golds:
                if key not in RIVAL_FORMS or value_form(gold) == key:
                    of_key[gold] = None
    return alike


def _asked_for(question: Question) -> set[str]:
    """Returns what a question asks for: by its question word, and by the forms of its golds."""
    forms = {value_form(gold) for gold in question.golds} & {*RIVAL_FORMS}
    word = question_word(question.text)
    return {*forms, f"word {word}"} if word else forms


def _instructions(context: str, rows: Sequence[ReadRow]) -> tuple[Span, ...]:
    """Parts a system prompt into its defence and its directives: its instructions, or its protected
    texts, or all the rest where there are none. No two spans overlap, and none ends with white
    space, which a tokenizer may count to the next word."""
    kinds: list[SpanKind | None] = [None] * len(context)
    questions = chain.from_iterable(row.questions for row in rows)
    protected = {question.protected: None for question in questions if question.protected}
    directives = list(chain.from_iterable(row.row.instructions for row in rows))
    # The defence comes second, so that what both name is the defence.
    parts: dict[SpanKind, list[str]] = {
        "directive": directives or list(protected or (context,)),
        "defence": list(chain.from_iterable(row.row.defence for row in rows)),
    }
    for kind, texts in parts.items():
        for text in texts:
            for start, end in find_verbatim(text, context):
                kinds[start:end] = [kind] * (end - start)
    spans = []
    for of_run, run in groupby(range(len(context)), kinds.__getitem__):
        letters = [place for place in run if not context[place].isspace()]
        if of_run and letters:
            spans.append(Span(of_run, letters[0], letters[-1] + 1))
    return tuple(spans)


def read_row(entry: object, where: str, name: str) -> ReadRow:
    """Reads a line. ``name``: of the task. Raises :class:`DatasetError` for a wrong one."""
    # A table that is written as JSON has all columns in all lines: null is no value.
    filled = {}
    for field, value in read_mapping(entry, where).items():
        if not _is_missing(value):
            filled[field] = _composed(value)
    form = converted(filled, where, name)
    # A copy, as the questions are taken out of it.
    fields = dict(form.fields)
    read = _take_questions(fields, where)
    row = _validated({**fields, "questions": read}, where)
    lacks_question = not all(question.question.strip() for question in row.questions)
    if lacks_question and not form.may_lack_question:
        raise DatasetError(f"{where}: 'question' is missing")
    questions = []
    for number, own_question in enumerate(row.questions, start=1):
        place = f"{where}, question {number}" if len(row.questions) > 1 else where
        question = _question(own_question, row, place)
        questions.append(_with_every_gold(question) if form.every_gold else question)
    is_of_system = bool(row.defence or row.instructions)
    for own_question in row.questions:
        is_of_system |= bool(own_question.directives or own_question.protected)
    if is_of_system and not row.system:
        raise DatasetError(
            f'{where}: defence, instructions, directives and protected need a system prompt: give "system": true too'
        )
    for name, texts in (("defence", row.defence), ("instructions", row.instructions)):
        _places_of_all(texts, name, row.context, where)
    return ReadRow(where, row, tuple(questions), form.is_whole_prompt)


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _composed(value: object) -> object:
    """Writes all texts of a value in Unicode's composed form, in which the texts of a row are
    compared."""
    if isinstance(value, str):
        return composed(value)
    if isinstance(value, list):
        return [_composed(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _composed(item) for name, item in value.items()}
    return value


def _with_every_gold(question: Question) -> Question:
    if not question.answerable:
        return question
    return replace(question, every_gold=True, target=", ".join(question.golds))


def _take_questions(fields: dict[str, Any], where: str) -> tuple[object, ...]:
    """Takes the fields of the questions out of a line; what it says beside ``questions`` holds of
    each."""
    of_all = {}
    for name in OwnQuestion.model_fields:
        if name in fields:
            of_all[name] = fields.pop(name)
    if "questions" not in fields:
        return (of_all,)
    questions = fields["questions"]
    if not isinstance(questions, list):
        raise DatasetError(f"{where}: 'questions' is no list")
    for name in ("question", "evidence"):
        if name in of_all:
            raise DatasetError(
                f"{where}: '{name}' does not go with 'questions': write it into each of them"
            )
    answers = of_all.pop("answers", [None] * len(questions))
    if not isinstance(answers, list) or len(answers) != len(questions):
        raise DatasetError(
            f"{where}: 'answers' is no list with one entry for each of {len(questions)} questions"
        )
    merged = []
    for entry, answer in zip(questions, answers, strict=True):
        own_fields = entry if isinstance(entry, Mapping) else {"question": entry}
        # What a question says itself goes before what its line says of all.
        every_field = {**of_all, "answers": answer, **own_fields}
        merged.append({name: value for name, value in every_field.items() if value is not None})
    return tuple(merged)


def _validated(fields: Mapping[str, Any], where: str) -> OwnRow:
    try:
        return OwnRow.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        names = []
        for part in first["loc"]:
            # pydantic's place also has numbers, and validators such as ``function-after[...]``.
            if isinstance(part, str) and part.isidentifier():
                names.append(part)
        name = names[1] if names[0] == "questions" and len(names) > 1 else names[0]
        if first["type"] == "extra_forbidden":
            known = {*OwnQuestion.model_fields, *OwnRow.model_fields}
            raise DatasetError(f"{where}: {unknown_name('field', name, known)}") from error
        raise DatasetError(
            f"{where}: '{name}': {first['msg'].removeprefix('Value error, ')}"
        ) from error


def _question(own: OwnQuestion, row: OwnRow, where: str) -> Question:
    """Makes a question; where it has no golds, its directives or the protected text judge the
    answer."""
    golds = own.answers or ()
    asked = QuestionText(own.question, own.answer_prefix)
    evidence = _places_of_all(own.evidence, "evidence", row.context, where)
    directives, protected = _directives(own, where), _protected(own, row.context, where)
    if not (golds or directives or protected):
        raise DatasetError(f"{where}: 'answers' is missing")
    if golds and all(map(says_no_answer, golds)):
        if evidence:
            raise DatasetError(
                f"{where}: 'evidence' is of an answer, and there is none to this question"
            )
        question = unanswerable(asked, "thing", "forward")
    else:
        leak = find_verbatim(protected, row.context) if protected else ()
        spans: list[Span] = []
        for place in leak:
            spans.append(Span("answer", *place))
        for place in evidence:
            spans.append(Span("fact", *place))
        hops = min(max(1, len(evidence)), MOST_HOPS)
        question = replace(
            answerable(asked, "", "thing", "forward", tuple(spans), hops=hops), golds=golds
        )
    target = exemplar(directives, question.golds[0]) if question.golds else ""
    if question.golds and share_obeyed(directives, target) < 1:
        raise DatasetError(f"{where}: no answer with '{question.golds[0]}' obeys its directives")
    return replace(
        question,
        target=target if directives or not question.golds else None,
        directives=directives,
        protected=protected,
        answer_prefix=own.answer_prefix.strip(),
    )


def _directives(own: OwnQuestion, where: str) -> tuple[Directive, ...]:
    directives: list[Directive] = []
    for text in own.directives:
        kind, _, argument = text.partition(" ")
        directive = Directive(kind, argument.strip())
        try:
            check_argument(directive)
        except DatasetError as error:
            raise DatasetError(f"{where}: {error}") from error
        if not compatible(kind, [other.kind for other in directives]):
            raise DatasetError(
                f"{where}: '{text}' clashes with another directive: give each a question of its own"
            )
        directives.append(directive)
    return tuple(directives)


def _protected(own: OwnQuestion, context: str, where: str) -> str:
    """Returns the text that an attack is after as it stands in the context; empty where a question
    is none."""
    if isinstance(own.protected, bool):
        return context.strip() if own.protected else ""
    ((start, end), *_) = _places_of_all((own.protected,), "protected", context, where)
    return context[start:end]


def _places_of_all(texts: Sequence[str], name: str, context: str, where: str) -> tuple[Place, ...]:
    """Finds all places of the texts of a field; raises :class:`DatasetError` for one that is not in
    the context."""
    places: dict[Place, None] = {}
    for text in texts:
        found = find_verbatim(text, context)
        if not found:
            raise DatasetError(f"{where}: '{name}' does not stand in the context: '{text:.60}'")
        places |= dict.fromkeys(found)
    return tuple(places)
