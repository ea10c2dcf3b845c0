"""The presses of kvbench: they need kvpress and torch, and are imported when a policy first builds
one."""
