"""The table of numerics: cache on against cache off, and the null rows, step by step over an answer.

Asked are the first :data:`ASKED` questions of a context. A row holds one pair of paths; its lists have a number for
each step that both paths have. Behind running text both are forced on the text itself, whose next tokens do not depend
on how they are chosen, so that only greedy is walked.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from kvbench.store.record import AnswerRow
from kvbench.store.tables import QUESTIONS, RECORDS, StoredTable, register
from policies import FULL
from policies.declaration.lazy import LazyModule

# They need torch, and a store is read without.
precision = LazyModule("kvbench.models.precision")
sampling = LazyModule("kvbench.engine.numerics.sampling")
walking = LazyModule("kvbench.engine.numerics.walks")

ASKED = 3
Answer = Any  # a kvbench.experiments.collect.FinishedAnswer
Names = dict[str, Any]  # the columns that tell the rows of an answer apart
LISTS = ("kl", "js", "largest", "mean_difference", "same_top", "margin", "other_margin")  # as Difference names them


class NumericsPair(AnswerRow):
    """Holds how far two paths are apart over an answer; NaN where a logit is not finite."""

    dtype: str  # of weights, activations and cache
    sampling: Literal["greedy", "top_k", "top_p"]
    draw: int  # of a random way to choose; 0 of greedy
    regime: Literal["teacher-forced", "free-running"]
    pair: str  # "cache": on against off; else a null row
    tokens: list[int]  # that the first path chooses
    other_tokens: list[int]  # that the second chooses; teacher-forced, behind the same tokens
    right: bool | None  # the first path's answer; none teacher-forced, and where nothing is asked
    other_right: bool | None
    kl: list[float]  # of the first path's distribution from the second's, in nats
    js: list[float]
    largest: list[float]  # difference of log-probabilities over the vocabulary, in nats
    mean_difference: list[float]
    same_top: list[bool]
    margin: list[float]  # the first path's largest logit less its next
    other_margin: list[float]
    kl_earlier: list[float]  # from the second path one step earlier; NaN at the first step
    kl_later: list[float]  # from the second path one step later; NaN at the last step


def _pairs(answers: Sequence[Answer]) -> Iterator[NumericsPair]:
    """Compares both paths in every dtype, for the first questions of a prompt."""
    asked = [one for one in answers if one.record.policy == FULL and one.generation is not None][:ASKED]
    for one in asked:
        options, network = one.setting.numerics, one.model.network
        for dtype in options.dtypes:
            cast = precision.in_dtype(network, dtype)
            in_float32 = None if dtype == "float32" else precision.in_dtype(network, "float32")
            ways = options.sampling if one.question.golds else {*options.sampling} & {"greedy"}
            for way in ways:
                for draw in range(1 if way == "greedy" else options.repeats):
                    names: Names = {"dtype": dtype, "sampling": way, "draw": draw}
                    yield from _rows(one, cast, in_float32, names)


def _rows(answer: Answer, network: Any, in_float32: Any, names: Names) -> Iterator[NumericsPair]:
    """Makes the rows of one dtype and way to choose; null rows are walked where tokens are chosen greedily."""
    prompt, setting = answer.trace.prompt, answer.setting
    question = prompt.questions[answer.generation.question]
    is_text = not answer.question.golds  # running text goes on: there is no answer that could end
    behind = walking.Behind(
        (*prompt.token_ids, *question.token_ids),
        sampling.sampler(names["sampling"], setting.seed, question.question.id, names["draw"]),
        setting.numerics.steps,
        () if is_text else answer.model.end_tokens(),
        question.gold_ids if is_text else (),
    )
    forced = walking.forced_walks(network, in_float32, behind, with_null=names["sampling"] == "greedy")
    for pair, walk in forced.items():
        yield _row(answer, names | {"regime": "teacher-forced", "pair": pair}, walk)
    free = walking.free_walk(network, behind, forced["cache"])
    yield _row(answer, names | {"regime": "free-running", "pair": "cache"}, free)


def _row(answer: Answer, names: Names, walk: Any) -> NumericsPair:
    free = names["regime"] == "free-running" and answer.question.golds
    rights = [
        bool(answer.text_scores_of(tokens)["right"]) if free else None for tokens in (walk.tokens, walk.other_tokens)
    ]
    return NumericsPair(
        **RECORDS.key_of(answer.record),
        **names,
        tokens=walk.tokens,
        other_tokens=walk.other_tokens,
        right=rights[0],
        other_right=rights[1],
        **{name: [getattr(one, name) for one in walk.differences] for name in LISTS},
        kl_earlier=walk.kl_earlier,
        kl_later=walk.kl_later,
    )


NUMERICS = register(
    StoredTable(
        "numerics_pairs",
        NumericsPair,
        (*RECORDS.key, "dtype", "sampling", "draw", "regime", "pair"),
        1,
        QUESTIONS.name,
        fill_together=_pairs,
    )
)
