"""Finds the scorers of installed packages: what they bring under ``kvbench.metrics``."""

from functools import cache
from importlib.metadata import entry_points

from datasets_gen import Scorer
from kvbench.system.errors import KVBenchError
from policies.declaration.plug_in import foreign_code

GROUP = "kvbench.metrics"


@cache
def installed_scorers() -> tuple[Scorer, ...]:
    """Returns the scorers of installed packages. Raises :class:`KVBenchError` for an entry point
    that is none."""
    scorers = []
    for entry in entry_points(group=GROUP):
        with foreign_code(f"the scorer {entry.name} ({entry.value}) cannot be imported"):
            scorer = entry.load()
        if not isinstance(scorer, Scorer):
            raise KVBenchError(
                f"the entry point {entry.name} of {GROUP} is a {type(scorer).__name__}: name what "
                "kvbench.scorer makes"
            )
        scorers.append(scorer)
    return tuple(scorers)
