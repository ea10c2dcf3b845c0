"""The tables of numerics: cache on against cache off over an answer, layer by layer, and patched.

It asks the first question of each context, as another context tells more than another question.
Null rows, drift and rounding, which take as long as the rest, are measured on one context in three.
Lists have a number for each step that both paths have. On running text both paths are
teacher-forced, so that sampling does not matter and only greedy runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from kvbench.engine.time_limit import INTO_OFF, INTO_ON
from kvbench.store.tables import RECORDS, AnswerRow, RowsByTable, register_study
from policies import FULL
from policies.declaration.lazy import LazyModule

if TYPE_CHECKING:
    import torch

    from kvbench.experiments.collect import FinishedAnswer as Answer
    from kvbench.experiments.grid import Grid

# They need torch, and a store is read without.
determinism = LazyModule("kvbench.models.determinism")
drift = LazyModule("kvbench.engine.studies.drift")
patching = LazyModule("kvbench.engine.studies.patching")
precision = LazyModule("kvbench.models.precision")
rounding = LazyModule("kvbench.engine.studies.rounding")
walks = LazyModule("kvbench.engine.studies.decoding_paths")

CLOSER = 3  # contexts of a task of which one has null rows and drift
STEPS = ("kl", "js", "largest", "same_top", "margin")  # what is compared at each step
IN_16_BITS = ("bfloat16", "float16")


class NumericsPair(AnswerRow):
    """Holds how far two paths are apart over an answer; NaN where a logit is not finite."""

    dtype: str  # of weights, activations and cache
    sampling: Literal["greedy", "top_k", "top_p"]
    draw: int  # of a random way to choose; 0 of greedy
    regime: Literal["teacher-forced", "free-running"]
    # On against off, or null rows: off against off in chunks of 32 tokens, and on against on once
    # more.
    pair: Literal["cache", "chunks", "again"]
    tokens: list[int]  # that the first path chooses
    other_tokens: list[int]  # that the second chooses; teacher-forced, behind the same tokens
    text: str | None  # of the first path's answer; none teacher-forced, and where nothing is asked
    other_text: str | None
    right: bool | None  # the first path's answer
    other_right: bool | None
    kl: list[float]  # of the first path's distribution from the second's, in nats
    js: list[float] | None = None  # the divergence of Jensen and Shannon of both, in nats
    largest: list[float]  # difference of log-probabilities over the vocabulary, in nats
    same_top: list[bool]
    margin: list[float]  # the first path's largest logit less its next


class NumericsDrift(AnswerRow):
    """Holds how far a layer of cache on is from that of cache off; relative: over the length of
    cache off's."""

    dtype: str
    layer: int
    # Of the residual stream of the last token behind the layer, relative, by step.
    hidden: list[float]
    hidden_l2: list[float] | None = None  # the distance itself, by step
    hidden_cosine: list[float] | None = None  # of both streams, by step
    # By head, KL of the attention of both to the tokens so far at step 1, in nats; empty where
    # there is no such step.
    attention_kl: list[float] | None = None
    keys: list[float]  # of each position's row, relative, once the last step is read
    values: list[float]


class NumericsPatch(AnswerRow):
    """Holds what is left of a divergence at one step once a part of cache on is cache off's, as
    runs stored it before :class:`NumericsRecovery`."""

    dtype: str
    rows: Literal["residual", "keys and values", "both"]
    layer: int  # -1: all of them
    step: int
    # Both choose different tokens there; else it is the step with the largest divergence.
    at_flip: bool
    kl: float  # of cache on, as it was, from cache off, in nats
    kl_patched: float


class NumericsRecovery(AnswerRow):
    """Holds what is left of a divergence once a part of one path is the other's."""

    dtype: str
    # Off into on repairs cache on; on into off is the text's.
    direction: Literal["off into on", "on into off"]
    rows: Literal["residual", "keys and values", "both"]
    layers: Literal["one", "up to", "all"]
    layer: int  # -1: all of them
    # The step: at which both choose different tokens, of the largest divergence, or the first that
    # differs at all.
    place: Literal["flip", "largest", "first"]
    step: int
    kl: float  # of cache on from cache off at the step, in nats
    kl_patched: float
    # Mean over the step and up to 31 behind it, each path going on from its own tokens.
    kl_after: float | None
    kl_after_patched: float | None
    kl_answer: float  # mean over all steps of the answer behind the same tokens


class NumericsRounding(AnswerRow):
    """Holds the relative errors of a layer's numbers from what float64 gives."""

    dtype: str
    layer: int
    lengths: list[int]  # tokens that are attended to
    scores: list[float]  # by length: of query times keys
    outputs: list[float]  # by length: of attention times values
    alone: float  # of the stream behind the layer, where its input is exact
    propagated: float  # where all layers before it are rounded too


def _plan(answer: "Answer", way: str = "greedy", draw: int = 0) -> Any:
    """Returns what paths stand behind, the prompt with the question, and how they go on."""
    prompt, grid = answer.trace.prompt, answer.grid
    question = prompt.questions[answer.number]
    if answer.question.golds:
        # Behind an initial, as in "A. F.", a walk ends, where the answers of a run go on.
        ends = (*answer.model.end_tokens(), *prompt.ends.tokens, *prompt.ends.sentence)
        forced_ids: tuple[int, ...] = ()
    else:  # running text goes on: there is no answer that could end
        ends, forced_ids = (), question.gold_ids
    return walks.WalkPlan(
        (*prompt.token_ids, *question.token_ids),
        walks.sampler(way, grid.seed, question.question.id, draw),
        grid.numerics.steps_on(answer.task.max_new_tokens),
        ends,
        forced_ids,
    )


@dataclass(frozen=True)
class _Measurement:
    """Measures one answer of the full cache in one dtype. It lends its network and lives no longer
    than its rows take: while it does, no network of another dtype can be made
    (:class:`NetworkCopies`)."""

    answer: "Answer"
    dtype: str
    network: Any

    @property
    def is_closer(self) -> bool:
        return bool(self.answer.context.example_index % CLOSER == 0)

    @cached_property
    def greedy(self) -> Any:
        """Walks behind tokens that are chosen greedily, once for all tables."""
        return walks.forced_walk(self.network, _plan(self.answer))

    @property
    def written(self) -> Sequence[int]:
        """Returns the tokens that both paths stand behind in that walk."""
        tokens: Sequence[int] = _plan(self.answer).forced_tokens or self.greedy.tokens
        return tokens

    def pairs(self) -> Iterator[NumericsPair]:
        """Compares both paths in every way to choose."""
        options = self.answer.grid.numerics
        ways: Iterable[str] = options.sampling
        if not self.answer.question.golds:
            ways = {*options.sampling} & {"greedy"}
        for way in ways:
            draws = 1 if way == "greedy" else options.repeats
            for draw in range(draws):
                where = {"dtype": self.dtype, "sampling": way, "draw": draw}
                for (regime, pair), walk in self._walks(way, draw):
                    names = {**where, "regime": regime, "pair": pair}
                    yield _pair_row(self.answer, names, walk)

    def _walks(self, way: str, draw: int) -> Iterator[tuple[tuple[str, str], Any]]:
        """Yields the walks of one draw, each with its regime and its pair of paths."""
        plan, is_greedy = _plan(self.answer, way, draw), way == "greedy"
        if is_greedy:
            forced = self.greedy
        else:
            forced = walks.forced_walk(self.network, plan)
        yield ("teacher-forced", "cache"), forced
        if is_greedy and self.is_closer:
            yield ("teacher-forced", "chunks"), walks.null_walk(self.network, plan, self.written)
            yield ("teacher-forced", "again"), walks.same_walk(self.network, plan, self.written)
        yield ("free-running", "cache"), walks.free_walk(self.network, plan, forced)

    def drifts(self) -> Iterator[NumericsDrift]:
        """Compares all layers of both paths."""
        if not self.is_closer:
            return
        # The last token that was chosen is read by neither path.
        plan, steps = _plan(self.answer), len(self.greedy.tokens)
        layers = drift.measure_drift(self.network, plan.ids, self.written[: steps - 1])
        for number, layer in enumerate(layers):
            key = RECORDS.row_key(self.answer.record)
            yield NumericsDrift(**key, dtype=self.dtype, layer=number, **asdict(layer))

    def recoveries(self) -> Iterator[NumericsRecovery]:
        """Patches one path with parts of the other, in 16 bits: what float32 leaves is too small to
        be told from the rounding of the patched pass."""
        if self.dtype not in IN_16_BITS:
            return
        directions = self.answer.grid.numerics.directions
        plan, place = _plan(self.answer), patching.choose_step(self.greedy)
        if place is not None and INTO_ON in directions:
            step, at_flip = place
            rows = patching.localise(self.network, plan.ids, self.written[:step])
            yield from self._recoveries("flip" if at_flip else "largest", step, rows)
        first = patching.first_apart(self.greedy)
        if first is not None and INTO_OFF in directions:
            after = min(patching.STEPS_AFTER, plan.steps)
            rows = patching.inject(self.network, plan.ids, self.written[:first], after, plan.ends)
            yield from self._recoveries("first", first, rows)

    def _recoveries(self, place: str, step: int, rows: Iterable[Any]) -> Iterator[NumericsRecovery]:
        """Yields the rows of one place of the answer."""
        kl = [difference.kl for difference in self.greedy.differences]
        mean = sum(kl) / len(kl)
        where = {"dtype": self.dtype, "place": place, "step": step, "kl_answer": mean}
        for row in rows:
            yield NumericsRecovery(**RECORDS.row_key(self.answer.record), **where, **asdict(row))

    def roundings(self) -> Iterator[NumericsRounding]:
        """Measures what rounding does to the numbers of the prompt."""
        if not self.is_closer:
            return
        layers = rounding.measure_rounding(self.network, _plan(self.answer).ids)
        for number, layer in enumerate(layers):
            key = RECORDS.row_key(self.answer.record)
            yield NumericsRounding(**key, dtype=self.dtype, layer=number, **asdict(layer))


def _pair_row(answer: "Answer", names: Mapping[str, Any], walk: Any) -> NumericsPair:
    """Makes the row of one walk. ``names``: the columns that tell it from others."""
    values: dict[str, Any] = dict.fromkeys(("text", "other_text", "right", "other_right"))
    is_judged = names["regime"] == "free-running" and answer.question.golds
    for prefix, tokens in (("", walk.tokens), ("other_", walk.other_tokens)):
        values[f"{prefix}tokens"] = tokens
        if is_judged:
            values[f"{prefix}text"] = answer.text_from(tokens)
            values[f"{prefix}right"] = answer.score_tokens(tokens)["right"]
    for name in STEPS:
        values[name] = [getattr(difference, name) for difference in walk.differences]
    return NumericsPair(**RECORDS.row_key(answer.record), **names, **values)


FILLS: Mapping[str, Callable[[_Measurement], Iterator[AnswerRow]]] = {
    "numerics_pairs": _Measurement.pairs,
    "numerics_drift": _Measurement.drifts,
    "numerics_recovery": _Measurement.recoveries,
    "numerics_rounding": _Measurement.roundings,
}
MEASURED = "numerics"  # among what the tables of an answer share


def _measure(answer: "Answer", dtype: str) -> RowsByTable:
    """Returns the rows of all tables of a run in one dtype, so that its network is made once for
    them."""
    network = answer.model.copies.network_in(dtype)
    measurement, rows = _Measurement(answer, dtype, network), RowsByTable()
    for table, fill in FILLS.items():
        if table in answer.grid.tables:
            rows.add(table, fill(measurement))
    return rows


def _rows(table: str, answers: "Sequence[Answer]") -> Iterator[AnswerRow]:
    """Yields the rows of a table of the full cache's answer to the first question, in the order of
    the dtypes."""
    full = [answer for answer in answers if answer.record.policy == FULL and answer.generation]
    for answer in full[:1]:
        numerics = answer.grid.numerics
        # The first table that is filled measures for all, in one copy of the network after the
        # other.
        if MEASURED not in answer.shared:
            measured: dict[str, RowsByTable] = {}
            with determinism.deterministic(numerics.deterministic):
                for dtype in answer.model.copies.order(numerics.dtypes):
                    measured[dtype] = _measure(answer, dtype)
            answer.shared[MEASURED] = measured
        rows: Any = answer.shared[MEASURED]
        for dtype in numerics.dtypes:
            yield from rows[dtype].tables[table]


def _prepare(grid: "Grid", device: "torch.device") -> None:
    """Prepares the device for the types of numbers that are compared, and for the same bits again
    where a run asks for that."""
    precision.check_dtypes(grid.numerics.dtypes, device)
    if grid.numerics.deterministic:
        determinism.prepare_determinism(device)


PAIR = ("dtype", "sampling", "draw", "regime", "pair")
NUMERICS = register_study(
    "numerics_pairs",
    NumericsPair,
    PAIR,
    3,
    partial(_rows, "numerics_pairs"),
    prepare=_prepare,
    takes_minutes=True,
)
DRIFT = register_study(
    "numerics_drift", NumericsDrift, ("dtype", "layer"), 2, partial(_rows, "numerics_drift")
)
RECOVERY = register_study(
    "numerics_recovery",
    NumericsRecovery,
    ("dtype", "direction", "rows", "layers", "layer"),
    1,
    partial(_rows, "numerics_recovery"),
)
ROUNDING = register_study(
    "numerics_rounding",
    NumericsRounding,
    ("dtype", "layer"),
    1,
    partial(_rows, "numerics_rounding"),
)
# Of earlier runs, which no run fills any more.
PATCHES = register_study("numerics_patches", NumericsPatch, ("dtype", "rows", "layer"), 2, None)
