"""Ways to change what a policy that keeps tokens by their scores keeps, named ``policy+way``.

Some keep it from taking the instructions of a prompt first (after arXiv 2510.00231, for any spans).
Others keep what a serving engine can free: ``snapkv+pages16`` frees whole pages, ``+shared``
chooses once for all heads of a layer, and ``+ends`` keeps the first and last tenth of a context. An
engine such as vLLM (arXiv 2309.06180) holds a page of 16 tokens for all heads of a layer at once,
which is ``snapkv+shared+pages16``; one with a table of pages for each head, such as KV-Compress
(arXiv 2410.00161), can do ``snapkv+pages16``. Pages come last."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, product
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from policies.declaration.lazy import LazyModule, kvpress
from policies.declaration.names import PolicyError, by_name
from policies.declaration.policy import Policy, Press, Situation, replaced_hooks
from policies.eviction.controls import RANDOM
from policies.eviction.scorers import H2O, KNORM, SNAPKV, STREAMING_LLM, TOVA
from policies.treatments.options import kind_in, name_with, options_in

presses = LazyModule("policies.presses.rescoring")
of_paper = LazyModule("policies.presses.fair_as_paper")


class NoOptions(BaseModel):
    """Declares a way that has no options."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class JoinedScores(NoOptions):
    """Declares how the scores of several tokens, or of a token in several heads, become one."""

    by: Literal["mean", "max"] = "mean"


class FairForm(NoOptions):
    """Declares whose fair eviction it is: ours, or that of the paper's code, with two parts."""

    form: Literal["kvbench", "paper"] = Field(default="kvbench", alias="as")


@dataclass(frozen=True)
class Way:
    """Declares a way."""

    name: str
    paper: str
    description: str  # behind the name of the plain policy
    # Puts a press with these options around a scorer press.
    wrap: Callable[[Situation, Press, Any], Press]
    options: type[BaseModel] = NoOptions
    budget: str = ""  # how a ratio is reached, where that changes
    last: bool = False  # what it makes is no ranking of tokens: no other way goes around it
    protects: bool = False  # the spans of a situation, which are instructions


# Lambdas, or to look the functions up would import their modules here.
FAIR: Mapping[str, Callable[..., Press]] = {
    "kvbench": lambda *arguments: presses.fair(*arguments),
    "paper": lambda *arguments: of_paper.fair_as_paper(*arguments),
}
protection = partial(Way, paper="arXiv 2510.00231", protects=True)
WAYS: Mapping[str, Way] = by_name(
    "ways",
    (
        protection(
            name="whitelist",
            description="instructions kept first",
            wrap=lambda situation, press, _: presses.WhitelistPress(
                situation.ratio, press, situation.spans
            ),
        ),
        protection(
            name="fair",
            description="the same share of every part",
            wrap=lambda situation, press, options: FAIR[options.form](
                situation.ratio, press, situation.spans
            ),
            options=FairForm,
        ),
        protection(
            name="debias0.5",
            description="half-way to equal shares of all parts",
            wrap=lambda situation, press, _: presses.half_fair(
                situation.ratio, press, situation.spans
            ),
        ),
        Way(
            name="pages16",
            paper="arXiv 2509.04377",
            description="whole pages of 16 tokens by mean score",
            wrap=lambda situation, press, options: presses.PagesPress(
                situation.ratio, press, options.by
            ),
            options=JoinedScores,
            budget="as many whole pages in every head as come nearest; the last one stays while it is not full",
            last=True,
        ),
        Way(
            name="shared",
            paper="arXiv 2309.06180",
            description="the same tokens in all heads of a layer",
            wrap=lambda situation, press, options: presses.SharedPress(
                situation.ratio, press, options.by
            ),
            options=JoinedScores,
        ),
        Way(
            name="ends",
            paper="-",
            description="the first and last tenth of the context kept",
            wrap=lambda situation, press, _: presses.EndsPress(situation.ratio, press),
        ),
    ),
    PolicyError,
)
DEPLOYMENTS = {name: way for name, way in WAYS.items() if not way.protects}


def deploy(plain: Policy, name: str) -> Policy:
    """Makes the policy ``plain+way``; raises :class:`PolicyError` in one line for options that the
    way has not, and for a policy whose choice cannot be told from scores of tokens."""
    policy, way = deploy_scorer(plain, name), WAYS[kind_in(name)]
    if plain.treatment.prefill_treatment or plain.treatment.step_treatment:
        raise PolicyError(f"{policy.name}: evict first, as in knorm+{way.name}+int4")
    press = plain.build(plain.typical_situation(1024))
    is_scorer = isinstance(press, kvpress.ScorerPress)
    if is_scorer and _has_last_way(plain):
        raise PolicyError(f"{policy.name}: pages come last, as in knorm+{way.name}+pages16")
    # A press with a ``compress`` of its own, as PyramidKV, keeps otherwise than by its highest
    # scores.
    by_score = is_scorer and type(press).compress is kvpress.ScorerPress.compress
    is_protected = plain.needs.spans or (way.protects and plain.per_question)
    if not by_score or is_protected or replaced_hooks(press):
        raise PolicyError(
            f"{policy.name} cannot be built: {plain.name} keeps tokens otherwise than by their "
            f"scores"
        )
    return policy


def _has_last_way(policy: Policy) -> bool:
    """Tells whether a way is in the name of the policy around which no other goes."""
    return any(way.last and f"+{way.name}" in policy.name for way in WAYS.values())


def deploy_scorer(plain: Policy, name: str) -> Policy:
    """Does the same for a policy that is known to keep tokens by their scores: nothing is built to
    see it."""
    way = WAYS[kind_in(name)]
    options = options_in(name, way)
    full_name = f"{plain.name}+{name_with(way, options)}"
    return replace(
        plain,
        name=full_name,
        family="protection" if way.protects else "deployed",
        paper=way.paper,
        description=f"{plain.name}, {way.description}",
        build=lambda situation: way.wrap(situation, plain.build(situation), options),
        budget=way.budget or plain.budget,
        counted="nowhere" if way.last else "head",
        same_as=_may_keep_the_same(plain, way, full_name),
        baseline=None,
        around=plain if way.protects else plain.around or plain,
        by_default=False,
        needs=replace(plain.needs, spans=way.protects or plain.needs.spans),
    )


def _may_keep_the_same(plain: Policy, way: Way, name: str) -> tuple[str, ...]:
    """Names the policies that keep the same by design. Around a single span the paper's fair
    eviction has one part."""
    if not way.protects:
        return simpler(name)
    by_default = f"{plain.name}+{way.name}"
    if name == by_default:
        return ()
    return (plain.name, by_default)


def simpler(name: str) -> tuple[str, ...]:
    """Names the same policy with fewer of its ways, which may keep the same: TOVA scores all heads
    alike, and where one page is kept it may be the one that a press never evicts. What treats the
    rows that are kept stays: ``tova+shared+int4`` may be ``tova+int4``. Nothing is built; another
    name has none."""
    base, *ways = name.split("+")
    treatments: list[str] = []
    while ways and kind_in(ways[-1]) not in DEPLOYMENTS:
        treatments.insert(0, ways.pop())
    fewer: list[tuple[str, ...]] = []
    for count in range(len(ways)):
        fewer.extend(combinations(ways, count))
    return tuple("+".join([base, *chosen, *treatments]) for chosen in fewer)


# By the name of a policy that shares a layer's budget out among its heads, the same where there is
# one.
WITH_ONE_HEAD = {
    "adakv_snapkv": "snapkv",
    "adakv_expected_attention": "expected_attention",
    "critical_adakv_snapkv": "criticalkv_snapkv",
}


def name_with_one_head(name: str) -> str:
    """Names the policy that keeps the same on a model with one key head, where nothing is shared
    among heads."""
    base, *ways = name.split("+")
    parts = [WITH_ONE_HEAD.get(base, base)]
    parts += [way for way in ways if kind_in(way) != "shared"]
    return "+".join(parts)


def with_one_head(declared: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Adds to the policies that keep the same by design, by name, those that do so on a model with
    one key head."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in declared:
        alike[name_with_one_head(name)].append(name)
    added = {}
    for name, same in declared.items():
        others = [other for other in alike[name_with_one_head(name)] if other != name]
        added[name] = (*same, *others)
    return added


# What a policy gains because it always keeps the ends, as many do, this one gains too.
RANDOM_ENDS = replace(
    deploy_scorer(RANDOM, "ends"),
    family="control",
    description="Random tokens, the first and last tenth of the context kept first",
    by_default=True,
)
# Those of the paper are registered, and an example of each deployment; the rest are built when they
# are named.
PROTECTED = (STREAMING_LLM, SNAPKV, TOVA, H2O, KNORM)
PROTECTING = [way.name for way in WAYS.values() if way.protects]
PROTECTION = tuple(deploy_scorer(plain, way) for plain, way in product(PROTECTED, PROTECTING))
DEPLOYED = (
    RANDOM_ENDS,
    *(deploy_scorer(SNAPKV, way) for way in DEPLOYMENTS),
    deploy_scorer(deploy_scorer(SNAPKV, "shared"), "pages16"),
)
