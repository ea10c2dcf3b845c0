"""The sentence above the matrix, where the truth is known: who keeps all or nothing, and what few
contexts show."""

from typing import Any

from leaderboards.pages.front import FRONT
from leaderboards.pages.in_words import finding
from leaderboards.pages.results import Results
from leaderboards.pages.uses import use_matrix
from tests.support.browsing.pages import build_pages, results_of
from tests.support.records.synthetic_records import frame, record
from tests.support.wording import assert_says

ENOUGH = 72  # contexts, which show that nothing is lost
# Percent right of each policy by context in turn, of 80 with the full cache.
ALL, NOTHING = [80.0], [0.0]


RUN = (("full", 0.0), ("snapkv", 0.5))


def _of(
    contexts: int, task: str = "base", level: float = 0.5, kind: str = "ratio", **right: list[float]
) -> list[Any]:
    made = []
    for place in range(contexts):
        here = {"task": task, "example_id": f"{task}-{place}"}
        made.append(record(**here, f1=80.0))
        for policy, by_context in right.items():
            at = (
                {"ratio": level}
                if kind == "ratio"
                else {"level_kind": kind, "level": level, "ratio": 0.0}
            )
            made.append(record(**here, policy=policy, **at, f1=by_context[place % len(by_context)]))
    return made


def _said(records: list[Any], **more: Any) -> str:
    results = results_of(
        frame(records), "smollm2", title="SmolLM2", described="a chat model", **more
    )
    return finding(results, use_matrix(results))


def _results(records: list[Any], model: str = "smollm2") -> Results:
    return results_of(frame(records), model)


def test_who_keeps_all_and_who_keeps_nothing() -> None:
    some = [80.0, 40.0, 0.0]
    said = _said(_of(12, keydiff=ALL, snapkv=NOTHING, random=some))
    assert_says(
        said,
        "half of the KV cache",
        "keydiff keeps 100 %",
        "SmolLM2",
        "snapkv 0 %",
        "worse than random",
        "12 contexts are too few",
    )


def test_as_little_as_chance_is_said_where_the_test_of_the_board_shows_no_more() -> None:
    little = [80.0, *[0.0] * 7]
    said = _said(_of(24, keydiff=ALL, snapkv=little, random=[0.0, 80.0, *[0.0] * 6]))
    assert_says(said, "snapkv 12 %", "chance", "24 contexts")
    assert "keydiff keeps 100 %" in said, "it beats random"
    without = _said(_of(24, keydiff=ALL, snapkv=little))
    assert "chance" not in without, "random was not run"
    few = _said(_of(4, keydiff=ALL, snapkv=little, random=NOTHING))
    assert "chance" not in few, "of four contexts there is no test"
    much = [80.0, 80.0, 80.0, 40.0]
    assert "snapkv 75 %, not shown to beat" in _said(
        _of(12, keydiff=ALL, snapkv=[*much[:2], 0.0, 80.0], random=[*much[:1], 0.0, 80.0, 80.0])
    ), "they keep as much as random tokens, which is not little"


def test_where_all_tie_no_policy_is_named() -> None:
    said = _said(_of(ENOUGH, keydiff=ALL, snapkv=ALL, tova=ALL))
    assert_says(said, "all 3 policies keep 100 %", "3 of 3 policies are shown safe")


def test_a_policy_alone_and_the_uses_that_it_is_safe_for() -> None:
    made = [*_of(ENOUGH, keydiff=ALL), *_of(ENOUGH, "hops", keydiff=NOTHING)]
    assert_says(_said(made), "keydiff keeps 50 %", "shown safe there: keydiff for short QA")


def test_one_context_is_told_and_nothing_of_policies() -> None:
    said = _said(_of(1, keydiff=ALL, snapkv=NOTHING))
    assert_says(said, "One context", "SmolLM2", "tells nothing of others")


def test_a_model_that_can_do_nothing_and_a_run_without_the_full_cache_say_so_alone() -> None:
    cannot = [
        record(example_id=f"{n}", policy=p, ratio=r, f1=10.0) for n in range(12) for p, r in RUN
    ]
    assert_says(_said(cannot), "its full cache", "SmolLM2", "none of these tasks")
    alone = [one for one in _of(12, snapkv=ALL) if one["policy"] != "full"]
    assert _said(alone).startswith("The full cache was not run")
    assert "No policy but controls" in _said(_of(12, random=NOTHING))


def test_the_level_is_a_half_or_the_nearest_that_was_asked() -> None:
    higher = [one for one in _of(12, level=0.9, snapkv=NOTHING) if one["policy"] != "full"]
    made = [*_of(12, level=0.3, snapkv=ALL), *higher]
    assert _said(made).startswith("With 30 % of the KV cache removed snapkv keeps 100 %")


def test_faults_have_their_rate_and_what_has_one_level_its_bytes() -> None:
    said = _said(_of(12, kind="rate", level=0.01, zeros=[80.0, 40.0]))
    assert said.startswith("At rate 0.01 zeros keeps 75 % of what SmolLM2 (a chat model) answers;")
    quantised = [
        record(example_id=f"base-{place}", policy="int4", f1=80.0, kv_bytes=280)
        for place in range(ENOUGH)
    ]
    said = _said([*_of(ENOUGH), *quantised])
    assert_says(said, "int4 keeps 100 %", "shown safe: int4 for short QA")
    assert "half of" not in said
    both = _said([*_of(ENOUGH, snapkv=NOTHING), *quantised])
    assert_says(both, "snapkv keeps 0 %", "int4", "28 % of the bytes")
    assert both.endswith("; shown safe there: int4 for short QA.")


def test_each_model_has_a_sentence_of_its_own() -> None:
    results = [_results(_of(12, snapkv=ALL)), _results(_of(12, snapkv=NOTHING), "gemma3")]
    page = build_pages(results)[FRONT]
    assert "snapkv keeps 100 % of what smollm2" in page
    assert "snapkv keeps 0 % of what gemma3" in page
    assert page.count("its KV cache") == 1


def test_a_task_that_the_model_cannot_do_changes_nothing_in_the_sentence() -> None:
    """It has one context, and a policy that loses all of the little that the model has."""
    alone = _of(72, keydiff=ALL, snapkv=NOTHING)
    weak = [
        {**one, "task": "hops", "right": one["right"] / 4}
        for one in _of(1, keydiff=NOTHING, snapkv=ALL)
    ]
    assert _said([*alone, *weak]) == _said(alone)
    assert "does none of these tasks" in _said(weak)
