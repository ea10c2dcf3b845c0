"""The experiments of text E: every value of the cache is off by an error, or is stored in fewer bits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from leaderboards.claims.declaration import Experiment, Measure, Measured, Statistic, each_part
from leaderboards.claims.evidence import Evidence, TaskEvidence


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
BITS = ("int8", "int4")
EVERYWHERE = 1.0  # the share of the values that is off
CENTRED = "multiplicative_uniform"  # by a factor from 0 to 2
BIASED = "multiplicative_uniform(low=0,high=2)"
WIDE = "multiplicative_uniform(low=-1.5,high=1.5)"
STDS = (0.1, 0.25, 0.5)
NORMALS = tuple("multiplicative_normal" if std == 0.5 else f"multiplicative_normal(std={std:g})" for std in STDS)
FLIPPED_SHARE = 0.05  # of the values
FLIPPED, SAME_SIGN = "sign_flip", "same_sign"


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
