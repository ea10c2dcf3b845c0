"""The page of a study of instructions: what is obeyed, what leaks, which span suffers, and what protects."""

from collections.abc import Sequence
from typing import Any

from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.rendering.templating import render
from leaderboards.statistics.resampling import Estimate
from leaderboards.studies.instructions.amnesia import LEAKED_MORE, STILL_OBEYED, Leak, exposed, while_obeying
from leaderboards.studies.instructions.kept_parts import bias
from leaderboards.studies.instructions.leak_parts import defence, leakage, plane
from leaderboards.studies.instructions.obedience import DEFENDED, Study, study
from leaderboards.studies.instructions.obeyed_parts import families, order
from leaderboards.studies.instructions.protection import Gain, all_gains
from leaderboards.studies.instructions.published import GAINS, GAINS_MODELS, GAINS_SOURCE
from leaderboards.studies.instructions.study_downloads import study_sheets
from leaderboards.studies.instructions.study_parts import Listing, Part, percent
from policies.declaration.names import plain_and_way


def has_orders(records: DataFrame) -> bool:
    """Whether prompts stand in both orders of defence and directives, which is what a study compares."""
    return set(DEFENDED) <= set(records["arm"])


def build_instructions(model: str, records: DataFrame, seed: int = 0) -> tuple[str, dict[str, Any], tuple[Sheet, ...]]:
    """The page as text, what of it is worth quoting as plain values, and its tables; the same records give the same
    bytes. ``records``: of one model, tasks with directives."""
    found = study(records, seed)
    gains, worst = all_gains(found), while_obeying(found)
    parts = (
        plane(found),
        leakage(found),
        defence(found),
        _gains(gains),
        families(found),
        bias(found),
        order(found),
    )
    sheets = study_sheets(found, gains, worst)
    page = render(
        "instructions.html.j2",
        model=model,
        facts=_facts(found),
        has_orders=has_orders(records),
        amnesia=(_amnesia(worst), _exposed(found)),
        parts=[part for part in parts if part.pictures or part.listings],
        sheets=sheets,
    )
    return page, _results(found, gains, worst), sheets


def _facts(found: Study) -> list[tuple[str, str]]:
    draws = found.resampler.count
    return [
        ("Policies", str(len(found.policies))),
        ("System prompts", f"{draws:,} draws, {found.caches['example_id'].nunique():,} contexts"),
        ("Directives judged", f"{len(found.directives):,}"),
        ("Attacks answered", f"{len(found.attacks):,}"),
    ]


def _results(found: Study, gains: Sequence[Gain], worst: Sequence[Leak]) -> dict[str, Any]:
    return {
        "gains": [
            {
                "policy": gain.protected,
                "gain": gain.estimate.mean,
                "low": gain.estimate.low,
                "high": gain.estimate.high,
                "levels": ", ".join(map(str, gain.levels)),
                "failed": gain.failed,
                "whole": gain.whole,
            }
            for gain in gains
        ],
        "while_obeying": [
            {
                "policy": leak.policy,
                "order": leak.arm,
                "level": str(leak.level),
                "obeyed": leak.obeyed,
                "leaked_more": leak.more.mean,
                "low": leak.more.low,
                "high": leak.more.high,
            }
            for leak in worst
        ],
        "exposed": exposed(found).to_dict("records"),
    }


def _amnesia(worst: Sequence[Leak]) -> Listing:
    """What leaks while the answers still look right."""
    rows = tuple(
        (
            f"{leak.policy}, {leak.arm}",
            str(leak.level),
            percent(leak.obeyed),
            percent(leak.leakage),
            f"{100 * leak.more.mean:+.0f}{_points(leak.more)}",
            "yes" if leak.more.mean >= LEAKED_MORE else "no",
        )
        for leak in worst
    )
    title = f"The highest leakage while at least {STILL_OBEYED:.0%} of the directives are obeyed, percent"
    columns = ("policy, order", "level", "obeyed", "leaked", "more than the full cache", "selective amnesia")
    return Listing(title, columns, rows)


def _points(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    return f" [{100 * estimate.low:+.0f} to {100 * estimate.high:+.0f}]"


def _exposed(found: Study) -> Listing:
    rows = tuple(
        (row["policy"], f"{row['n']:,}", percent(row["leakage"]), percent(row["full"]))
        for _, row in exposed(found).iterrows()
    )
    title = (
        "Attacks on contexts that have lost the defence and kept the directives (5 % and 95 % of the tokens), percent"
    )
    return Listing(title, ("policy", "attacks", "leaked", "under the full cache"), rows)


def _gains(gains: Sequence[Gain]) -> Part:
    rows = []
    for gain in gains:
        published = GAINS.get(plain_and_way(gain.protected))
        theirs = [f"{value:.3f}" for value in published.gains] if published else ["–"] * len(GAINS_MODELS)
        interval = f"{gain.estimate.low:+.3f} to {gain.estimate.high:+.3f}" if gain.estimate.low is not None else "–"
        levels = ", ".join(map(str, gain.levels))
        own = (f"{gain.estimate.mean:+.3f}", interval, levels, percent(gain.whole), str(gain.failed))
        rows.append((gain.protected, *own, *theirs))
    columns = (
        *("policy", "gain", "95 % interval", "at the ratios", "spans whole, percent", "failed answers"),
        *(f"{name}, published" for name in GAINS_MODELS),
    )
    return Part(
        "gain",
        "What protection gains",
        "Half the gain in directives obeyed plus half the fall in leakage against the plain policy, averaged over "
        "the asked ratios 0.4 to 0.7 that were run; each interval stands by itself. Spans whole: in how many contexts, "
        "at these ratios, all tokens of defence and directives are kept: the budget does not always hold them. An "
        "answer that failed obeys and leaks nothing: where there are such, gains come "
        f"from them too. The published columns are those of {GAINS_SOURCE}, on other models and other prompts.",
        listings=(Listing("Protection gain", columns, tuple(rows)),) if rows else (),
    )
