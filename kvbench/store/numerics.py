"""The table of numerics: cache on against cache off over an answer.

It asks the first question of each context, as another context tells more than another question. Null rows are measured
on one context in three. Lists have a number for each step that both paths have. On running text both paths are
teacher-forced, so that sampling does not matter and only greedy runs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from kvbench.store.tables import QUESTIONS, RECORDS, AnswerRow, StoredTable, register
from policies import FULL
from policies.declaration.lazy import LazyModule

# They need torch, and a store is read without.
precision = LazyModule("kvbench.models.precision")
walks = LazyModule("kvbench.engine.studies.walks")

CLOSER = 3  # contexts of a task of which one has null rows
Answer = Any  # a kvbench.experiments.collect.FinishedAnswer


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


def _plan(answer: Answer, way: str = "greedy", draw: int = 0) -> Any:
    """Returns what paths stand behind, the prompt with the question, and how they go on."""
    prompt, setting = answer.trace.prompt, answer.setting
    question = prompt.questions[answer.generation.question]
    is_text = not answer.question.golds  # running text goes on: there is no answer that could end
    return walks.WalkPlan(
        (*prompt.token_ids, *question.token_ids),
        walks.sampler(way, setting.seed, question.question.id, draw),
        setting.numerics.steps,
        () if is_text else (*answer.model.end_tokens(), *prompt.ends.tokens, *prompt.ends.sentence),
        question.gold_ids if is_text else (),
    )


def _pairs(answers: Sequence[Answer]) -> Iterator[NumericsPair]:
    """Compares both paths in every dtype and way to choose."""
    one = next((one for one in answers if one.record.policy == FULL and one.generation is not None), None)
    if one is None:
        return
    options = one.setting.numerics
    ways = options.sampling if one.question.golds else {*options.sampling} & {"greedy"}
    for dtype in options.dtypes:
        network = precision.in_dtype(one.model.network, dtype)
        for way in ways:
            for draw in range(1 if way == "greedy" else options.repeats):
                plan, is_greedy = _plan(one, way, draw), way == "greedy"
                forced = walks.forced_walk(network, plan)
                found = {("teacher-forced", "cache"): forced}
                if is_greedy and one.context.example_index % CLOSER == 0:
                    found["teacher-forced", "chunks"] = walks.null_walk(network, plan, plan.given or forced.tokens)
                found["free-running", "cache"] = walks.free_walk(network, plan, forced)
                for (regime, pair), walk in found.items():
                    names = {"dtype": dtype, "sampling": way, "draw": draw, "regime": regime, "pair": pair}
                    yield _pair_row(one, names, walk)


def _pair_row(answer: Answer, names: Mapping[str, Any], walk: Any) -> NumericsPair:
    text = other_text = right = other_right = None
    if names["regime"] == "free-running" and answer.question.golds:
        text, other_text = (answer.text_of(tokens) for tokens in (walk.tokens, walk.other_tokens))
        right, other_right = (answer.text_scores_of(tokens)["right"] for tokens in (walk.tokens, walk.other_tokens))
    steps = {name: [getattr(one, name) for one in walk.differences] for name in ("kl", "largest", "same_top", "margin")}
    return NumericsPair(
        **RECORDS.key_of(answer.record),
        **names,
        tokens=walk.tokens,
        other_tokens=walk.other_tokens,
        text=text,
        other_text=other_text,
        right=right,
        other_right=other_right,
        **steps,
    )


NUMERICS = register(
    StoredTable(
        "numerics_pairs",
        NumericsPair,
        (*RECORDS.key, "dtype", "sampling", "draw", "regime", "pair"),
        3,
        QUESTIONS.name,
        fill_together=_pairs,
    )
)
