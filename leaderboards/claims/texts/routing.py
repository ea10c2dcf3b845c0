"""The claims of text R: answers over ratios, question-aware pruning, and what heads look at."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
from pandas import DataFrame

from datasets_gen import USUAL_TOKENS
from leaderboards.aggregate.evidence import (
    Contexts,
    Evidence,
    NoEvidenceError,
    PreconditionError,
    TaskEvidence,
    check_same_contexts,
    filled_table,
)
from leaderboards.claims.declaration import (
    BESIDE,
    LARGER,
    Claim,
    Experiment,
    Measured,
    Statistic,
    Text,
    each_part,
)
from leaderboards.statistics.bootstrap import FLAT, FloatArray, percentile_interval
from leaderboards.studies.cliff import sweeps
from leaderboards.studies.routing import heads, probes, routes
from policies.declaration.names import FULL

R = Text(
    "R", "arXiv 2603.01426 (routing, Global Eviction Ratio)", "Llama 3 and Qwen 2.5, 3 to 14 B"
)
POLICIES = ("streaming_llm", "snapkv", "knorm", "expected_attention", "h2o")
RATIOS = tuple(round(tenth / 10, 1) for tenth in range(1, 10))
MODERATE, MIDDLE_RATIOS = 0.4, (0.5, 0.7)
ONE_FACT, SEVERAL_FACTS = "base", ("hops", "multi_entity")
TENTH = 0.1  # of what the full cache has
LOST = 5.0  # points of F1, as for the safe ratio of a board
# Their scores are attention, which the question changes.
SCORED_BY_ATTENTION = ("snapkv", "h2o", "tova")
OVER_RATIOS = Experiment(
    name="routes",
    tasks=",".join((ONE_FACT, *SEVERAL_FACTS)),
    policies=",".join(POLICIES),
    levels=(("ratio", ",".join(map(str, RATIOS))),),
    contexts=16,
    context_tokens=USUAL_TOKENS,
)
AGNOSTIC = Experiment(
    name="question agnostic",
    tasks=ONE_FACT,
    policies=",".join(SCORED_BY_ATTENTION),
    levels=(("ratio", ",".join(map(str, MIDDLE_RATIOS))),),
    contexts=32,
    context_tokens=USUAL_TOKENS,
)
AWARE = replace(AGNOSTIC, name="question aware", mode="aware")
# The tasks, policies and levels of the suite ``routing``, so that a finished run of it lends its
# answers.
OBSERVED = Experiment(
    name="heads",
    tasks=f"{ONE_FACT},hops",
    policies="streaming_llm,snapkv,knorm,tova,h2o",
    levels=(("ratio", "0.3,0.5,0.7,0.8,0.9,0.95"),),
    contexts=12,
    observe="attention,states,routes",
)


@dataclass(frozen=True)
class MasteredTasks:
    """The tasks of an experiment that the model can do: what is said of all of them is their
    mean."""

    tasks: tuple[TaskEvidence, ...]
    left_out: str  # says which it cannot do, if any

    @classmethod
    def of(cls, evidence: Evidence) -> "MasteredTasks":
        """Takes the records of an experiment.

        Raises :class:`PreconditionError` where the model can do no task."""
        mastered, failed = evidence.mastered(lambda task: "f1")
        reasons = "; ".join(failed)
        if not mastered:
            raise PreconditionError(reasons)
        return cls(tuple(mastered), f"left out: {reasons}" if failed else "")

    @property
    def contexts(self) -> int:
        """Counts the contexts of all tasks together."""
        return sum(task.contexts for task in self.tasks)

    def mean(self, policy: str, level: float | None, column: str) -> FloatArray:
        """Averages a column over the tasks, shape (1 + resamples,)."""
        means: FloatArray = np.mean(
            [task.mean(policy, level, column) for task in self.tasks], axis=0
        )
        return means

    def over_ratios(self, column: str) -> FloatArray:
        """Averages the means of all policies at each ratio, the full cache first: shape
        (1 + resamples, ratios + 1)."""
        means = [self.mean(FULL, None, column)]
        for ratio in RATIOS:
            of_policies = [self.mean(policy, ratio, column) for policy in POLICIES]
            means.append(np.mean(of_policies, axis=0))
        return np.stack(means, axis=1)


# Of the rate of made-up answers, among all and among those that state something: the column that
# these have, if any.
RATES = {
    "hallucinated, of all answers": "",
    "hallucinated, of those that state something": "answered",
}


def measure_mastered(
    measure: Callable[[str, MasteredTasks], Statistic], parts: Mapping[str, str], evidence: Evidence
) -> Measured:
    """Measures something over ratios for each part of a claim, which is told by its first
    argument."""
    measures = {part: partial(measure, subject) for part, subject in parts.items()}
    return each_part(measures, MasteredTasks.of(evidence))


def _note(*texts: str) -> str:
    """Joins what else the records say."""
    return "; ".join(filter(None, texts))


def _share_kept(policy: str, tasks: MasteredTasks) -> Statistic:
    kept = tasks.mean(policy, MODERATE, "f1") / tasks.mean(FULL, None, "f1")
    return Statistic(kept, tasks.contexts, note=tasks.left_out)


def _peak(of: str, tasks: MasteredTasks) -> Statistic:
    rates = tasks.over_ratios("hallucinated")
    if of:
        rates = rates / tasks.over_ratios(of)
    # Over asked ratios, as the text has it; the study of the cliff is over what is really removed.
    places = np.array([0.0, *RATIOS])
    peaks = sweeps.peaks(*sweeps.slopes(places, rates))
    if np.isnan(peaks[0]):
        raise NoEvidenceError("the rate rises nowhere")
    first, last = rates[0, 0], rates[0, -1]
    rise = f"the rate is {first:.2f} with the full cache, {last:.2f} at {RATIOS[-1]:g}"
    return Statistic(peaks, tasks.contexts, note=_note(rise, tasks.left_out))


def _correlation(of: str, tasks: MasteredTasks) -> Statistic:
    where = dict(sweeps.WITH_ANSWER)
    if of:
        where[of] = True
    cells = product(tasks.tasks, POLICIES, RATIOS)
    # Not over ratios, as the text has it: both rise with the ratio, so that they go together also
    # where neither causes the other.
    values = sweeps.partial_correlation(cells, where)
    if np.isnan(values[0]):
        raise NoEvidenceError("within a ratio GER is the same for all contexts, or the rate is")
    return Statistic(values, tasks.contexts, note=tasks.left_out)


def first_loss(task: TaskEvidence, policy: str) -> FloatArray:
    """Returns the ratio at which 5 points of F1 are lost, on the line between two ratios, or the
    highest ratio: shape (1 + resamples,). The safe ratio of a board asks for the end of an
    interval, which a resample has not."""
    whole = task.clean("f1")
    losses = [whole - whole, *(whole - task.mean(policy, ratio, "f1") for ratio in RATIOS)]
    return crossing(RATIOS, np.stack(losses, axis=1), LOST)


def crossing(ratios: Sequence[float], losses: FloatArray, least: float) -> FloatArray:
    """Returns the ratio at which a loss is first as large as ``least``, on the line between two
    ratios, or the highest ratio: shape (1 + resamples,). ``losses``: of the full cache, which loses
    nothing, then at each ratio, shape (1 + resamples, 1 + ratios)."""
    places = np.array([0.0, *ratios])
    # A loss of just as much counts, whatever the noise of sums makes of it.
    too_much = losses >= least - FLAT
    crosses = too_much.any(axis=1)
    # argmax finds the first True, and of none the first place.
    after = np.where(crosses, too_much.argmax(axis=1), len(ratios))
    before = after - 1
    rows = np.arange(len(losses))
    lost_before, lost_after = losses[rows, before], losses[rows, after]
    rise = lost_after - lost_before
    # Where nothing crosses, the whole way to the highest ratio.
    share = np.divide(least - lost_before, rise, out=np.ones(len(losses)), where=crosses)
    way = places[after] - places[before]
    crossed: FloatArray = places[before] + share * way
    return crossed


def _gap(task: str, evidence: Evidence) -> Statistic:
    """Measures how much later 5 points are lost on one fact than on several."""
    return _later(evidence.of(ONE_FACT), evidence.of(task), "")


def _later(first: TaskEvidence, second: TaskEvidence, whose: str) -> Statistic:
    """Measures the ratio at which 5 points are lost, the mean over the policies, of the first less
    of the second."""

    def mean_ratio(task: TaskEvidence) -> FloatArray:
        mean: FloatArray = np.mean([first_loss(task, policy) for policy in POLICIES], axis=0)
        return mean

    of_first, of_second = mean_ratio(first), mean_ratio(second)
    note = f"5 points are lost at {of_first[0]:.2f} and at {of_second[0]:.2f}{whose}"
    contexts = min(first.contexts, second.contexts)
    return Statistic(of_first - of_second, contexts, note=note)


def _safer(task: str, small: Evidence, large: Evidence) -> Statistic:
    """Measures how much later the larger model loses 5 points than the smaller one, on the same
    contexts."""
    smaller, larger = small.of(task), large.of(task)
    check_same_contexts(smaller, larger)
    return _later(larger, smaller, ", by the larger model and the smaller one")


def _aware(*evidence: Evidence) -> Measured:
    agnostic, aware = (mode.of(ONE_FACT) for mode in evidence)
    check_same_contexts(agnostic, aware)
    parts = {
        "F1 gained, of 1": partial(_gain, "f1", True),
        "abstentions on unanswerable questions lost": partial(_gain, "abstained", False),
    }
    return each_part(parts, agnostic, aware)


def _gain(column: str, answerable: bool, agnostic: TaskEvidence, aware: TaskEvidence) -> Statistic:
    """Measures how much F1 rises, of 1, or how much abstentions fall, where the press knows the
    question."""
    # Asked for its error alone, where the model cannot do the task without compression.
    agnostic.clean(column, answerable=answerable)

    def mean_of_cells(mode: TaskEvidence) -> FloatArray:
        means = []
        for policy, ratio in product(SCORED_BY_ATTENTION, MIDDLE_RATIOS):
            means.append(mode.mean(policy, ratio, column, answerable=answerable))
        mean: FloatArray = np.mean(means, axis=0)
        return mean

    without, with_question = mean_of_cells(agnostic), mean_of_cells(aware)
    if column == "f1":
        return Statistic((with_question - without) / 100, agnostic.contexts)
    return Statistic(without - with_question, agnostic.contexts)


def _observed(evidence: Evidence, table: str) -> tuple[DataFrame, str]:
    """Returns the rows of a table about the tasks that the model can do, and which it cannot do."""
    mastered = MasteredTasks.of(evidence)
    rows = filled_table(evidence.tables, table, "observed")
    return rows[rows["task"].isin([task.task for task in mastered.tasks])], mastered.left_out


def _earlier(evidence: Evidence) -> Measured:
    states, left_out = _observed(evidence, probes.TABLE)
    labelled = probes.with_labels(states, evidence.records)
    if labelled.empty:
        raise NoEvidenceError(
            "no answer that was observed stands in its context: there is nothing for a probe to "
            "find"
        )
    layers = probes.depths(int(states["layer"].max()))
    parts = {}
    for name, layer in layers.items():
        parts[f"{name} layer, {layer} of {max(layers.values())}"] = layer
    measures = {part: partial(_probe_before_answers, layer) for part, layer in parts.items()}
    return each_part(measures, labelled, evidence, left_out)


def _probe_before_answers(
    layer: int, labelled: DataFrame, evidence: Evidence, left_out: str
) -> Statistic:
    """Measures by how much F1 outlasts a probe of one layer: the ratio at which F1 has lost a tenth
    less that at which the probe has, mean over policies."""
    states = labelled[(labelled["layer"] == layer) & (labelled["repeat"] == 0)]
    full = probes.learnable(states[states["policy"] == FULL], probes.LETTER)
    if full.empty:
        raise NoEvidenceError("too few answers begin with the same letter for a probe to learn any")
    questions = full[routes.QUESTION].drop_duplicates()
    # The same questions at each level: those whose letter a probe can learn with the full cache.
    states = states.merge(questions, on=routes.QUESTION)
    whole = _probe_and_f1(states[states["policy"] == FULL], evidence)
    _check_probe(full, whole[0])
    differences, of_probe, of_f1 = [], [], []
    for policy in OBSERVED.policies.split(","):
        of_policy = states[states["policy"] == policy]
        ratios = sorted({level.value for level in of_policy["level"]})
        macros, f1s = [whole[0]], [whole[1]]
        for ratio in ratios:
            at_ratio = [level.value == ratio for level in of_policy["level"]]
            macro, f1 = _probe_and_f1(of_policy[at_ratio], evidence)
            macros.append(macro)
            f1s.append(f1)
        by_probe, by_f1 = _tenth_lost(ratios, macros), _tenth_lost(ratios, f1s)
        differences.append(by_f1 - by_probe)
        of_probe.append(float(by_probe[0]))
        of_f1.append(float(by_f1[0]))
    places = f"{np.mean(of_probe):.2f} by the probe, at {np.mean(of_f1):.2f} by F1"
    contexts = int(full[routes.CONTEXT].nunique())
    note = _note(f"a tenth is lost at {places}", left_out)
    return Statistic(np.mean(differences, axis=0), contexts, note=note)


def _check_probe(full: DataFrame, macro: FloatArray) -> None:
    """Raises :class:`NoEvidenceError` where a probe tells nothing of the full cache. ``macro``: its
    macro-F1 there, shape (1 + resamples,)."""
    features = probes.read_features(full)
    letters, contexts = list(full[probes.LETTER]), list(full[routes.CONTEXT])
    reached, control = probes.probe(features, letters, contexts)
    low, _ = percentile_interval(macro[1:])
    if reached - control < probes.TELLING or low <= control:
        scores = f"{reached:.2f} (at least {low:.2f}), and {control:.2f} on shuffled labels"
        reason = f"with the full cache a probe reaches {scores}: there is nothing to lose"
        raise NoEvidenceError(reason)


def _tenth_lost(ratios: Sequence[float], scores: Sequence[FloatArray]) -> FloatArray:
    """Returns the ratio at which a tenth of a score is lost, shape (1 + resamples,). ``scores``: of
    the full cache, then at each ratio, each of that shape."""
    values = np.stack(scores, axis=1)
    return crossing(ratios, 1 - values / values[:, :1], TENTH)


def _probe_and_f1(group: DataFrame, evidence: Evidence) -> tuple[FloatArray, FloatArray]:
    """Returns the macro-F1 of a probe, whose predictions are what is resampled, and F1 of the same
    answers, each of shape (1 + resamples,)."""
    labels = group[probes.LETTER].to_numpy(dtype=str)
    contexts = group[routes.CONTEXT].to_numpy(dtype=str)
    predicted = probes.predictions(probes.read_features(group), labels, contexts)
    # The probe is trained once and its predictions are resampled: that another training would
    # predict otherwise is not in the interval.
    resampled = Contexts(contexts, evidence, OBSERVED.name)
    of_labels = []
    for label in np.unique(labels):
        is_true = np.asarray(labels == label, dtype=np.float64)
        is_predicted = np.asarray(predicted == label, dtype=np.float64)
        count = resampled.sums(is_true)
        hits = 2 * resampled.sums(is_true * is_predicted)
        f1 = hits / (count + resampled.sums(is_predicted))
        # A letter that a resample does not hold enters no mean.
        of_labels.append(np.where(count > 0, f1, np.nan))
    with np.errstate(all="ignore"):
        macro: FloatArray = np.nanmean(of_labels, axis=0)
    f1_of_answers = group["f1"].astype(float).fillna(0)
    return macro, resampled.mean(f1_of_answers.to_numpy())


def _rigidity(evidence: Evidence) -> Measured:
    reached, left_out = _observed(evidence, routes.TABLE)
    joined = routes.with_routes(reached, evidence.records)
    table, _ = _observed(evidence, heads.TABLE)
    means = (
        heads.at_answers(table)
        .groupby(routes.CELL, observed=True)[["consensus", "agreement"]]
        .mean()
    )
    answers = joined.merge(means.reset_index(), on=routes.CELL, validate="one_to_one")
    parts = {
        "agreement of heads, failures less successes": ("agreement", 1.0),
        "distinct top tokens over heads, successes less failures": ("consensus", -1.0),
    }
    return each_part(
        {part: partial(_more, *of) for part, of in parts.items()}, answers, evidence, left_out
    )


def _more(
    column: str, sign: float, answers: DataFrame, evidence: Evidence, left_out: str
) -> Statistic:
    """Measures failures with evidence alive against successes with the same question and policy, at
    other ratios."""
    treated = answers[(answers["policy"] != FULL) & answers["right_with_full"]]
    successes = treated[treated["right"]]
    failures = treated[~treated["right"] & treated["answer_alive"].eq(True)]
    pair = [*routes.QUESTION, routes.CONTEXT, "policy"]
    of_failures = failures.groupby(pair, observed=True)[column].mean()
    of_successes = successes.groupby(pair, observed=True)[column].mean()
    # A question that is only right, or only wrong, at all ratios of a policy is no pair.
    differences = (sign * (of_failures - of_successes)).dropna()
    if differences.empty:
        wrongly = "and wrongly, with evidence alive, at another"
        raise NoEvidenceError(f"no question is answered rightly at one ratio {wrongly}")
    names = differences.index.get_level_values(routes.CONTEXT)
    contexts = Contexts(names.to_numpy(dtype=str), evidence, OBSERVED.name)
    note = _note(f"{len(differences)} pairs", left_out)
    mean = contexts.mean(differences.to_numpy(dtype=np.float64))
    return Statistic(mean, contexts.count, note=note)


def _depth(*evidence: Evidence) -> list[Statistic]:
    (slope, contexts), (other, others) = map(_slope, evidence)
    note = f"slope {slope[0]:z.2f} of this model, {other[0]:z.2f} of the one beside it"
    return [Statistic(slope * other, min(contexts, others), note=note)]


def _slope(evidence: Evidence) -> tuple[FloatArray, int]:
    table, _ = _observed(evidence, heads.TABLE)
    full = heads.with_questions(table[table["policy"] == FULL], evidence.records)
    values, names = heads.slopes(heads.at_answers(full))
    has_depth = ~np.isnan(values)
    if not has_depth.any():
        raise PreconditionError("a model of one layer has no depth")
    contexts = Contexts(names[has_depth], evidence, OBSERVED.name)
    return contexts.mean(values[has_depth]), contexts.count


claim = partial(Claim, text=R, experiments=(OVER_RATIOS,))
CLAIMS = (
    claim(
        identifier="R1",
        words="Accuracy is flat to moderate compression.",
        reported="on many tasks, without one figure for all",
        statistic="F1 at an asked ratio of 0.4 as a share of the full cache's, mean over the "
        "tasks, by policy",
        holds=("at least", 0.9),
        measure=partial(measure_mastered, _share_kept, {policy: policy for policy in POLICIES}),
    ),
    claim(
        identifier="R2",
        words="Hallucination has a cliff near a ratio of 0.9.",
        reported="a spike near 0.9 in all models",
        statistic="the ratio at which the hallucination rate rises fastest: the middle of two "
        "neighbouring tenths, mean over tasks and policies",
        holds=("at least", 0.8),
        measure=partial(measure_mastered, _peak, RATES),
        unit="asked ratio",
    ),
    claim(
        identifier="R3",
        words="The Global Eviction Ratio goes with hallucination.",
        reported="correlations of 0.79 to 0.93 over ratios",
        statistic="partial correlation of GER with the hallucination rate over contexts, given "
        "policy and ratio: of what either is above its mean over the contexts of the same task, "
        "policy and ratio; questions with an answer in the context",
        holds=("above", 0.0),
        measure=partial(measure_mastered, _correlation, RATES),
        unit="correlation",
    ),
    claim(
        identifier="R4",
        words="Representations degrade before accuracy does.",
        reported="at moderate ratios, without one figure",
        statistic="the ratio at which F1 has lost a tenth of the full cache's, less that at which "
        "the macro-F1 of a probe for the first letter of the answer has, mean over policies, by "
        "depth; with the full cache the probe has to reach 0.1 more than on shuffled labels, and "
        "the low end of its interval more than these",
        holds=("above", 0.0),
        experiments=(OBSERVED,),
        measure=_earlier,
        unit="asked ratio",
    ),
    claim(
        identifier="R5",
        words="Answers fail by erasure, or by rigidity: heads that all look at one token.",
        reported="instances of both",
        statistic="how much more heads agree at the first token of the answer, mean over layers, "
        "where the answer is wrong though evidence is alive than where it is right, of the same "
        "question and policy at other ratios",
        holds=("above", 0.0),
        experiments=(OBSERVED,),
        measure=_rigidity,
    ),
    claim(
        identifier="R6",
        words="The depth at which heads agree differs between Llama and Qwen.",
        reported="Llama: early consensus, late diversity; Qwen the reverse",
        statistic="slope of consensus over depth (distinct top tokens over heads in the late half "
        "of the layers less the early half, full cache, first token of the answer), times the same "
        "of a model of the other architecture: below 0 if their signs differ",
        holds=("below", 0.0),
        experiments=(OBSERVED,),
        measure=_depth,
        other=BESIDE,
    ),
    claim(
        identifier="R7",
        words="Pruning that knows the question helps accuracy and hurts honesty.",
        reported='"query-conditioned overcommitment", without a figure',
        statistic="question-aware against agnostic on the same questions, mean over policies and "
        "ratios 0.5 and 0.7: the gain in F1 of questions with an answer, and the fall in "
        "abstentions on questions without one",
        holds=("above", 0.0),
        experiments=(AGNOSTIC, AWARE),
        measure=_aware,
    ),
    claim(
        identifier="R8",
        words="Chains of facts and several people break first.",
        reported='"heterogeneous cliffs", without one figure',
        statistic="the ratio at which base has lost 5 points of F1, less that at which the other "
        "task has, mean over the same policies",
        holds=("above", 0.0),
        measure=partial(each_part, {task: partial(_gap, task) for task in SEVERAL_FACTS}),
        unit="asked ratio",
    ),
    claim(
        identifier="R9",
        words="Larger models are no safer.",
        reported="14B no safer than 3B to 8B",
        statistic="the ratio at which the larger model has lost 5 points of F1, less that at which "
        "the smaller one has, mean over the same policies, on the same contexts, by task",
        holds=("at most", 0.0),
        measure=partial(
            each_part, {task: partial(_safer, task) for task in (ONE_FACT, *SEVERAL_FACTS)}
        ),
        unit="asked ratio",
        other=LARGER,
    ),
)
