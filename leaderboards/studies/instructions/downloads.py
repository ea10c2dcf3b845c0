"""The tables of a study of instructions as sheets, each number with its interval and how many values it is of."""

from collections.abc import Sequence

from leaderboards.downloads.sheets import Sheet
from leaderboards.statistics.resampling import Estimate
from leaderboards.studies.instructions.amnesia import Leak, attacks_without_defence
from leaderboards.studies.instructions.obedience import PromptRecords, accuracy, leaks, rank_correlations, spans_kept
from leaderboards.studies.instructions.protection import Gain


def study_sheets(prompts: PromptRecords, gains: Sequence[Gain], highest_leaks: Sequence[Leak]) -> tuple[Sheet, ...]:
    """Makes the downloads of all that the page on instructions shows; those without rows are left out."""
    tables = {
        ("directives", "Directives obeyed"): accuracy(prompts),
        ("families", "Directives obeyed, by family"): accuracy(prompts, by=("family",)),
        ("kinds", "Directives obeyed, by kind"): accuracy(prompts, by=("kind",)),
        ("several", "Directives obeyed, alone and among several"): accuracy(prompts, by=("several",)),
        ("leakage", "What attacks get"): leaks(prompts),
        ("kept", "What is kept of defence and directives"): spans_kept(prompts),
        ("exposed", "Attacks on contexts that have lost the defence"): attacks_without_defence(prompts),
    }
    correlations = [
        {"policy": one.policy, "level": one.level, "group": one.group, "rank_correlation": one.estimate}
        for one in rank_correlations(prompts)
    ]
    lists = {
        ("order", "Rank correlations of the families’ order"): correlations,
        ("amnesia", "Where most leaks while directives are obeyed"): [_fields(leak) for leak in highest_leaks],
        ("gain", "Protection gain"): [_gain(gain) for gain in gains],
    }
    rows = {**{key: table.to_dict("records") for key, table in tables.items()}, **lists}
    kinds = {"rank_correlation": Estimate}
    return tuple(
        Sheet.of(f"instructions-{name}", title, entries, kinds=kinds)
        for (name, title), entries in rows.items()
        if entries
    )


def _gain(gain: Gain) -> dict[str, object]:
    return {
        "policy": gain.protected,
        "plain": gain.plain,
        "gain": gain.estimate,
        "levels": ", ".join(map(str, gain.levels)),
        "failed": gain.failed,
        "whole": gain.whole,
    }


def _fields(leak: Leak) -> dict[str, object]:
    """Returns the fields of a leak without the resamples that its interval is of."""
    return {name: value for name, value in vars(leak).items() if name != "values"}
