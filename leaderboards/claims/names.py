"""The names of claims, read from the text of the modules: a mistyped one is refused before pandas is imported."""

import re
from functools import cache
from pathlib import Path

from datasets_gen import unknown_name
from leaderboards.errors import LeaderboardError

DECLARED = re.compile(r'\bidentifier="([A-Z])(\d+)"')


@cache
def identifiers() -> tuple[str, ...]:
    """Lists the claims in the order of texts and numbers, such as ``E1``."""
    sources = (path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("texts/*.py"))
    found = sorted((letter, int(number)) for source in sources for letter, number in DECLARED.findall(source))
    return tuple(f"{letter}{number}" for letter, number in found)


def chosen_identifiers(only: str | None) -> list[str]:
    """Returns the claims that ``F,E2`` names: of a text by its letter, or one by its identifier; all for None. Raises
    :class:`LeaderboardError` for a name that is neither."""
    known = identifiers()
    if only is None:
        return list(known)
    letters = dict.fromkeys(identifier[0] for identifier in known)
    names = [name.strip() for name in only.split(",") if name.strip()]
    for name in names:
        if name not in known and name not in letters:
            raise LeaderboardError(unknown_name("claim", name, [*known, *letters]))
    if not names:
        raise LeaderboardError("no claim given: name texts or claims, such as F,E2")
    return [identifier for identifier in known if identifier in names or identifier[0] in names]
