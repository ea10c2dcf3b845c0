"""The sections of the page, downloads and definitions on the boundary of answers, remedies, and policies in 16 bits."""

from collections.abc import Sequence

from markupsafe import Markup
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.figures.panels import BandedLine, fitted, panel
from leaderboards.metrics.declaration.definition import Definition, estimates
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import named_styles
from leaderboards.statistics.resampling import Estimate
from leaderboards.statistics.significance import p_text
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.numerics.boundary import Boundary, Susceptibility, boundaries_of, susceptibilities_of
from leaderboards.studies.numerics.layers_parts import nats
from leaderboards.studies.numerics.precision import moved_of, remedies_of
from leaderboards.studies.treatments.parts import in_percent

PERCENT = 100.0
Parts = tuple[list[StudySection], list[Sheet]]


def boundary_parts(table: DataFrame, records: DataFrame) -> Parts:
    """Tells where answers part, and how many change with noise."""
    rows, noise = boundaries_of(table), susceptibilities_of(records)
    lines = tuple(
        (
            one.dtype,
            f"{one.flips} of {one.pairs}",
            *map(nats, (one.margin_at_flip, one.margin, one.margin_least, one.apart, one.kl_early, one.kl_late)),
            "–" if one.p_welch is None else p_text(one.p_welch),
            *map(nats, (one.pearson, one.spearman, one.partial)),
        )
        for one in rows
    )
    columns = ("dtype", "flips", "margin at flips", "median margin", "least margin", "largest |Δ log p|")
    tests = ("KL, early flips", "KL, late flips", "Welch p", "Pearson", "Spearman", "partial")
    sections = [
        StudySection(
            "boundary",
            "How near answers stand to another token",
            _boundary_text(rows) + "The margin is cache on’s largest logit less its next, in answers that are chosen "
            "greedily. A token can change where the margin is no larger than what the other path moves.",
            tuple(named_styles([task for task, _ in _by_task(noise)]).values()),
            _noise_pictures(noise),
            (Listing("Margins and flips", (*columns, *tests), lines), _noise_listing(noise)),
        )
    ]
    sheets = [Sheet.of("numerics-boundary", "Margins and flips", [vars(one) for one in rows])]
    if noise:
        sheets.append(Sheet.of("numerics-noise", "Answers that noise changes", [vars(one) for one in noise]))
    return sections, sheets


def _boundary_text(rows: Sequence[Boundary]) -> str:
    flips, pairs = sum(one.flips for one in rows), sum(one.pairs for one in rows)
    return f"None of {pairs} pairs of answers parts: nothing can be said of where they do. " if not flips else ""


def _by_task(noise: Sequence[Susceptibility]) -> list[tuple[str, list[Susceptibility]]]:
    return [(task, [one for one in noise if one.task == task]) for task in dict.fromkeys(one.task for one in noise)]


def _noise_listing(noise: Sequence[Susceptibility]) -> Listing:
    rows = tuple((one.task, f"{one.amplitude:g}", in_percent(one.changed)) for one in noise)
    return Listing("Noise of every number of the cache", ("task", "amplitude", "changed, percent"), rows)


def _noise_pictures(noise: Sequence[Susceptibility]) -> tuple[Picture, ...]:
    """Draws the answers that change over the amplitude of noise."""
    if not noise:
        return ()
    tasks = _by_task(noise)
    styles = named_styles([task for task, _ in tasks])
    lines = [
        BandedLine(styles[task], ((0.0, 0.0), *((one.amplitude, one.changed.mean) for one in own)))
        for task, own in tasks
    ]
    axis = Axis.from_values("spread of the noise", [one.amplitude for one in noise])
    drawing = panel(lines, axis, fitted(lines), "Answers that noise of the cache changes", "numerics/noise")
    return (Picture("Noise", "share of answers with other tokens", Markup(drawing)),)


def remedy_parts(table: DataFrame) -> Parts:
    rows = remedies_of(table)
    lines = tuple(
        (
            f"{one.dtype}: {one.remedy}",
            str(one.walks),
            *map(nats, (one.kl, one.kl_remedied)),
            "–" if one.recovered is None else f"{PERCENT * one.recovered:.0f} %",
            f"{one.time:.2f}",
        )
        for one in rows
    )
    columns = ("remedy", "walks", "KL without", "KL with", "recovered", "time over that without")
    section = StudySection(
        "remedies",
        "What brings both paths together",
        "Computing in 16 bits, with one thing otherwise: the cache computed anew after every 8 tokens, attention in "
        "float32, or keys and values computed, kept and read in float32, which doubles the bytes of the cache. The "
        "last two change both paths, and are told by how far these are apart then.",
        listings=(Listing("Remedies", columns, lines),),
    )
    return [section] if rows else [], [Sheet.of("numerics-remedies", "Remedies", [vars(one) for one in rows])]


def policy_parts(table: DataFrame, records: DataFrame) -> Parts:
    rows = moved_of(table, records)
    lines = tuple(
        (
            f"{one.task}, {one.dtype}: {one.policy} at {one.level:g}",
            "–" if one.moved is None else f"{PERCENT * one.moved.mean:.2f}",
            in_percent(one.same_tokens),
            "–" if one.f1 is None else f"{one.f1:.1f}",
            "–" if one.f1_change is None else _points(one.f1_change),
            "–" if one.f1_rank is None else f"{one.f1_rank} and {one.f1_rank_again}",
        )
        for one in rows
    )
    swapped = sum(one.f1_rank != one.f1_rank_again for one in rows)
    columns = ("policy", "moved, percent", "same answer, percent", "F1 in float32", "F1 less that", "rank in both")
    section = StudySection(
        "policies",
        "Does a policy keep other tokens in 16 bits?",
        "Contexts are read, treated and answered once more in 16 bits. Moved is the share of the slots that a policy "
        "keeps in the run’s type and does not keep in this one, over layers and heads. "
        + (
            f"{swapped} of {len(rows)} ranks by F1 are others in 16 bits: differences of that size are rounding’s."
            if swapped
            else "No policy has another rank by F1 in 16 bits."
        ),
        listings=(Listing("Policies in 16 bits", columns, lines),),
    )
    kinds = {"moved": Estimate, "f1_change": Estimate}
    sheet = Sheet.of("numerics-policies", "Policies in 16 bits", [vars(one) for one in rows], kinds=kinds)
    return [section] if rows else [], [sheet] if rows else []


def _points(difference: Estimate) -> str:
    ends = "" if difference.interval is None else " [{:+z.1f} to {:+z.1f}]".format(*difference.interval)
    return f"{difference.mean:+z.1f}{ends}"


DEFINITIONS = (
    Definition(
        "Boundary",
        "How near greedy answers stand to another token, over all tasks: the median margin at flips and at all steps "
        "behind the same tokens, the least of these, and the largest difference of a log-probability there. Early and "
        "late flips are the first and the last third by their step, and Welch’s test compares their KL. Pearson’s and "
        "Spearman’s correlations are of the step of a flip and KL there; the partial one leaves out what both share "
        "with the margin. Flips at which one answer has ended have no margin and are not counted.",
        names=(
            *("flips", "margin at flips", "median margin", "least margin", "KL, early flips", "KL, late flips"),
            *("Welch p", "Pearson", "Spearman", "partial", "margin_at_flip", "margin", "margin_least", "apart"),
            *("kl_early", "kl_late", "p_welch", "pearson", "spearman"),
        ),
    ),
    Definition(
        "Susceptibility to noise",
        "The share of answers with other tokens than the full cache’s once every number of the cache is multiplied by "
        "1 + a normal error of the given spread (the amplitude), over draws.",
        names=("amplitude", "changed, percent", *estimates("changed")),
    ),
    Definition(
        "Remedies in 16 bits",
        "The mean KL of cache on from cache off, both with the remedy, beside that of the same questions without it; "
        "the share that is recovered; and the time of cache on with it over its time without, as measured.",
        "recovered = 1 − KL with / KL without",
        names=(
            *("remedy", "walks", "KL without", "KL with", "time over that without"),
            *("kl_remedied", "time"),
        ),
    ),
    Definition(
        "Policies in another type",
        "Moved is the share of the slots (layer, head, token) kept in the run’s type of numbers that are not kept in "
        "the other; same answer is the share of answers with the same tokens. F1 is of both, with the difference and "
        "its interval over contexts, and ranks are by mean F1 among the policies at the level, in the run’s type and "
        "in the other: where they differ, rounding decides.",
        "moved = |kept in the run’s ∖ kept in the other| / |kept in the run’s|",
        names=(
            *("moved, percent", "same answer, percent", "F1 in float32", "F1 less that", "rank in both"),
            *("f1_rank", "f1_rank_again", *estimates("moved", "same_tokens", "f1_change")),
        ),
    ),
)
