"""Shows what is obeyed: family by family, with one directive and with several, and in which order they go."""

from collections.abc import Callable
from typing import Any

from markupsafe import Markup
from pandas import DataFrame

from leaderboards.figures.panels import fitted, panel
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.instructions.obedience import PromptRecords, accuracy, rank_correlations
from leaderboards.studies.instructions.parts import (
    cells_of,
    level_listing,
    over_levels,
    path_of,
    percent,
    share_text,
    table_of,
)
from leaderboards.studies.instructions.protection import forms_of
from policies.declaration.names import FULL


def families(prompts: PromptRecords) -> StudySection:
    """Returns a curve for each family under each plain policy."""
    table = accuracy(prompts, by=("family",))
    styles = named_styles(prompts.families)
    pictures = []
    for base in forms_of(prompts.policies):
        paths = [
            path_of(styles[str(family)], cells_of(of_family, "strict"), base, prompts.levels)
            for family, of_family in table.groupby("family", sort=False)
        ]
        axis = over_levels(prompts)
        title = f"Directives obeyed over the {axis.title} under {base}, a line for each family"
        drawing = panel(paths, axis, fitted(paths), title, f"family/{base}")
        pictures.append(Picture(base, "share of the directives of a family obeyed", Markup(drawing)))
    details = _accuracies("All directives", accuracy(prompts), prompts)
    for several, of_count in accuracy(prompts, by=("several",)).groupby("several", sort=False):
        details += _accuracies("Prompts with several" if several else "Prompts with one directive", of_count, prompts)
    for family, of_family in table.groupby("family", sort=False):
        details += _accuracies(f"Family {family}", of_family, prompts)
    return StudySection(
        "families",
        "Which directives go first",
        "The directives of all contexts by family; bands are 95 % intervals.",
        tuple(styles.values()),
        tuple(pictures),
        details=(*details, *_kinds(prompts)),
    )


def _accuracies(title: str, table: DataFrame, prompts: PromptRecords) -> list[Listing]:
    """Lists the accuracy of one group of directives: strict, loose, and strict as a share of the full cache's."""
    relative = {
        (str(row["policy"]), row["level"]): percent(row["relative"])
        for _, row in table.iterrows()
        if row["policy"] != FULL
    }
    others = [policy for policy in prompts.policies if policy != FULL]
    return [
        table_of(f"{title}: obeyed, strict, percent", prompts, cells_of(table, "strict"), prompts.policies),
        table_of(f"{title}: obeyed, loose, percent", prompts, cells_of(table, "loose"), prompts.policies),
        level_listing(f"{title}: strict, percent of the full cache", prompts, relative, others),
    ]


def _kinds(prompts: PromptRecords) -> list[Listing]:
    """Lists each kind of directive under the plain policies: strict, loose, and relative to the full cache."""
    table = accuracy(prompts, by=("kind",))
    rows = {(row["policy"], row["kind"], row["level"]): row for _, row in table.iterrows()}
    named = [(base, kind) for base in forms_of(prompts.policies) for kind in dict.fromkeys(table["kind"])]
    ways: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
        ("strict, percent", "strict", share_text),
        ("loose, percent", "loose", share_text),
        ("strict, percent of the full cache", "relative", percent),
    )
    return [
        Listing(
            f"Each directive: {title}",
            ("policy, directive", *map(str, prompts.levels)),
            tuple(
                (
                    f"{base}, {kind}",
                    *(
                        write(rows[base, kind, level][name]) if (base, kind, level) in rows else "–"
                        for level in prompts.levels
                    ),
                )
                for base, kind in named
            ),
        )
        for title, name, write in ways
    ]


def order(prompts: PromptRecords) -> StudySection:
    """Shows whether the same families stay the easy ones."""
    correlations = rank_correlations(prompts)
    others = [policy for policy in prompts.policies if policy != FULL]
    titles = {"all": "All prompts", "single": "Prompts with one directive", "several": "Prompts with several"}
    listings = []
    for group, title in titles.items():
        texts = {(one.policy, one.level): _correlation(one.estimate) for one in correlations if one.group == group}
        listings.append(level_listing(title, prompts, texts, others))
    return StudySection(
        "order",
        "Do the easy directives stay the easy ones?",
        "Spearman’s rank correlation of the families’ order by accuracy with their order under the full cache, with"
        " 95 % intervals. A dash: one of the two orders does not exist, as all families are obeyed alike. Without an"
        " interval: too few draws have a directive of every family.",
        listings=tuple(listings[:1]),
        details=tuple(listings[1:]),
    )


def _correlation(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    band = f" [{estimate.low:z.2f} to {estimate.high:z.2f}]" if estimate.low is not None else ""
    return f"{estimate.mean:z.2f}{band}"
