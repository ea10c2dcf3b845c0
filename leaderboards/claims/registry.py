"""The registry of claims: what the modules of ``leaderboards/claims/texts`` list in ``CLAIMS``."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from datasets_gen import unknown_name
from leaderboards.claims.declaration import Claim
from leaderboards.errors import LeaderboardError


@cache
def claims() -> Mapping[str, Claim]:
    """Returns all claims by identifier, in order.

    Raises :class:`LeaderboardError` for an identifier that two claims have."""
    declared: list[Claim] = []
    # In any order, which differs from system to system: the claims are sorted below.
    for path in Path(__file__).parent.glob("texts/*.py"):
        module = import_module(f"leaderboards.claims.texts.{path.stem}")
        declared += getattr(module, "CLAIMS", ())
    declared.sort(key=_letter_and_number)
    by_identifier = {claim.identifier: claim for claim in declared}
    if len(by_identifier) < len(declared):
        names = ", ".join(claim.identifier for claim in declared)
        raise LeaderboardError(f"two claims have one name among {names}")
    return by_identifier


def _letter_and_number(claim: Claim) -> tuple[str, int]:
    # By number, so that R10 would come behind R9 and not behind R1.
    return claim.identifier[0], int(claim.identifier[1:])


def chosen_claims(only: str | None) -> list[Claim]:
    """Returns the claims that ``F,E2`` names: of a text by its letter, or one by its identifier;
    all for None.

    Raises :class:`LeaderboardError` for a name that is neither, and where there is no name."""
    by_identifier = claims()
    letters = dict.fromkeys(identifier[0] for identifier in by_identifier)
    names = list(letters)
    if only is not None:
        stripped = [name.strip() for name in only.split(",")]
        names = [name for name in stripped if name]
    for name in names:
        if name not in by_identifier and name not in letters:
            raise LeaderboardError(unknown_name("claim", name, [*by_identifier, *letters]))
    if not names:
        raise LeaderboardError("no claim given: name texts or claims, such as F,E2")
    chosen = []
    for identifier, claim in by_identifier.items():
        if identifier in names or identifier[0] in names:
            chosen.append(claim)
    return chosen
