"""Has a policy change rows as they are written, in a prefill of its own."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from policies.declaration.lazy import LazyModule
from policies.declaration.policy import Policy, Press, Situation
from policies.declaration.steps import WriteTreatment

presses = LazyModule("policies.presses.writing")


def change_writes(
    policy: Policy,
    build: Callable[[Sequence[Situation]], WriteTreatment],
    context_alone: bool = False,
) -> Policy:
    """Returns the policy whose rows are changed by what ``build`` makes for some situations.
    ``context_alone``: the rows of questions and answers are written as the model computes them."""

    def wrap(press: Press, situation: Situation) -> Press:
        return presses.WrittenRowsPress(press, build([situation]))

    return replace(
        policy,
        # Its rows are other ones than those of the prefill that policies share.
        prefill="private",
        build=lambda situation: wrap(policy.build(situation), situation),
        treatment=replace(
            policy.treatment, wrap=wrap, write_treatment=None if context_alone else build
        ),
    )
