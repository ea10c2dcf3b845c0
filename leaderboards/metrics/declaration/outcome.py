"""Describes how an answer ended, compared with the full cache's own: the input of the metrics of outcomes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """Describes an answer beside the one that the full cache gives to the same question."""

    same_tokens: bool
    ended: bool  # with an end token
    finite: bool = True  # no logit that a token was chosen from was infinite or NaN

    @property
    def masked(self) -> bool:
        return self.finite and self.same_tokens

    @property
    def due(self) -> bool:
        return not self.finite or not (self.same_tokens or self.ended)

    @property
    def corrupted(self) -> bool:
        return not self.masked and not self.due
