"""The study of published orders: what it says where the truth is known."""

from dataclasses import replace
from typing import Any

from leaderboards.aggregate.evidence import Evidence
from leaderboards.studies.declaration import StudyInput
from leaderboards.studies.published.content import (
    LLAMA,
    MODELS,
    OURS,
    QWEN,
    Order,
    key,
    scores,
    separated,
    tau,
)
from leaderboards.studies.published.study import STUDY
from policies import POLICIES
from tests.support.records.synthetic_records import frame, record

TASKS = ("niah_single_2", "niah_multikey_1")
HALF = 0.5


def board(model: str, ratio: float) -> dict[str, float]:
    return {
        name: score
        for (of, at, name), score in scores("agnostic").items()
        if (of, at) == (model, ratio)
    }


def made(found: dict[str, float], contexts: int = 12, full: float = 1.0) -> StudyInput:
    """Records of needles that policies find in as large a share of the contexts, in percent."""
    rows: list[dict[str, Any]] = []
    for task in TASKS:
        for place in range(contexts):
            of_context = {"task": task, "example_id": f"{task}-{place}"}
            rows.append(record(**of_context, golds_found=full))
            for policy, percent in found.items():
                share = float((place + 0.5) / contexts < percent / 100)
                rows.append(record(**of_context, policy=policy, ratio=HALF, golds_found=share))
    return StudyInput("toy", frame(rows), [{"status": "complete"}])


def test_the_key_is_what_both_models_say() -> None:
    """Counted by hand on the file: KeyDiff is above SnapKV on both, and SnapKV and TOVA are close
    on one."""
    assert [len(key("agnostic", ratio)) for ratio in (0.25, 0.5, 0.75)] == [44, 60, 67]
    assert [len(separated("agnostic", ratio)) for ratio in (0.25, 0.5, 0.75)] == [69, 74, 76]
    assert [
        round(tau(board(LLAMA, ratio), board(QWEN, ratio)) or 0, 2) for ratio in (HALF, 0.75)
    ] == [0.67, 0.74]
    for pair in key("agnostic", HALF):
        assert all(pair.apart[model] >= 5 for model in MODELS)
        assert all(
            board(model, HALF)[pair.better] > board(model, HALF)[pair.worse] for model in MODELS
        )


def test_every_policy_of_the_board_is_one_of_ours() -> None:
    assert {name for of_mode in OURS.values() for name in of_mode.values()} <= set(POLICIES)


def test_the_board_itself_has_the_order_of_its_key_and_its_mirror_reverses_it() -> None:
    """Where a model finds what Llama finds, no pair is reversed; where it finds the rest of 100,
    none has the order."""
    same, mirrored = (
        board(LLAMA, HALF),
        {name: 100 - score for name, score in board(LLAMA, HALF).items()},
    )
    verdicts = {}
    for name, found in (("same", same), ("mirrored", mirrored)):
        order = Order(Evidence(made(found, contexts=40).records), "agnostic")
        verdicts[name] = [one.verdict for one in order.judged([HALF])]
        assert len(verdicts[name]) == 60
    assert "reversed" not in verdicts["same"]
    assert verdicts["same"].count("same order") > 45
    assert "same order" not in verdicts["mirrored"]
    assert verdicts["mirrored"].count("reversed") > 45


def test_no_verdict_without_contexts_or_beyond_floor_and_ceiling() -> None:
    pair = next(
        one for one in key("agnostic", HALF) if {one.better, one.worse} == {"keydiff", "snapkv"}
    )
    alone = Order(
        Evidence(made({"keydiff": 100.0, "snapkv": 0.0}, contexts=1).records), "agnostic"
    ).judge(pair)
    assert alone.verdict == "not measured"
    equal = Order(Evidence(made({"keydiff": 50.0, "snapkv": 50.0}).records), "agnostic").judge(pair)
    assert equal.verdict == "cannot tell"
    for both in (0.0, 100.0):
        order = Order(Evidence(made({"keydiff": both, "snapkv": both}).records), "agnostic")
        assert order.judge(pair).tasks == ()
    lacking = Order(Evidence(made({"keydiff": 100.0, "snapkv": 0.0}, full=0.5).records), "agnostic")
    assert lacking.unknown == dict.fromkeys(TASKS, 50.0)
    assert lacking.judge(pair).verdict == "not measured"


def test_the_page_counts_the_verdicts_and_names_what_is_reversed() -> None:
    found = {"keydiff": 0.0, "snapkv": 100.0, "knorm": 50.0, "tova": 50.0}
    given = replace(made(found), number=2)
    assert STUDY.takes(given)
    content = STUDY.find(given)
    reversed_here = next(part for part in content.parts if part.identifier == "reversed").listings[
        0
    ]
    row = next(row for row in reversed_here.rows if row[:2] == ("keydiff", "snapkv"))
    assert row[2:4] == ("0.5", "-100 [-100 to -72]"), (
        "contexts that all agree say so much of others"
    )
    assert (
        '<a href="examples-niah_single_2.2.html#policy=keydiff&amp;level=0.5">niah_single_2</a>, <a'
        in row[-1]
    )
    counts = next(part for part in content.parts if part.identifier == "carried").listings[0].rows
    (half,) = (row for row in counts if row[:2] == ("toy", "0.5"))
    assert half[2] == "60"
    assert sum(map(int, half[3:7])) == 60
    aware = replace(given, model="seen", records=given.records.assign(mode="aware"))
    agnostic = replace(given, model="unseen")
    counts = STUDY.find(replace(given, beside=[aware, agnostic])).parts[0].listings[0].rows
    assert [row[0] for row in counts[:3]] == ["toy", "unseen", f"{LLAMA} against {QWEN}"], (
        "one mode a page"
    )
    orderly = STUDY.find(made({"keydiff": 100.0, "snapkv": 0.0, "knorm": 50.0, "tova": 50.0}))
    nothing = next(part for part in orderly.parts if part.identifier == "reversed")
    assert nothing.text == "None of the pairs that were measured."
    assert not STUDY.takes(made({"keydiff": 1.0, "snapkv": 1.0, "random": 1.0})), (
        "two policies have no order"
    )
    found = dict.fromkeys(("chunkkv_snapkv", "adakv_snapkv", "snapkv"), 50.0)
    one = made(found)
    assert STUDY.takes(replace(one, records=one.records.assign(mode="aware"))), (
        "all of the board that Gemma 3 runs"
    )
