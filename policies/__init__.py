"""Eviction policies: each a named way to build a kvpress press for a budget."""

from policies.declaration.errors import LevelError, PolicyError
from policies.declaration.faults import description_of, where_defined
from policies.declaration.lazy import LazyModule
from policies.declaration.levels import KINDS, UNTREATED, Level, LevelKind, Point, at_ratios, by_kind, points_of
from policies.declaration.names import CONTROLS, FULL, PLAIN, REFERENCES, TO_BEAT, plain_and_way
from policies.declaration.papers import TITLES
from policies.declaration.plug_in import is_plug_in, load_even_if_broken, load_plug_in, plug_ins
from policies.declaration.policy import Baseline, HeadRows, Policy, Situation, arguments_of, replaced_hooks
from policies.declaration.same_code import argument_warnings, code_of
from policies.declaration.shape import attention_window, is_left_whole
from policies.declaration.steps import ABSENT, UNKNOWN, CacheRows, PrefillTreatment, StepTreatment
from policies.eviction.protection import PROTECTED, WAYS, protect
from policies.registry import POLICIES

__all__ = [
    "ABSENT",
    "CONTROLS",
    "FULL",
    "KINDS",
    "PLAIN",
    "POLICIES",
    "PROTECTED",
    "REFERENCES",
    "TITLES",
    "TO_BEAT",
    "UNKNOWN",
    "UNTREATED",
    "WAYS",
    "Baseline",
    "CacheRows",
    "HeadRows",
    "LazyModule",
    "Level",
    "LevelError",
    "LevelKind",
    "Point",
    "Policy",
    "PolicyError",
    "PrefillTreatment",
    "Situation",
    "StepTreatment",
    "argument_warnings",
    "arguments_of",
    "at_ratios",
    "attention_window",
    "by_kind",
    "code_of",
    "description_of",
    "is_left_whole",
    "is_plug_in",
    "load_even_if_broken",
    "load_plug_in",
    "plain_and_way",
    "plug_ins",
    "points_of",
    "protect",
    "replaced_hooks",
    "where_defined",
]
