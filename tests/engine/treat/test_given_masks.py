"""Branches from given keep masks are ordinary branches: with a policy's own mask they write its
tokens."""

from functools import cache

import pytest
import torch

from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import Generation
from kvbench.engine.treat.branch import Branch, Trace, keep_mask, reason_without_mask, with_mask
from kvbench.models.load import LoadedModel
from policies import POLICIES
from tests.support.models.toy import AGNOSTIC, PLENTY, RUNNABLE, STEPS, model_of, toy_prompt, treat

RATIOS = (0.3,)
WITHOUT = {
    "it merges or rewrites rows": {
        n for n, one in RUNNABLE.items() if one.rewrites and not one.while_decoding
    },
    "it goes on cutting": {name for name, policy in RUNNABLE.items() if policy.while_decoding},
}
NAMES_WITHOUT = {name for names in WITHOUT.values() for name in names}


@cache
def treat_and_decode() -> tuple[Trace, list[Generation]]:
    trace = treat(model_of("llama"), list(AGNOSTIC.values()), RATIOS, toy_prompt(questions=2))
    return trace, decode(model_of("llama"), trace, STEPS, PLENTY, gold=True)


def of_branches(model: LoadedModel, trace: Trace, branches: list[Branch]) -> list[Generation]:
    given = Trace(trace.prompt, trace.keys, trace.values, 0.0, branches)
    return decode(model, given, STEPS, PLENTY, gold=True)


def tokens_and_likelihoods(
    generations: list[Generation], branch: Branch
) -> list[tuple[int, tuple[int, ...], object]]:
    """By question. A different batch sums in another order."""
    return [
        (
            one.question,
            one.token_ids,
            None if one.gold_nll is None else pytest.approx(one.gold_nll, abs=1e-4),
        )
        for one in generations
        if one.branch is branch
    ]


def assert_its_own_mask_writes_its_tokens(
    model: LoadedModel, trace: Trace, generations: list[Generation]
) -> int:
    known = [branch for branch in trace.branches if not reason_without_mask(branch)]
    again = [with_mask(branch, keep_mask(branch)) for branch in known]
    repeated = of_branches(model, trace, again)
    for branch, given in zip(known, again, strict=True):
        assert given.error is None
        assert sorted(tokens_and_likelihoods(repeated, given)) == sorted(
            tokens_and_likelihoods(generations, branch)
        )
    return len(known)


def test_a_policys_own_mask_writes_its_tokens_for_every_policy() -> None:
    trace, generations = treat_and_decode()
    with_masks = len(AGNOSTIC.keys() - NAMES_WITHOUT)
    assert (
        assert_its_own_mask_writes_its_tokens(model_of("llama"), trace, generations) >= with_masks
    )
    without = {
        branch.treatment.policy.name for branch in trace.branches if reason_without_mask(branch)
    }
    with_one = {
        branch.treatment.policy.name for branch in trace.branches if not reason_without_mask(branch)
    }
    assert without == NAMES_WITHOUT & AGNOSTIC.keys()
    assert {*AGNOSTIC} - without <= with_one


@pytest.mark.parametrize(("reason", "names"), WITHOUT.items(), ids=WITHOUT)
def test_where_no_mask_tells_what_is_read_it_says_why(reason: str, names: set[str]) -> None:
    trace, _ = treat_and_decode()
    refused = [
        branch
        for branch in trace.branches
        if branch.treatment.policy.name in names and reason_without_mask(branch)
    ]
    assert {branch.treatment.policy.name for branch in refused} == names & AGNOSTIC.keys()
    for branch in refused:
        assert reason in reason_without_mask(branch)
        with pytest.raises(ValueError, match=reason):
            keep_mask(branch)
        with pytest.raises(ValueError, match=reason):
            with_mask(branch, torch.ones(1, 1, 1, dtype=torch.bool))


def test_the_mask_of_one_policy_in_the_branch_of_another_reads_what_the_first_reads() -> None:
    """The mask alone decides, of policies that share a prefill and treat nothing afterwards."""
    model, prompt = model_of("llama"), toy_prompt()
    trace = treat(model, [POLICIES["full"], POLICIES["knorm"]], (0.9,), prompt)
    full, knorm = trace.branches
    generations = of_branches(
        model, trace, [given := with_mask(full, keep_mask(knorm)), knorm, full]
    )
    assert tokens_and_likelihoods(generations, given) == tokens_and_likelihoods(generations, knorm)
    assert tokens_and_likelihoods(generations, given) != tokens_and_likelihoods(generations, full)
