"""The pairs of paths that a study compares: cache on against cache off, and beside them the null rows, which say what
any two computations of the same differ by."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from kvbench.engine.numerics.paths import Cached, Path, Whole
from kvbench.engine.numerics.regimes import Walk, free_running, teacher_forced
from kvbench.engine.numerics.remedies import REMEDIES, remedied_paths
from kvbench.engine.numerics.sampling import Choose

BATCH, CHUNK = 2, 32
NULL_STEPS = 3  # of null rows: what computing otherwise moves does not depend on how far an answer is
CACHE = {"cache": ("on", "off")}
NULL = {
    "on again": ("on", "on again"),
    "off again": ("off", "off again"),
    "batch": ("off", "batch"),  # off, with 2 copies in a batch
    "chunks": ("off", "chunks"),  # off, with 32 tokens read at once
    "threads": ("off", "threads"),  # off, on one thread
    "float32": ("off", "float32"),  # off, in float32
}


@dataclass(frozen=True)
class Behind:
    """Holds what both paths stand behind, and how they go on."""

    ids: Sequence[int]  # of the prompt
    choose: Choose
    steps: int  # tokens at most
    ends: Collection[int] = ()  # tokens that end an answer
    given: Sequence[int] = ()  # the text that follows, on which paths are teacher-forced; else that of cache on


def forced_walks(
    network: PreTrainedModel,
    in_float32: PreTrainedModel | None,
    behind: Behind,
    with_null: bool = True,
    with_remedies: bool = False,
) -> dict[str, Walk]:
    """Walks cache on, cache off and the paths of remedies, and the null paths over the first steps, teacher-forced, by
    the names of the pairs. ``in_float32``: the same network in float32, unless it is in float32. Where there is one
    thread, no other number of threads is tried."""
    paths: dict[str, Path] = {"on": Cached(network), "off": Whole(network)}
    remedied = remedied_paths(network) if with_remedies else {}
    walks = _forced(paths | remedied, CACHE | REMEDIES, behind, behind.steps, behind.given)
    if not with_null:
        return walks
    tokens = behind.given or walks["cache"].tokens
    return walks | _forced(paths | _null_paths(network, in_float32), NULL, behind, NULL_STEPS, tokens)


def _forced(
    paths: Mapping[str, Path],
    pairs: Mapping[str, tuple[str, str]],
    behind: Behind,
    steps: int,
    given: Sequence[int],
) -> dict[str, Walk]:
    there = {name: pair for name, pair in pairs.items() if {*pair} <= {*paths}}
    return teacher_forced(paths, there, behind.ids, behind.choose, steps, behind.ends, given)


def _null_paths(network: PreTrainedModel, in_float32: PreTrainedModel | None) -> dict[str, Path]:
    paths: dict[str, Path] = {
        "on again": Cached(network),
        "off again": Whole(network),
        "batch": Whole(network, batch=BATCH),
        "chunks": Whole(network, chunk=CHUNK),
    }
    if network.device.type == "cpu" and torch.get_num_threads() > 1:
        paths["threads"] = Whole(network, threads=1)
    if in_float32 is not None:
        paths["float32"] = Whole(in_float32)
    return paths


def free_walk(network: PreTrainedModel, behind: Behind, forced: Walk) -> Walk:
    """Lets cache on and cache off each go on from its own tokens. Where both chose the same tokens and were ``forced``
    on these, that is the same computation, which is not repeated."""
    if not behind.given and forced.tokens == forced.other_tokens:
        return forced
    return free_running(Cached(network), Whole(network), behind.ids, behind.choose, behind.steps, behind.ends)
