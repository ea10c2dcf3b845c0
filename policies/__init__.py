"""Eviction policies: each a named way to build a kvpress press for a budget."""

from policies.declaration.foreign_code import describe_error, where_defined
from policies.declaration.lazy import LazyModule
from policies.declaration.levels import (
    LEVEL_KINDS,
    UNTREATED,
    Level,
    LevelKind,
    Point,
    at_ratios,
    by_kind,
    list_points,
)
from policies.declaration.names import (
    CONTROLS,
    FULL,
    PLAIN,
    REFERENCES,
    TITLES,
    TO_BEAT,
    LevelError,
    PolicyError,
    plain_and_way,
)
from policies.declaration.plug_in import is_plug_in, load_even_if_broken, load_plug_in, plug_ins
from policies.declaration.policy import (
    FIRST_VERSION,
    Baseline,
    CacheTreatment,
    HeadRows,
    LevelRange,
    Needs,
    PlugInCode,
    Policy,
    Situation,
    list_arguments,
    replaced_hooks,
)
from policies.declaration.shape import attention_window, is_left_whole
from policies.declaration.steps import ABSENT, UNKNOWN, CacheRows, PrefillTreatment, StepTreatment
from policies.registry import POLICIES
from policies.treatments.deployed import PROTECTED

__all__ = [
    "ABSENT",
    "CONTROLS",
    "FIRST_VERSION",
    "FULL",
    "LEVEL_KINDS",
    "PLAIN",
    "POLICIES",
    "PROTECTED",
    "REFERENCES",
    "TITLES",
    "TO_BEAT",
    "UNKNOWN",
    "UNTREATED",
    "Baseline",
    "CacheRows",
    "CacheTreatment",
    "HeadRows",
    "LazyModule",
    "Level",
    "LevelError",
    "LevelKind",
    "LevelRange",
    "Needs",
    "PlugInCode",
    "Point",
    "Policy",
    "PolicyError",
    "PrefillTreatment",
    "Situation",
    "StepTreatment",
    "at_ratios",
    "attention_window",
    "by_kind",
    "describe_error",
    "is_left_whole",
    "is_plug_in",
    "list_arguments",
    "list_points",
    "load_even_if_broken",
    "load_plug_in",
    "plain_and_way",
    "plug_ins",
    "replaced_hooks",
    "where_defined",
]
