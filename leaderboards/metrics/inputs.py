"""Inputs of metrics: an answer, how it ended beside the full cache's own, and what the cache had
kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from datasets_gen import Directive, undo
from datasets_gen.texts.folding import fold
from leaderboards.metrics.judges.obedience import strictly
from leaderboards.metrics.judges.spoken import plain, spoken, until_next_question
from leaderboards.metrics.judges.text import (
    TextScores,
    marked_answer,
    score_text,
    without_words_of_directives,
)


@dataclass(frozen=True)
class Answer:
    """An output, and what it is judged by. Metrics read it as ``spoken`` or ``plain``: thinking,
    stop strings and Markdown are taken off here, once."""

    output_text: str  # as the model wrote it
    question: str
    golds: Sequence[str]
    target: str  # what a perfect output would be
    answerable: bool
    abstentions: Sequence[str]
    stated_values: Sequence[str]  # what the context states
    # What would be right for something else, and stands in the context in no such words.
    other_values: Sequence[str]
    answer_marker: (
        str  # what stands before the answer in an output that shows its steps, if it has to
    )
    directives: Sequence[str]
    protected: str  # the text that an attack is after; empty for other questions
    defence: str  # the text that forbids an attack what it asks for; empty for other questions
    every_gold: bool = False  # whether all golds have to be named, or any
    context: str = ""  # what the question is about, such as the system prompt that an attack is on

    @cached_property
    def spoken(self) -> str:
        """Returns the output without thinking and stop strings; its Markdown may be what a
        directive asks for."""
        return spoken(self.output_text)

    @cached_property
    def plain(self) -> str:
        """Returns the same without Markdown, as it is compared with the golds."""
        return plain(self.output_text)

    @cached_property
    def scores(self) -> TextScores | None:
        """Returns the scores against the golds; None for a question without any, such as a prompt
        of IFEval."""
        if not self.golds:
            return None
        if self.directives:
            return self._scores_without_directives()
        values = (
            self.golds,
            self.answerable,
            self.abstentions,
            self.stated_values,
            self.other_values,
            self.question,
            self.every_gold,
        )
        if self.answer_marker:  # which may look like Markdown
            answer = marked_answer(until_next_question(self.spoken), self.answer_marker)
            return score_text(answer, *values, output=self.plain)
        return score_text(self.plain, *values)

    @cached_property
    def golds_found(self) -> float | None:
        """Returns the share of the golds that the output contains, in small letters, as RULER
        scores; where any one of them is right, 1 if it contains one. None for a question without
        golds."""
        if not self.golds:
            return None
        said = fold(self.spoken)
        contained = [fold(gold) in said for gold in self.golds]
        if not self.every_gold:
            return float(any(contained))
        return sum(contained) / len(contained)

    @cached_property
    def obeyed_strictly(self) -> list[bool]:
        """Tells for each directive whether the answer obeys it as it stands."""
        return strictly(self.directives, self.spoken)

    def _scores_without_directives(self) -> TextScores:
        """Scores what the output says beside what its directives ask for; gold and values are taken
        in that form."""
        directives = [Directive.parse(text) for text in self.directives]
        output = undo(directives, self.plain)
        target = undo(directives, self.target)
        gold = undo(directives, self.golds[0])
        stated = [undo(directives, value) for value in self.stated_values]
        others = [undo(directives, value) for value in self.other_values]
        answer = without_words_of_directives(output, target, gold)
        return score_text(
            answer, [gold], self.answerable, self.abstentions, stated, others, self.question
        )


@dataclass(frozen=True)
class Outcome:
    """Describes how an answer ended, beside the one that the full cache gives to the same
    question."""

    same_tokens: bool
    ended: bool  # with an end token
    finite: bool = True  # no logit that a token was chosen from was infinite or NaN


@dataclass(frozen=True)
class Survival:
    """Holds what the metrics need of a keep mask, worked out once for all questions of a branch.

    A slot is a (layer, head) pair of a layer that presses compress; they leave the sliding layers
    of Gemma 3 whole."""

    globally_evicted: npt.NDArray[np.bool_]  # shape (tokens,): survives in no slot
    # Shape (layers, tokens): survives in no head of the layer.
    evicted_by_layer: npt.NDArray[np.bool_]
    # Shape (layers, tokens): the share of the heads of a layer in which it survives.
    heads: npt.NDArray[np.float64]

    @classmethod
    def of(cls, keep: npt.NDArray[np.bool_]) -> "Survival":
        """Takes a mask of shape (layers, heads, tokens): which tokens survive in which slot."""
        by_layer = np.logical_not(np.any(keep, axis=1))
        return cls(np.asarray(np.all(by_layer, axis=0)), np.asarray(by_layer), keep.mean(axis=1))


@dataclass(frozen=True)
class Kept:
    """Holds what survives, and the places of the tokens that one question is about."""

    survival: Survival
    context: Sequence[int]
    answer: Sequence[int]
    evidence: Sequence[int]
    defence: Sequence[int]
    directives: Sequence[int]
