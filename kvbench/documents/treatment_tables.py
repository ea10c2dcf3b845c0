"""The tables of faults, quantisations and ways to deploy a policy, from their registries."""

from collections.abc import Iterable

from pydantic import BaseModel

from kvbench.system.markdown import items, table
from policies.faults.options import FaultOptions
from policies.faults.registry import KINDS as FAULTS
from policies.quantisation.options import QuantisationOptions
from policies.quantisation.registry import KINDS as QUANTISATIONS
from policies.treatments.deployed import DEPLOYMENTS
from policies.treatments.options import text_of

NO_OPTIONS = "-"


def faults() -> str:
    """Returns what a damaged row is under every kind of fault, with the options that are its own."""
    return items(
        (_named(kind.name, _options(kind.options, FaultOptions)), kind.description) for kind in FAULTS.values()
    )


def _named(name: str, options: str) -> str:
    return f"`{name}`" if options == NO_OPTIONS else f"`{name}` ({options})"


def quantisations() -> str:
    """Returns every kind of quantisation with its options and their defaults; kinds with equal ones share a line."""
    names: dict[str, list[str]] = {}
    for kind in QUANTISATIONS.values():
        names.setdefault(_options(kind.options, QuantisationOptions), []).append(f"`{kind.name}`")
    return items((", ".join(kinds), options) for options, kinds in names.items())


def deployments() -> str:
    """Returns every way to deploy a policy, as it is written behind the name of one."""
    rows = (
        (f"`+{way.name}`", way.description, _options(way.options, BaseModel), way.paper) for way in DEPLOYMENTS.values()
    )
    return table(("way", "what is kept", "options", "paper"), rows)


def options_of_faults() -> str:
    """Returns the options that every fault has, with their defaults."""
    return ", ".join(f"{name} {default}" for name, default in _pairs(FaultOptions, BaseModel)) + "."


def _options(declared: type[BaseModel], common: type[BaseModel]) -> str:
    return ", ".join(f"{name}={default}" for name, default in _pairs(declared, common)) or NO_OPTIONS


def _pairs(declared: type[BaseModel], common: type[BaseModel]) -> Iterable[tuple[str, str]]:
    """Returns names and defaults of the options that are not the same among the common ones."""
    shared = common.model_fields
    for name, field in declared.model_fields.items():
        if name not in shared or shared[name].default != field.default:
            yield (
                f"`{name}`" if common is BaseModel else name,
                "none" if field.default is None else text_of(field.default),
            )
