"""Finds the policies of a run on this machine: those of kvbench, and plug-ins whose code a reviewer
trusts.

Code that came with a run is never run unasked. It is named by a file, ``mine.py``, by a file and
what stands in it, ``mine.py:Press``, or by an installed module."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kvbench.experiments.catalogue import find_policy
from kvbench.store.run_file import Identity
from kvbench.system.errors import KVBenchError
from policies import Policy
from policies.composition import built_in
from policies.declaration.names import plain_and_way
from policies.declaration.plug_in import is_plug_in, module_of_plug_in

OPTION = "--trust-code"


def policies_here(identity: Identity, trusted: Sequence[str]) -> Mapping[str, Policy]:
    """Returns the policies of a run that can be run here, by name. It imports the code that is
    trusted, and raises :class:`KVBenchError` for a place that holds no policy of the run."""
    names = [planned.name for planned in identity.policies]
    policies: dict[str, Policy] = {}
    for name in names:
        policy = built_in(name)
        if policy is not None:
            policies[name] = policy
    for place in trusted:
        missing = [name for name in names if name not in policies]
        policies |= _policies_at(place, missing)
    return policies


def _policies_at(place: str, names: Sequence[str]) -> dict[str, Policy]:
    """Loads what a place holds of some policies."""
    if not names:
        raise KVBenchError(
            f"{OPTION} {place}: the run has no press from outside: leave the option out"
        )
    file = Path(place)
    if ".py:" in place:
        file = Path(place.partition(".py:")[0] + ".py")
    if file.suffix == ".py":
        # What the press imports lies beside it, as where it was run.
        sys.path.insert(0, str(file.resolve().parent))
    policies: dict[str, Policy] = {}
    reasons: list[str] = []
    for name in names:
        for specification in _specifications(place, name):
            try:
                policy = find_policy(specification)
            except KVBenchError as error:
                reasons.append(str(error))
            else:
                policies[name] = policy
                break
    if not policies:
        raise KVBenchError(f"{OPTION} {place} is no code of {', '.join(names)}: {reasons[0]}")
    return policies


def _specifications(place: str, name: str) -> Iterator[str]:
    """Yields what may name a policy of the run in a place, such as ``mine.py:Press+int4`` for
    ``Press+int4``."""
    plain, ways = name, ""
    while plain_and_way(plain)[0] != plain:
        plain, way = plain_and_way(plain)
        ways = f"+{way}{ways}"
    if f"{module_of_plug_in(plain)}.".startswith(f"{place}."):
        yield name
    if is_plug_in(place) and not place.endswith(".py"):
        # It names what stands in the file: a policy there may have another name than the object.
        if find_policy(place).name == plain:
            yield f"{place}{ways}"
    else:
        yield f"{place}:{name}"
