"""Cuts branches from one prefill while it runs, for presses that act after the attention of a layer
and nowhere else.

A press acts in a hook after the attention of its layer has run on the full cache, so what the next
layer sees does not depend on what was evicted: one forward pass serves every such press at every
ratio (DESIGN.md, "one prefill, many branches")."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from kvpress import BasePress, ScorerPress
from kvpress.utils import compute_n_kept
from torch import nn

from kvbench.engine.treat.branch import Branch, is_known, record_faults, repeatable_draws
from kvbench.engine.treat.keep import LayerCache, PressError, Ranking, observe
from kvbench.models.load import LoadedModel, find_decoder
from policies import is_left_whole, replaced_hooks
from policies.declaration.devices import TimedWork, timing


@dataclass(frozen=True)
class LayerInputs:
    """Holds what kvpress hands to a press."""

    # The attention layer of any architecture, on which kvpress sets attributes of its own.
    module: Any
    hidden_states: torch.Tensor
    keys: torch.Tensor  # shape (1, num_kv_heads, seq_len, head_dim)
    values: torch.Tensor  # likewise
    attentions: torch.Tensor | None
    kwargs: dict[str, Any]

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Returns what kvpress's ``score`` and ``compress`` take, in their order."""
        states = self.hidden_states, self.keys, self.values
        return self.module, *states, self.attentions, self.kwargs


# The scores of a press, shape (1, num_kv_heads, seq_len), and their time.
Scored = tuple[torch.Tensor, TimedWork]


class Copies:
    """Copies the tensors of a layer for presses: one copy serves one after the other until one has
    written into it."""

    def __init__(self) -> None:
        self._copies: dict[str, tuple[torch.Tensor | None, int]] = {}

    def of(self, name: str, original: torch.Tensor) -> torch.Tensor:
        """Returns a copy of a tensor of any shape, the same for a name until it is written to."""
        copied, version = self._copies.get(name, (None, 0))
        if copied is None or copied._version != version:
            # Only tensors from outside of this mode count how often they were written into.
            with torch.inference_mode(False):
                copied = original.clone()
            self._copies[name] = (copied, copied._version)
        return copied


@contextmanager
def cutting(
    model: LoadedModel, groups: Sequence[Sequence[Branch]]
) -> Iterator[Callable[[], float]]:
    """Cuts a context for all branches, grouped by scoring, as it is read. Yields a function that
    returns the seconds so far; it waits for the device, and nothing else here does so to measure
    time. Raises :class:`PressError` for a press that replaces kvpress's hooks."""
    for branch in chain.from_iterable(groups):
        if branch.error is None:
            with record_faults(branch, "at the start", model):
                press: Any = branch.press
                if replaced := replaced_hooks(press):
                    raise PressError(
                        f"it replaces kvpress's {replaced[0]} and needs a prefill of its own"
                    )
                # kvpress does it where a press is entered, and here none is: its hooks are not
                # used.
                if type(press).post_init_from_model is not BasePress.post_init_from_model:
                    press.post_init_from_model(model.network)
    treated: list[TimedWork] = []

    def treat(inputs: LayerInputs) -> None:
        copies = Copies()
        with timing(inputs.keys.device) as work:
            for branches in groups:
                _treat_layer(model, branches, inputs, copies)
        treated.append(work)

    with _after_attention(model, treat):
        yield lambda: sum(work.seconds for work in treated)


@contextmanager
def _after_attention(model: LoadedModel, treat: Callable[[LayerInputs], None]) -> Iterator[None]:
    """Calls ``treat`` after the attention of every layer, as kvpress's own hooks are called."""

    def hook(module: nn.Module, _: Any, kwargs: dict[str, Any], output: Any) -> None:
        layer = kwargs["past_key_values"].layers[module.layer_idx]
        treat(
            # The fused attention returns no weights: output[1] is None for presses that share a
            # prefill.
            LayerInputs(
                module, kwargs["hidden_states"], layer.keys, layer.values, output[1], kwargs
            )
        )

    decoder = find_decoder(model.network)
    handles = []
    try:
        for layer in decoder.layers:
            # Kvpress does the same; ExpectedAttention reads it.
            layer.self_attn.rotary_emb = decoder.rotary_emb
            handles.append(layer.self_attn.register_forward_hook(hook, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _treat_layer(
    model: LoadedModel, branches: Sequence[Branch], inputs: LayerInputs, copies: Copies
) -> None:
    alive = [branch for branch in branches if branch.error is None]
    if not alive:
        return
    press, scored_once = alive[-1].press, alive[-1].treatment.policy.ratio_free_score
    if is_left_whole(inputs.module):
        for branch in alive:
            branch.layers.append(_everything(inputs))
    elif (
        isinstance(press, ScorerPress) and type(press).compress is ScorerPress.compress
    ):  # it only drops low scores
        # Each by itself where the scores of a press depend on its ratio.
        for together in [alive] if scored_once else [[branch] for branch in alive]:
            _score_once(model, together, inputs, copies)
    else:
        remembered: list[Scored] | None = [] if scored_once else None
        for branch in alive:
            _compress(model, branch, inputs, copies, remembered)


def _everything(inputs: LayerInputs) -> LayerCache:
    keep = torch.ones(inputs.keys.shape[1:3], dtype=torch.bool, device=inputs.keys.device)
    return LayerCache(keep, keep.numel())


class _Copied:
    """Stands for another layer of the live cache before a press: a copy, made when it is first
    looked at."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer

    # Python asks for what the instance lacks alone: the first look makes the copy.
    def __getattr__(self, name: str) -> Any:
        if name == "_copy":
            self._copy = copy.copy(self._layer)
            self._copy.keys, self._copy.values = (
                self._layer.keys.clone(),
                self._layer.values.clone(),
            )
            return self._copy
        return getattr(self._copy, name)


@contextmanager
def _isolated(
    inputs: LayerInputs, press: BasePress | None, copies: Copies
) -> Iterator[LayerInputs]:
    """Yields copies of the inputs of a press, because what it writes there must not reach the model
    or other branches. Writing through ``.data`` is not counted: the press of a user gets separate
    copies.

    Raises :class:`PressError` if it put others into the cache that it was shown, instead of
    returning what it keeps."""
    if not is_known(press):
        copies = Copies()
    hidden_states, keys, values = (
        copies.of(name, getattr(inputs, name)) for name in ("hidden_states", "keys", "values")
    )
    kwargs = {**inputs.kwargs, "hidden_states": hidden_states}
    if "position_embeddings" in kwargs:
        parts = enumerate(kwargs["position_embeddings"])
        kwargs["position_embeddings"] = tuple(
            copies.of(f"position {number}", part) for number, part in parts
        )
    # Only the shells of cache and layer are copied: tensors that a press puts into them stay out of
    # the live cache, and are noticed below.
    cache = copy.copy(inputs.kwargs["past_key_values"])
    current = inputs.module.layer_idx
    shown = copy.copy(cache.layers[current])
    shown.keys, shown.values = keys, values
    cache.layers = [
        shown if number == current else _Copied(layer) for number, layer in enumerate(cache.layers)
    ]
    kwargs["past_key_values"] = cache
    # What a head-wise press leaves here is its result; the next one must not take it for its own.
    inputs.module.masked_key_indices = None
    try:
        yield LayerInputs(inputs.module, hidden_states, keys, values, inputs.attentions, kwargs)
    finally:
        inputs.module.masked_key_indices = None
    if shown.keys is not keys or shown.values is not values:
        raise PressError("it replaced the live cache instead of returning what it keeps")


def _score_once(
    model: LoadedModel, branches: Sequence[Branch], inputs: LayerInputs, copies: Copies
) -> None:
    """Does the work of ``ScorerPress.compress`` for all branches after one call of ``score``. If
    that raises, only the branch fails for which it was called, and it is called again for the next
    one."""
    length = inputs.keys.shape[2]
    # By kvpress's own count, which truncates: int(1000 * (1 - 0.9)) keeps 99 tokens.
    counts = {id(branch): compute_n_kept(length, branch.treatment.ratio) for branch in branches}
    ranking: Ranking | None = None
    scored = TimedWork(inputs.keys.device)
    for branch in branches:
        # As ScorerPress.compress, which returns what it is given at ratio 0 and scores nothing.
        if branch.treatment.ratio == 0:
            branch.layers.append(_everything(inputs))
            continue
        if ranking is None:
            with (
                record_faults(branch, f"in layer {inputs.module.layer_idx}", model),
                repeatable_draws(branch, inputs.module.layer_idx, model.device),
                timing(inputs.keys.device) as scored,
            ):
                # All of these presses score alike, whatever their ratio.
                ranking = _ranked(branches[-1].press, inputs, copies, list(counts.values()))
        if branch.error is not None:
            continue
        assert ranking is not None
        count = counts[id(branch)]
        with timing(inputs.keys.device) as cut:
            keep = ranking.kept(count)
        branch.work += [scored, cut]
        branch.layers.append(LayerCache(keep, keep.shape[0] * count))


def _ranked(
    press: BasePress | None, inputs: LayerInputs, copies: Copies, counts: Sequence[int]
) -> Ranking:
    """Returns the scores of a press in order."""
    assert isinstance(press, ScorerPress)
    with _isolated(inputs, press, copies) as isolated:
        states = (isolated.hidden_states, isolated.keys, isolated.values)
        versions = [tensor._version for tensor in states]
        scores: torch.Tensor = press.score(*isolated.arguments)
        if [tensor._version for tensor in states] != versions:
            # Of kvpress's own call these tensors are the cache, which it would have changed.
            raise PressError(
                "its score writes into the hidden states, keys or values that it is given, which "
                "would change what the cache keeps: let it write into a clone"
            )
    if scores.shape != inputs.keys.shape[:3]:
        raise PressError(
            f"it scored with shape {tuple(scores.shape)}, not {tuple(inputs.keys.shape[:3])}"
        )
    if scores.dtype is torch.bool:
        raise PressError(
            "its scores are of type bool, which say of no two tokens which is worth more"
        )
    ranking = Ranking(scores, counts)
    if ranking.has_nan:
        raise PressError("some of its scores are NaN")
    return ranking


@contextmanager
def _scoring_once(branch: Branch, remembered: list[Scored] | None, length: int) -> Iterator[None]:
    """Has the scores of a press inside another, such as AdaKV's, serve all ratios: the outer one
    would score all ``length`` tokens again for each. Parts of them are scored as often as the outer
    press calls for it."""
    inner = getattr(branch.press, "press", None)
    if remembered is None or not isinstance(inner, ScorerPress):
        yield
        return
    score_of_press = inner.score

    def score(
        module: Any, hidden_states: Any, keys: torch.Tensor, *others: Any, **keywords: Any
    ) -> torch.Tensor:
        if remembered and keys.shape[2] == length:
            branch.work.append(remembered[0][1])
            # A copy each time: AdaKV writes its safeguard into the scores.
            return remembered[0][0].clone()
        with timing(keys.device) as work:
            scores: torch.Tensor = score_of_press(module, hidden_states, keys, *others, **keywords)
        if keys.shape[2] == length:
            remembered.append((scores.clone(), work))
        return scores

    # On the instance, which hides the method of its class until it is deleted again.
    inner.score = score
    try:
        yield
    finally:
        del inner.score


def _compress(
    model: LoadedModel,
    branch: Branch,
    inputs: LayerInputs,
    copies: Copies,
    remembered: list[Scored] | None,
) -> None:
    """Runs the press's own ``compress`` and notes what it kept."""
    assert branch.press is not None
    with record_faults(branch, f"in layer {inputs.module.layer_idx}", model):
        with (
            _isolated(inputs, branch.press, copies) as isolated,
            _scoring_once(branch, remembered, inputs.keys.shape[2]),
            repeatable_draws(branch, inputs.module.layer_idx, model.device),
        ):
            with timing(inputs.keys.device) as work:
                keys, values = branch.press.compress(*isolated.arguments)
            branch.work.append(work)
            masked = isolated.module.masked_key_indices
        branch.layers.append(observe(inputs.keys, inputs.values, keys, values, masked))
