"""FINCH with the length of the question, for which kvpress's press has to search."""

from dataclasses import dataclass

from kvpress import BasePress, FinchPress


@dataclass
class KnownQuestionFinchPress(FinchPress):
    """Is told how many tokens the question has, where kvpress's press finds a delimiter that it adds to the
    vocabulary."""

    window_size: int = 1

    __call__ = BasePress.__call__  # without the search for the delimiter
