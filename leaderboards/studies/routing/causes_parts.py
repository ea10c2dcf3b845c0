"""The parts of the page, downloads and definitions on what rows cause."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from leaderboards.downloads.sheets import Sheet
from leaderboards.figures.panels import dots_by_name, layer_map
from leaderboards.metrics.declaration.definition import Definition, estimates
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, StudyInput, StudySection
from leaderboards.studies.routing.causes import (
    TABLE,
    TARGETS,
    TIMES,
    Removal,
    Repair,
    SlotMap,
    cliff_levels,
    removals,
    repairs,
    slot_maps,
    with_outcomes,
)
from leaderboards.studies.routing.reaching_parts import columns_of
from leaderboards.studies.treatments.parts import in_percent

EVIDENCE, RANDOM = "the evidence", "as many random rows"
SHARE_AXIS = "share of the lost F1 that comes back"
ACTIONS = {"restore": "put back", "remove": "taken away"}
NONE = "–"
COMPARED = ("answer", "evidence")  # with random rows
ESTIMATES = dict.fromkeys(("nats", "random", "alone", "random_nats", "random_f1", "excess"), Estimate)


class Causes:
    """Holds what the tables of interventions come to."""

    def __init__(self, given: StudyInput) -> None:
        outcomes = with_outcomes(given.tables[TABLE], given.records)
        self.repairs = repairs(outcomes, cliff_levels(given.records))
        self.removals = removals(outcomes)
        self.maps = slot_maps(outcomes)

    def parts(self) -> list[StudySection]:
        """Returns the sections of the page, those that have anything to show."""
        found = [_explained(self.repairs), _places(self.maps), _removal(self.removals)]
        return [part for part in found if part.pictures or any(one.rows for one in part.listings)]

    def sheets(self) -> list[Sheet]:
        """Returns the downloads."""
        tables: list[tuple[str, str, Sequence[Repair | Removal]]] = [
            ("routing-repairs", "What rows repair at the cliff", self.repairs),
            ("routing-removals", "What is lost without rows", self.removals),
        ]
        return [
            Sheet.of(name, title, list(map(columns_of, rows)), kinds=ESTIMATES) for name, title, rows in tables if rows
        ]

    def quoted(self) -> dict[str, Any]:
        """Returns the share of its loss that the evidence rows alone explain, by policy, in percent."""
        return {
            one.policy: round(100 * one.alone.mean, 1)
            for one in self.repairs
            if one.target == "evidence" and one.alone is not None
        }


def _explained(found: Sequence[Repair]) -> StudySection:
    of_evidence = sorted(
        (one for one in found if one.target == "evidence"), key=lambda one: -(one.alone.mean if one.alone else -1.0)
    )
    if not of_evidence:
        return StudySection("causes", "", "")
    styles = named_styles((EVIDENCE, RANDOM))
    names = [one.policy for one in of_evidence]
    series: dict[LineStyle, list[Estimate | None]] = {
        styles[EVIDENCE]: [one.f1 for one in of_evidence],
        styles[RANDOM]: [one.random for one in of_evidence],
    }
    drawing = dots_by_name(names, series, SHARE_AXIS, (0.0, 1.0), f"{SHARE_AXIS}, by policy", "causes/explained")
    by_policy = {
        one.policy: {other.target: other for other in found if other.policy == one.policy} for one in of_evidence
    }
    rows = tuple(
        (
            one.policy,
            one.level.where,
            str(one.answers),
            _share(one.alone),
            *(
                _share(by_policy[one.policy][target].f1 if target in by_policy[one.policy] else None)
                for target in TARGETS
            ),
            _share(one.random),
        )
        for one in of_evidence
    )
    columns = ("policy", "at its cliff", "lost answers", "evidence alone", *TARGETS, RANDOM)
    text = (
        "Each policy at its cliff: rows that it evicted are put back, and the question is asked again. The figure "
        "shows which share of the F1 that lost answers have lost comes back with the evidence, and with as many random "
        "rows. The difference is what the evidence rows alone explain of the loss."
    )
    pictures = (Picture("What evidence rows repair", SHARE_AXIS, Markup(drawing)),)
    listing = Listing("Share of the lost F1 that comes back, percent", columns, rows)
    return StudySection(
        "causes", "What was evicted that was needed", text, tuple(styles.values()), pictures, (listing,)
    )


def _share(estimate: Estimate | None) -> str:
    return NONE if estimate is None else in_percent(estimate)


def _places(maps: Sequence[SlotMap]) -> StudySection:
    pictures = tuple(_picture(one) for one in maps)
    text = (
        "The same rows in one layer or one head alone. Put back: the share of the lost likelihood of the right answer "
        "that comes back. Taken away from the full cache: the share of what it costs to take them away everywhere. If "
        "one head shows all of it, one slot of the cache matters. If no place does, the model reads in several places. "
        "Red: a share above 0, the darkest 1; blue: below 0."
    )
    return StudySection("places", "Where the rows matter", text, pictures=pictures)


def _picture(one: SlotMap) -> Picture:
    of = RANDOM if one.random else one.target
    columns = ["all", *(str(head) for head in range(one.values.shape[1] - 1))]
    title = f"{of[0].upper()}{of[1:]} {ACTIONS[one.action]}"
    drawing = layer_map(one.values, columns, "KV head", f"{title}: share by layer and head", f"causes/{title}")
    return Picture(title, f"share in nats, {one.answers} answers", Markup(drawing))


def _removal(found: Sequence[Removal]) -> StudySection:
    rows = tuple(
        (
            f"{one.task}, {one.target}",
            str(one.answers),
            f"{one.rows:.0f}",
            _number(one.nats, 2),
            _number(one.random_nats, 3),
            _number(one.f1, 1),
            _number(one.random_f1, 1),
            verdict(one),
        )
        for one in found
    )
    columns = ("task, rows", "answers", "rows", "nats", "nats, random", "F1, points", "F1, random", f"{TIMES} times")
    text = (
        "What the full cache loses without the rows of a span, over questions that it has right, and what it loses "
        f"without as many random rows. The last column tells whether the first is at least {TIMES} times the second."
    )
    return StudySection("removal", "What is lost without the rows", text, listings=(Listing("Removal", columns, rows),))


def verdict(one: Removal) -> str:
    """Says whether rows cost :data:`TIMES` times as much as random ones."""
    if one.excess is None:
        return "too few other rows" if one.target in COMPARED else NONE
    if one.excess.interval is None:
        return "undecided"
    low, high = one.excess.interval
    return "yes" if low > 0 else "no" if high < 0 else "undecided"


def _number(estimate: Estimate | None, digits: int) -> str:
    if estimate is None:
        return NONE
    interval = "" if estimate.interval is None else " [{:z.{d}f} to {:z.{d}f}]".format(*estimate.interval, d=digits)
    return f"{estimate.mean:z.{digits}f}{interval}"


DEFINITIONS = (
    Definition(
        "Rows put back",
        "Rows that a policy evicted are put back into its branch, and the question is asked again: the rows of the "
        "answer’s tokens, of the subject’s, of the bridges’ between hops, or of all evidence; in all layers and heads, "
        "in one layer, or in one head. Nothing can be put back where a press merges or rewrites rows, or goes on "
        "cutting while an answer is written. An answer is lost if the full cache has it right and the policy wrong.",
        names=("answer", "subject", "bridge", "evidence", "lost answers"),
    ),
    Definition(
        "At its cliff",
        "The level behind the step of the realised ratio over which the share of lost answers rises fastest, among "
        "questions with evidence that the full cache has right.",
        names=("at its cliff",),
    ),
    Definition(
        "Explained by the evidence alone",
        "The share of the F1 that lost answers have lost which comes back with the evidence rows, less the share that "
        "comes back with as many random rows of tokens that are no evidence. 100 %: the policy lost these answers "
        "because it evicted the evidence, and for no other reason; 0 %: evidence repairs no more than any rows do. "
        "Answers without as many other rows to compare with are left out. Its interval resamples contexts.",
        "(Σ F1(evidence back) − Σ F1(random rows back)) / (Σ F1(full cache) − Σ F1(policy))",
        names=("evidence alone", RANDOM, *estimates("alone", "random"), "f1_n"),
    ),
    Definition(
        "Rows taken away",
        "Rows are taken away from the full cache: by how much the right answer becomes less likely, in nats, and by "
        f"how many points F1 falls, beside as many random rows. {TIMES} times: whether the interval of the cost, less "
        f"{TIMES} times the cost of random rows, lies above 0 (yes), below it (no), or holds it (undecided).",
        "excess = nats − 10 × random nats",
        names=(
            *("task, rows", "rows", "nats, random", "F1, points", "F1, random", f"{TIMES} times"),
            *estimates("random_nats", "random_f1", "excess"),
        ),
    ),
)
