"""The tables of numerics: cache on against cache off over an answer, layer by layer, and patched.

It asks the first question of each context, as another context tells more than another question. Null rows and drift,
which take as long as the rest, are measured on one context in three. Lists have a number for each step that both paths
have. On running text both paths are teacher-forced, so that sampling does not matter and only greedy runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

from kvbench.store.tables import RECORDS, AnswerRow, register_study
from policies import FULL
from policies.declaration.lazy import LazyModule

if TYPE_CHECKING:
    from kvbench.experiments.collect import FinishedAnswer as Answer

# They need torch, and a store is read without.
precision = LazyModule("kvbench.models.precision")
walks = LazyModule("kvbench.engine.studies.walks")

CLOSER = 3  # contexts of a task of which one has null rows and drift
IN_16_BITS = ("bfloat16", "float16")


class NumericsPair(AnswerRow):
    """Holds how far two paths are apart over an answer; NaN where a logit is not finite."""

    dtype: str  # of weights, activations and cache
    sampling: Literal["greedy", "top_k", "top_p"]
    draw: int  # of a random way to choose; 0 of greedy
    regime: Literal["teacher-forced", "free-running"]
    pair: Literal["cache", "chunks"]  # on against off, or the null row: off against off in chunks of 32 tokens
    tokens: list[int]  # that the first path chooses
    other_tokens: list[int]  # that the second chooses; teacher-forced, behind the same tokens
    text: str | None  # of the first path's answer; none teacher-forced, and where nothing is asked
    other_text: str | None
    right: bool | None  # the first path's answer
    other_right: bool | None
    kl: list[float]  # of the first path's distribution from the second's, in nats
    largest: list[float]  # difference of log-probabilities over the vocabulary, in nats
    same_top: list[bool]
    margin: list[float]  # the first path's largest logit less its next


class NumericsDrift(AnswerRow):
    """Holds how far a layer of cache on is from that of cache off, over the length of cache off's, by step."""

    dtype: str
    layer: int
    hidden: list[float]  # of the residual stream of the last token behind the layer, by step
    keys: list[float]  # of each position's row once the last step is read
    values: list[float]


class NumericsPatch(AnswerRow):
    """Holds what is left of a divergence at one step once a part of cache on is cache off's."""

    dtype: str
    rows: Literal["residual", "keys and values", "both"]
    layer: int  # -1: all of them
    step: int
    at_flip: bool  # both choose different tokens there; else it is the step with the largest divergence
    kl: float  # of cache on, as it was, from cache off, in nats
    kl_patched: float


def _asked(answers: "Sequence[Answer]", among: Sequence[str] = ()) -> "Iterator[tuple[Answer, str, Any]]":
    """Returns the full cache's answer to the first question, with its network in each dtype."""
    for one in [one for one in answers if one.record.policy == FULL and one.generation is not None][:1]:
        for dtype in [one for one in one.setting.numerics.dtypes if not among or one in among]:
            yield one, dtype, precision.in_dtype(one.model.network, dtype)


def _is_closer(answer: "Answer") -> bool:
    return bool(answer.context.example_index % CLOSER == 0)


def _plan(answer: "Answer", way: str = "greedy", draw: int = 0) -> Any:
    """Returns what paths stand behind, the prompt with the question, and how they go on."""
    prompt, setting = answer.trace.prompt, answer.setting
    question = prompt.questions[answer.number]
    is_text = not answer.question.golds  # running text goes on: there is no answer that could end
    return walks.WalkPlan(
        (*prompt.token_ids, *question.token_ids),
        walks.sampler(way, setting.seed, question.question.id, draw),
        setting.numerics.steps,
        () if is_text else (*answer.model.end_tokens(), *prompt.ends.tokens, *prompt.ends.sentence),
        question.gold_ids if is_text else (),
    )


def _greedy_walk(answer: "Answer", dtype: str, network: Any) -> Any:
    """Walks behind tokens that are chosen greedily, once for all tables."""
    if dtype not in answer.shared:
        answer.shared[dtype] = walks.forced_walk(network, _plan(answer))
    return answer.shared[dtype]


def _pairs(answers: "Sequence[Answer]") -> Iterator[NumericsPair]:
    """Compares both paths in every dtype and way to choose."""
    for one, dtype, network in _asked(answers):
        options = one.setting.numerics
        ways = options.sampling if one.question.golds else {*options.sampling} & {"greedy"}
        for way in ways:
            for draw in range(1 if way == "greedy" else options.repeats):
                plan, is_greedy = _plan(one, way, draw), way == "greedy"
                forced = _greedy_walk(one, dtype, network) if is_greedy else walks.forced_walk(network, plan)
                found = {("teacher-forced", "cache"): forced}
                if is_greedy and _is_closer(one):
                    found["teacher-forced", "chunks"] = walks.null_walk(network, plan, plan.given or forced.tokens)
                found["free-running", "cache"] = walks.free_walk(network, plan, forced)
                for (regime, pair), walk in found.items():
                    names = {"dtype": dtype, "sampling": way, "draw": draw, "regime": regime, "pair": pair}
                    yield _pair_row(one, names, walk)


def _pair_row(answer: "Answer", names: Mapping[str, Any], walk: Any) -> NumericsPair:
    values: dict[str, Any] = dict.fromkeys(("text", "other_text", "right", "other_right"))
    for prefix, tokens in (("", walk.tokens), ("other_", walk.other_tokens)):
        values[f"{prefix}tokens"] = tokens
        if names["regime"] == "free-running" and answer.question.golds:
            values[f"{prefix}text"] = answer.text_of(tokens)
            values[f"{prefix}right"] = answer.text_scores_of(tokens)["right"]
    steps = {name: [getattr(one, name) for one in walk.differences] for name in ("kl", "largest", "same_top", "margin")}
    return NumericsPair(**RECORDS.key_of(answer.record), **names, **values, **steps)


def _drifts(answers: "Sequence[Answer]") -> Iterator[NumericsDrift]:
    """Compares all layers of both paths in every dtype."""
    for one, dtype, network in _asked(answers):
        if _is_closer(one):
            plan, forced = _plan(one), _greedy_walk(one, dtype, network)
            written = (plan.given or forced.tokens)[: len(forced.tokens) - 1]
            for number, layer in enumerate(walks.drift_of(network, plan.ids, written)):
                yield NumericsDrift(**RECORDS.key_of(one.record), dtype=dtype, layer=number, **asdict(layer))


def _patches(answers: "Sequence[Answer]") -> Iterator[NumericsPatch]:
    """Patches cache on where both paths part, or are farthest apart, in 16 bits: what float32 leaves is too small to be
    told from the rounding of the patched pass."""
    for one, dtype, network in _asked(answers, IN_16_BITS):
        plan, forced = _plan(one), _greedy_walk(one, dtype, network)
        if (place := walks.place_of(forced)) is not None:
            where = RECORDS.key_of(one.record) | {"dtype": dtype, "step": place[0], "at_flip": place[1]}
            for patch in walks.localise(network, plan.ids, (plan.given or forced.tokens)[: place[0]]):
                yield NumericsPatch(**where, **asdict(patch))


PAIR = ("dtype", "sampling", "draw", "regime", "pair")
NUMERICS = register_study("numerics_pairs", NumericsPair, PAIR, 3, _pairs)
DRIFT = register_study("numerics_drift", NumericsDrift, ("dtype", "layer"), 2, _drifts)
PATCHES = register_study("numerics_patches", NumericsPatch, ("dtype", "rows", "layer"), 2, _patches)
