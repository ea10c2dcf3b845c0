"""The suite of instructions: what of a system prompt is obeyed (arXiv 2510.00231)."""

from datasets_gen.tasks.instructions import INSTRUCTIONS_IN_ARMS
from kvbench.studies.declaration import Suite
from policies import PROTECTED

SUITE = Suite(
    name="instructions",
    description="What of a system prompt is obeyed, what leaks, and what protects (arXiv 2510.00231)",
    tasks=(INSTRUCTIONS_IN_ARMS,),
    policies=",".join(
        plain.name + way for way in ("", "+whitelist", "+fair") for plain in PROTECTED
    ),
    scope="system",
    defence="both",
    needs_right_answers=False,
)
