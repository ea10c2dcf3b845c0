"""What one check of a submission came to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "wrong", "note"]
SHOWN = 3


@dataclass(frozen=True)
class Finding:
    """``note``: what could not be checked, or is to be known, and is no fault."""

    check: str
    outcome: Outcome
    text: str


def judged(check: str, sound: str, faults: Sequence[str]) -> Finding:
    """Sound, or wrong with the first of the faults and how many there are."""
    if not faults:
        return Finding(check, "ok", sound)
    more = f"; and {len(faults) - SHOWN:,} more" if len(faults) > SHOWN else ""
    return Finding(check, "wrong", "; ".join(faults[:SHOWN]) + more)


def note(check: str, text: str) -> Finding:
    return Finding(check, "note", text)
