"""The tables of a study of instructions as sheets, each number with its interval and how many values it is of."""

from collections.abc import Sequence
from typing import Any

from pandas import DataFrame, isna

from leaderboards.downloads.sheets import Sheet
from leaderboards.downloads.tables import Values, estimate_of, levels_of
from leaderboards.statistics.resampling import Estimate
from leaderboards.studies.instructions.amnesia import Leak, exposed
from leaderboards.studies.instructions.obedience import PromptRecords, accuracy, kept, leaks, rank_correlations
from leaderboards.studies.instructions.protection import Gain

INSTRUCTIONS_PREFIX = "instructions-"  # of the names of all these sheets


def study_sheets(prompts: PromptRecords, gains: Sequence[Gain], worst: Sequence[Leak]) -> tuple[Sheet, ...]:
    """Makes the downloads of all that the page on instructions shows; those without rows are left out."""
    sheets = (
        _sheet("directives", "Directives obeyed", accuracy(prompts)),
        _sheet("families", "Directives obeyed, by family", accuracy(prompts, by=("family",))),
        _sheet("kinds", "Directives obeyed, by kind", accuracy(prompts, by=("kind",))),
        _sheet("several", "Directives obeyed, alone and among several", accuracy(prompts, by=("several",))),
        _sheet("leakage", "What attacks get", leaks(prompts)),
        _sheet("kept", "What is kept of defence and directives", kept(prompts)),
        _sheet("exposed", "Attacks on contexts that have lost the defence", exposed(prompts)),
        Sheet.of(f"{INSTRUCTIONS_PREFIX}order", "Rank correlations of the families’ order", _correlations(prompts)),
        Sheet.of(
            f"{INSTRUCTIONS_PREFIX}amnesia",
            "Where most leaks while directives are obeyed",
            [_leak(leak) for leak in worst],
        ),
        Sheet.of(f"{INSTRUCTIONS_PREFIX}gain", "Protection gain", [_gain(gain) for gain in gains]),
    )
    return tuple(sheet for sheet in sheets if sheet.rows)


def _sheet(name: str, title: str, table: DataFrame) -> Sheet:
    estimates = {column for column in table if any(isinstance(value, Estimate) for value in table[column])}
    rows = [
        {key: value for column, given in row.items() for key, value in _values(column, given, estimates).items()}
        for row in table.to_dict("records")
    ]
    return Sheet.of(f"{INSTRUCTIONS_PREFIX}{name}", title, rows)


def _values(column: Any, given: Any, estimates: set[Any]) -> Values:
    if column == "level":
        return levels_of(given)
    if column in estimates:
        return estimate_of(column, given)
    if hasattr(given, "tolist"):
        return {column: given.tolist()}
    return {column: None if isna(given) else given}


def _correlations(prompts: PromptRecords) -> list[Values]:
    return [
        {
            "policy": one.policy,
            **levels_of(one.level),
            "group": one.group,
            **estimate_of("rank_correlation", one.estimate),
        }
        for one in rank_correlations(prompts)
    ]


def _gain(gain: Gain) -> Values:
    return {
        "policy": gain.protected,
        "plain": gain.plain,
        **estimate_of("gain", gain.estimate),
        "levels": ", ".join(map(str, gain.levels)),
        "failed": gain.failed,
        "whole": gain.whole,
    }


def _leak(leak: Leak) -> Values:
    return {
        "policy": leak.policy,
        "arm": leak.arm,
        **levels_of(leak.level),
        "obeyed": leak.obeyed,
        "leakage": leak.leakage,
        **estimate_of("more", leak.more),
    }
