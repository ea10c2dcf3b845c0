"""Waves: which branches are decoded together, so that their keys and values fit into the memory they may take.

Waves are made of rows. What a row takes is counted from what its branch keeps, or, before anything is read, from what
its policy was asked to keep.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kvpress.utils import compute_n_kept

from kvbench.engine.branch import Branch, Trace
from kvbench.engine.treatment import Scoring, Treatment
from kvbench.engine.wave import PLACES_AT_ONCE, shared_start
from kvbench.models import LoadedModel
from kvbench.prompt import Prompt

Of = TypeVar("Of", Branch, Treatment)


@dataclass(frozen=True)
class Row(Generic[Of]):
    """What one branch adds to a wave.

    ``tokens``: most that a head of it reads in any layer. ``even``: every head reads as many in every layer.
    ``size``: bytes of its keys and values, with room for its questions and answers.
    """

    of: Of
    questions: int
    even: bool
    tokens: int
    size: int


@dataclass(frozen=True)
class Forecast:
    """What is expected of a context. ``waves``: rows of each wave and the bytes that it takes. ``alone``: branches
    whose answers are written one by one. ``too_large``: branches that do not fit alone."""

    waves: tuple[tuple[int, int], ...]
    alone: int
    too_large: int


def waves(trace: Trace, steps: int, max_kv_bytes: int) -> list[list[Row[Branch]]]:
    """The sound branches whose presses are done, in batches of at most ``max_kv_bytes`` of cache."""
    heads, _, size = trace.keys[0].shape
    token_bytes = 2 * len(trace.keys) * heads * size * trace.keys[0].element_size()
    sound = [branch for branch in trace.branches if branch.error is None and branch.held is None]
    rows = [
        _row(branch, branch.treatment, _longest(branch), _even(branch), trace.prompt, steps, token_bytes)
        for branch in sound
    ]
    return in_waves(rows, max_kv_bytes)


def forecast(
    model: LoadedModel, prompt: Prompt, scorings: Sequence[Scoring], steps: int, max_kv_bytes: int
) -> Forecast:
    """What the waves of a prompt will be, before it is read: no less than they take, as a policy that spreads its
    budget over heads or layers may leave one of them whole."""
    length, token_bytes = len(prompt.token_ids), token_bytes_of(model)
    rows, alone = [], 0
    for treatment in (treatment for scoring in scorings for treatment in scoring.treatments):
        if treatment.policy.while_decoding:
            alone += 1
            continue
        even = treatment.policy.counted == "head"
        kept = compute_n_kept(length, treatment.ratio) if even else length
        rows.append(_row(treatment, treatment, kept, even, prompt, steps, token_bytes))
    fitting = [row for row in rows if row.size <= max_kv_bytes]
    sizes = tuple((len(wave), wave[0].size * len(wave)) for wave in in_waves(fitting, max_kv_bytes))
    return Forecast(sizes, alone, len(rows) - len(fitting))


def in_waves(rows: Iterable[Row[Of]], max_kv_bytes: int) -> list[list[Row[Of]]]:
    """Rows of like length together, the longest first, as all are padded to the longest of their wave; one at least.

    Rows that ask as many questions go together, and those that keep as many tokens in every head and layer, since one
    mask then serves all layers.
    """
    batches: list[list[Row[Of]]] = []
    groups: dict[tuple[int, bool], list[Row[Of]]] = {}
    for row in rows:
        groups.setdefault((row.questions, row.even), []).append(row)
    for group in groups.values():
        group.sort(key=lambda row: row.tokens, reverse=True)
        start = 0
        while start < len(group):
            count = max(1, max_kv_bytes // group[start].size)
            batches.append(group[start : start + count])
            start += count
    return batches


def token_bytes_of(model: LoadedModel) -> int:
    """Bytes of keys and values of one token over all layers and heads."""
    config = model.network.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads: int = config.num_key_value_heads * config.num_hidden_layers
    return int(2 * heads * size * model.network.dtype.itemsize)


def _row(
    of: Of, treatment: Treatment, tokens: int, even: bool, prompt: Prompt, steps: int, token_bytes: int
) -> Row[Of]:
    questions = [prompt.asks[number].token_ids for number in treatment.asks]
    shared = shared_start([questions])
    asked = [len(question) - shared for question in questions]
    grown = shared + sum(asked) + steps * len(asked) + max(PLACES_AT_ONCE, *asked)
    return Row(of, len(questions), even, tokens, (tokens + grown) * token_bytes)


def _even(branch: Branch) -> bool:
    """Whether the branch keeps as many rows in every head and layer."""
    counts = [cache.keep.sum(-1) for cache in branch.layers if cache.keep is not None]
    return len(counts) == len(branch.layers) and all(bool((count == counts[0][0]).all()) for count in counts)


def _longest(branch: Branch) -> int:
    """Most rows that a head of the branch reads in any layer."""
    return max(
        int(cache.keep.sum(-1).max()) if cache.keep is not None else cache.read_rows // cache.keys.shape[0]  # type: ignore[union-attr]
        for cache in branch.layers
    )
