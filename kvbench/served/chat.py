"""Puts questions as messages, which the server's own template writes.

Where the server goes on from a last message of the assistant, an answer is begun for the model as
it is in a run of this machine; elsewhere the model begins it itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import regex

from datasets_gen import Example, Question, Task
from datasets_gen.texts.folding import CLOSERS, FLAGS, STOPS
from kvbench.experiments.descriptions import described_context, described_question
from kvbench.prompts.context_length import Count
from kvbench.prompts.prompt import LONGEST_SHOWN, Template, split_question
from kvbench.served.answer import ServedAnswer
from kvbench.served.questioner import LINE_END, ReadAnswer, ServedRequest, shared_body
from kvbench.store.tables import StoredContext, StoredQuestion

Message = dict[str, str]
PATH = "/chat/completions"
# A stop that ends a sentence: not that of an initial, as in "A. F.", nor that inside a number.
_SENTENCE = regex.compile(rf"(?<!\b\p{{Lu}}\p{{M}}*)[{STOPS}]+[{CLOSERS}]*(?=\s|$)", FLAGS)


@dataclass(frozen=True)
class Continuation:
    """How a server goes on from the last message of the assistant."""

    fields: Mapping[str, Any]  # of a request, which it needs for that
    repeats_beginning: bool  # whether its answer has the message at its head


@dataclass(frozen=True)
class Chat:
    """Puts questions as messages."""

    model: str
    seed: int
    count: Count  # of the tokens of a text, which is said of contexts
    continuation: Continuation | None  # None where the model begins its answers itself
    fields: Mapping[str, Any]  # of requests whose answer is not begun

    @property
    def sentence(self) -> str:
        """Says how questions are put, as it is stored and shown."""
        if self.continuation is None:
            return "messages; the model begins its answers itself"
        return "messages; the server goes on from the beginning of an answer"

    @property
    def begins_answers(self) -> bool:
        """Tells whether an answer goes on from a beginning that is sent with its question."""
        return self.continuation is not None

    def context(self, task: Task, example: Example) -> StoredContext:
        """Describes the context of an example, whose tokens the server alone knows."""
        described = described_context(task, example)
        return StoredContext.model_validate({**described, "mode": "agnostic", "token_ends": b""})

    def requests(self, task: Task, example: Example) -> Sequence[ServedRequest]:
        """Makes a request of each question of an example."""
        tokens = self.count(example.context)
        requests = []
        for question in example.questions:
            described = described_question(task, example, question)
            # How many tokens carry the answer is for the masks of a cache, of which none is seen.
            described |= {"context_tokens": tokens, "answer_tokens": 0, "evidence_tokens": 0}
            body = shared_body(self.model, task, self.seed)
            body["messages"] = messages(task, example, question)
            if self.continuation is not None and is_begun(task, question):
                body |= self.continuation.fields
                if task.answer_end != "tokens":
                    body["stop"] = [LINE_END]
            else:
                body |= self.fields
            requests.append(ServedRequest(PATH, body, StoredQuestion.model_validate(described)))
        return requests

    def read(self, task: Task, question: Question, answer: ServedAnswer) -> ReadAnswer:
        """Cuts an answer that was begun where its line or sentence ends, as in a run of this
        machine."""
        text, ended = answer.text, answer.is_stopped
        if not is_begun(task, question):
            return ReadAnswer(text.strip(), ended)
        if self.continuation is not None and self.continuation.repeats_beginning:
            text = text.removeprefix(question.answer_prefix)
        if task.answer_end != "tokens":
            text, is_cut = cut_answer(text, task.answer_end)
            ended = ended or is_cut
        return ReadAnswer(text.strip(), ended)

    def shown(self, task: Task, example: Example) -> str:
        """Writes the first question of an example as it is sent, with its context shortened."""
        context = example.context
        parts = []
        for message in messages(task, example, example.questions[0]):
            content = message["content"]
            if len(context) > LONGEST_SHOWN:
                half = LONGEST_SHOWN // 2
                content = content.replace(context, f"{context[:half]} […] {context[-half:]}")
            parts.append(f"[{message['role']}] {content}")
        return "\n".join(parts)


def is_begun(task: Task, question: Question) -> bool:
    """Tells whether the answer of a question is begun for the model."""
    return task.begins_answers and bool(question.answer_prefix)


def messages(task: Task, example: Example, question: Question) -> list[Message]:
    """Returns the turns of a question: its context begins the user's turn, or is the system's, as
    in a run of this machine."""
    between = "" if task.role == "system" else LINE_END
    _, decoded = split_question(Template("", between, ""), task, question, "agnostic")
    if task.role == "system":
        turns = [
            {"role": "system", "content": example.context},
            {"role": "user", "content": decoded},
        ]
    else:
        turns = [{"role": "user", "content": example.context + decoded}]
    if is_begun(task, question):
        turns.append({"role": "assistant", "content": question.answer_prefix})
    return turns


def cut_answer(text: str, end: Literal["sentence", "line"]) -> tuple[str, bool]:
    """Cuts a text behind its first sentence or line, and tells whether there was an end.

    >>> cut_answer("A. F. Fox lives in Oslo. He", "sentence")
    ('A. F. Fox lives in Oslo.', True)
    >>> cut_answer("Oslo", "sentence")
    ('Oslo', False)
    """
    line, line_end, _ = text.partition(LINE_END)
    if end == "sentence" and (stop := _SENTENCE.search(line)):
        return line[: stop.end()], True
    return line, bool(line_end)
