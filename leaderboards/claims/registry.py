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
    """Returns all claims by identifier, in order; one taken twice raises
    :class:`LeaderboardError`."""
    paths = Path(__file__).parent.glob("texts/*.py")
    modules = [import_module(f"leaderboards.claims.texts.{path.stem}") for path in paths]
    declared = [claim for module in modules for claim in getattr(module, "CLAIMS", ())]
    ordered = sorted(declared, key=lambda claim: (claim.identifier[0], int(claim.identifier[1:])))
    known = {claim.identifier: claim for claim in ordered}
    if len(known) < len(ordered):
        raise LeaderboardError(
            f"two claims have one name among {', '.join(claim.identifier for claim in ordered)}"
        )
    return known


def chosen_claims(only: str | None) -> list[Claim]:
    """Returns the claims that ``F,E2`` names: of a text by its letter, or one by its identifier;
    all for None. Raises :class:`LeaderboardError` for a name that is neither."""
    known = claims()
    letters = dict.fromkeys(identifier[0] for identifier in known)
    names = (
        [*letters] if only is None else [name.strip() for name in only.split(",") if name.strip()]
    )
    for name in names:
        if name not in known and name not in letters:
            raise LeaderboardError(unknown_name("claim", name, [*known, *letters]))
    if not names:
        raise LeaderboardError("no claim given: name texts or claims, such as F,E2")
    return [
        claim
        for identifier, claim in known.items()
        if identifier in names or identifier[0] in names
    ]
