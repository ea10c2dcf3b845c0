"""Eviction policies: each a named way to build a kvpress press for a budget."""

from policies.attention import attention_window
from policies.errors import PolicyError
from policies.policy import Baseline, Policy, Situation
from policies.registry import POLICIES

__all__ = ["POLICIES", "Baseline", "Policy", "PolicyError", "Situation", "attention_window"]
