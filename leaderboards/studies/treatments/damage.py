"""Reads from the names of policies which faults they are, and where these hit."""

from collections.abc import Iterable
from dataclasses import dataclass

from policies.faults.options import FaultOptions
from policies.faults.registry import KINDS
from policies.treatments.options import is_one_of, kind_in, options_in, text_of

PLACES = tuple(FaultOptions.model_fields)  # options that every fault has; a kind's own are part of what it is


@dataclass(frozen=True)
class Damage:
    """A fault of the full cache, by its name."""

    policy: str
    kind: str
    options: FaultOptions
    restricted: frozenset[str]  # the options by which it differs from the same fault everywhere

    @property
    def fault(self) -> str:
        """Names the kind with the options of its own alone."""
        fields = type(self.options).model_fields
        options = [
            (name, value) for name, value in self.options if name not in PLACES and value != fields[name].default
        ]
        return (
            f"{self.kind}({','.join(f'{name}={text_of(value)}' for name, value in options)})" if options else self.kind
        )

    def changed(self, rate: float, dtype: str) -> float:
        """Returns the share of the numbers that a rate changes, by which faults of rows and of bits are compared."""
        return self.options.numbers_hit(rate, dtype)

    @property
    def layers(self) -> str:
        return ",".join(self.options.layers)


def damages(policies: Iterable[str]) -> list[Damage]:
    """Returns the faults among some policies, in their order; others are left out, as are compositions."""
    damages = []
    for policy in policies:
        if is_one_of(policy, KINDS):
            kind = KINDS[kind_in(policy)]
            options = options_in(policy, kind)
            defaults = {name: field.default for name, field in type(options).model_fields.items()}
            restricted = frozenset(name for name in PLACES if getattr(options, name) != defaults[name])
            damages.append(Damage(policy, kind.name, options, restricted))
    return damages
