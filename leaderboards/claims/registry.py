"""The registry of claims: whatever lies in ``leaderboards/claims/<text>/`` and holds ``CLAIM`` is found."""

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
    paths = sorted(path for path in Path(__file__).parent.glob("*/*.py") if path.name != "__init__.py")
    modules = [import_module(f"leaderboards.claims.{path.parent.name}.{path.stem}") for path in paths]
    declared: dict[str, Claim] = {}
    for claim in (module.CLAIM for module in modules if hasattr(module, "CLAIM")):
        if claim.identifier in declared:
            raise LeaderboardError(f"there are two claims {claim.identifier}")
        declared[claim.identifier] = claim
    return dict(sorted(declared.items(), key=lambda item: (item[0][0], int(item[0][1:]))))


def chosen_claims(only: str | None) -> list[Claim]:
    """Returns the claims that ``F,E2`` names."""
    return [claims()[identifier] for identifier in chosen_identifiers(only)]
