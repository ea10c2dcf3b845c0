"""Metrics of obedience: which of its directives does an answer follow?"""

from leaderboards.metrics.declaration import Definition, Heading, Measure, Metric, Over
from leaderboards.metrics.inputs import Answer
from leaderboards.metrics.judges.obedience import loosely

OBEYED = Definition(
    "Directives obeyed",
    "The share of the directives of a prompt that an answer obeys, by a checker for each: "
    "strictly, as the answer stands, or loosely, in any of eight versions of it (without its "
    "first or last line, without asterisks). An answer that failed obeys none. Relative: of what "
    "the full cache obeys.",
    source="arXiv 2510.00231, arXiv 2311.07911",
    chapter="instructions",
)


def _share_obeyed(answer: Answer) -> float | None:
    # None where there is no directive: 1 would count as obedience.
    obeyed = answer.obeyed_strictly
    return sum(obeyed) / len(obeyed) if obeyed else None


METRICS = (
    Metric(
        name="directives_obeyed",
        type=float,
        better="higher",
        line="Share of the directives that the answer obeys, by their checkers",
        definition=OBEYED,
        bounds=(0, 1),
        of_answer=_share_obeyed,
        measures=(
            Measure(
                field="directives_obeyed",
                title="Directives obeyed",
                unit="percent",
                over=Over.CONCERNED,
                better="higher",
                curve=True,
                table=True,
                board=Heading("obeyed", "directives obeyed", single=True),
            ),
        ),
    ),
    Metric(
        name="directives_strict",
        type=list[bool],
        better="higher",
        line="For each directive, whether the answer obeys it as it stands",
        definition=OBEYED,
        of_answer=lambda answer: answer.obeyed_strictly or None,
    ),
    Metric(
        name="directives_loose",
        type=list[bool],
        better="higher",
        line="The same of any of IFEval's eight versions of it [2311.07911]",
        definition=OBEYED,
        of_answer=lambda answer: loosely(answer.directives, answer.spoken) or None,
    ),
)
