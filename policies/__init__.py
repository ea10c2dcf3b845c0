"""Eviction policies: each a named way to build a kvpress press for a budget."""

from policies.attention import attention_window
from policies.errors import PolicyError
from policies.lazy import LazyModule
from policies.papers import TITLES
from policies.plug_in import is_plug_in, load_even_if_broken, load_plug_in, plug_ins
from policies.policy import Baseline, Policy, Situation, arguments_of, replaced_hooks
from policies.protection import PROTECTED, WAYS, protected
from policies.registry import POLICIES

__all__ = [
    "POLICIES",
    "PROTECTED",
    "TITLES",
    "WAYS",
    "Baseline",
    "LazyModule",
    "Policy",
    "PolicyError",
    "Situation",
    "arguments_of",
    "attention_window",
    "is_plug_in",
    "load_even_if_broken",
    "load_plug_in",
    "plug_ins",
    "protected",
    "replaced_hooks",
]
