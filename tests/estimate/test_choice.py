"""What tells most in a given time: as many contexts as fit, with as many questions as are worth it."""

import math
from dataclasses import replace

import pytest

from kvbench.estimate.choice import choose_contexts
from kvbench.estimate.cost import RunCost
from kvbench.estimate.decoder import DecoderShape
from kvbench.estimate.loads import Load
from kvbench.estimate.machines import Machine
from kvbench.system.errors import KVBenchError
from leaderboards.statistics.power import ALIKE, QUESTION_SPREAD, smallest_detectable
from policies import POLICIES
from tests.support.models.runs import CommandLine

SHAPE = DecoderShape("by hand", 1, 2, 1, 4, 100, "bfloat16")
MACHINE = Machine("by hand", 500.0, 1e3, 1e9, "made up")
BRANCHES = [(POLICIES["full"], [1.0]), (POLICIES["snapkv"], [0.5])]


def cost(tokens: int, questions: float, answer_tokens: int = 5) -> RunCost:
    load = Load("base", 1, tokens, questions, 3.0, answer_tokens, 3.0, BRANCHES)
    return RunCost([load], SHAPE, MACHINE)


def hours_of(of_context: RunCost, contexts: int) -> float:
    return contexts * of_context.ends[1] / 3600


@pytest.mark.parametrize("contexts", [10, 100, 333])
def test_what_is_chosen_fits_and_one_more_context_does_not(contexts: int) -> None:
    of_context = cost(1000, 1.0)
    chosen = choose_contexts(of_context, 1.001 * hours_of(of_context, contexts))
    assert (chosen.contexts, chosen.questions) == (contexts, 1)
    expected = smallest_detectable(QUESTION_SPREAD, contexts)
    assert chosen.smallest == pytest.approx(expected)


def test_questions_are_asked_where_they_cost_less_than_contexts() -> None:
    long = choose_contexts(cost(10_000, 6.0), hours_of(cost(10_000, 6.0), 40))
    assert long.questions == 6
    assert "with all questions of each context" in long.words
    spread = QUESTION_SPREAD * math.sqrt((1 + 5 * ALIKE[1]) / 6)
    expected = smallest_detectable(spread, long.contexts)
    assert long.smallest == pytest.approx(expected)


def test_contexts_are_taken_where_answers_cost_all_the_time() -> None:
    costly = choose_contexts(cost(10, 6.0, 5000), hours_of(cost(10, 6.0, 5000), 40))
    assert costly.questions == 1
    assert costly.contexts > 200
    assert '--tasks "all(questions=1)"' in costly.words


def test_of_several_tasks_that_with_the_fewest_answers_counts() -> None:
    both = RunCost([*cost(1000, 6.0).loads, *cost(1000, 1.0).loads], SHAPE, MACHINE)
    chosen = choose_contexts(both, hours_of(both, 50))
    assert chosen.smallest == pytest.approx(smallest_detectable(QUESTION_SPREAD, chosen.contexts))


def test_more_time_never_tells_less() -> None:
    of_context = cost(1000, 4.0)
    told = [choose_contexts(of_context, hours).smallest for hours in (100, 200, 400, 4000)]
    assert told == sorted(told, reverse=True)
    assert len({*told}) == len(told)


@pytest.mark.parametrize("hours", [0, -1, math.inf, math.nan])
def test_a_time_is_above_zero(hours: float) -> None:
    with pytest.raises(KVBenchError, match="--hours is a time above 0"):
        choose_contexts(cost(1000, 1.0), hours)


def test_a_time_for_too_few_contexts_is_refused() -> None:
    of_context = cost(1000, 1.0)
    with pytest.raises(KVBenchError, match="not even 7 contexts of each task fit"):
        choose_contexts(of_context, hours_of(of_context, 6) * 1.01)


def test_prompts_of_aware_mode_are_counted_by_question() -> None:
    load = cost(1000, 4.0).loads[0]
    aware = RunCost([replace(load, prompts=4.0)], SHAPE, MACHINE)
    chosen, agnostic = choose_contexts(aware, 400), choose_contexts(cost(1000, 4.0), 400)
    assert chosen.smallest > agnostic.smallest
    assert (chosen.questions, agnostic.questions) == (1, 4), "another prefill for each question"


def test_plan_says_what_to_ask(cli: CommandLine) -> None:
    assert cli("plan", "--tasks", "base", "--policies", "snapkv", "--hours", "0.5") == 0
    assert "in 0.5 hours" in cli.out
    assert "--limit" in cli.out
    assert "--hours" in cli.error("plan", "--tasks", "base", "--hours", "0")
