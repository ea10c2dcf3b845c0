"""Divides branches into waves that are decoded together, so that their keys and values fit into
memory.

Waves are made of bundles and bundles of rows, which are padded to the longest of their bundle. What
a row takes is counted from what its branch keeps, or, before anything is read, from what its policy
was asked to keep."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from kvpress.utils import compute_n_kept
from transformers import Cache

from kvbench.engine.decode.bundle import Bundle
from kvbench.engine.decode.columns import PLACES_AT_ONCE, Of, Row, shared_start
from kvbench.engine.treat.branch import Branch, Trace
from kvbench.engine.treat.keep import LayerCache
from kvbench.engine.treat.plan import Scoring, Treatment
from kvbench.models.load import LoadedModel
from kvbench.models.pretrained import read_head_size
from kvbench.prompts.prompt import Prompt
from policies.declaration.devices import device_kind


@dataclass(frozen=True)
class CacheSize:
    """Counts what rows of a batch take."""

    layer_bytes: int  # of the keys and values of one token in one layer
    length: int  # of the context
    windows: Sequence[int | None]  # by layer, as :attr:`LoadedModel.windows`

    def of(self, kept: int, room: int) -> int:
        """Counts the bytes of a row that keeps so many tokens in each layer that its press
        compresses. A sliding layer that presses leave whole holds the newest ones, whatever the
        press."""
        tokens = 0
        for window in self.windows:
            tokens += room
            tokens += kept if window is None else min(self.length, window - 1)
        return self.layer_bytes * tokens


Rows = list[Row[Of]]  # of a bundle


def waves(
    traces: Iterable[Trace], steps: int, max_kv_bytes: int, gold: bool = True
) -> list[list[Rows[Branch]]]:
    """Divides the sound branches whose presses are done into waves of at most ``max_kv_bytes`` of
    cache. ``gold``: with the copies of rows that are there for right answers alone."""
    traces = list(traces)
    rows: list[Row[Branch]] = []
    for trace in traces:
        rows += _rows_of_trace(trace, steps, gold)
    return in_waves(rows, max_kv_bytes, traces[0].keys[0].device)


def _rows_of_trace(trace: Trace, steps: int, gold: bool) -> list[Row[Branch]]:
    heads, _, head_size = trace.keys[0].shape
    layer_bytes = 2 * heads * head_size * trace.keys[0].element_size()
    size = CacheSize(layer_bytes, trace.length, trace.windows)
    rows = []
    for branch in trace.branches:
        if branch.error is not None or branch.press_cache is not None:
            continue
        layers = [branch.layers[number] for number in trace.compressed]
        # Counted in the layers that presses compress; the size of all others is known without them.
        longest, even = _longest(layers), _even(layers)
        for row in _rows(branch, branch.treatment, longest, even, trace.prompt, steps, size, gold):
            rows.append(replace(row, trace=trace))
    return rows


def count_too_large(
    model: LoadedModel, prompt: Prompt, scorings: Sequence[Scoring], steps: int, max_kv_bytes: int
) -> int:
    """Counts the rows of a prompt that will not fit alone, before it is read. It counts no less
    memory than they take: a policy that spreads its budget over heads or layers may leave one of
    them whole."""
    length = len(prompt.token_ids)
    size = CacheSize(bytes_per_token(model) // len(model.windows), length, model.windows)
    count = 0
    for treatment in chain.from_iterable(scorings):
        policy = treatment.policy
        if policy.while_decoding:  # its answers are written one by one
            continue
        kept = compute_n_kept(length, treatment.ratio) if policy.counted == "head" else length
        even = policy.counted == "head" and not policy.rewrites
        rows = _rows(treatment, treatment, kept, even, prompt, steps, size)
        count += sum(row.size > max_kv_bytes for row in rows)
    return count


def all_rows(waves: Iterable[Iterable[Rows[Of]]]) -> list[Row[Of]]:
    """Lists the rows of waves, one bundle after the other."""
    return list(chain.from_iterable(chain.from_iterable(waves)))


def wave_bytes(wave: Iterable[Rows[Of]]) -> int:
    """Counts the bytes of keys and values, padding included."""
    return sum(len(bundle) * bundle[0].size for bundle in wave)


def in_waves(
    rows: Iterable[Row[Of]], max_kv_bytes: int, device: torch.device
) -> list[list[Rows[Of]]]:
    """Fills one wave after the other as far as the bound allows. A row above the bound is alone in
    its wave."""
    full: list[list[Rows[Of]]] = []
    room = 0
    for rest in _in_bundles(rows, device_kind(device).padding_bytes):
        while rest:
            # The rows of a bundle are padded to its first one, which is the longest.
            size = rest[0].size
            if room < size:
                full.append([])
                room = max(max_kv_bytes, size)
            count = min(len(rest), room // size)
            full[-1].append(rest[:count])
            room, rest = room - count * size, rest[count:]
    return full


def _in_bundles(rows: Iterable[Row[Of]], padding: int) -> Iterator[Rows[Of]]:
    """Groups rows of like length, the longest first, so that no bundle has more than ``padding``
    bytes of padding.

    The rows of a bundle are of one trace and have the same number of questions, all have a copy or
    none has, and all keep as many tokens in every head and layer or none does, since one mask then
    serves all layers."""
    groups: dict[tuple[int, int, int, bool, bool], Rows[Of]] = {}
    for row in rows:
        alike = id(row.trace), len(row.questions), row.steps, row.even, row.paired
        groups.setdefault(alike, []).append(row)
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


def bytes_per_token(model: LoadedModel) -> int:
    """Counts the bytes of keys and values of one token over all layers and heads."""
    config = model.network.config.get_text_config()
    heads: int = config.num_key_value_heads * config.num_hidden_layers
    return 2 * heads * read_head_size(config) * model.network.dtype.itemsize


def _rows(
    of: Of,
    treatment: Treatment,
    tokens: int,
    even: bool,
    prompt: Prompt,
    steps: int,
    size: CacheSize,
    gold: bool = True,
) -> list[Row[Of]]:
    """Makes the rows of a branch. ``tokens``: how many of the context a head reads, where a press
    compresses."""
    policy = treatment.policy
    by_step = policy.treatment.step_treatment is not None
    if not by_step and not policy.treatment.own_rows:
        taken = size.of(tokens, _room(prompt, treatment.questions, steps))
        return [Row(of, treatment.questions, even, taken, steps)]
    longest_gold = max(len(question.gold_ids) for question in prompt.questions)
    paired = by_step and gold and longest_gold > 0
    if paired:
        steps = max(steps, longest_gold)
    rows = []
    for number in treatment.questions:
        # The copy that passes the right answer takes as much again.
        taken = (1 + paired) * size.of(tokens, _room(prompt, (number,), steps))
        rows.append(Row(of, (number,), even, taken, steps, paired))
    return rows


def _room(prompt: Prompt, numbers: Sequence[int], steps: int) -> int:
    """Counts the places for the questions of a row and their answers. The right answers are passed
    where answers are written later, a few at a time."""
    is_single = len(numbers) == 1
    read = prompt.questions if is_single else [prompt.questions[number] for number in numbers]
    questions = [question.token_ids for question in read]
    golds = [len(question.gold_ids) for question in read]
    if is_single:  # padded to whatever another row of its bundle asks
        questions, golds = [max(questions, key=len)], [max(golds)]
    shared = shared_start([questions])
    lengths = [len(question) - shared for question in questions]
    answers = max(steps * len(questions), min(sum(golds), PLACES_AT_ONCE), *golds)
    # The last term is the room in front in which questions are read alone (Bundle.front).
    return shared + sum(lengths) + answers + max(PLACES_AT_ONCE, *lengths)


def _even(layers: Sequence[LayerCache]) -> bool:
    """Tells whether as many rows are kept in every head and layer."""
    counts = []
    for cache in layers:
        if cache.keep is None:
            return False
        counts.append(cache.keep.sum(-1))
    return all(bool((count == counts[0][0]).all()) for count in counts)


def _longest(layers: Sequence[LayerCache]) -> int:
    """Counts the most rows that a head reads in any layer."""
    longest = 0
    for cache in layers:
        if cache.keep is not None:
            rows = int(cache.keep.sum(-1).max())
        else:
            assert cache.keys is not None  # which a press without a mask has rewritten
            rows = cache.read_rows // cache.keys.shape[0]
        longest = max(longest, rows)
    return longest


BRANCH_ATTENTION = "kvbench_branches"


@dataclass(frozen=True)
class BundlePass:
    """Describes the tokens of a pass that belong to one bundle."""

    bundle: Bundle
    tokens: slice  # their places in the pass
    # The only places of a row whose queries matter in the last layer; None: all of them.
    query_places: torch.Tensor | None = None


class Wave(Cache):
    """Holds the cache of all bundles that are decoded together. ``parts``: the tokens of the next
    pass."""

    def __init__(self, rows: Sequence[Sequence[Row[Branch]]], gold: bool = True) -> None:
        """``rows``: of each bundle. ``gold``: whether the right answers are passed."""
        # No layers of transformers: bundles hold the rows.
        super().__init__(layers=[])
        self.bundles = [Bundle(of_bundle[0].read_trace, of_bundle, gold) for of_bundle in rows]
        self.last_layer = len(self.bundles[0].keys) - 1
        self.parts: list[BundlePass] = []

    def get_seq_length(self, layer_idx: int = 0) -> int:
        # transformers counts positions by it; every pass brings its own, and nothing rests on this.
        return max(bundle.kept[layer_idx] + bundle.grown for bundle in self.bundles)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns keys and values as they are, shape (1, num_kv_heads, tokens, head_dim) each:
        bundles write them where they are attended to."""
        return key_states, value_states

    def begin_step(self) -> None:
        """Announces a pass over one more token of every answer that is still written."""
        self.parts, start = [], 0
        for bundle in self.bundles:
            bundle.begin_step()
            end = start + bundle.answering
            self.parts.append(BundlePass(bundle, slice(start, end)))
            start = end

    def keep_answering(self, going: torch.Tensor) -> None:
        """Drops answers that have ended. ``going``: bool (answers,), bundle by bundle, whether each
        is still written."""
        counts = [bundle.answering for bundle in self.bundles]
        for bundle, of_bundle in zip(self.bundles, going.split(counts), strict=True):
            if not bool(of_bundle.all()):
                bundle.keep_answering(of_bundle)
        self.bundles = [bundle for bundle in self.bundles if bundle.rows > 0]


def branch_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    wave: Wave | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Computes the attention of the tokens of a pass, shape (1, heads, tokens, head_dim) each, over
    their bundles."""
    assert wave is not None
    layer: int = module.layer_idx
    # (tokens, heads, head_dim): a pass is one sequence, of the tokens of all bundles.
    queries, keys, values = (states[0].transpose(0, 1) for states in (query, key, value))
    narrow = layer == wave.last_layer and any(part.query_places is not None for part in wave.parts)
    # Where places stay unwritten they are 0: memory as it was may hold NaN.
    output = queries.new_zeros(queries.shape) if narrow else queries.new_empty(queries.shape)
    for part in wave.parts:
        tokens, query_places = part.tokens, part.query_places if narrow else None
        states = queries[tokens], keys[tokens], values[tokens]
        part.bundle.attend(layer, *states, scaling, query_places, output[tokens])
    return output[None], None
