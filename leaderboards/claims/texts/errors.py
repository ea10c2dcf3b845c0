"""The claims of text E: every value of the cache is off by an error, or is stored in fewer bits."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import Claim, Experiment, Measured, Statistic, Text, each_part
from leaderboards.statistics.bootstrap import FloatArray

E = Text(
    "E", "Effect of KV Cache Error on Inference Accuracy", "Llama 3.2 1B, IFEval and next tokens"
)
# As in the text, each row is damaged once, as it enters the cache.
CENTRED = "multiplicative_uniform(phase=write)"  # by a factor from 0 to 2
BIASED = "multiplicative_uniform(phase=write,low=0,high=2)"
WIDE = "multiplicative_uniform(phase=write,low=-1.5,high=1.5)"
STDS = (0.1, 0.25, 0.5)
NORMALS = (
    "multiplicative_normal(phase=write,std=0.1)",
    "multiplicative_normal(phase=write,std=0.25)",
    "multiplicative_normal(phase=write)",
)
FLIPPED, UNFLIPPED = "sign_flip(phase=write)", "same_sign(phase=write)"
EVERYWHERE, FLIPPED_SHARE = 1.0, 0.05  # of the values
# Tasks with what is judged of them; the text has no right answers, which more models can give.
SCORES = {
    "directives obeyed": ("instructions", "directives_obeyed"),
    "right answers": ("base", "right"),
    "next tokens": ("prose", "next_token_accuracy"),
}
TASKS = ",".join(task for task, _ in SCORES.values())
# Of the tasks that ``run --suite errors`` has, so that either run borrows from the other.
QUANTISED = Experiment("quantised", TASKS, "int8,int4", (), contexts=24)
ERRORS = Experiment(
    "errors",
    TASKS,
    ",".join((CENTRED, BIASED, WIDE, *NORMALS)),
    (("rate", "1"),),
    contexts=24,
    repeats=2,
)
SIGNS = Experiment(
    "signs", TASKS, f"{FLIPPED},{UNFLIPPED}", (("rate", "0.05"),), contexts=24, repeats=2
)
# What a treatment keeps of a score, as a share of the full cache's.
Kept = Callable[[str], FloatArray]
Formula = Callable[[Kept], FloatArray]


def measure_scores(
    rate: float | None, formulas: Mapping[str, Formula], evidence: Evidence
) -> Measured:
    """Computes each formula for every score; their names and those of the scores name the parts of
    the claim."""

    def statistic(task: str, column: str, formula: Formula) -> Statistic:
        records = evidence.of(task)

        def kept(treatment: str) -> FloatArray:
            return records.share_kept(treatment, rate, column)

        return Statistic(formula(kept), records.contexts)

    parts = {}
    for score, (task, column) in SCORES.items():
        for name, formula in formulas.items():
            part = f"{name}, {score}" if name else score
            parts[part] = partial(statistic, task, column, formula)
    return each_part(parts)


def _slope(kept: Kept) -> FloatArray:
    # Least squares in all resamples at once. The places are about their mean, so that the level of
    # the shares drops out.
    places = np.array(STDS) - np.mean(STDS)
    shares = np.stack([kept(error) for error in NORMALS])
    slope: FloatArray = places @ shares / (places @ places)
    return slope


def _kept_by(treatment: str) -> Formula:
    return lambda kept: kept(treatment)


def _difference(treatment: str, other: str) -> Formula:
    return lambda kept: kept(treatment) - kept(other)


claim = partial(Claim, text=E, experiments=(ERRORS,))
CLAIMS = (
    claim(
        identifier="E1",
        words="8 and 4 bits keep 98 % of the control.",
        reported="IFEval 0.98 and 0.98; next token 0.91 and 1.15 (the text calls it an outlier)",
        statistic="score with the quantised cache as a share of the full cache's",
        holds=("at least", 0.98),
        experiments=(QUANTISED,),
        measure=partial(
            measure_scores,
            None,
            {"int8": _kept_by("int8"), "int4": _kept_by("int4")},
        ),
    ),
    claim(
        identifier="E2",
        words="An error drawn evenly from -1 to 1 times the value keeps 80 % or more.",
        reported="IFEval 0.83; next token 0.83 and 0.85",
        # The text prints 0.83 for next tokens, where its own counts, 27.4 of 51.3, come to 0.53.
        statistic="score with every value times a factor from 0 to 2, as a share of the full "
        "cache's",
        holds=("at least", 0.8),
        measure=partial(measure_scores, EVERYWHERE, {"": _kept_by(CENTRED)}),
    ),
    claim(
        identifier="E3",
        words="Biased error is far worse than centred error of equal spread.",
        reported='"random tokens" where the error is from 0 to 2, '
        "against 0.83 where it is from -1 to 1",
        statistic="what uniform(0, 2) keeps, less what uniform(-1, 1) keeps",
        holds=("below", 0.0),
        measure=partial(measure_scores, EVERYWHERE, {"": _difference(BIASED, CENTRED)}),
    ),
    claim(
        identifier="E4",
        words="Wrong signs are far worse than an error of the same size that changes no sign.",
        reported='"catastrophic", without a figure',
        statistic="what sign flips of 5 % of the values keep, less what an equal root mean square "
        "error without flips does",
        holds=("below", 0.0),
        experiments=(SIGNS,),
        measure=partial(measure_scores, FLIPPED_SHARE, {"": _difference(FLIPPED, UNFLIPPED)}),
    ),
    claim(
        identifier="E5",
        words="Normal error degrades quickly with its spread, and more than uniform error of a "
        "larger one.",
        reported="next token 0.80 and 0.61 of the control at spreads 0.25 and 0.5; 0.61 with "
        "uniform(-1.5, 1.5)",
        statistic="slope of what is kept over the spread; what normal(0, 0.5) keeps less what "
        "uniform(-1.5, 1.5) keeps",
        holds=("below", 0.0),
        measure=partial(
            measure_scores,
            EVERYWHERE,
            {
                "slope over the spread": _slope,
                "normal less wide uniform": _difference(NORMALS[-1], WIDE),
            },
        ),
    ),
)
