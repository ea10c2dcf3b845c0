"""Waves: which branches are decoded together, so that their keys and values fit into the memory they may take.

Waves are made of bundles and bundles of rows, which are padded to the longest of their bundle. What a row takes is
counted from what its branch keeps, or, before anything is read, from what its policy was asked to keep.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from kvpress.utils import compute_n_kept

from kvbench.engine.decode.columns import PLACES_AT_ONCE
from kvbench.engine.decode.rows import Of, Row, shared_start
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.plan import Scoring, Treatment
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt

# Bytes of padding in a bundle. More bundles read less of it, in more operations: twelve for each layer and pass.
PADDING = {"cpu": 2 * 10**6, "cuda": 2 * 10**8}


@dataclass(frozen=True)
class Forecast:
    """What is expected of a context. ``waves``: rows of each wave and the bytes that it takes. ``alone``: branches
    whose answers are written one by one. ``too_large``: branches that do not fit alone."""

    waves: tuple[tuple[int, int], ...]
    alone: int
    too_large: int


Rows = list[Row[Of]]  # of a bundle


def waves(trace: Trace, steps: int, max_kv_bytes: int, gold: bool = True) -> list[list[Rows[Branch]]]:
    """The sound branches whose presses are done, in waves of at most ``max_kv_bytes`` of cache. ``gold``: with the rows
    that are there for right answers alone."""
    heads, _, size = trace.keys[0].shape
    token_bytes = 2 * len(trace.keys) * heads * size * trace.keys[0].element_size()
    sound = [branch for branch in trace.branches if branch.error is None and branch.held is None]
    rows = [
        row
        for branch in sound
        for row in _rows(branch, branch.treatment, _longest(branch), _even(branch), trace.prompt, steps, token_bytes)
    ]
    return in_waves([row for row in rows if gold or not row.forced], max_kv_bytes, trace.keys[0].device)


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
        known = treatment.policy.counted == "head"
        kept = compute_n_kept(length, treatment.ratio) if known else length
        even = known and not treatment.policy.rewrites
        rows += _rows(treatment, treatment, kept, even, prompt, steps, token_bytes)
    fitting = [row for row in rows if row.size <= max_kv_bytes]
    sizes = tuple((sum(map(len, wave)), size_of(wave)) for wave in in_waves(fitting, max_kv_bytes, model.device))
    return Forecast(sizes, alone, len(rows) - len(fitting))


def rows_of(waves: Iterable[Iterable[Rows[Of]]]) -> list[Row[Of]]:
    return [row for wave in waves for bundle in wave for row in bundle]


def size_of(wave: Iterable[Rows[Of]]) -> int:
    """Bytes of keys and values, padding among them."""
    return sum(len(bundle) * bundle[0].size for bundle in wave)


def in_waves(rows: Iterable[Row[Of]], max_kv_bytes: int, device: torch.device) -> list[list[Rows[Of]]]:
    """One wave after the other, each filled as far as the bound allows. A row above the bound is alone in its wave."""
    found: list[list[Rows[Of]]] = []
    room = 0
    for rest in _in_bundles(rows, PADDING[device.type]):
        while rest:
            size = rest[0].size
            if room < size:
                found.append([])
                room = max(max_kv_bytes, size)
            count = min(len(rest), room // size)
            found[-1].append(rest[:count])
            room, rest = room - count * size, rest[count:]
    return found


def _in_bundles(rows: Iterable[Row[Of]], padding: int) -> Iterator[Rows[Of]]:
    """Rows of like length, the longest first, so that no bundle has more bytes of padding than asked for.

    Those of a bundle ask as many questions, and all keep as many tokens in every head and layer or none does, since one
    mask then serves all layers.
    """
    groups: dict[tuple[int, int, bool], Rows[Of]] = {}
    for row in rows:
        groups.setdefault((len(row.questions), row.steps, row.even), []).append(row)
    for group in groups.values():
        bundle: Rows[Of] = []
        padded = 0
        for row in sorted(group, key=lambda row: row.size, reverse=True):
            if bundle:
                padded += bundle[0].size - row.size
            if padded > padding:
                yield bundle
                bundle, padded = [], 0
            bundle.append(row)
        yield bundle


def token_bytes_of(model: LoadedModel) -> int:
    """Bytes of keys and values of one token over all layers and heads."""
    config = model.network.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads: int = config.num_key_value_heads * config.num_hidden_layers
    return int(2 * heads * size * model.network.dtype.itemsize)


def _rows(
    of: Of, treatment: Treatment, tokens: int, even: bool, prompt: Prompt, steps: int, token_bytes: int
) -> list[Row[Of]]:
    """The rows of a branch. ``tokens``: how many a head of it reads of the context."""
    if treatment.policy.step_treatment is None:
        size = (tokens + _room(prompt, treatment.asks, steps)) * token_bytes
        return [Row(of, treatment.asks, even, size, steps)]
    rows = []
    steps = max(steps, *(len(ask.gold_ids) for ask in prompt.asks))
    for number in treatment.asks:
        size = (tokens + _room(prompt, (number,), steps)) * token_bytes
        rows.append(Row(of, (number,), even, size, steps))
        if prompt.asks[number].gold_ids:
            rows.append(Row(of, (number,), even, size, steps, forced=True))
    return rows


def _room(prompt: Prompt, numbers: Sequence[int], steps: int) -> int:
    """Places for the questions of a row and their answers. The right answers are passed where answers are written
    later, a few at a time."""
    asks = [prompt.asks[number] for number in numbers]
    questions, golds = [ask.token_ids for ask in asks], [len(ask.gold_ids) for ask in asks]
    if len(asks) == 1:  # padded to whatever another row of its bundle asks
        questions = [max((ask.token_ids for ask in prompt.asks), key=len)]
        golds = [max(len(ask.gold_ids) for ask in prompt.asks)]
    shared = shared_start([questions])
    lengths = [len(question) - shared for question in questions]
    answers = max(steps * len(asks), min(sum(golds), PLACES_AT_ONCE), *golds)
    return shared + sum(lengths) + answers + max(PLACES_AT_ONCE, *lengths)


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
