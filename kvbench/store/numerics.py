"""The tables of numerics: cache on against cache off over an answer, and what their difference comes from.

Asked is the first question of a context: those of another context tell more than its others. One context in three of a
task is looked at closer: by null rows, remedies, drift and groups, which cost three times what the rest does. Lists of
pairs have a number for each step that both paths have. Behind running text both are forced on the text itself, whose
next tokens do not depend on how they are chosen, so that only greedy is walked.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from kvbench.store.record import AnswerRow
from kvbench.store.tables import QUESTIONS, RECORDS, StoredTable, register
from policies import FULL
from policies.declaration.lazy import LazyModule

# They need torch, and a store is read without.
drifting = LazyModule("kvbench.engine.numerics.drift")
grouping = LazyModule("kvbench.engine.numerics.grouping")
keeping = LazyModule("kvbench.engine.numerics.keeping")
patching = LazyModule("kvbench.engine.numerics.patches")
precision = LazyModule("kvbench.models.precision")
sampling = LazyModule("kvbench.engine.numerics.sampling")
walking = LazyModule("kvbench.engine.numerics.walks")

CLOSER = 3  # contexts of a task of which one is looked at closer
IN_16_BITS = ("bfloat16", "float16")
Answer = Any  # a kvbench.experiments.collect.FinishedAnswer
Scores = Callable[[str], Mapping[str, Any]]  # of the text of an answer
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
    text: str | None  # of the first path's answer; none teacher-forced, and where nothing is asked
    other_text: str | None
    right: bool | None  # the first path's answer
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
    path_seconds: float  # that the first path took, all steps; NaN where it was not measured
    other_path_seconds: float


class NumericsDrift(AnswerRow):
    """Holds how far a layer of cache on is from the same of cache off, behind the same tokens. Relative: the distance
    over the length of cache off's. Lists have a number for each step, unless they say something else."""

    dtype: str
    layer: int
    keys: list[float]  # relative, of each position's row once the last step is read
    values: list[float]
    keys_cosine: list[float]  # by position
    values_cosine: list[float]
    keys_written: list[float]  # relative, of the row of the last token when it is written
    values_written: list[float]
    hidden: list[float]  # relative, of the residual stream of the last token behind the layer
    hidden_l2: list[float]  # the distance itself
    hidden_cosine: list[float]
    added_l2: list[float]  # the distance that the layer adds by itself, from cache off's stream and rows
    attention_kl: list[float]  # by head: of the last token's attention, mean over steps, in nats
    lengths: list[int]  # of dot products of the stream with output weights
    product_error: list[float]  # by length: against float64, over the lengths of both vectors


class NumericsPatch(AnswerRow):
    """Holds what is left of a divergence at one step once a part of cache on is cache off's."""

    dtype: str
    rows: Literal["residual", "residual so far", "keys and values", "both"]
    layer: int  # -1: all of them
    step: int
    at_flip: bool  # both choose different tokens there; else it is the step with the largest divergence
    kl: float  # of cache on, as it was, from cache off, in nats
    kl_patched: float


class NumericsGroup(AnswerRow):
    """Holds drift in a model of equal function in which so many query heads share a head of keys and values."""

    dtype: str
    whose: Literal["model", "random"]  # weights
    size: int  # query heads that share a head
    hidden: list[float]  # relative drift of the residual stream, by layer, mean over tokens that are read one by one


class NumericsPolicy(AnswerRow):
    """Holds what a policy keeps and answers in another type of numbers than the run's."""

    dtype: str
    moved: float | None  # share of the slots kept in the run's that are not kept in this; none where no mask tells it
    same_tokens: bool  # as the answer in the run's
    text: str | None  # of the answer in this; none where nothing is asked
    f1: float | None  # of the answer in this; none where nothing is asked
    right: bool | None


def _asked(
    answers: Sequence[Answer], among: Sequence[str] = (), closer: bool = False
) -> Iterator[tuple[Answer, str, Any]]:
    """Returns the full cache's answer to the first question, with the network that gave it in each dtype of the run, or
    in those of these. ``closer``: of contexts alone that are looked at closer."""
    for one in [one for one in answers if one.record.policy == FULL and one.generation is not None][:1]:
        for dtype, network in _networks(one, among) if _is_closer(one) or not closer else ():
            yield one, dtype, network


def _is_closer(answer: Answer) -> bool:
    return bool(answer.context.example_index % CLOSER == 0)


def _networks(answer: Answer, among: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for dtype in [one for one in answer.setting.numerics.dtypes if not among or one in among]:
        yield dtype, precision.in_dtype(answer.model.network, dtype)


def _pairs(answers: Sequence[Answer]) -> Iterator[NumericsPair]:
    """Compares both paths in every dtype."""
    for one, dtype, network in _asked(answers):
        options = one.setting.numerics
        ways = options.sampling if one.question.golds else {*options.sampling} & {"greedy"}
        for way in ways:
            for draw in range(1 if way == "greedy" else options.repeats):
                yield from _rows(one, network, {"dtype": dtype, "sampling": way, "draw": draw})


def _behind(answer: Answer, way: str, draw: int) -> Any:
    """Returns what paths stand behind: the prompt with the question."""
    prompt, setting = answer.trace.prompt, answer.setting
    question = prompt.questions[answer.generation.question]
    is_text = not answer.question.golds  # running text goes on: there is no answer that could end
    return walking.Behind(
        (*prompt.token_ids, *question.token_ids),
        sampling.sampler(way, setting.seed, question.question.id, draw),
        setting.numerics.steps,
        () if is_text else (*answer.model.end_tokens(), *prompt.ends.tokens, *prompt.ends.sentence),
        question.gold_ids if is_text else (),
    )


def _rows(answer: Answer, network: Any, names: Names) -> Iterator[NumericsPair]:
    """Makes the rows of one dtype and way to choose."""
    behind = _behind(answer, names["sampling"], names["draw"])
    if names["sampling"] == "greedy":
        forced = _greedy_walks(answer, names["dtype"], network)
    else:
        forced = walking.forced_walks(network, None, behind, with_null=False)
    for pair, walk in forced.items():
        yield _row(answer, names | {"regime": "teacher-forced", "pair": pair}, walk)
    free = walking.free_walk(network, behind, forced["cache"])
    yield _row(answer, names | {"regime": "free-running", "pair": "cache"}, free)


def _greedy_walks(answer: Answer, dtype: str, network: Any) -> Mapping[str, Any]:
    """Walks behind tokens that are chosen greedily, once for all tables; where a context is looked at closer, with null
    rows, and with remedies in 16 bits."""
    if dtype not in answer.shared:
        closer = _is_closer(answer)
        in_float32 = None if dtype == "float32" else precision.in_dtype(answer.model.network, "float32")
        remedied = closer and dtype in IN_16_BITS
        behind = _behind(answer, "greedy", 0)
        answer.shared[dtype] = walking.forced_walks(network, in_float32, behind, closer, remedied)
    walks: Mapping[str, Any] = answer.shared[dtype]
    return walks


def _row(answer: Answer, names: Names, walk: Any) -> NumericsPair:
    text = other_text = right = other_right = None
    if names["regime"] == "free-running" and answer.question.golds:
        text, other_text = (answer.text_of(tokens) for tokens in (walk.tokens, walk.other_tokens))
        right, other_right = (answer.text_scores_of(tokens)["right"] for tokens in (walk.tokens, walk.other_tokens))
    return NumericsPair(
        **RECORDS.key_of(answer.record),
        **names,
        tokens=walk.tokens,
        other_tokens=walk.other_tokens,
        text=text,
        other_text=other_text,
        right=right,
        other_right=other_right,
        **{name: [getattr(one, name) for one in walk.differences] for name in LISTS},
        kl_earlier=walk.kl_earlier,
        kl_later=walk.kl_later,
        path_seconds=walk.path_seconds,
        other_path_seconds=walk.other_path_seconds,
    )


def _drifts(answers: Sequence[Answer]) -> Iterator[NumericsDrift]:
    """Compares all layers of both paths in every dtype."""
    for one, dtype, network in _asked(answers, closer=True):
        behind = _behind(one, "greedy", 0)
        layers = drifting.drift_of(network, behind.ids, behind.choose, behind.steps, behind.ends, behind.given)
        for number, layer in enumerate(layers):
            yield NumericsDrift(**RECORDS.key_of(one.record), dtype=dtype, layer=number, **asdict(layer))


def _patches(answers: Sequence[Answer]) -> Iterator[NumericsPatch]:
    """Patches cache on where both paths part, or are farthest apart, in 16 bits: what float32 leaves is too small to be
    told from the rounding of the patched pass."""
    for one, dtype, network in _asked(answers, IN_16_BITS):
        behind = _behind(one, "greedy", 0)
        forced = _greedy_walks(one, dtype, network)["cache"]
        if (place := patching.place_of(forced)) is not None:
            written = (behind.given or forced.tokens)[: place.step]
            where = RECORDS.key_of(one.record) | {"dtype": dtype} | asdict(place)
            for patch in patching.localise(network, behind.ids, written):
                yield NumericsPatch(**where, **asdict(patch))


def _groups(answers: Sequence[Answer]) -> Iterator[NumericsGroup]:
    """Measures drift by groups of heads over the last tokens of a context, in 16 bits."""
    for one, dtype, network in _asked(answers, IN_16_BITS, closer=True):
        ids = _behind(one, "greedy", 0).ids
        for whose, size, layers in grouping.by_group_size(network, dtype, ids, one.setting.seed):
            hidden = [sum(layer.hidden[1:]) / len(layer.hidden[1:]) for layer in layers]
            yield NumericsGroup(**RECORDS.key_of(one.record), dtype=dtype, whose=whose, size=size, hidden=hidden)


def _policies(answers: Sequence[Answer]) -> Iterator[NumericsPolicy]:
    """Treats a context and answers its first question in 16 bits, by the policies that evict and draw nothing."""
    evicted = [one for one in answers if one.generation is not None and _evicts(one.branch.treatment.policy)]
    branches = list({id(one.branch): one.branch for one in evicted}.values())
    by_question = {(id(one.branch), one.generation.question): one for one in evicted}
    for first in evicted[:1]:
        others = [one for one in IN_16_BITS if one != first.model.dtype_name]
        options = first.max_new_tokens, first.setting.max_kv_bytes
        for dtype, network in _networks(first, others):
            for again in keeping.answers_in(replace(first.model, network=network), first.trace, branches, *options):
                yield _policy_row(by_question[id(again.branch), again.generation.question], dtype, again)


def _evicts(policy: Any) -> bool:
    return policy.name != FULL and not (policy.random or policy.corrupts)


def _policy_row(answer: Answer, dtype: str, again: Any) -> NumericsPolicy:
    tokens = again.generation.token_ids
    scores = answer.text_scores_of(tokens) if answer.question.golds else {"f1": None, "right": None}
    return NumericsPolicy(
        **RECORDS.key_of(answer.record),
        dtype=dtype,
        moved=again.moved,
        same_tokens=list(tokens) == answer.record.output_token_ids,
        text=answer.text_of(tokens) if answer.question.golds else None,
        f1=scores["f1"],
        right=scores["right"],
    )


def _rescore_pair(row: NumericsPair, scores_of: Scores) -> NumericsPair:
    if row.text is None or row.other_text is None:
        return row
    right, other_right = (scores_of(text)["right"] for text in (row.text, row.other_text))
    return row.model_copy(update={"right": right, "other_right": other_right})


def _rescore_policy(row: NumericsPolicy, scores_of: Scores) -> NumericsPolicy:
    scores = None if row.text is None else scores_of(row.text)
    return row if scores is None else row.model_copy(update={name: scores[name] for name in ("f1", "right")})


def _table(
    name: str, row: type[AnswerRow], key: tuple[str, ...], make: Any, version: int = 1, rescore: Any = None
) -> StoredTable:
    full_key = (*RECORDS.key, *key)
    return register(StoredTable(name, row, full_key, version, QUESTIONS.name, fill_together=make, rescore=rescore))


PAIR = ("dtype", "sampling", "draw", "regime", "pair")
NUMERICS = _table("numerics_pairs", NumericsPair, PAIR, _pairs, 2, _rescore_pair)
DRIFT = _table("numerics_drift", NumericsDrift, ("dtype", "layer"), _drifts)
PATCHES = _table("numerics_patches", NumericsPatch, ("dtype", "rows", "layer"), _patches)
GROUPS = _table("numerics_groups", NumericsGroup, ("dtype", "whose", "size"), _groups)
POLICIES = _table("numerics_policies", NumericsPolicy, ("dtype",), _policies, 1, _rescore_policy)
