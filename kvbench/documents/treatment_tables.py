"""The tables of faults, quantisations and ways to deploy a policy, from their registries."""

from collections.abc import Iterable

from pydantic import BaseModel

from kvbench.system.markdown import table
from policies.faults.options import FaultOptions
from policies.faults.registry import KINDS as FAULTS
from policies.quantisation.options import QuantisationOptions
from policies.quantisation.registry import KINDS as QUANTISATIONS
from policies.treatments.deployed import DEPLOYMENTS
from policies.treatments.options import text_of


def faults() -> str:
    """Returns every kind of fault with the options and rates that are its own."""
    header = ("fault", "paper", "what a damaged row is", "options of its own", "default rates")
    rows = (
        (f"`{kind.name}`", kind.paper, kind.description, _options(kind.options, FaultOptions), kind.default_rates)
        for kind in FAULTS.values()
    )
    return table(header, rows)


def quantisations() -> str:
    """Returns every kind of quantisation with its options."""
    rows = (
        (f"`{kind.name}`", kind.paper, kind.description, _options(kind.options, QuantisationOptions))
        for kind in QUANTISATIONS.values()
    )
    return table(("quantisation", "paper", "how numbers are stored", "options"), rows)


def deployments() -> str:
    """Returns every way to deploy a policy, as it is written behind the name of one."""
    rows = (
        (f"`+{way.name}`", way.paper, way.description, _options(way.options, BaseModel)) for way in DEPLOYMENTS.values()
    )
    return table(("way", "paper", "what is kept", "options"), rows)


def options_of_faults() -> str:
    """Returns the options that every fault has, with their defaults."""
    return table(("option", "default"), _pairs(FaultOptions, BaseModel))


def _options(declared: type[BaseModel], common: type[BaseModel]) -> str:
    return ", ".join(f"{name}={default}" for name, default in _pairs(declared, common)) or "-"


def _pairs(declared: type[BaseModel], common: type[BaseModel]) -> Iterable[tuple[str, str]]:
    """Returns names and defaults of the options that are not the same among the common ones."""
    shared = common.model_fields
    for name, field in declared.model_fields.items():
        if name not in shared or shared[name].default != field.default:
            yield (
                f"`{name}`" if common is BaseModel else name,
                "none" if field.default is None else text_of(field.default),
            )
