"""Policies that keep another from taking the instructions of a prompt first (after arXiv 2510.00231, for any spans)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from policies.declaration.errors import PolicyError
from policies.declaration.lazy import LazyModule
from policies.declaration.policy import Policy, Press, replaced_hooks
from policies.eviction.scorers import H2O, KNORM, SNAPKV, STREAMING_LLM, TOVA

kvpress = LazyModule("kvpress")
presses = LazyModule("policies.presses.protection")

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Way:
    """Declares a way to protect instructions."""

    description: str  # with a place for the plain policy's name
    wrap: Callable[[Press, Spans], Press]  # puts a press that protects some spans around a scorer press


WAYS: Mapping[str, Way] = {
    "whitelist": Way("{plain}, instructions kept first", lambda press, spans: presses.WhitelistPress(press, spans)),
    "fair": Way("{plain}, the same share of every part", lambda press, spans: presses.fair(press, spans)),
    "debias0.5": Way(
        "{plain}, half-way to equal shares of all parts",
        lambda press, spans: presses.half_fair(press, spans),
    ),
}


def protect(plain: Policy, way: str) -> Policy:
    """Makes the policy around another, named ``plain+way``; raises :class:`PolicyError` if the other keeps tokens by
    anything but their scores."""
    if plain.prefill_treatment or plain.step_treatment:
        raise PolicyError(f"{plain.name}+{way}: protect first, as in knorm+{way}+int4")
    press = plain.build(plain.typical_situation(1024))
    by_score = isinstance(press, kvpress.ScorerPress) and type(press).compress is kvpress.ScorerPress.compress
    if not by_score or replaced_hooks(press) or plain.per_question:
        raise PolicyError(
            f"{plain.name}+{way} cannot be built: {plain.name} keeps tokens otherwise than by their scores"
        )
    return protect_scorer(plain, way)


def protect_scorer(plain: Policy, way: str) -> Policy:
    """Does the same for a policy that is known to keep tokens by their scores: nothing is built to see it."""
    return Policy(
        name=f"{plain.name}+{way}",
        family="protection",
        paper="arXiv 2510.00231",
        description=WAYS[way].description.format(plain=plain.name),
        build=lambda situation: WAYS[way].wrap(plain.build(situation), situation.spans),
        kinds=plain.kinds,
        random=plain.random,
        ratio_free_score=plain.ratio_free_score,
        more_tokens_than=plain.more_tokens_than,
        needs_question=plain.needs_question,
        needs_spans=True,
        paper_arguments=plain.paper_arguments,
        weights=plain.weights,
        check_model=plain.check_model,
        origin=plain.origin,
        around=plain,
    )


# Those of the paper are registered; the rest are built when they are named.
PROTECTED = (STREAMING_LLM, SNAPKV, TOVA, H2O, KNORM)
PROTECTION = tuple(protect_scorer(plain, way) for plain in PROTECTED for way in WAYS)
