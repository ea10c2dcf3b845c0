"""Keeps what measures need of an answer's attention, hidden states and routes while a run is in memory.

Edges are too many to store: routes are found as soon as a step is seen, and the edges of the question are held until
the first token of its answer has been passed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from kvbench.engine.decode.loop import Step
from kvbench.engine.studies.turn import ANSWER, QUESTION, TurnObserver, TurnReading, observed, weights_of
from kvbench.engine.treat.branch import Branch, reason_without_mask
from kvbench.models.load import LoadedModel, decoder_of
from kvbench.prompts.prompt import Prompt
from leaderboards.routing.reach import EPSILON, Edges, joined, widest

WEIGHTS_AT_ONCE = 2**22  # of one head: 16 MiB in float32


@dataclass(frozen=True)
class ContextReading:
    """Holds the attention of a prefill: ``edges`` by layer, and ``top``, int32 (layers, heads, tokens), the token that
    each token attends to most."""

    edges: tuple[Edges, ...]
    top: npt.NDArray[np.int32]


@torch.inference_mode()
def read_context_attention(model: LoadedModel, prompt: Prompt, epsilon: float = EPSILON) -> ContextReading:
    """Reads a context once more and notes its attention, of one head and a block of queries at a time: no matrix of all
    tokens by all tokens is held."""
    watcher = _ContextWatcher(epsilon, model.windows)
    token_ids = torch.tensor([prompt.token_ids], device=model.device)
    with observed(model):
        decoder_of(model.network)(input_ids=token_ids, use_cache=False, watchers=[watcher])
    return ContextReading(tuple(watcher.edges), np.stack(watcher.top))


class _ContextWatcher:
    """Notes edges and top tokens, layer by layer. ``windows``: as :attr:`LoadedModel.windows`."""

    def __init__(self, epsilon: float, windows: Sequence[int | None]) -> None:
        self.edges: list[Edges] = []
        self.top: list[npt.NDArray[np.int32]] = []
        self._epsilon, self._windows = epsilon, windows

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        heads, tokens, _ = query.shape
        groups = heads // key.shape[0]
        places = torch.arange(tokens, device=query.device)
        output = query.new_empty(query.shape)
        top = torch.empty(heads, tokens, dtype=torch.int32)
        parts = []
        for block in places.split(max(1, WEIGHTS_AT_ONCE // tokens)):
            seen = places <= block[:, None]
            if window := self._windows[layer]:
                seen &= places > block[:, None] - window
            strongest = query.new_zeros(len(block), tokens, dtype=torch.float32)
            for head in range(heads):
                weights = weights_of(query[head, block], key[head // groups], seen, scaling)
                output[head, block] = weights.to(value.dtype) @ value[head // groups]
                top[head, block.cpu()] = weights.argmax(-1).int().cpu()
                strongest = torch.maximum(strongest, weights)
            parts.append(Edges.of(strongest.cpu().numpy(), self._epsilon, int(block[0])))
        self.edges.append(joined(parts))
        self.top.append(top.numpy())
        return output


Key = tuple[int, int]  # the id of a branch, and the number of a question
NO_EDGES = Edges.of(np.zeros((0, 0), dtype=np.float32))


@dataclass(frozen=True)
class Routes:
    """Says how the tokens of the context reach an answer.

    The answer's places are the last token of the question, where its first token is written, and that first token
    where it was passed. ``width``: float32 (context tokens,), of the widest path to either.
    """

    width: npt.NDArray[np.float32]


def why_not_observed(branch: Branch) -> str:
    """Says why nothing is observed of a branch, or nothing if something is: routes go through the shared prefill, and
    end in rows whose tokens are known."""
    is_private = branch.treatment.policy.prefill != "shared"
    return reason_without_mask(branch) or ("it has a prefill of its own" if is_private else "")


class AnswerObserver:
    """Notes ``readings``, by branch, question and step and without edges, and ``routes``, by branch and question."""

    def __init__(self, model: LoadedModel, prompt: Prompt, epsilon: float = EPSILON) -> None:
        self.readings: dict[tuple[int, int, int], TurnReading] = {}
        self.routes: dict[Key, Routes] = {}
        self._model, self._prompt, self._epsilon = model, prompt, epsilon
        spans = [question.spans for question in prompt.questions]
        self._turns = TurnObserver(model, prompt, spans, epsilon, why_not_observed)
        self._edges_of_questions: dict[Key, list[Edges]] = {}

    def see(self, step: Step) -> None:
        self._turns.see(step)
        for (branch, question, number), reading in self._turns.readings.items():
            edges = [layer.edges for layer in reading.layers]
            key = branch, question
            if number == QUESTION:
                self._edges_of_questions[key] = edges
                self.routes[key] = self._routes_to_question(question, edges)
            elif number == ANSWER:
                edges = [joined(parts) for parts in zip(self._edges_of_questions.pop(key), edges, strict=True)]
                self.routes[key] = self._routes_to_answer(question, edges)
            layers = tuple(replace(layer, edges=NO_EDGES) for layer in reading.layers)
            self.readings[branch, question, number] = replace(reading, layers=layers)
        self._turns.readings.clear()

    @cached_property
    def _context(self) -> ContextReading:
        """Reads the context when the first answer is seen."""
        return read_context_attention(self._model, self._prompt, self._epsilon)

    def _routes_to_question(self, question: int, edges: Sequence[Edges]) -> Routes:
        tokens = len(self._prompt.token_ids) + len(self._prompt.questions[question].token_ids)
        return self._routes(edges, tokens, [tokens - 1])

    def _routes_to_answer(self, question: int, edges: Sequence[Edges]) -> Routes:
        tokens = len(self._prompt.token_ids) + len(self._prompt.questions[question].token_ids) + 1
        return self._routes(edges, tokens, [tokens - 2, tokens - 1])

    def _routes(self, edges: Sequence[Edges], tokens: int, sinks: Sequence[int]) -> Routes:
        layers = [joined(parts) for parts in zip(self._context.edges, edges, strict=True)]
        return Routes(widest(layers, tokens, sinks)[0, : len(self._prompt.token_ids)].astype(np.float32))
