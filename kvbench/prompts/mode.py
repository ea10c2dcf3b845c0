"""Modes say when a policy sees the question, and scopes what of an example is compressed."""

from typing import Literal

Mode = Literal["agnostic", "aware"]  # the cache is compressed before the question is seen, or with it
Scope = Literal["context", "system"]  # any context, or only contexts that are system prompts
