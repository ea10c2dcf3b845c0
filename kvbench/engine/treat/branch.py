"""A branch holds what one treatment leaves of a prefilled context, or the reason why its press
failed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any
from unittest.mock import patch

import torch
from kvpress import BasePress
from kvpress.presses import base_press
from transformers import DynamicCache, Gemma3PreTrainedModel

from kvbench.engine.treat.keep import LayerCache, PressError, hash_caches
from kvbench.engine.treat.plan import Treatment
from kvbench.models.load import LoadedModel, attention, find_decoder
from kvbench.models.snapshot import ModelChangedError
from kvbench.prompts.prompt import Prompt
from kvbench.system.errors import first_line
from policies import PolicyError, describe_error, list_arguments, where_defined
from policies.declaration.devices import TimedWork
from policies.declaration.draws import derive_seed, drawing_from
from policies.declaration.foreign_code import TookTooLongError

# Packages whose presses are tested to write to nothing but their cache.
KNOWN = ("kvpress.", "policies.")


def attention_modules(model: LoadedModel) -> list[Any]:
    return [layer.self_attn for layer in find_decoder(model.network).layers]


def is_known(press: Any) -> bool:
    """Tells whether a press, with all presses inside it, comes from kvpress or kvbench and not from
    a user."""
    inner = []
    # A press around another holds it as `press`, a composition of several as `presses`.
    for press_inside in (getattr(press, "press", None), *getattr(press, "presses", ())):
        if press_inside is not None:
            inner.append(press_inside)
    return type(press).__module__.startswith(KNOWN) and all(map(is_known, inner))


def head_masks(model: LoadedModel) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None]:
    """Returns by layer the (batch, head, token) indices that a head-wise press has masked out of
    the keys."""
    return [getattr(module, "masked_key_indices", None) for module in attention_modules(model)]


def leaving_sliding_layers() -> AbstractContextManager[object]:
    """Has kvpress leave the sliding layers of every Gemma 3 whole (:func:`is_left_whole`), with
    images or without."""
    # kvpress 0.5.5 asks for this class when a press is entered; the text model is of another one.
    return patch.object(base_press, "Gemma3ForConditionalGeneration", Gemma3PreTrainedModel)


@contextmanager
def clearing_masks(model: LoadedModel) -> Iterator[None]:
    """Clears the masks that a head-wise press sets on modules: they are its result, and nobody
    else's.

    Nothing else is put back. A press that changes the model is named, and no later result of the
    process is taken (:class:`ModelChangedError`)."""
    try:
        yield
    finally:
        for module in attention_modules(model):
            module.masked_key_indices = None


@dataclass(frozen=True)
class PressCache:
    """Holds a cache as its press left it, where the press goes on while an answer is written."""

    cache: DynamicCache
    # As :func:`head_masks` returns them.
    masked: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None]


@dataclass
class Branch:
    """Holds what one treatment leaves of a trace."""

    treatment: Treatment
    press: BasePress | None = None
    # Of the press, for this context.
    arguments: dict[str, int | float | str] = field(default_factory=dict)
    layers: list[LayerCache] = field(default_factory=list)
    press_cache: PressCache | None = None
    # The work of this branch's press as if it had been run alone: a scoring for several ratios
    # counts in full for each.
    work: list[TimedWork] = field(default_factory=list)
    own_prefill_seconds: float = (
        0.0  # that the prefill of a press with its own took longer than the shared one
    )
    error: str | None = None  # why it failed: then there are no layers to read
    treat_apart: bool = False  # from all other branches, as a treatment of several has failed

    @cached_property
    def digest(self) -> str:
        """Identifies what is read: it is equal for branches that leave the same cache."""
        return hash_caches(self.layers)

    @property
    def seconds(self) -> float:
        """Returns the time of this branch's press; waits until the device has done its work."""
        return self.own_prefill_seconds + sum(work.seconds for work in self.work)

    @property
    def host_seconds(self) -> float:
        """Returns the time that the host took so far to order the work of this branch's press,
        without waiting."""
        return sum(work.host_seconds for work in self.work)

    @property
    def next_position(self) -> int:
        """Returns the first position of its questions: behind the context, wherever the tokens of
        that went."""
        if self.treatment.policy.renumbers:
            keys = self.layers[0].keys
            if keys is None:
                return self.treatment.situation.context_length
            return keys.shape[1]
        return self.treatment.situation.context_length


@dataclass
class Trace:
    """Holds one uncompressed prefill and its branches."""

    prompt: Prompt
    keys: list[torch.Tensor]  # by layer, shape (num_kv_heads, seq_len, head_dim), like the values
    values: list[torch.Tensor]
    seconds: float
    branches: list[Branch]
    windows: Sequence[int | None] = ()  # as :attr:`LoadedModel.windows`; none where nothing is said

    def __post_init__(self) -> None:
        self.windows = self.windows or (None,) * len(self.keys)

    @property
    def compressed(self) -> list[int]:
        """Returns the layers that presses compress: all but the sliding ones that they leave whole.
        What is lost and what is kept is counted in these; what slides out of a window is lost by
        the model and not by a press."""
        return [layer for layer, window in enumerate(self.windows) if window is None]

    @property
    def length(self) -> int:
        return len(self.prompt.token_ids)


def new_branch(treatment: Treatment) -> Branch:
    """Builds a branch with a fresh press, or with the reason why there is none."""
    branch = Branch(treatment)
    policy, situation = treatment.policy, treatment.situation
    with record_faults(branch, "at the start"):
        branch.press = policy.press(situation)
        if policy.needs.donor and situation.donor is not None:
            situation.donor()  # now, as no press must act on it
        branch.arguments = list_arguments(branch.press) | policy.treatment.arguments_in(situation)
    return branch


@contextmanager
def record_faults(branch: Branch, where: str, model: LoadedModel | None = None) -> Iterator[None]:
    """Records whatever a press raises as its failure, so that every other branch goes on.

    A press is foreign code and may raise anything, or never return: this is the one place where
    every exception is caught. ``model``: what the press could have written to. If the press of a
    user did, nothing goes on: :class:`ModelChangedError`."""
    policy = branch.treatment.policy.name
    try:
        # The bound is for a whole context, and this is entered at every layer: what was spent
        # before counts.
        with branch.treatment.time_limit.for_call(policy, branch.host_seconds):
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # an exit too
        if isinstance(error, PolicyError | TookTooLongError):
            text = first_line(error)
        elif isinstance(error, PressError):
            text = first_line(error) + where_defined(branch.press)
        else:
            text = describe_error(error, branch.press)
        branch.error = f"{policy} failed {where}: {text}"
        # Layers before the fault are there already, and half a cache would be decoded.
        branch.layers, branch.press_cache = [], None
    # After an error too: it may come behind a write. By counters, as this is asked at every layer;
    # contents are compared once for all (collect).
    if (
        model
        and not is_known(branch.press)
        and (change := model.snapshot.first_change(by_content=False))
    ):
        raise ModelChangedError([policy], change)


def give_up(branches: Sequence[Branch], where: str) -> bool:
    """Tells whether the press of these branches is given up, which have failed then. It is not
    begun: the moment that is left to it would be up while its hooks are set, of which one might
    stay for good."""
    treatment = branches[0].treatment
    reason = treatment.time_limit.given_up(treatment.policy.name)
    for branch in branches if reason else ():
        branch.error = f"{treatment.policy.name} failed {where}: {reason}"
    return bool(reason)


@contextmanager
def repeatable_draws(branch: Branch, part: int | str, device: torch.device) -> Iterator[None]:
    """Has a press draw the same from torch's generator in every run, without a change for any other
    draw."""
    situation = branch.treatment.situation
    with drawing_from(derive_seed(situation.seed, situation.example_id, part), device):
        yield


def lazy_donor(model: LoadedModel, prompt: Callable[[], Prompt]) -> Callable[[], Trace]:
    """Returns a function that reads the prompt when it is first called; it holds one context."""
    return cache(lambda: read_context(model, prompt()))


@torch.inference_mode()
def read_context(model: LoadedModel, prompt: Prompt) -> Trace:
    """Reads a context without a press; waves may be under way, with an attention of their own."""
    plain, started = DynamicCache(), model.clock()
    with attention(model.network, "sdpa"):
        token_ids = torch.tensor([prompt.token_ids], device=model.device)
        find_decoder(model.network)(input_ids=token_ids, past_key_values=plain)
    return Trace(prompt, *keys_and_values(plain), model.clock() - started, [], model.windows)


def keys_and_values(cache: DynamicCache) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Returns the keys and the values of one sequence by layer, shape (num_kv_heads, seq_len,
    head_dim)."""
    keys = [layer.keys[0] for layer in cache.layers if layer.keys is not None]
    return keys, [layer.values[0] for layer in cache.layers if layer.values is not None]


def reason_without_mask(branch: Branch) -> str:
    """Says why no mask describes what a branch reads, or nothing if one does."""
    if branch.error is not None:
        return "it failed"
    if branch.press_cache is not None:
        return "it goes on cutting while an answer is written"
    if any(layer.keep is None for layer in branch.layers):
        return "it merges or rewrites rows"
    return ""


def keep_mask(branch: Branch) -> torch.Tensor:
    """Returns which rows a branch reads, bool (layers, num_kv_heads, seq_len), in the memory of the
    host: layers may lie on several devices.

    Raises :class:`ValueError` where no mask tells that (:func:`reason_without_mask`).
    """
    if reason := reason_without_mask(branch):
        raise ValueError(f"{branch.treatment.policy.name} has no keep mask: {reason}")
    return torch.stack([layer.keep.cpu() for layer in branch.layers if layer.keep is not None])


def with_mask(branch: Branch, keep: torch.Tensor, questions: Sequence[int] | None = None) -> Branch:
    """Makes a branch that reads the rows of ``keep``, of the same cache and under the same
    treatment as ``branch``.

    ``keep``: as :func:`keep_mask` returns it. What is restored has the keys and values of the
    prefill from which ``branch`` was cut. ``questions``: the numbers of those that it answers; by
    default those of ``branch``. Raises :class:`ValueError` for a branch whose policy has no keep
    mask."""
    if reason := reason_without_mask(branch):
        raise ValueError(f"{branch.treatment.policy.name} has no keep mask: {reason}")
    if questions is None:
        treatment = branch.treatment
    else:
        treatment = replace(branch.treatment, questions=tuple(questions))
    layers = []
    for kept, layer in zip(keep, branch.layers, strict=True):
        assert layer.keep is not None
        layers.append(
            LayerCache(kept.to(layer.keep.device), int(kept.sum()), layer.keys, layer.values)
        )
    return Branch(treatment, branch.press, branch.arguments, layers)
