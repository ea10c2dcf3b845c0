"""The statistics of text P, on records of system prompts where the truth is known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pandas import DataFrame

from kvbench.commands.claims import make_job
from kvbench.store.run_file import TaskOptions
from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.registry import claims
from leaderboards.claims.texts.errors import ERRORS
from leaderboards.claims.texts.pitfalls import HALF, LITTLE, MORE, POLICIES, PROMPTS, PROTECTED
from leaderboards.claims.verdict import Judgement, judge
from tests.support.records.claim_statistics import measured, value
from tests.support.records.study_records import BOTH, answer, attack
from tests.support.wording import assert_says

DRAWS = 8
# Of policy, ratio, order and draw: what differs from the best.
Told = Callable[[str, float, str, int], dict[str, Any]]


def pitfall_evidence(told: Told, whole: float = 1.0, draws: int = DRAWS) -> dict[str, Evidence]:
    """Prompts with two directives in both orders, and with one in a context of its own. The full
    cache obeys all and leaks nothing, or obeys a share; ``told`` gives ``obeyed`` (of the several),
    ``single``, ``leaked`` and ``kept``."""
    rows = []
    for policy, ratio in (
        ("full", 0.0),
        *((one, at.value) for one in (*POLICIES, *PROTECTED) for at in LEVELS),
    ):
        for draw in range(draws):
            for arm in BOTH:
                best: dict[str, Any] = {
                    "obeyed": [draw < whole * draws] * 2,
                    "single": [draw < whole * draws],
                    "leaked": 0.0,
                }
                best["kept"] = (0.5, 0.5)
                made = best if policy == "full" else best | told(policy, ratio, arm, draw)
                kept = dict(zip(("defence_kept", "directives_kept"), made["kept"], strict=True))
                rows.append(answer(draw, arm, policy, made["obeyed"], ratio) | kept)
                rows.append(attack(draw, arm, policy, made["leaked"], ratio) | kept)
                alone = answer(draw, arm, policy, made["single"], ratio)
                rows.append(alone | kept | {"question_id": alone["question_id"] + "/alone"})
    return {PROMPTS.name: Evidence(DataFrame(rows))}


LEVELS = (LITTLE, HALF, MORE)


def judge_pitfall(identifier: str, told: Told, draws: int = DRAWS) -> dict[str, Judgement]:
    return {
        one.part: one for one in judge([claims()[identifier]], pitfall_evidence(told, draws=draws))
    }


def test_families_differ_by_what_one_keeps_and_the_other_loses() -> None:
    """At half the second directive is obeyed in a quarter of the prompts; the first one always, and
    alone too."""

    def told(policy: str, ratio: float, arm: str, draw: int) -> dict[str, Any]:
        return {"obeyed": [True, draw % 4 == 0]}

    found = measured("P1", pitfall_evidence(told))[""]
    assert value(found) == pytest.approx(0.75)
    assert judge_pitfall("P1", told)[""].verdict == "holds"


def test_what_leaks_while_it_is_obeyed() -> None:
    """snapkv leaks half of the prompt at 0.3 with the defence first; at 0.7 it leaks all and obeys
    nothing, which does not count."""

    def told(policy: str, ratio: float, arm: str, draw: int) -> dict[str, Any]:
        if policy != "snapkv" or arm != "defence first":
            return {}
        at: dict[float, dict[str, Any]] = {
            0.3: {"leaked": 0.5},
            0.7: {"leaked": 1.0, "obeyed": [False] * 2, "single": [False]},
        }
        return at.get(ratio, {})

    found = measured("P2", pitfall_evidence(told))[""]
    assert value(found) == pytest.approx(0.5)


def test_order_decides_where_the_first_span_suffers() -> None:
    """What stands first keeps a fifth of its tokens and is lost: it leaks, or it is disobeyed."""

    def told(policy: str, ratio: float, arm: str, draw: int) -> dict[str, Any]:
        if arm == "defence first":
            return {"kept": (0.2, 0.8), "leaked": 0.6}
        return {"kept": (0.8, 0.2), "obeyed": [draw % 2 == 0] * 2, "single": [draw % 2 == 0]}

    found = measured("P3", pitfall_evidence(told))
    assert value(found["tokens kept"]) == pytest.approx(-1.2)
    assert value(found["leaked and disobeyed"]) == pytest.approx(0.6 + 0.5)
    assert {one.verdict for one in judge_pitfall("P3", told).values()} == {"holds"}


def test_spans_are_kept_unevenly_by_policy() -> None:
    def told(policy: str, ratio: float, arm: str, draw: int) -> dict[str, Any]:
        return {
            "kept": (0.3, 0.7)
            if policy == "knorm"
            else (0.6, 0.4)
            if policy == "snapkv"
            else (0.5, 0.5)
        }

    found = judge_pitfall("P4", told, draws=24)
    assert {policy: one.verdict for policy, one in found.items()} == {
        "streaming_llm": "undecided",
        "snapkv": "holds",
        "knorm": "holds",
    }
    assert value(measured("P4", pitfall_evidence(told))["knorm"]) == pytest.approx(-0.4)


def test_protection_gains_half_of_either() -> None:
    """Plain policies obey nothing and leak 0.4; a whitelist mends both, and fair eviction the leak
    alone."""

    def told(policy: str, ratio: float, arm: str, draw: int) -> dict[str, Any]:
        obeys, leaks = policy.endswith("+whitelist"), "+" not in policy
        return {"obeyed": [obeys] * 2, "single": [obeys], "leaked": 0.4 * leaks}

    found = measured("P5", pitfall_evidence(told))
    assert set(found) == set(PROTECTED)
    assert value(found["snapkv+whitelist"]) == pytest.approx(0.7)
    assert value(found["snapkv+fair"]) == pytest.approx(0.2)


def test_several_suffer_more_than_one() -> None:
    found = measured(
        "P6", pitfall_evidence(lambda policy, ratio, arm, draw: {"obeyed": [draw % 2 == 0] * 2})
    )
    assert value(found[""]) == pytest.approx(0.5)


@pytest.mark.parametrize("identifier", ["P1", "P2", "P3", "P4", "P5", "P6"])
def test_a_model_that_obeys_little_decides_nothing(identifier: str) -> None:
    (found,) = judge([claims()[identifier]], pitfall_evidence(lambda *_: {}, whole=0.25))
    assert (found.verdict, "0.25 of the directives" in found.why) == ("undecided", True)


def test_prompts_without_directives_decide_nothing() -> None:
    """The lowest difficulty has none, of which a model obeys no share."""
    evidence = pitfall_evidence(lambda *_: {})
    records = evidence[PROMPTS.name].records
    for column in ("directives", "directive_families", "directives_strict", "directives_loose"):
        records[column] = [[] for _ in range(len(records))]
    (found,) = judge([claims()["P2"]], evidence)
    assert not found.is_met
    assert_says(found.why, "no prompt of this difficulty has a directive")


def test_a_model_that_obeys_one_family_is_judged_by_it() -> None:
    """Under the full cache family0 is obeyed in 6 of 8 draws beside family1, which never is, and in
    4 of 8 alone; under every policy in half of these."""
    given = pitfall_evidence(
        lambda policy, ratio, arm, draw: {"obeyed": [draw < 3, True], "single": [draw < 2]}
    )
    records = given[PROMPTS.name].records
    records["directives_strict"] = [
        strict
        if policy != "full"
        else [int(draw) < (6 if len(strict) == 2 else 4), False][: len(strict)]
        for policy, draw, strict in zip(
            records["policy"], records["draw_id"], records["directives_strict"], strict=True
        )
    ]
    (found,) = judge([claims()["P6"]], given)
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(0)
    assert_says(found.why, "obeys 0.42", "family0 alone")


def test_a_file_is_rows_of_ifeval_where_system_prompts_alone_are_asked(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.touch()
    given = {"ifeval": TaskOptions(data=rows), "prose": TaskOptions(data=Path("python"))}
    job = make_job(PROMPTS, limit=2, options_by_name=given, max_new_tokens=256)
    assert (job.tasks, job.max_new_tokens) == ("ifeval", 256)
    assert job.task_options == {"ifeval": given["ifeval"]}
    errors = make_job(ERRORS, options_by_name=given)
    assert (errors.tasks, errors.task_options) == (ERRORS.tasks, {"prose": given["prose"]})
    assert make_job(PROMPTS, options_by_name={"prose": given["prose"]}).tasks == "instructions"
