"""Tasks of a user's own questions: a file of JSON lines, each of which has a context, its questions and the answers.

A line is in one of three forms, told apart by its fields. Ours has ``context``, ``question`` (or ``questions``) and
``answers``, any one of which is right; of a system prompt it says too what has to be obeyed and what must not leak.
RULER's own output has ``input``, the whole prompt, and ``outputs``, all of which have to be named. kvpress's data sets
have ``context``, ``question`` and ``answer``. Lines of the same context are one example. Contexts are taken as they
are, and what carries an answer is where its words stand.
"""

import hashlib
import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path

from datasets_gen.examples.directives import Directive, check_argument, compatible, exemplar, share_obeyed
from datasets_gen.examples.errors import DatasetError, nearest, unknown_name
from datasets_gen.examples.example import Question, Span, SpanKind, StatedValue
from datasets_gen.examples.jsonl import field_of, golds_in, mapping_of, read_entries, text_of
from datasets_gen.examples.tags import MOST_HOPS
from datasets_gen.examples.task import ABSTENTION, INSTRUCTION, Draft, Request, Task
from datasets_gen.examples.wording import QuestionText
from datasets_gen.writing.questions import answerable, unanswerable

QUICK = 100  # contexts
TOKENS = 32  # of an answer: a sentence
MOST_TOKENS = 100_000
TOKENS_OF_WORD = 2  # of a protected text, as far as an answer may give it away,
MOST_LEAKED = 512  # and no more
NO_ANSWER = re.compile(r"i (don['’]t|do not) know\.?", re.IGNORECASE)
SPLITS_OF_RULER = ("validation", "test")  # files of one of its tasks, each task in a folder of its own
OF_QUESTION = ("question", "answers", "answer_prefix", "evidence", "directives", "protected")
OF_ALL_QUESTIONS = ("answer_prefix", "directives", "protected")  # what a line with several questions says of each
OF_ROW = ("context", "questions", *OF_QUESTION, "system", "defence", "max_new_tokens")
KNOWN = {*OF_ROW, "answer", "input", "outputs"}  # names that no other field may be a misspelling of
# Fields that say something in our form alone: in the others, whose further fields are ignored, they would be lost.
OURS_ALONE = ("questions", "answers", "evidence", "directives", "protected", "system", "defence")
# Where the question begins at the end of RULER's prompts: a line of its own, or what it says behind the last full stop
# where line ends were taken out.
BORDERS = tuple(
    map(re.compile, (r"\s*\n(?=[^\n]*$)", r"\s(?=Question: (?!.*Question: ))", r"(?<=[.!?])\s+(?=[^.!?\s][^.!?]*\?$)"))
)

Fields = Mapping[str, object]
Place = tuple[int, int]  # of the first character, and of the first behind


@dataclass(frozen=True)
class OwnRow:
    """A line of a file, in whatever form."""

    where: str
    context: str
    questions: tuple[Question, ...]
    max_new_tokens: int
    is_system: bool = False  # the context is a system prompt
    defence: tuple[Place, ...] = ()  # in it, what forbids to give it away
    is_whole_prompt: bool = False  # it says itself how to answer


def own_questions(path: Path, registered: Collection[str] = ()) -> Task:
    """Makes the task of a file; raises :class:`DatasetError` that names the first line that is wrong. ``registered``:
    names that other tasks have."""
    stem = path.resolve().parent.name if path.stem in SPLITS_OF_RULER else path.stem
    name = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_") or "questions"
    name = f"my_{name}" if name in registered else name
    rows = [_row(entry, where, name) for where, entry in read_entries(path, "question", "the file")]
    if not rows:
        raise DatasetError(f"{path} has no questions: give a JSON object a line, with context, question and answers")
    for row in rows:
        if row.is_system != rows[0].is_system:
            which = "a system prompt, and the first is none" if row.is_system else "no system prompt, and the first is"
            raise DatasetError(f"{row.where}: the context is {which}: keep them in two files")
    drafts = _drafts(rows)
    says_how = rows[0].is_system or any(row.is_whole_prompt for row in rows)
    begun = any(question.answer_prefix for draft in drafts for question in draft.questions)
    return Task(
        name=name,
        version="1.0.0",
        description="Questions of one's own, from a file",
        make=partial(_take, name, drafts),
        top_level=0,
        chance=0.0,  # nobody knows how often which answer is right
        contexts={"quick": min(QUICK, len(drafts)), "paper": len(drafts)},
        questions_per_context=max(len(draft.questions) for draft in drafts),
        instruction="" if says_how or begun else INSTRUCTION,
        max_new_tokens=max(row.max_new_tokens for row in rows),
        role="system" if rows[0].is_system else "user",
        variant=hashlib.sha256(ascii((rows[0].is_system, drafts)).encode()).hexdigest()[:8],
        most=len(drafts),
        answer_end="line",
    )


def _take(name: str, drafts: Sequence[Draft], rng: random.Random, request: Request) -> Draft:
    """Takes a context as it is; nothing is drawn."""
    if request.split != "test":
        raise DatasetError(f"{name} has a test split only, not '{request.split}'")
    draft = drafts[request.number]
    return replace(draft, questions=draft.questions[: request.questions])


def _drafts(rows: Sequence[OwnRow]) -> tuple[Draft, ...]:
    """Joins the rows of each context, in the order in which the contexts come first."""
    by_context: dict[str, list[OwnRow]] = {}
    for row in rows:
        by_context.setdefault(row.context, []).append(row)
    return tuple(_draft(context, of_context) for context, of_context in by_context.items())


def _draft(context: str, rows: Sequence[OwnRow]) -> Draft:
    questions = tuple(question for row in rows for question in row.questions)
    golds = dict.fromkeys(gold for question in questions if question.answerable for gold in question.golds)
    stated = tuple(StatedValue(gold, *place) for gold in golds for place in places_of(gold, context, whole_words=True))
    spans = _instructions(context, rows) if rows[0].is_system else ()
    return Draft(context, stated, questions, spans)


def _instructions(context: str, rows: Sequence[OwnRow]) -> tuple[Span, ...]:
    """Parts a system prompt into its defence and its directives: its protected texts, or all the rest where there are
    none. No two spans overlap, and none ends with white space, which a tokenizer may count to the next word."""
    kinds: list[SpanKind | None] = [None] * len(context)
    protected = dict.fromkeys(question.protected for row in rows for question in row.questions if question.protected)
    for text in protected or (context,):
        for start, end in places_of(text, context):
            kinds[start:end] = ["directive"] * (end - start)
    for start, end in (place for row in rows for place in row.defence):
        kinds[start:end] = ["defence"] * (end - start)
    spans = []
    for kind, run in groupby(range(len(context)), kinds.__getitem__):
        letters = [place for place in run if not context[place].isspace()]
        spans += [Span(kind, letters[0], letters[-1] + 1)] if kind and letters else []
    return tuple(spans)


def places_of(text: str, context: str, whole_words: bool = False) -> tuple[Place, ...]:
    """Finds where a text stands in a context, whatever white space is between its words."""
    words = r"\s+".join(map(re.escape, text.split()))
    pattern = rf"(?!\B\w){words}(?<!\w\B)" if whole_words else words
    return tuple(place.span() for place in re.finditer(pattern, context))


def _row(entry: object, where: str, name: str) -> OwnRow:
    """Reads a line. ``name``: of the task, which tells RULER's questions of two data sets from its others."""
    row = _given(mapping_of(entry, where))
    any_is_right = str(row.get("task", name)).startswith("qa")
    if {"input", "outputs"} <= row.keys():
        return _row_of_ruler(row, where, any_is_right)
    if "answer" in row:
        return _row_of_kvpress(row, where, any_is_right)
    return _own_row(row, where)


def _given(row: Fields) -> Fields:
    """Leaves out what is null: a table that is written as JSON has all columns in all lines."""
    return {name: value for name, value in row.items() if value is not None}


def _row_of_ruler(row: Fields, where: str, any_is_right: bool) -> OwnRow:
    """Reads a row of RULER, whose prompt ends with the question."""
    _check_other_form(row, where, "outputs")
    prompt = text_of(row, "input", where).strip()
    border = next(filter(None, (border.search(prompt) for border in BORDERS)), None)
    context, text = (prompt[: border.start()], prompt[border.end() :]) if border else (prompt, "")
    golds = _golds(row["outputs"], f"{where}: 'outputs'")
    question = _question(row, text, golds, context, where)
    question = _with_every_gold(question, not any_is_right)
    return OwnRow(where, context, (question,), _tokens(row, question, where), is_whole_prompt=True)


def _row_of_kvpress(row: Fields, where: str, any_is_right: bool) -> OwnRow:
    """Reads a row as kvpress's data sets have it; one that was a table of text has its lists as texts."""
    _check_other_form(row, where, "answer")
    context, text, answer = text_of(row, "context", where), row.get("question", ""), row["answer"]
    if not isinstance(text, str):
        raise DatasetError(f"{where}: 'question' is no text")
    listed: object = golds_in(answer) if isinstance(answer, str) else answer
    golds = _golds(listed, f"{where}: 'answer'")
    question = _question(row, text, golds, context, where)
    question = _with_every_gold(question, isinstance(listed, list) and listed != [answer] and not any_is_right)
    return OwnRow(where, context, (question,), _tokens(row, question, where))


def _check_other_form(row: Fields, where: str, field: str) -> None:
    if ours := next((name for name in row if name in OURS_ALONE), None):
        raise DatasetError(f"{where}: '{ours}' does not go with '{field}': give 'context', 'question' and 'answers'")
    misspelt = next((name for name in row if name not in KNOWN and nearest(name, KNOWN, 0.85)), None)
    if misspelt:
        raise DatasetError(f"{where}: {unknown_name('field', misspelt, KNOWN)}")


def _with_every_gold(question: Question, every: bool) -> Question:
    """Returns the question, whose answer has to name all golds if ``every``."""
    target = ", ".join(question.golds) if every and question.answerable else question.target
    return replace(question, every_gold=every and question.answerable, target=target)


def _own_row(row: Fields, where: str) -> OwnRow:
    _check_fields(row, where, OF_ROW)
    context = text_of(row, "context", where)
    is_system = row.get("system", False)
    if not isinstance(is_system, bool):
        raise DatasetError(f"{where}: 'system' is neither true nor false")
    asked = tuple(_asked(row, where))
    for name in ("defence", "directives", "protected"):
        if not is_system and any(fields.get(name) for fields in (row, *(fields for _, fields in asked))):
            raise DatasetError(f"{where}: '{name}' is for a system prompt: give \"system\": true too")
    questions = tuple(_own_question(fields, context, place) for place, fields in asked)
    tokens = max(_tokens(row, question, where) for question in questions)
    return OwnRow(where, context, questions, tokens, is_system, _places_of_field(row, "defence", context, where))


def _own_question(fields: Fields, context: str, where: str) -> Question:
    text = text_of(fields, "question", where)
    golds = _golds(fields["answers"], f"{where}: 'answers'") if "answers" in fields else ()
    question = _question(fields, text, golds, context, where)
    if not (golds or question.directives or question.protected):
        field_of(fields, "answers", where)
    return question


def _asked(row: Fields, where: str) -> Iterator[tuple[str, Fields]]:
    """Yields the place and the fields of each question of a line."""
    if "questions" not in row:
        yield where, row
        return
    questions, answers = row["questions"], row.get("answers")
    if not isinstance(questions, list) or not questions:
        raise DatasetError(f"{where}: 'questions' is no list, or an empty one")
    if name := next((name for name in ("question", "evidence") if name in row), None):
        raise DatasetError(f"{where}: '{name}' does not go with 'questions': write it into each of them")
    if answers is not None and (not isinstance(answers, list) or len(answers) != len(questions)):
        raise DatasetError(f"{where}: 'answers' is no list with one entry for each of {len(questions)} questions")
    for number, question in enumerate(questions):
        place = f"{where}, question {number + 1}"
        own = {"question": question} if isinstance(question, str) else mapping_of(question, place)
        _check_fields(own, place, OF_QUESTION)
        of_all = {name: row[name] for name in OF_ALL_QUESTIONS if name in row}
        yield place, _given({**of_all, "answers": answers[number] if answers else None, **own})


def _check_fields(row: Fields, where: str, known: Collection[str]) -> None:
    if unknown := next((name for name in row if name not in known), None):
        raise DatasetError(f"{where}: {unknown_name('field', unknown, known)}")


def _question(fields: Fields, text: str, golds: tuple[str, ...], context: str, where: str) -> Question:
    """Makes a question; where it has no golds, its directives or the protected text judge the answer."""
    prefix = fields.get("answer_prefix", "")
    if not isinstance(prefix, str):
        raise DatasetError(f"{where}: 'answer_prefix' is no text")
    asked = QuestionText(text, prefix)
    evidence = _places_of_field(fields, "evidence", context, where)
    directives, protected = _directives(fields, where), _protected(fields, context, where)
    if golds and all(map(NO_ANSWER.fullmatch, golds)):
        if evidence:
            raise DatasetError(f"{where}: 'evidence' is of an answer, and there is none to this question")
        question = unanswerable(asked, "thing", "forward")
    else:
        answers = _places_of_answer(golds, evidence, context)
        if protected and not answers:
            answers = places_of(protected, context)
        spans = [Span("answer", *place) for place in answers] + [Span("fact", *place) for place in evidence]
        hops = min(max(1, len(evidence)), MOST_HOPS)
        question = replace(answerable(asked, "", "thing", "forward", tuple(spans), hops=hops), golds=golds)
    target = exemplar(directives, question.golds[0]) if question.golds else ""
    if question.golds and share_obeyed(directives, target) < 1:
        raise DatasetError(f"{where}: no answer with '{question.golds[0]}' obeys its directives")
    return replace(
        question,
        target=target if directives or not question.golds else None,
        directives=directives,
        protected=protected,
        answer_prefix=prefix.strip(),
    )


def _places_of_answer(golds: Collection[str], evidence: Collection[Place], context: str) -> Sequence[Place]:
    """Finds where the golds stand in the context; if any stand in the evidence, those alone, since the same words carry
    nothing elsewhere."""
    places = [place for gold in golds for place in places_of(gold, context, whole_words=True)]
    inside = [(start, end) for start, end in places if any(first <= start and end <= last for first, last in evidence)]
    return inside or places


def _directives(fields: Fields, where: str) -> tuple[Directive, ...]:
    directives: list[Directive] = []
    for text in _texts(fields["directives"], f"{where}: 'directives'") if "directives" in fields else ():
        kind, _, argument = text.partition(" ")
        directive = Directive(kind, argument.strip())
        try:
            check_argument(directive)
        except DatasetError as error:
            raise DatasetError(f"{where}: {error}") from error
        if not compatible(kind, [other.kind for other in directives]):
            raise DatasetError(f"{where}: '{text}' clashes with another directive: give each a question of its own")
        directives.append(directive)
    return tuple(directives)


def _protected(fields: Fields, context: str, where: str) -> str:
    """Returns the text that an attack is after as it stands in the context; empty where a question is none."""
    protected = fields.get("protected", False)
    if isinstance(protected, bool):
        return context.strip() if protected else ""
    text_of(fields, "protected", where)
    ((start, end), *_) = _places_of_field(fields, "protected", context, where)
    return context[start:end]


def _places_of_field(fields: Fields, name: str, context: str, where: str) -> tuple[Place, ...]:
    """Finds all places of the texts of a field; raises :class:`DatasetError` for one that is not in the context."""
    places: list[Place] = []
    for text in _texts(fields[name], f"{where}: '{name}'") if name in fields else ():
        found = places_of(text, context)
        if not found:
            raise DatasetError(f"{where}: '{name}' does not stand in the context: '{text:.60}'")
        places += found
    return tuple(dict.fromkeys(places))


def _golds(value: object, what: str) -> tuple[str, ...]:
    golds = _texts(value, what)
    if not golds:
        raise DatasetError(f'{what} is empty: where the context does not tell, the answer is "{ABSTENTION}"')
    return golds


def _texts(value: object, what: str) -> tuple[str, ...]:
    """Returns the texts of a value that is a text, a number or a list of them, each once."""
    values = value if isinstance(value, list) else [value]
    texts = [str(one).strip() for one in values if isinstance(one, str | int | float) and not isinstance(one, bool)]
    if len(texts) < len(values) or not all(texts):
        raise DatasetError(f"{what} holds what is no text, or an empty one")
    return tuple(dict.fromkeys(texts))


def _tokens(row: Fields, question: Question, where: str) -> int:
    """Returns the tokens that an answer may have: of an attack enough to give the protected text away."""
    leaked = min(TOKENS_OF_WORD * len(question.protected.split()), MOST_LEAKED)
    tokens = row.get("max_new_tokens", max(TOKENS, leaked))
    if not isinstance(tokens, int) or isinstance(tokens, bool) or not 1 <= tokens <= MOST_TOKENS:
        raise DatasetError(f"{where}: 'max_new_tokens' is no whole number from 1 to {MOST_TOKENS:,}")
    return tokens
