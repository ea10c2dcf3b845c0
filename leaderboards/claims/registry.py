"""The registry of claims: what the modules of ``leaderboards/claims/texts`` list in ``CLAIMS``."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from leaderboards.claims.declaration import Claim
from leaderboards.claims.names import chosen_identifiers
from leaderboards.errors import LeaderboardError


@cache
def claims() -> Mapping[str, Claim]:
    """Returns all claims by identifier, in the order of texts and numbers; one taken twice raises
    :class:`LeaderboardError`."""
    modules = [
        import_module(f"leaderboards.claims.texts.{path.stem}") for path in Path(__file__).parent.glob("texts/*.py")
    ]
    declared: dict[str, Claim] = {}
    for claim in (claim for module in modules for claim in getattr(module, "CLAIMS", ())):
        if claim.identifier in declared:
            raise LeaderboardError(f"there are two claims {claim.identifier}")
        declared[claim.identifier] = claim
    return dict(sorted(declared.items(), key=lambda item: (item[0][0], int(item[0][1:]))))


def chosen_claims(only: str | None) -> list[Claim]:
    """Returns the claims that ``F,E2`` names."""
    return [claims()[identifier] for identifier in chosen_identifiers(only)]
