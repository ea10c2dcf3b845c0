"""The claims R4 to R6 of text R: attention, hidden states and routes over ratios."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from pandas import DataFrame

from leaderboards.aggregate.evidence import Contexts, Evidence, NoEvidenceError, table_of
from leaderboards.claims.declaration import BESIDE, Claim, Experiment, Measured, Statistic, each_part
from leaderboards.claims.texts.routing import ONE_FACT, MasteredTasks, R
from leaderboards.routing.failures import FailureClass
from leaderboards.routing.probe import probe
from leaderboards.statistics.bootstrap import FloatArray
from leaderboards.studies.routing.heads import TABLE as ATTENTION
from leaderboards.studies.routing.heads import at_answers, slopes, with_questions
from leaderboards.studies.routing.probes import (
    LETTER,
    STATE,
    TYPE,
    VALUES,
    features_of,
    learnable,
    with_labels,
)
from leaderboards.studies.routing.probes import TABLE as STATES
from leaderboards.studies.routing.routes import (
    CELL,
    CONTEXT,
    QUESTION,
    USES,
    classify,
    telling_epsilon,
    with_routes,
)
from leaderboards.studies.routing.routes import TABLE as ROUTES
from policies.declaration.names import FULL

# The tasks, policies and levels of the suite ``routing``, so that a finished run of it lends its answers.
OBSERVED = Experiment(
    name="heads",
    tasks=f"{ONE_FACT},hops",
    policies="streaming_llm,snapkv,knorm,tova,h2o",
    levels=(("ratio", "0.3,0.5,0.7,0.8,0.9,0.95"),),
    contexts=12,
    observe="attention,states,routes",
)


@dataclass(frozen=True)
class Observed:
    """Holds the observed tables of the tasks that the model can do."""

    records: DataFrame
    tables: Mapping[str, DataFrame]
    seed: int
    left_out: str  # says which tasks it cannot do, if any

    @classmethod
    def of(cls, evidence: Mapping[str, Evidence], name: str = OBSERVED.name) -> "Observed":
        """Takes the evidence of an experiment; :class:`NoEvidenceError` where the model can do none of its tasks."""
        given, routes = evidence[name], MasteredTasks.of(evidence, name)
        tasks = [task.task for task in routes.tasks]
        return cls(given.records[given.records["task"].isin(tasks)], given.tables, given.seed, routes.left_out)

    def table(self, name: str) -> DataFrame:
        """Returns the rows of a table about these tasks; :class:`NoEvidenceError` where there are none."""
        table = table_of(self.tables, name, "observed")
        return table[table["task"].isin(self.records["task"].unique())]


LOST = 0.1
TELLING = 0.1  # of macro-F1 above that of shuffled labels: a probe that finds less with the full cache finds nothing
# The type of an answer can be read off its question, and so off the state of the question's last token.
PARTS = {
    "first letter, in the question’s last token": (STATE, LETTER),
    "first letter, in the values left of the answer": (VALUES, LETTER),
    "type, in the values left of the answer": (VALUES, TYPE),
}


def _measure_r4(evidence: Mapping[str, Evidence]) -> Measured:
    observed = Observed.of(evidence)
    labelled = with_labels(observed.table(STATES), observed.records)
    return each_part({part: partial(_earlier, observed, labelled, *of) for part, of in PARTS.items()})


def _earlier(observed: Observed, labelled: DataFrame, of: str, label: str) -> Statistic:
    """Measures how much earlier a probe loses a tenth than F1 does, mean over policies."""
    known = labelled[labelled[of].notna()]
    answers = learnable(known[(known["layer"] == known["layer"].max()) & (known["repeat"] == 0)], label)
    contexts = np.unique(answers[CONTEXT].to_numpy(dtype=str))
    whole = _scores(answers[answers["policy"] == FULL], of, label, observed.seed, least=TELLING)
    ratios = sorted({level.value for level in answers[answers["policy"] != FULL]["level"].unique()})
    differences, places = [], []
    for _, of_policy in answers[answers["policy"] != FULL].groupby("policy", observed=True):
        at_levels = [
            _scores(of_policy[[level.value == ratio for level in of_policy["level"]]], of, label, observed.seed)
            for ratio in ratios
        ]
        probed, f1 = (np.stack([one[number] for one in (whole, *at_levels)], axis=1) for number in (0, 1))
        lost = [first_loss([0.0, *ratios], scores) for scores in (probed, f1)]
        differences.append(lost[1] - lost[0])
        places.append([float(one[0]) for one in lost])
    of_probe, of_f1 = np.mean(places, axis=0)
    note = f"a tenth is lost at {of_probe:.2f} by the probe, at {of_f1:.2f} by F1"
    return Statistic(
        np.mean(differences, axis=0), len(contexts), note="; ".join(filter(None, (note, observed.left_out)))
    )


def _scores(group: DataFrame, of: str, label: str, seed: int, least: float = -1.0) -> tuple[FloatArray, FloatArray]:
    """Returns the macro-F1 of a probe and F1 of the same answers, each of shape (1 + resamples,). ``least``: by how
    much the probe has to be better than on shuffled labels."""
    labels = group[label].to_numpy(dtype=str)
    contexts = Contexts.of(group[CONTEXT].to_numpy(dtype=str), seed, OBSERVED.name)
    try:
        score = probe(features_of(group, of), labels.tolist(), group[CONTEXT].tolist(), shuffles=1)
    except ValueError as error:
        raise NoEvidenceError(str(error)) from error
    if score.selectivity < least:
        raise NoEvidenceError(
            f"with the full cache a probe reaches {score.macro_f1:.2f}, and {score.control:.2f} on shuffled labels: "
            "there is nothing to lose"
        )
    return _macro_f1(labels, score.predictions, contexts), contexts.mean(group["f1"].to_numpy(dtype=np.float64))


def _macro_f1(
    labels: "np.ndarray[tuple[int], np.dtype[np.str_]]", predictions: object, contexts: Contexts
) -> FloatArray:
    """Averages F1 over the labels that are there in each resample."""
    scores = []
    for label in np.unique(labels):
        true, predicted = (np.asarray(one == label, dtype=np.float64) for one in (labels, predictions))
        both, count = contexts.sums(true * predicted), contexts.sums(true)
        with np.errstate(invalid="ignore"):
            scores.append(np.where(count > 0, 2 * both / (count + contexts.sums(predicted)), np.nan))
    mean: FloatArray = np.nanmean(scores, axis=0)
    return mean


def first_loss(ratios: list[float], scores: FloatArray) -> FloatArray:
    """Returns the ratio at which a score has first lost a tenth of what it is at the first ratio, on the line between
    two ratios, and the last ratio where it never does. ``scores``: shape (1 + resamples, ratios)."""
    floor = (1 - LOST) * scores[:, :1]
    lost = scores <= floor
    lost[:, 0] = False
    place = np.where(lost.any(axis=1), lost.argmax(axis=1), len(ratios) - 1)
    rows, at = np.arange(len(scores)), np.array(ratios)
    before, after = scores[rows, place - 1], scores[rows, place]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(lost.any(axis=1), (before - floor[:, 0]) / (before - after), 1.0)
    crossed: FloatArray = at[place - 1] + share * (at[place] - at[place - 1])
    return crossed


R4 = Claim(
    identifier="R4",
    text=R,
    words="Representations degrade before accuracy does.",
    reported="at moderate ratios, without one figure",
    statistic="the ratio at which F1 has lost a tenth of the full cache's, less that at which the macro-F1 of a probe "
    "for the first letter of the answer, or for its type, has (of the last layer; with the full cache it has to reach "
    "0.1 more than on shuffled labels), mean over policies",
    side="above",
    threshold=0.0,
    experiments=(OBSERVED,),
    measure=_measure_r4,
    unit="asked ratio",
)


KINDS = {"erased": (FailureClass.ERASED,), "unreachable": (FailureClass.UNREACHABLE,), "reached and unused": USES}


def _measure_r5(evidence: Mapping[str, Evidence]) -> Measured:
    observed = Observed.of(evidence)
    joined = with_routes(observed.table(ROUTES), observed.records)
    heads = at_answers(observed.table(ATTENTION)).groupby(CELL, observed=True)[["consensus", "agreement"]].mean()
    answers = joined.merge(heads.reset_index(), on=CELL, validate="one_to_one")
    told = "; ".join(filter(None, (_shares_of_failures(joined), observed.left_out)))
    parts = {
        "agreement of heads, failures less successes": ("agreement", 1.0),
        "distinct top tokens over heads, successes less failures": ("consensus", -1.0),
    }
    return each_part({part: partial(_more, answers, observed.seed, told, *of) for part, of in parts.items()})


def _shares_of_failures(joined: DataFrame) -> str:
    """Says of which class the failures are, by routes that few tokens of a context have."""
    epsilon = telling_epsilon(joined)
    lost = joined[~joined["right"] & joined["right_with_full"] & joined["unobserved"].isna()]
    counts = Counter(classify(lost, epsilon))
    shares = (f"{sum(counts[one] for one in of) / max(1, len(lost)):.0%} {name}" for name, of in KINDS.items())
    return f"of {len(lost)} failures {', '.join(shares)}, by routes of at least {epsilon:g}"


def _more(answers: DataFrame, seed: int, note: str, column: str, sign: float) -> Statistic:
    """Measures failures with evidence alive against successes with the same question and policy, at other ratios."""
    treated = answers[(answers["policy"] != FULL) & answers["right_with_full"]]
    failures = treated[~treated["right"] & treated["answer_alive"].eq(True)]
    pair = [*QUESTION, CONTEXT, "policy"]
    means = [group.groupby(pair, observed=True)[column].mean() for group in (failures, treated[treated["right"]])]
    differences = (sign * (means[0] - means[1])).dropna()
    if differences.empty:
        raise NoEvidenceError(
            "no question is answered rightly at one ratio and wrongly, with evidence alive, at another"
        )
    contexts = Contexts.of(differences.index.get_level_values(CONTEXT).to_numpy(dtype=str), seed, OBSERVED.name)
    values = contexts.mean(differences.to_numpy(dtype=np.float64))
    return Statistic(values, contexts.count, note=f"{len(differences)} pairs; {note}")


R5 = Claim(
    identifier="R5",
    text=R,
    words="Answers fail by erasure, or by rigidity: heads that all look at one token.",
    reported="instances of both",
    statistic="how much more heads agree at the first token of the answer, mean over layers, where the answer is wrong "
    "though evidence is alive than where it is right, of the same question and policy at other ratios; the shares of "
    "the failures stand beside it",
    side="above",
    threshold=0.0,
    experiments=(OBSERVED,),
    measure=_measure_r5,
    remark="The text's consensus, distinct tokens over heads, is low where heads agree: the second part turns its "
    "sign.",
    because="In these models heads agree more where the answer is right. In layers 0 to 3, which read the context "
    "first, 0.4 of the heads of `reference` look at one token where the answer is right, and 0.10 to 0.15 fewer "
    "where it is wrong though evidence is alive: they scatter once the rows that they look for are gone. In a single "
    "later layer they agree more, by 0.09 in layer 5 and by 0.13 in layer 7.",
)


def _measure_r6(evidence: Mapping[str, Evidence]) -> list[Statistic]:
    (own, contexts), (other, others) = (_slope(evidence, OBSERVED.name + which) for which in ("", BESIDE))
    note = f"slope {own[0]:z.2f} of this model, {other[0]:z.2f} of the one beside it"
    return [Statistic(own * other, min(contexts, others), note=note)]


def _slope(evidence: Mapping[str, Evidence], name: str) -> tuple[FloatArray, int]:
    observed = Observed.of(evidence, name)
    table = observed.table(ATTENTION)
    full = with_questions(table[table["policy"] == FULL], observed.records)
    values, names = slopes(at_answers(full))
    known = ~np.isnan(values)
    if not known.any():
        raise NoEvidenceError("a model of one layer has no depth")
    contexts = Contexts.of(names[known], observed.seed, OBSERVED.name)
    return contexts.mean(values[known]), contexts.count


R6 = Claim(
    identifier="R6",
    text=R,
    words="The depth at which heads agree differs between Llama and Qwen.",
    reported="Llama: early consensus, late diversity; Qwen the reverse",
    statistic="slope of consensus over depth (distinct top tokens over heads in the late half of the layers less the "
    "early half, full cache, first token of the answer), times the same of a model of the other architecture: below 0 "
    "if their signs differ",
    side="below",
    threshold=0.0,
    experiments=(OBSERVED,),
    measure=_measure_r6,
    of_others=(BESIDE,),
    because="In both models heads agree a little more in the early half of the layers. With the full cache, consensus "
    "is 0.56 to 0.70 in the first nine layers of `reference` and 0.77 to 0.84 in the last three; in `reference-narrow` "
    "it is 0.42 in the layer that reads the context, and 0.85 to 0.98 in all others. The training of `reference` began "
    "with the weights of `reference-narrow`, so that the two share more than the models of two makers do.",
)


CLAIMS = (R4, R5, R6)
