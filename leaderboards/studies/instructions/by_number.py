"""Shows whether prompts with several directives lose more of them than prompts with one."""

from collections.abc import Sequence
from dataclasses import dataclass

from pandas import DataFrame

from leaderboards.rendering.style import named_styles
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.instructions.prompts import PromptRecords, forms_by_policy
from leaderboards.studies.parts import in_percent, level_table, over_levels
from policies.declaration.levels import UNTREATED, Level
from policies.declaration.names import FULL

GROUPS = ("1", "2", "3+")  # directives of a prompt


@dataclass(frozen=True)
class KeptOfNumber:
    """Says what prompts with so many directives keep of what the full cache obeys."""

    policy: str
    level: Level
    directives: str  # how many
    strict: Estimate | None  # the share obeyed
    relative: Estimate | None  # over that of the full cache, which has none where that is 0


def relative_obedience(
    prompts: PromptRecords, treated: DataFrame, whole: DataFrame
) -> FloatArray | None:
    """Divides the share of directives obeyed in some rows by that of the full cache's rows, as
    measured and in each resample: shape (1 + resamples,). None where there are no rows, or the full
    cache obeys nothing."""
    if treated.empty or whole.empty or not whole["strict"].any():
        return None
    kept: FloatArray = prompts.means(treated, "strict") / prompts.means(whole, "strict")
    return kept


def kept_by_number(prompts: PromptRecords) -> list[KeptOfNumber]:
    """Computes it by policy, level and number of directives."""
    cell = ["policy", "level"]
    results = []
    # The place of each prompt among the groups, of which the last holds all larger numbers too.
    groups = prompts.directives["number"].clip(upper=len(GROUPS)) - 1
    for place, number in enumerate(GROUPS):
        table = prompts.directives[groups == place]
        # Of prompts with the same number, so that what many directives cost by themselves goes out
        # of the ratio.
        whole = table[table["policy"] == FULL]
        for (policy, level), of_level in table.groupby(cell, sort=False, observed=True):
            strict = prompts.estimate(of_level, "strict")
            relative = None
            kept = relative_obedience(prompts, of_level, whole)
            if kept is not None:
                relative = prompts.resampler.make_estimate(kept, len(of_level))
            results.append(KeptOfNumber(str(policy), level, number, strict, relative))
    return results


def numbers_section(prompts: PromptRecords, results: Sequence[KeptOfNumber]) -> StudySection:
    """Draws a line for each number of directives under each plain policy."""
    with_value = {result.directives for result in results if result.relative is not None}
    titles = {}
    for number in GROUPS:
        if number in with_value:
            titles[number] = "1 directive" if number == "1" else f"{number} directives"
    styles = named_styles(list(titles.values()))
    pictures: list[Picture] = []
    for base in forms_by_policy(prompts.policies):
        cells: dict[tuple[str, Level], Estimate] = {}
        for result in results:
            if result.policy == base and result.relative is not None:
                cells[titles[result.directives], result.level] = result.relative
        if cells:
            # Of itself the full cache has all, for certain.
            whole = {(FULL, UNTREATED): Estimate(1.0, 1.0, 1.0, 0)}
            note = "obeyed, of what the full cache obeys"
            pictures += over_levels(whole | cells, styles, base, note, f"numbers/{base}")
    tables = []
    for number, title in titles.items():
        texts = {}
        for result in results:
            if result.directives == number:
                texts[result.policy, result.level] = in_percent(result.relative)
        tables.append(level_table(f"{title}: obeyed, percent of what the full cache obeys", texts))
    return StudySection(
        "numbers",
        "One directive against several",
        "What is obeyed of the directives of a prompt, over what the full cache obeys of the "
        "same, by how many directives the prompt has; bands are 95 % intervals over contexts.",
        tuple(styles.values()),
        tuple(pictures),
        details=tuple(tables),
    )
