"""Finds the treatments of what the full cache holds among policies, and parts them by when they
act."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leaderboards.studies.treatments.tasks import MeasuredTask
from policies.faults.options import FaultOptions
from policies.faults.registry import FAULT_KINDS as FAULTS
from policies.quantisation.quantisation import QuantisationOptions
from policies.quantisation.registry import QUANTISATION_KINDS as FORMATS
from policies.treatments.options import TreatmentKind, has_kind, kind_in, name_with, options_in

WHOLE = ("all",)  # layers


@dataclass(frozen=True)
class Damage:
    """A treatment of what the full cache holds: a fault, an error of every number, or fewer
    bits."""

    policy: str
    options: FaultOptions | QuantisationOptions

    def changed(self, rate: float, dtype: str) -> float:
        """Returns the share of the numbers that a rate changes, by which faults of rows and of bits
        are compared."""
        if isinstance(self.options, FaultOptions):
            return self.options.numbers_hit(rate, dtype)
        return 1.0

    @property
    def phase(self) -> str:
        """Returns when a fault acts; empty for fewer bits, which is how a cache is stored."""
        if isinstance(self.options, FaultOptions):
            return self.options.phase
        return ""

    @property
    def band(self) -> str:
        """Returns the layers that a fault hits alone, such as Q1; empty where it hits all, or is no
        fault."""
        if not isinstance(self.options, FaultOptions) or self.options.layers == WHOLE:
            return ""
        return ",".join(self.options.layers)

    @property
    def in_all_layers(self) -> str:
        """Returns the name of the same fault in all layers."""
        if not self.band:
            return self.policy
        options = self.options.model_copy(update={"layers": WHOLE})
        return name_with(FAULTS[kind_in(self.policy)], options)


@dataclass(frozen=True)
class DamageGroup:
    """Treatments that act at the same time, which share a section of the page."""

    identifier: str  # is added to those of its sections
    title: str
    text: str  # says what happens to the cache
    members: Sequence[Damage]


FRESH_TITLE = "Replaced while answers are written, anew before every pass"
FRESH_TEXT = (
    "Before every pass of the model, other entries are drawn and replaced; the pass reads them, "
    "and then they hold again what they held. This is the form of text F. "
)
KEPT_TITLE = "How much is kept"  # of treatments of several phases, or stored in fewer bits
ONCE_TITLE = "Damaged once, after the context is read"
ONCE_TEXT = "Entries are damaged before the question is read, and stay so for the whole answer. "


def damages(policies: Iterable[str]) -> list[Damage]:
    """Returns the treatments of the full cache among some policies; others are left out, as are
    compositions."""
    kinds: dict[str, TreatmentKind[FaultOptions | QuantisationOptions]] = {**FAULTS, **FORMATS}
    members = []
    for policy in policies:
        if has_kind(policy, kinds):
            options = options_in(policy, kinds[kind_in(policy)])
            members.append(Damage(policy, options))
    return members


def group_damages(members: Sequence[Damage]) -> list[DamageGroup]:
    """Parts what is replaced anew before every pass from the rest, which is damaged once or stored
    otherwise."""
    fresh, others = [], []
    phases = set()  # of the others
    for member in members:
        if _is_fresh(member):
            fresh.append(member)
        else:
            others.append(member)
            phases.add(member.phase)
    groups = []
    if fresh:
        groups.append(DamageGroup("-fresh", FRESH_TITLE, FRESH_TEXT, fresh))
    if others:
        if phases == {"resident"}:
            words = (ONCE_TITLE, ONCE_TEXT)
        else:
            words = (KEPT_TITLE, "")
        groups.append(DamageGroup("", *words, others))
    return groups


def _is_fresh(member: Damage) -> bool:
    if not isinstance(member.options, FaultOptions):
        return False
    return member.phase == "every_step" and member.options.persistence == "transient"


def compared_faults(task: MeasuredTask, members: Sequence[Damage]) -> list[Damage]:
    """Returns the faults that were run at the rates of the most, two or more: the least harmful
    first, where the model can do the task."""
    usual = max((task.evidence.levels(member.policy) for member in members), key=len, default=())
    if len([level for level in usual if level.amount]) < 2:
        return []
    compared = [member for member in members if task.evidence.levels(member.policy) == usual]
    if task.withheld:
        return compared
    kept = {}
    for member in compared:
        estimate = task.kept(member.policy, usual[-1])
        kept[member.policy] = 0.0 if estimate is None else estimate.mean
    return sorted(compared, key=lambda member: -kept[member.policy])
