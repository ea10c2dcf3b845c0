"""The stored parts of an answer: the input of the metrics that need no model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from datasets_gen import Directive, undone
from leaderboards.metrics.judges.obedience import loosely, strictly
from leaderboards.metrics.judges.text import TextScores, marked_answer, score_text, undressed


@dataclass(frozen=True)
class Answer:
    """An output, and what it is judged by."""

    output_text: str
    golds: Sequence[str]
    target: str  # what a perfect output would be
    answerable: bool
    abstentions: Sequence[str]
    stated_values: Sequence[str]  # what the context states, and what would be right for something else
    answer_marker: str  # what stands before the answer in an output that shows its steps, if it has to
    directives: Sequence[str]
    protected: str  # the text that an attack is after; empty for other questions
    defence: str  # the text that forbids an attack what it asks for; empty for other questions

    @cached_property
    def scores(self) -> TextScores | None:
        """The scores against the golds; None for a question without any, such as a prompt of IFEval."""
        if not self.golds:
            return None
        answer, golds, stated = marked_answer(self.output_text, self.answer_marker), self.golds, self.stated_values
        if self.directives:
            answer, golds, stated = self._without_directives()
        output = self.output_text if self.answer_marker else answer
        return score_text(answer, golds, self.answerable, self.abstentions, stated, output)

    @cached_property
    def obeyed_strictly(self) -> list[bool]:
        """For each directive, whether the output obeys it as it stands."""
        return strictly(self.directives, self.output_text)

    @cached_property
    def obeyed_loosely(self) -> list[bool]:
        """For each directive, whether any of the eight versions of the output obeys it."""
        return loosely(self.directives, self.output_text)

    def _without_directives(self) -> tuple[str, list[str], list[str]]:
        """Returns what the output says beside what its directives ask for, and the gold and the stated values in that
        form."""
        directives = [Directive.parse(text) for text in self.directives]
        texts = (self.output_text, self.target, self.golds[0], *self.stated_values)
        output, target, gold, *stated = (undone(directives, text) for text in texts)
        return undressed(output, target, gold), [gold], stated
