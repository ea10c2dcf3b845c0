"""The claims of text R but R4 to R6: policies over ratios, about one fact, chains of facts, and several people."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from datasets_gen import USUAL_TOKENS
from leaderboards.aggregate.evidence import Evidence, NoEvidenceError, TaskEvidence
from leaderboards.boards.profiles import FLAT
from leaderboards.claims.declaration import LARGER, Claim, Experiment, Measure, Measured, Statistic, Text, each_part
from leaderboards.routing.cliff import slopes, steepest
from leaderboards.statistics.bootstrap import FloatArray
from policies.declaration.names import FULL

R = Text("R", "arXiv 2603.01426 (routing, Global Eviction Ratio)", "Llama 3 and Qwen 2.5, 3 to 14 B")


POLICIES = ("streaming_llm", "snapkv", "knorm", "expected_attention", "h2o")
RATIOS = tuple(round(tenth / 10, 1) for tenth in range(1, 10))
ONE_FACT, SEVERAL_FACTS = "base", ("hops", "multi_entity")
OVER_RATIOS = Experiment(
    name="routes",
    tasks=",".join((ONE_FACT, *SEVERAL_FACTS)),
    policies=",".join(POLICIES),
    levels=(("ratio", ",".join(map(str, RATIOS))),),
    contexts=16,
    context_tokens=USUAL_TOKENS,
)
LOST = 5.0  # points of F1, as for the safe ratio of a board


@dataclass(frozen=True)
class MasteredTasks:
    """The tasks of the experiment that the model can do: what is said of all of them is their mean."""

    tasks: tuple[TaskEvidence, ...]
    left_out: str  # says which it cannot do, if any

    @classmethod
    def of(cls, evidence: Mapping[str, Evidence], name: str = OVER_RATIOS.name) -> "MasteredTasks":
        """Takes the evidence of the experiment of a name; :class:`NoEvidenceError` where the model can do no task."""
        routes, failed = [], []
        for task in evidence[name].tasks:
            of_task = evidence[name].of(task)
            try:
                of_task.clean("f1")
            except NoEvidenceError as error:
                failed.append(str(error))
            else:
                routes.append(of_task)
        if not routes:
            raise NoEvidenceError("; ".join(failed))
        return cls(tuple(routes), f"left out: {'; '.join(failed)}" if failed else "")

    @property
    def contexts(self) -> int:
        return sum(task.contexts for task in self.tasks)

    def mean(self, policy: str, level: float | None, column: str) -> FloatArray:
        """Averages the means of the tasks."""
        means: FloatArray = np.mean([task.mean(policy, level, column) for task in self.tasks], axis=0)
        return means

    def over_ratios(self, column: str) -> FloatArray:
        """Averages the means of all policies at each ratio, the full cache first: shape (1 + resamples, ratios + 1)."""
        means = [np.mean([self.mean(policy, ratio, column) for policy in POLICIES], axis=0) for ratio in RATIOS]
        return np.stack([self.mean(FULL, None, column), *means], axis=1)


def of_both_rates(measure: Callable[[MasteredTasks, str], Statistic]) -> Measure:
    """Measures something of the rate of made-up answers, among all and among those that state something: its second
    argument is the column that these have, if any."""

    def of_evidence(evidence: Mapping[str, Evidence]) -> Measured:
        routes = MasteredTasks.of(evidence)
        rates = {"hallucinated, of all answers": "", "hallucinated, of those that state something": "answered"}
        return each_part({part: partial(measure, routes, column) for part, column in rates.items()})

    return of_evidence


def holds_up_to(of_task: TaskEvidence, policy: str) -> FloatArray:
    """Returns the ratio at which the loss of F1 against the full cache first reaches 5 points, on the line between two
    ratios, and the highest ratio where it never does: shape (1 + resamples,).

    It is the safe ratio of a board as a number that resamples can have: that one asks for the upper end of an interval
    of each loss, which a resample has not.
    """
    whole = of_task.clean("f1")
    losses = np.stack([whole - whole, *(whole - of_task.mean(policy, ratio, "f1") for ratio in RATIOS)], axis=1)
    ratios = np.array([0.0, *RATIOS])
    too_much = losses >= LOST
    place = np.where(too_much.any(axis=1), too_much.argmax(axis=1), len(RATIOS))
    rows = np.arange(len(losses))
    before, after = losses[rows, place - 1], losses[rows, place]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(too_much.any(axis=1), (LOST - before) / (after - before), 1.0)
    crossed: FloatArray = ratios[place - 1] + share * (ratios[place] - ratios[place - 1])
    return crossed


def gap(one: TaskEvidence, other: TaskEvidence, note: str) -> Statistic:
    """Measures that ratio, the mean over the policies, on one set of records less that on another. ``note`` has a place
    for each."""
    first, second = (np.mean([holds_up_to(records, policy) for policy in POLICIES], axis=0) for records in (one, other))
    return Statistic(first - second, min(one.contexts, other.contexts), note=note.format(first[0], second[0]))


MODERATE = 0.4


def _measure_r1(evidence: Mapping[str, Evidence]) -> Measured:
    routes = MasteredTasks.of(evidence)
    return each_part({policy: partial(_share_kept, routes, policy) for policy in POLICIES})


def _share_kept(routes: MasteredTasks, policy: str) -> Statistic:
    kept = routes.mean(policy, MODERATE, "f1") / routes.mean(FULL, None, "f1")
    return Statistic(kept, routes.contexts, note=routes.left_out)


R1 = Claim(
    identifier="R1",
    text=R,
    words="Accuracy is flat to moderate compression.",
    reported="on many tasks, without one figure for all",
    statistic="F1 at an asked ratio of 0.4 as a share of the full cache's, mean over the tasks, by policy",
    side="at least",
    threshold=0.9,
    experiments=(OVER_RATIOS,),
    measure=_measure_r1,
    because="SnapKV, H2O and Expected Attention are flat, StreamingLLM and K-Norm are not. StreamingLLM keeps the "
    "first and last tokens, and facts lie all over a context: at 0.3 of the default run a third of the "
    "answers' tokens is gone everywhere. K-Norm keeps keys of small norm, and in these models evidence has "
    "large ones: in layers 1, 3, 5 and 9 of `reference` it is 14 to 20 % of the tenth of the keys with the "
    "largest norms, and 5 % of the context. With 5 % of the cache gone nearly all answers fall silent (six "
    "contexts of base), where KeyDiff, which judges the same keys by their direction, loses none at 30 %; "
    "and the evidence's rows, put back, repair 96 to 99 % of what K-Norm loses.",
)


def _peak(routes: MasteredTasks, of: str) -> Statistic:
    rates = routes.over_ratios("hallucinated")
    if of:
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = rates / routes.over_ratios(of)
    middles, rises = slopes(np.array([0.0, *RATIOS]), rates)
    known = ~np.isnan(rises).any(axis=1)
    places = steepest(np.nan_to_num(rises, nan=-np.inf))
    peaks: FloatArray = np.where(known & (rises[np.arange(len(rises)), places] > FLAT), middles[places], np.nan)
    if np.isnan(peaks[0]):
        raise NoEvidenceError("the rate rises nowhere")
    note = f"the rate is {rates[0, 0]:.2f} with the full cache, {rates[0, -1]:.2f} at {RATIOS[-1]:g}"
    return Statistic(peaks, routes.contexts, note="; ".join(filter(None, (note, routes.left_out))))


R2 = Claim(
    identifier="R2",
    text=R,
    words="Hallucination has a cliff near a ratio of 0.9.",
    reported="a spike near 0.9 in all models",
    statistic="the ratio at which the hallucination rate rises fastest: the middle of two neighbouring tenths, mean "
    "over tasks and policies",
    side="at least",
    threshold=0.8,
    experiments=(OVER_RATIOS,),
    measure=of_both_rates(_peak),
    unit="asked ratio",
    because="Where a model may fall silent, it does. In the default run `reference` hallucinates 6 % of all "
    "answers about base and long_context with the full cache and 3 % at 0.9, where 75 % are silent (mean "
    "of five policies). A model that was trained on without unanswerable questions and is else alike "
    "(reference-confident, in commit b8dd3f1) hallucinates 18 % with the full cache, 45 % at 0.7 and 66 % at 0.9: the "
    "cliff of the text.",
)


def _correlation(routes: MasteredTasks, of: str) -> Statistic:
    where = {"answerable": True, of: True} if of else {"answerable": True}
    products = [
        _products(task, policy, ratio, where) for task in routes.tasks for policy in POLICIES for ratio in RATIOS
    ]
    evicted, rates, both = np.sum(products, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        vary = (evicted > FLAT) & (rates > FLAT)  # and are not the noise of sums alone
        values: FloatArray = np.where(vary, both / np.sqrt(evicted * rates), np.nan)
    if np.isnan(values[0]):
        raise NoEvidenceError("within a ratio GER is the same for all contexts, or the rate is")
    return Statistic(values, routes.contexts, note=routes.left_out)


def _products(task: TaskEvidence, policy: str, ratio: float, where: Mapping[str, bool]) -> FloatArray:
    """Returns three sums over the contexts of one policy at one ratio, shape (3, 1 + resamples): the squares of GER
    and of the rate, each about its mean there, and their products."""
    evicted, rate = (task.by_context(policy, ratio, column, **where) for column in ("ger", "hallucinated"))
    known = ~(np.isnan(evicted) | np.isnan(rate))
    x, y = (np.where(known, values, 0.0) for values in (evicted, rate))
    weights = task.weights
    count, of_x, of_y = weights @ known, weights @ x, weights @ y
    with np.errstate(invalid="ignore", divide="ignore"):
        products = [
            weights @ (a * b) - np.where(count > 0, of_a * of_b / count, 0.0)
            for a, b, of_a, of_b in ((x, x, of_x, of_x), (y, y, of_y, of_y), (x, y, of_x, of_y))
        ]
    return np.stack(products)


R3 = Claim(
    identifier="R3",
    text=R,
    words="The Global Eviction Ratio goes with hallucination.",
    reported="correlations of 0.79 to 0.93 over ratios",
    statistic="partial correlation of GER with the hallucination rate over contexts, given policy and ratio: of what "
    "either is above its mean over the contexts of the same task, policy and ratio; questions with an answer in the "
    "context",
    side="above",
    threshold=0.0,
    experiments=(OVER_RATIOS,),
    measure=of_both_rates(_correlation),
    unit="correlation",
    remark="Over ratios anything that compression makes worse goes with anything that it removes: such a correlation "
    "is high for any two curves that rise. Given the ratio, GER has to tell which contexts fail.",
)


TASK = "base"
SCORED_BY_ATTENTION = ("snapkv", "h2o", "tova")  # whose scores are attention, which the question changes
MIDDLE_RATIOS = (0.5, 0.7)
AGNOSTIC, AWARE = (
    Experiment(
        name=f"question {mode}",
        tasks=TASK,
        policies=",".join(SCORED_BY_ATTENTION),
        levels=(("ratio", ",".join(map(str, MIDDLE_RATIOS))),),
        contexts=32,
        mode=mode,
        context_tokens=USUAL_TOKENS,
    )
    for mode in ("agnostic", "aware")
)


def _measure_r7(evidence: Mapping[str, Evidence]) -> Measured:
    agnostic, aware = (evidence[one.name].of(TASK) for one in (AGNOSTIC, AWARE))
    if set(agnostic.records["question_id"]) != set(aware.records["question_id"]):
        raise NoEvidenceError("the two modes were asked other questions")
    return each_part(
        {
            "F1 gained, of 1": partial(_gain, aware, agnostic),
            "abstentions on unanswerable questions lost": partial(_loss, aware, agnostic),
        }
    )


def _mean_over_both(of_task: TaskEvidence, column: str, answerable: bool) -> FloatArray:
    means = [
        of_task.mean(policy, ratio, column, answerable=answerable)
        for policy in SCORED_BY_ATTENTION
        for ratio in MIDDLE_RATIOS
    ]
    mean: FloatArray = np.mean(means, axis=0)
    return mean


def _gain(aware: TaskEvidence, agnostic: TaskEvidence) -> Statistic:
    agnostic.clean("f1")
    with_question, without = (_mean_over_both(of_task, "f1", answerable=True) / 100 for of_task in (aware, agnostic))
    note = f"F1 {100 * with_question[0]:.0f} with the question, {100 * without[0]:.0f} without"
    return Statistic(with_question - without, agnostic.contexts, note=note)


def _loss(aware: TaskEvidence, agnostic: TaskEvidence) -> Statistic:
    agnostic.clean("abstained", answerable=False)
    with_question, without = (_mean_over_both(of_task, "abstained", answerable=False) for of_task in (aware, agnostic))
    note = f"abstained {with_question[0]:.2f} with the question, {without[0]:.2f} without"
    return Statistic(without - with_question, agnostic.contexts, note=note)


R7 = Claim(
    identifier="R7",
    text=R,
    words="Pruning that knows the question helps accuracy and hurts honesty.",
    reported='"query-conditioned overcommitment", without a figure',
    statistic="question-aware against agnostic on the same questions, mean over policies and ratios 0.5 and 0.7: the "
    "gain in F1 of questions with an answer, and the fall in abstentions on questions without one",
    side="above",
    threshold=0.0,
    experiments=(AGNOSTIC, AWARE),
    measure=_measure_r7,
)


def _measure_r8(evidence: Mapping[str, Evidence]) -> Measured:
    records = evidence[OVER_RATIOS.name]
    return each_part({task: partial(_lower, records.of(ONE_FACT), records, task) for task in SEVERAL_FACTS})


def _lower(one_fact: TaskEvidence, evidence: Evidence, task: str) -> Statistic:
    return gap(one_fact, evidence.of(task), f"{ONE_FACT} loses 5 points at {{:.2f}}, {task} at {{:.2f}}")


R8 = Claim(
    identifier="R8",
    text=R,
    words="Chains of facts and several people break first.",
    reported='"heterogeneous cliffs", without one figure',
    statistic="the ratio at which base has lost 5 points of F1, less that at which the other task has, mean over the "
    "same policies",
    side="above",
    threshold=0.0,
    experiments=(OVER_RATIOS,),
    measure=_measure_r8,
    unit="asked ratio",
)


def _measure_r9(evidence: Mapping[str, Evidence]) -> Measured:
    return each_part({task: partial(_higher, evidence, task) for task in (ONE_FACT, *SEVERAL_FACTS)})


def _higher(evidence: Mapping[str, Evidence], task: str) -> Statistic:
    small, large = (evidence[OVER_RATIOS.name + size].of(task) for size in ("", LARGER))
    return gap(large, small, "5 points are lost at {:.2f} by the larger model, at {:.2f} by the smaller")


R9 = Claim(
    identifier="R9",
    text=R,
    words="Larger models are no safer.",
    reported="14B no safer than 3B to 8B",
    statistic="the ratio at which the larger model has lost 5 points of F1, less that of the smaller one, mean over "
    "the same policies",
    side="at most",
    threshold=0.0,
    experiments=(OVER_RATIOS,),
    measure=_measure_r9,
    unit="asked ratio",
    of_others=(LARGER,),
)


CLAIMS = (R1, R2, R3, R7, R8, R9)
