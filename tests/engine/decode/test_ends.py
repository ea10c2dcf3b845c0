"""Where begun answers end: while they are written, and when their tokens are cut afterwards, it is
the same."""

from dataclasses import replace

import pytest
import torch

from datasets_gen import TASKS
from kvbench.engine.decode.answers import decode
from kvbench.engine.decode.loop import _EndTest
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.prompts.prompt import AnswerEnds, build_prompts
from policies import FULL, POLICIES, at_ratios
from tests.support.models.toy import model_of

PLENTY = 10**9
ENDS = AnswerEnds(tokens=(1,), sentence=(2,), initials=(3,))


@pytest.mark.parametrize(
    ("ids", "length"),
    [
        ([5, 1, 6], 2),
        ([2, 5], 1),
        ([3, 2, 5, 2, 6], 4),
        ([3, 1, 5], 2),
        ([5, 3, 2], 3),
        ([5, 6], 2),
    ],
    ids=[
        "an end",
        "a sentence at once",
        "behind an initial it goes on",
        "an end behind one",
        "never",
        "no end",
    ],
)
def test_an_answer_ends_where_it_is_cut(ids: list[int], length: int) -> None:
    kept, ended = ENDS.until_end(ids)
    assert kept == ids[:length]
    is_end = _EndTest(ENDS, torch.device("cpu"))
    told = [
        bool(is_end(torch.tensor([token]), torch.tensor([before]) if before is not None else None))
        for before, token in zip([None, *ids], ids, strict=False)
    ]
    assert told[:length] == [False] * (length - 1) + [ended]


def test_a_begun_answer_is_the_beginning_of_the_one_that_goes_on() -> None:
    """On a toy model every answer has all its tokens; a sentence is cut where its first end
    comes."""
    model = model_of("llama")
    task = replace(TASKS["base"], begins_answers=True)
    prompt = build_prompts(model.tokenizer, task, task.example(0, 0), "agnostic")[0]
    trace = prefill(model, prompt, plan([POLICIES[FULL]], at_ratios([0.0]), prompt, 0))
    whole = {one.question: one for one in decode(model, trace, 12, PLENTY)}
    some = whole[0].token_ids[3]
    ends = AnswerEnds(tokens=(some,))
    cut = replace(trace, prompt=replace(prompt, ends=ends))
    for one in decode(model, cut, 12, PLENTY):
        expected, _ = ends.with_tokens(model.end_tokens()).until_end(whole[one.question].token_ids)
        assert list(one.token_ids) == expected[:12]
    assert len(ends.until_end(whole[0].token_ids)[0]) <= 4
