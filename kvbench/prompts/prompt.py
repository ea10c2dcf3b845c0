"""Turns an example into tokens: the region to compress, the questions, and the tokens that carry
the evidence.

The split is the one of kvpress's ``KVPressTextGenerationPipeline``: the chat template is cut where
the context ends; what comes before is prefilled and compressed, what comes after is decoded from
the compressed cache. The task instruction is never compressed: it stands before the question, where
the questions of a context share it, and behind one that is compressed with its context."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import regex
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from datasets_gen import Example, Question, Span, SpanKind, StatedValue, Task
from datasets_gen.texts.folding import CLOSERS, FLAGS, STOPS
from kvbench.models.pretrained import run_template
from kvbench.prompts.control_tokens import Stretches, encode_with_offsets
from kvbench.prompts.mode import Mode
from kvbench.system.errors import KVBenchError

INSTRUCTIONS: tuple[SpanKind, ...] = ("defence", "directive")
EVIDENCE: tuple[SpanKind, ...] = ("answer", "subject", "bridge", "fact")
WITHOUT_TEMPLATE = (
    'it reads "Question: …" and "Answer:" as text, as a base model does, '
    "and an answer ends with its line"
)
LONGEST_SHOWN = 300  # characters of a context in a prompt that people look at
_SENTENCE = regex.compile(rf"[{STOPS}]+[{CLOSERS}]*", FLAGS)
_INITIAL = regex.compile(r"\p{Lu}\p{M}*", FLAGS)
Role = Literal["user", "system", "text"]
Texts = Sequence[tuple[Question, str]]  # what is decoded for each question
# By token, where it starts and ends in the text.
Offsets = Sequence[tuple[int, int]] | npt.NDArray[np.int64]


@dataclass(frozen=True)
class AnswerEnds:
    """Holds tokens by what they do to an answer."""

    tokens: tuple[int, ...] = ()  # end it
    sentence: tuple[int, ...] = ()  # end it, unless an initial stands before them, as in "A. F."
    initials: tuple[int, ...] = ()

    def with_tokens(self, tokens: Sequence[int]) -> Self:
        """Adds tokens that end an answer, such as the model's own."""
        return replace(self, tokens=(*self.tokens, *tokens))

    @cached_property
    def _sets(self) -> tuple[frozenset[int], ...]:
        """Holds the tokens to look one up: made once for all answers, as a vocabulary has thousands
        of ends."""
        return frozenset(self.tokens), frozenset(self.sentence), frozenset(self.initials)

    def until_end(self, token_ids: Sequence[int]) -> tuple[list[int], bool]:
        """Cuts an answer behind the first token that ends it; tells too whether there is one."""
        tokens, sentence, initials = self._sets
        for place, token in enumerate(token_ids):
            behind_initial = place > 0 and token_ids[place - 1] in initials
            if token in tokens or (token in sentence and not behind_initial):
                return list(token_ids[: place + 1]), True
        return list(token_ids), False


NO_ENDS = AnswerEnds()


def answer_ends(tokenizer: PreTrainedTokenizerBase, task: Task) -> AnswerEnds:
    """Returns what ends answers; nothing where a chat model begins them itself, or where they take
    all tokens."""
    base = tokenizer.chat_template is None
    if task.role == "text" or task.answer_end == "tokens" or not (task.begins_answers or base):
        return NO_ENDS
    ends = _find_ends(tokenizer.backend_tokenizer)
    is_sentence = task.begins_answers and task.answer_end == "sentence"
    return ends if is_sentence else AnswerEnds(ends.tokens)


@lru_cache(maxsize=8)  # a vocabulary has up to 262,144 tokens
def _find_ends(tokenizer: Tokenizer) -> AnswerEnds:
    vocabulary = [[token] for token in range(tokenizer.get_vocab_size())]
    texts: Sequence[str] = tokenizer.decode_batch(vocabulary)
    line_ends, sentence_ends, initials = [], [], []
    for token, text in enumerate(texts):
        if "\n" in text:
            line_ends.append(token)
        # Tokens carry the space before their word.
        if _SENTENCE.fullmatch(text.strip()):
            sentence_ends.append(token)
        if _INITIAL.fullmatch(text.strip()):
            initials.append(token)
    return AnswerEnds(tuple(line_ends), tuple(sentence_ends), tuple(initials))


@dataclass(frozen=True)
class Template:
    """The text around a context: ``head + context``, then ``between``, instruction, ``cue``,
    question and ``tail``."""

    head: str
    between: str
    tail: str
    cue: str = " "  # between the task's instruction and the question


@dataclass(frozen=True)
class TokenizedQuestion:
    """One question to decode from a compressed prompt."""

    question: Question
    token_ids: tuple[int, ...]
    # Positions in the compressed region; empty for an unanswerable question.
    answer_tokens: tuple[int, ...]
    evidence_tokens: tuple[int, ...]  # likewise
    # The tokens of a perfect output without an end token; empty if unknown.
    gold_ids: tuple[int, ...] = ()
    # Positions by kind: answer, subject, bridge and fact, which are the evidence, and distractor:
    # where the context states other values, outside the evidence and none of them a right answer.
    spans: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)


class Stretch(NamedTuple):
    """The tokens ``[start, end)`` are instructions of one kind."""

    kind: SpanKind
    start: int
    end: int


@dataclass(frozen=True)
class Prompt:
    """A region to prefill and compress, and the questions to decode from the compressed cache."""

    example: Example
    token_ids: tuple[int, ...]
    # Positions without the chat template and, in aware mode, without the question.
    context_tokens: tuple[int, ...]
    questions: tuple[TokenizedQuestion, ...]
    stretches: tuple[Stretch, ...] = ()  # of instructions, in order
    token_ends: tuple[int, ...] = ()  # where in the context's text each of its tokens ends
    # Positions, by stated value.
    stated: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    ends: AnswerEnds = NO_ENDS  # of answers, beside the model's own end tokens

    @property
    def protected(self) -> tuple[tuple[int, int], ...]:
        """Returns half-open ranges of positions, one for each stretch."""
        return tuple((stretch.start, stretch.end) for stretch in self.stretches)

    def instruction_tokens(self, kind: SpanKind) -> tuple[int, ...]:
        positions: list[int] = []
        for stretch in self.stretches:
            if stretch.kind == kind:
                positions += range(stretch.start, stretch.end)
        return tuple(positions)

    @property
    def question_tokens(self) -> int:
        return len(self.token_ids) - 1 - self.context_tokens[-1]


def chat_template(tokenizer: PreTrainedTokenizerBase, role: Role = "user") -> Template:
    """Cuts the chat template around a context. The context begins the user's turn, as in kvpress's
    pipeline, or it is the whole system's turn, and the question is the user's turn. Around running
    text there is none. Raises :class:`KVBenchError` for a tokenizer without offsets, and for a
    template that has a turn twice or in another order."""
    if not tokenizer.is_fast:
        lack = f"the tokenizer {type(tokenizer).__name__} gives no character offsets, which evidence needs"
        raise KVBenchError(f"{lack}: use a checkpoint with a fast tokenizer")
    if role == "text":
        return Template(tokenizer.bos_token or "", " ", "")
    if (
        tokenizer.chat_template is None
    ):  # a base model, which answers where a cue stands and else goes on asking
        return Template(tokenizer.bos_token or "", "\n", "\nAnswer:", cue="\nQuestion: ")
    context, question = "#" * 16, "@" * 16
    turns = [{"role": "user", "content": f"{context}\n{question}"}]
    if role == "system":
        turns = [{"role": "system", "content": context}, {"role": "user", "content": question}]
    text = run_template(tokenizer, turns)
    broken = "the chat template of the tokenizer"
    for mark, whose in ((context, role), (question, "user")):
        if text.count(mark) != 1:
            raise KVBenchError(
                f"{broken} holds the {whose}'s turn {text.count(mark)} times, where once is needed"
            )
    if text.index(question) < text.index(context):
        raise KVBenchError(
            f"{broken} puts the question before the context: what is compressed is read first"
        )
    head, _, rest = text.partition(context)
    between, _, tail = rest.partition(question)
    return Template(head, between, tail)


def without_system_turn(
    tokenizer: PreTrainedTokenizerBase, tasks: Sequence[Task]
) -> dict[str, str]:
    """Lists the tasks whose contexts are system prompts, each with one line, where the chat
    template has no turn of a system. A template that is broken altogether raises
    :class:`KVBenchError`."""
    of_system = [task.name for task in tasks if task.role == "system"]
    if not of_system:
        return {}
    chat_template(tokenizer)
    try:
        chat_template(tokenizer, "system")
    except KVBenchError as error:
        reason = "the chat template has no turn of a system, which the contexts of"
        return {name: f"{name}: {reason} {name} are ({error})" for name in of_system}
    return {}


def split_question(
    template: Template, task: Task, question: Question, mode: Mode
) -> tuple[str, str]:
    """Splits a question into the text to compress with its context and the text to decode after it,
    without the ending. A context that contains its question comes with an empty one, and nothing
    follows it."""
    if not question.text:
        return "", ""
    cue = template.cue
    if not task.instruction or mode == "aware":
        cue = cue.lstrip()
    if mode == "aware":
        compressed = template.between + cue + question.text
        return compressed, f" {task.instruction}" if task.instruction else ""
    return "", template.between + task.instruction + cue + question.text


def ending(template: Template, task: Task, question: Question) -> str:
    """Returns what stands behind a question: the template's tail and the answer prefix, if any."""
    if not (task.begins_answers and question.answer_prefix):
        return template.tail
    joint = "" if template.tail[-1:].isspace() else " "
    return f"{template.tail}{joint}{question.answer_prefix}"


def prompt_as_sent(
    tokenizer: PreTrainedTokenizerBase, task: Task, example: Example, mode: Mode
) -> str:
    """Writes the whole prompt of the first question of an example, with its context shortened."""
    template, question = chat_template(tokenizer, task.role), example.questions[0]
    compressed, decoded = split_question(template, task, question, mode)
    context = example.context
    if len(context) > LONGEST_SHOWN:
        half = LONGEST_SHOWN // 2
        context = f"{context[:half]} […] {context[-half:]}"
    return template.head + context + compressed + decoded + ending(template, task, question)


def encode(
    tokenizer: PreTrainedTokenizerBase, text: str, of_template: Stretches = ()
) -> tuple[int, ...]:
    """Encodes a text; ``of_template``: where control tokens are such, and not spelled by
    somebody."""
    return encode_with_offsets(tokenizer, text, of_template)[0]


def gold_ids(
    tokenizer: PreTrainedTokenizerBase, question: Question, text: str, of_template: Stretches = ()
) -> tuple[int, ...]:
    """Encodes a perfect output as it follows the question's text: after a space, unless the text
    ends with white space. If the two share a token, the answer is encoded by itself."""
    if question.target is None and not question.golds:
        return ()
    # Tokens of words carry the space before them, so that it belongs to the answer.
    if text[-1:].isspace():
        answer = question.perfect_output
    else:
        answer = f" {question.perfect_output}"
    before = encode(tokenizer, text, of_template)
    whole = encode(tokenizer, text + answer, of_template)
    if whole[: len(before)] == before:
        return whole[len(before) :]
    return encode(tokenizer, answer)


def answer_text(tokenizer: PreTrainedTokenizerBase, token_ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(token_ids), skip_special_tokens=True)).strip()


def overlapping_tokens(
    spans: Sequence[Span | StatedValue], offsets: Offsets, shift: int
) -> tuple[int, ...]:
    """Returns the positions of the tokens that overlap a span; ``shift`` is where the context
    starts in the text.

    A token of a byte-level tokenizer carries the space before its word, so it may start one
    character before a span."""
    # A text without tokens has no pairs, which would else be no table of two columns.
    starts, ends = np.asarray(offsets).reshape(-1, 2).T
    overlapping = np.zeros(len(starts), dtype=np.bool_)
    for span in spans:
        overlapping |= (starts < span.end + shift) & (ends > span.start + shift)
    return tuple(overlapping.nonzero()[0].tolist())


def build_prompts(
    tokenizer: PreTrainedTokenizerBase, task: Task, example: Example, mode: Mode
) -> list[Prompt]:
    """Builds one prompt for the context and all its questions (``agnostic``), or one for each
    question with the question inside the compressed region (``aware``), as kvpress's evaluation
    does."""
    template = chat_template(tokenizer, task.role)
    # What is compressed behind the context, and what is decoded then.
    texts: list[tuple[str, Texts]] = []
    for question in example.questions:
        compressed, decoded = split_question(template, task, question, mode)
        texts.append((compressed, [(question, decoded + ending(template, task, question))]))
    if mode == "agnostic":  # all behind one context
        pairs: list[tuple[Question, str]] = []
        for _, questions in texts:
            pairs += questions
        texts = [("", pairs)]
    prompts = []
    for behind, questions in texts:
        prompts.append(_build_prompt(tokenizer, task, example, template, behind, questions))
    return prompts


def _template_stretches(template: Template, task: Task, question: Question, text: str) -> Stretches:
    """Returns the stretches of the text decoded for a question that the chat template wrote: before
    and behind it."""
    between = len(template.between) if text.startswith(template.between) else 0
    tail = len(text) - len(ending(template, task, question))
    return ((0, min(between, tail)), (tail, tail + len(template.tail)))


def _build_prompt(
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    example: Example,
    template: Template,
    behind: str,
    texts: Texts,
) -> Prompt:
    """Builds a prompt; ``behind``: what is compressed with the context, behind it."""
    head = template.head
    end = len(head) + len(example.context)
    between = len(template.between) if behind.startswith(template.between) else 0
    of_template = ((0, len(head)), (end, end + between))
    token_ids, pairs = encode_with_offsets(tokenizer, head + example.context + behind, of_template)
    offsets = np.array(pairs)  # once: a prompt asks for the tokens of a hundred spans
    places: dict[str, list[StatedValue]] = {}
    for place in example.stated:
        places.setdefault(place.text, []).append(place)
    stated = {}
    for value, of_value in places.items():
        stated[value] = overlapping_tokens(of_value, offsets, len(head))
    questions = []
    for question, text in texts:
        spans: dict[str, tuple[int, ...]] = {}
        for kind in EVIDENCE:
            of_kind = [span for span in question.spans if span.kind == kind]
            spans[kind] = overlapping_tokens(of_kind, offsets, len(head))
        evidence = overlapping_tokens(question.spans, offsets, len(head))
        others: set[int] = set()
        for value, tokens in stated.items():
            if value not in question.golds:
                others.update(tokens)
        spans["distractor"] = tuple(sorted(others - set(evidence)))
        written = _template_stretches(template, task, question, text)
        ids = encode(tokenizer, text, written)
        golds = gold_ids(tokenizer, question, text, written)
        questions.append(TokenizedQuestion(question, ids, spans["answer"], evidence, golds, spans))
    context = overlapping_tokens([Span("fact", 0, len(example.context))], offsets, len(head))
    token_ends = []
    for position in context:
        # The last token may reach beyond the context, into what the template writes behind it.
        token_end = int(offsets[position][1]) - len(head)
        token_ends.append(min(token_end, len(example.context)))
    stretches = _stretches(example, offsets, len(head))
    return Prompt(
        example,
        token_ids,
        context,
        tuple(questions),
        stretches,
        tuple(token_ends),
        stated,
        answer_ends(tokenizer, task),
    )


def _stretches(example: Example, offsets: Offsets, shift: int) -> tuple[Stretch, ...]:
    """Returns the stretches of defence and directives; neighbours of one kind become one."""
    instructions = [span for span in example.spans if span.kind in INSTRUCTIONS]
    instructions.sort(key=lambda span: span.start)
    # Neighbours alone are joined: groupby begins anew where the kind changes.
    stretches = []
    for kind, spans in groupby(instructions, lambda span: span.kind):
        tokens = overlapping_tokens(list(spans), offsets, shift)
        stretches.append(Stretch(kind, tokens[0], tokens[-1] + 1))
    return tuple(stretches)
