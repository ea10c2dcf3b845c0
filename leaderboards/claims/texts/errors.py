"""The claims of text E: every value of the cache is off by an error, or is stored in fewer bits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from leaderboards.aggregate.evidence import Evidence, TaskEvidence
from leaderboards.claims.declaration import Claim, Experiment, Measure, Measured, Statistic, Text, each_part

BITS = ("int8", "int4")
EVERYWHERE = 1.0  # the share of the values that is off
CENTRED = "multiplicative_uniform"  # by a factor from 0 to 2
BIASED = "multiplicative_uniform(low=0,high=2)"
WIDE = "multiplicative_uniform(low=-1.5,high=1.5)"
STDS = (0.1, 0.25, 0.5)
NORMALS = tuple("multiplicative_normal" if std == 0.5 else f"multiplicative_normal(std={std:g})" for std in STDS)
FLIPPED_SHARE = 0.05  # of the values
FLIPPED, SAME_SIGN = "sign_flip", "same_sign"

E = Text("E", "Effect of KV Cache Error on Inference Accuracy", "Llama 3.2 1B, IFEval and next tokens")


@dataclass(frozen=True)
class Score:
    """A score in a table of text E: directives obeyed, next tokens, or right answers, which the text has not and more
    models can give."""

    task: str
    column: str
    part: str

    def of(self, evidence: Mapping[str, Evidence], experiments: Sequence[Experiment]) -> TaskEvidence:
        """Returns the records of its task, of that experiment which has it."""
        return evidence[next(one.name for one in experiments if self.task in one.tasks.split(","))].of(self.task)


OBEYED = Score("instructions", "directives_obeyed", "directives obeyed")
RIGHT = Score("base", "right", "right answers")
NEXT = Score("prose", "next_token_accuracy", "next tokens")
SCORES = (OBEYED, RIGHT, NEXT)

CONTEXTS = 24


def _of_scores(name: str, policies: Sequence[str], rate: float | None, repeats: int) -> tuple[Experiment, ...]:
    """Returns runs of the tasks that ``run --suite errors`` has: what either has run, the other borrows."""
    levels = () if rate is None else (("rate", f"{rate:g}"),)
    tasks = ",".join(score.task for score in SCORES)
    return (Experiment(name, tasks, ",".join(policies), levels, contexts=CONTEXTS, repeats=repeats),)


QUANTISED = _of_scores("quantised", BITS, None, repeats=1)
ERRORS = _of_scores("errors", (CENTRED, BIASED, WIDE, *NORMALS), EVERYWHERE, repeats=2)
SIGNS = _of_scores("signs", (FLIPPED, SAME_SIGN), FLIPPED_SHARE, repeats=2)

OfScore = Callable[[Mapping[str, Evidence], Score], Statistic]


def of_each_score(measures: Mapping[str, OfScore]) -> Measure:
    """Measures each of these for every score; their names and those of the scores name the parts of the claim."""

    def measure(evidence: Mapping[str, Evidence]) -> Measured:
        return each_part(
            {
                ", ".join(filter(None, (name, score.part))): partial(one, evidence, score)
                for score in SCORES
                for name, one in measures.items()
            }
        )

    return measure


def share_kept(treatment: str, rate: float | None, experiments: Sequence[Experiment]) -> OfScore:
    """Measures what a treatment leaves of a score, as a share of the full cache's."""

    def measure(evidence: Mapping[str, Evidence], score: Score) -> Statistic:
        records = score.of(evidence, experiments)
        return Statistic(records.share_kept(treatment, rate, score.column), records.contexts)

    return measure


def difference(one: str, other: str, rate: float, experiments: Sequence[Experiment], note: str) -> OfScore:
    """Measures the share kept under one treatment less that under another. ``note`` has a place for each share."""

    def measure(evidence: Mapping[str, Evidence], score: Score) -> Statistic:
        records = score.of(evidence, experiments)
        first, second = (records.share_kept(treatment, rate, score.column) for treatment in (one, other))
        return Statistic(first - second, records.contexts, note=note.format(first[0], second[0]))

    return measure


E1 = Claim(
    identifier="E1",
    text=E,
    words="8 and 4 bits keep 98 % of the control.",
    reported="IFEval 0.98 and 0.98; next token 0.91 and 1.15 (the text calls it an outlier)",
    statistic="score with the quantised cache as a share of the full cache's",
    side="at least",
    threshold=0.98,
    experiments=QUANTISED,
    measure=of_each_score({bits: share_kept(bits, None, QUANTISED) for bits in BITS}),
    remark="Its own next tokens with 8 bits keep 0.91, which is below the 0.98 of the sentence.",
)


E2 = Claim(
    identifier="E2",
    text=E,
    words="An error drawn evenly from -1 to 1 times the value keeps 80 % or more.",
    reported="IFEval 0.83; next token 0.83 and 0.85",
    statistic="score with every value times a factor from 0 to 2, as a share of the full cache's",
    side="at least",
    threshold=0.8,
    experiments=ERRORS,
    measure=of_each_score({"": share_kept(CENTRED, EVERYWHERE, ERRORS)}),
    remark="The text's table of next tokens prints 0.83 and 0.85, but its own counts give 27.4 / 51.3 = 0.53 and "
    "31.4 / 51.3 = 0.61.",
)


NOTE_E3 = "keeps {:.2f} with the bias, {:.2f} without"
E3 = Claim(
    identifier="E3",
    text=E,
    words="Biased error is far worse than centred error of equal spread.",
    reported='"random tokens" where the error is from 0 to 2, against 0.83 where it is from -1 to 1',
    statistic="what uniform(0, 2) keeps, less what uniform(-1, 1) keeps",
    side="below",
    threshold=0.0,
    experiments=ERRORS,
    measure=of_each_score({"": difference(BIASED, CENTRED, EVERYWHERE, ERRORS, NOTE_E3)}),
)


NOTE_E4 = "keeps {:.2f} with wrong signs, {:.2f} without"
E4 = Claim(
    identifier="E4",
    text=E,
    words="Wrong signs are far worse than an error of the same size that changes no sign.",
    reported='"catastrophic", without a figure',
    statistic="what sign flips of 5 % of the values keep, less what an equal root mean square error without flips does",
    side="below",
    threshold=0.0,
    experiments=SIGNS,
    measure=of_each_score({"": difference(FLIPPED, SAME_SIGN, FLIPPED_SHARE, SIGNS, NOTE_E4)}),
    because="Wrong signs cost little where they are few and an answer has other ways. In the keys of `reference`, "
    "flips of 5 % of the values leave 94 % right, the same share of whole rows 88, and an error of the "
    "same size on all values, of no wrong sign, 91 (95 with the full cache): flips leave most values of a "
    "key as they were, the other error leaves none. In the values alone neither costs a point.",
)


def _slope(evidence: Mapping[str, Evidence], score: Score) -> Statistic:
    records = score.of(evidence, ERRORS)
    kept = np.stack([records.share_kept(error, EVERYWHERE, score.column) for error in NORMALS])
    places = np.array(STDS) - np.mean(STDS)
    note = "keeps " + ", ".join(f"{share:.2f} at {std:g}" for share, std in zip(kept[:, 0], STDS, strict=True))
    return Statistic(places @ kept / (places @ places), records.contexts, note=note)


E5 = Claim(
    identifier="E5",
    text=E,
    words="Normal error degrades quickly with its spread, and more than uniform error of a larger one.",
    reported="next token 0.80 and 0.61 of the control at spreads 0.25 and 0.5; 0.61 with uniform(-1.5, 1.5)",
    statistic="slope of what is kept over the spread; what normal(0, 0.5) keeps less what uniform(-1.5, 1.5) keeps",
    side="below",
    threshold=0.0,
    experiments=ERRORS,
    measure=of_each_score(
        {
            "slope over the spread": _slope,
            "normal less wide uniform": difference(NORMALS[-1], WIDE, EVERYWHERE, ERRORS, "keeps {:.2f} and {:.2f}"),
        }
    ),
    remark="By the text's own counts normal(0, 0.5) and uniform(-1.5, 1.5) both keep 0.61: no difference. The spread "
    "of the uniform error is 3 / √12 = 0.87.",
    because="The size of the error counts more than its distribution. The text sets a "
    "normal error of 0.5 against a uniform one of 0.87. At the same root mean square as uniform(-1.5, "
    "1.5), 0.87, normal error leaves 39 % right on `reference`, where the uniform one leaves 48; at that "
    "of uniform(-1, 1), 0.58, they leave 83 and 87 (95 with the full cache).",
)


CLAIMS = (E1, E2, E3, E4, E5)
