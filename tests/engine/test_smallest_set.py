"""A small set of tokens with which an answer is right is found greedily, and nothing in it can go."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.engine.intervene.smallest import SmallestSet, Verdict, smallest_sets

Judge = Callable[[Sequence[Sequence[int]]], list[Verdict]]


def smallest_set(tokens: Sequence[int], judge: Judge) -> SmallestSet | None:
    (found,) = smallest_sets([tokens], lambda asked: judge([tokens for _, tokens in asked]))
    return found


def judge_of(*sufficient: set[int]) -> tuple[Judge, list[Sequence[int]]]:
    """An answer is right with any of some sets, and likelier the more of one is there. Also what is asked for."""
    asked: list[Sequence[int]] = []

    def judge(several: Sequence[Sequence[int]]) -> list[Verdict]:
        asked.extend(several)
        missing = [min(len(need - set(tokens)) for need in sufficient) for tokens in several]
        return [Verdict(count == 0, float(count)) for count in missing]

    return judge, asked


@given(st.sets(st.integers(0, 59), max_size=8))
def test_what_is_needed_is_found_exactly(needed: set[int]) -> None:
    judge, asked = judge_of(needed)
    assert smallest_set(range(60), judge) == SmallestSet(tuple(sorted(needed)), len(asked))


def test_one_of_two_sufficient_sets_is_left() -> None:
    judge, _ = judge_of({3, 4, 5}, {40, 41})
    found = smallest_set(range(50), judge)
    assert found is not None
    assert set(found.tokens) in ({3, 4, 5}, {40, 41})


def test_it_takes_far_fewer_trials_than_tokens_times_tokens() -> None:
    judge, _ = judge_of({7, 100, 101, 300})
    found = smallest_set(range(400), judge)
    assert found is not None
    assert found.trials < 200


def test_there_is_none_where_all_tokens_are_not_enough() -> None:
    assert smallest_set(range(10), judge_of({11})[0]) is None


def test_no_token_of_it_can_go() -> None:
    """An answer may be right with fewer tokens and wrong with more of them."""

    def judge(several: Sequence[Sequence[int]]) -> list[Verdict]:
        return [Verdict(len(tokens) % 3 != 1 and len(tokens) > 4, float(len(tokens))) for tokens in several]

    found = smallest_set(range(30), judge)
    assert found is not None
    assert judge([found.tokens])[0].right
    assert not any(judge([[t for t in found.tokens if t != gone]])[0].right for gone in found.tokens)


@pytest.mark.parametrize("tokens", [(), (5,)])
def test_few_tokens(tokens: tuple[int, ...]) -> None:
    assert smallest_set(tokens, judge_of(set())[0]) == SmallestSet((), (len(tokens) and 2) or 1)


def test_searches_together_find_what_each_finds_alone_in_as_many_rounds_as_the_longest() -> None:
    needs: list[set[int]] = [{3, 4, 5, 30}, set(), {59}, {100}]
    rounds = []

    def judge(asked: Sequence[tuple[int, Sequence[int]]]) -> list[Verdict]:
        rounds.append(asked)
        return [one for number, tokens in asked for one in judge_of(needs[number])[0]([tokens])]

    alone = [smallest_set(range(60), judge_of(need)[0]) for need in needs]
    assert smallest_sets([range(60)] * len(needs), judge) == alone
    assert alone[-1] is None
    assert len(rounds) < 20
    assert sum(map(len, rounds)) == sum(one.trials for one in alone if one is not None) + 1
