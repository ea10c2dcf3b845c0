"""Kinds of levels, the draws of random policies, and what is made of them from the option to the
page."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kvpress import BasePress

import policies.declaration.levels
from kvbench.cli.program import main
from kvbench.models.load import LoadedModel
from kvbench.store.store import Store
from leaderboards.aggregate.summary import summarise
from leaderboards.statistics.intervals import mean_interval
from policies import POLICIES, LevelKind, Policy, Situation
from policies.declaration.levels import parse_numbers
from tests.support.models.toy import toy_prompt, treat
from tests.support.records.synthetic_records import frame, record

RATE = LevelKind(
    name="rate",
    plural="rates",
    help="Shares of the rows to blank, such as 0.1,0.5.",
    parse=lambda text: tuple(float(number) for number in parse_numbers(text, "rates")),
    nothing=0.0,
    typical=0.5,
    title="asked rate: the share of the rows to blank",
    axis="asked rate",
)


@dataclass
class BlankingPress(BasePress):
    """Blanks the values of the first rows of every head."""

    rate: float = 0.0

    def compress(
        self, module: Any, hidden_states: Any, keys: Any, values: Any, attentions: Any, kwargs: Any
    ) -> Any:
        blank = torch.arange(keys.shape[2], device=keys.device) < self.rate * keys.shape[2]
        return keys, values.masked_fill(blank[:, None], 0.0)


def blanking(situation: Situation) -> BasePress:
    return BlankingPress(situation.level.value)


BLANKING = Policy(
    "blanking",
    "plug-in",
    "-",
    "for a test",
    blanking,
    kinds=("rate",),
    rewrites=True,
    counted="nowhere",
)


def test_a_kind_that_is_declared_once_goes_from_its_option_to_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(policies.declaration.levels.LEVEL_KINDS, "rate", RATE)
    monkeypatch.setitem(POLICIES, "blanking", BLANKING)
    run = [
        "run",
        "--tasks",
        "base",
        "--limit",
        "1",
        "--policies",
        "blanking",
        "--rates",
        "0.25,0.75",
        "--name",
        "run",
    ]
    assert (
        main([*run, "--out", str(tmp_path), "--site", str(tmp_path / "site"), "--device", "cpu"])
        == 0
    )
    records = Store.open(tmp_path / "run").frame()
    blanked = records[records["policy"] == "blanking"]
    assert {*zip(blanked["level_kind"], blanked["level"], strict=True)} == {
        ("rate", 0.25),
        ("rate", 0.75),
    }
    assert blanked["ratio"].isna().all()
    assert set(records["policy"]) == {"full", "blanking"}, "controls that take no rate are left out"
    page = (tmp_path / "site" / "index.html").read_text()
    assert "<dt>Asked rates</dt><dd>0.25 to 0.75</dd>" in page
    assert (
        main(
            [
                "show",
                str(tmp_path / "run"),
                "--policy",
                "blanking",
                "--rate",
                "0.75",
                "--worst",
                "1",
            ]
        )
        == 0
    )


@pytest.fixture(scope="module")
def plain_prompt() -> Any:
    return toy_prompt()


@pytest.mark.parametrize(
    "name", [policy.name for policy in POLICIES.values() if policy.random and policy.frees]
)
def test_draws_differ_between_repeats_and_equal_repeats_are_equal(
    name: str, llama: LoadedModel, plain_prompt: Any
) -> None:
    policy = POLICIES[name]
    if policy.while_decoding:
        pytest.skip("it acts later")
    first, again = (
        [
            branch.digest
            for branch in treat(llama, [policy], [0.5], plain_prompt, repeats=3).branches
        ]
        for _ in range(2)
    )
    assert first == again
    assert len(set(first)) == 3
    (alone,) = treat(llama, [policy], [0.5], plain_prompt).branches
    assert alone.digest == first[0], "the first draw is the one of a run without repeats"


def repeated(question: int, f1s: list[float], policy: str = "random") -> list[dict[str, Any]]:
    context = {"example_id": f"base-{question // 2}", "question_id": str(question)}
    return [
        record(
            policy=policy, ratio=0.5, repeat=repeat, f1=f1, em=f1, hallucinated=f1 == 0, **context
        )
        for repeat, f1 in enumerate(f1s)
    ]


def test_repeats_are_averaged_by_question_and_counted_once() -> None:
    rows = summarise(frame([*repeated(0, [0.0, 100.0, 50.0]), *repeated(2, [100.0, 100.0, 100.0])]))
    cell = next(row for row in rows if row.task == "base")
    assert (cell.n, cell.repeats, cell.f1) == (2, 3, 75.0)
    low, high = mean_interval(np.array([0.5, 1.0]))
    ends = pytest.approx((100 * float(low), 100 * float(high)))
    assert (cell.f1_low, cell.f1_high) == ends, "that of two contexts, and not of draws"
