"""Puts questions as the token numbers that a run of this machine would read: with the tokenizer of
the model, a server is asked exactly what the model is asked in process."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from datasets_gen import Example, Question, Task
from kvbench.experiments.descriptions import described_context, described_question
from kvbench.prompts.prompt import (
    NO_ENDS,
    Prompt,
    answer_ends,
    answer_text,
    build_prompts,
    encode,
    prompt_as_sent,
)
from kvbench.served.answer import ServedAnswer
from kvbench.served.questioner import LINE_END, ReadAnswer, ServedRequest, shared_body
from kvbench.store.tables import StoredContext, StoredQuestion

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PATH = "/completions"


@dataclass(frozen=True)
class Raw:
    """Puts questions as token numbers."""

    model: str
    seed: int
    tokenizer: "PreTrainedTokenizerBase"

    @property
    def sentence(self) -> str:
        """Says how questions are put, as it is stored and shown."""
        return "token numbers of the tokenizer; the answer goes on from its beginning"

    @property
    def begins_answers(self) -> bool:
        """Tells whether an answer goes on from a beginning that is sent with its question."""
        return True

    def _prompt(self, task: Task, example: Example) -> Prompt:
        (prompt,) = build_prompts(self.tokenizer, task, example, "agnostic")
        return prompt

    def context(self, task: Task, example: Example) -> StoredContext:
        """Describes the context of an example."""
        described = described_context(task, example)
        described["mode"] = "agnostic"
        ends = self._prompt(task, example).token_ends
        described["token_ends"] = np.array(ends, dtype="<u4").tobytes()
        return StoredContext.model_validate(described)

    def requests(self, task: Task, example: Example) -> Sequence[ServedRequest]:
        """Makes a request of each question of an example."""
        prompt = self._prompt(task, example)
        requests = []
        for question in prompt.questions:
            described = described_question(task, example, question.question)
            described["answer_tokens"] = len(question.answer_tokens)
            described["evidence_tokens"] = len(question.evidence_tokens)
            described["context_tokens"] = len(prompt.token_ids)
            body = shared_body(self.model, task, self.seed)
            body["prompt"] = [*prompt.token_ids, *question.token_ids]
            if prompt.ends is not NO_ENDS:
                body["stop"] = [LINE_END]
            requests.append(ServedRequest(PATH, body, StoredQuestion.model_validate(described)))
        return requests

    def read(self, task: Task, question: Question, answer: ServedAnswer) -> ReadAnswer:
        """Cuts an answer where it would end in a run of this machine. Its tokens are those of its
        text, as a server gives no numbers."""
        ids = encode(self.tokenizer, answer.text)
        ends = answer_ends(self.tokenizer, task)
        kept, is_cut = ends.until_end(ids)
        text = answer_text(self.tokenizer, kept) if is_cut else answer.text.strip()
        return ReadAnswer(text, is_cut or answer.is_stopped, list(kept))

    def shown(self, task: Task, example: Example) -> str:
        """Writes the first question of an example as it is sent, with its context shortened."""
        return prompt_as_sent(self.tokenizer, task, example, "agnostic")
