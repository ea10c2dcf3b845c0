"""Gathers what the page of methods tells of policies, where a run is of a suite that places all
methods."""

from collections.abc import Mapping, Sequence

from kvbench.board.unfit import Unfit
from kvbench.store.store import Store
from kvbench.studies.registry import SUITES
from leaderboards.pages.methods.all_methods import NOTHING_UNFIT, AboutMethod, build_methods
from leaderboards.pages.results import Results
from leaderboards.rendering.templating import Neighbours
from policies import Policy
from policies.composition import built_in

OWN_PREFILL = "a prefill of its own"
NOTHING_STALE: Mapping[str, str] = {}


def find_left_out(stores: Sequence[Store]) -> dict[str, str]:
    """Returns the methods that suites which place all methods leave out, with the reasons; none
    where no run is of such a suite."""
    left_out: dict[str, str] = {}
    for store in stores:
        job = store.run.job
        if job is not None and job.suite is not None:
            left_out |= SUITES[job.suite].left_out
    return left_out


def about_methods(
    stores: Sequence[Store], stale: Mapping[str, str] = NOTHING_STALE
) -> dict[str, AboutMethod]:
    """Returns what is told of each policy of some runs. ``stale``: by policy, why its answers are of
    another version."""
    methods: dict[str, AboutMethod] = {}
    for store in stores:
        for entry in store.identity.policies:
            policy = built_in(entry.name)
            idea = entry.name if policy is None else policy.description
            needs = "" if policy is None else _needs(policy)
            caveat = "" if policy is None else policy.caveat
            old = stale.get(entry.name, "")
            about = AboutMethod(entry.family, idea, entry.paper, needs, old, caveat)
            methods.setdefault(entry.name, about)
    return methods


def methods_page(
    results: Sequence[Results],
    methods: Mapping[str, AboutMethod],
    left_out: Mapping[str, str],
    neighbours: Neighbours,
    mine: str = "",
    has_examples: bool = True,
    unfit: Unfit = NOTHING_UNFIT,
) -> str:
    """Builds the page of methods of some runs. ``mine``: the press that is placed among the others.
    ``has_examples``: whether pages of examples lie beside it. ``unfit``: by model, why a method
    cannot run on it."""
    absent = {name: reason for name, reason in left_out.items() if name not in methods}
    return build_methods(results, methods, absent, neighbours, mine, has_examples, unfit)


def _needs(policy: Policy) -> str:
    """Says what a policy needs beside the model, in words."""
    needs = []
    if policy.prefill != "shared":
        needs.append(OWN_PREFILL)
    if policy.needs.calibration:
        needs.append("a look at the model beforehand")
    if policy.needs.question:
        needs.append("the question in view")
    if policy.needs.weights:
        needs.append(policy.needs.weights)
    return ", ".join(needs)
