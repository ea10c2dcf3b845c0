"""The registry of claims: whatever lies in ``leaderboards/claims/<text>/`` and holds ``CLAIM`` is found."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from datasets_gen import unknown_name
from leaderboards.claims.declaration import Claim
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
    """Returns the claims that ``F,E2`` names: of a text by its letter, or one by its identifier; all for None."""
    known = claims()
    if only is None:
        return list(known.values())
    letters = {claim.text.letter for claim in known.values()}
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in known and name not in letters:
            raise LeaderboardError(unknown_name("claim", name, {**known, **dict.fromkeys(letters)}))
    if not names:
        raise LeaderboardError("no claim given: name texts or claims, such as F,E2")
    return [claim for claim in known.values() if claim.identifier in names or claim.text.letter in names]
