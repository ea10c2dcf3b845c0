"""The doctor tells of a model what a board on it can show, and where it reads."""

import pandas as pd
import pytest
from transformers import MistralConfig, MistralForCausalLM

from datasets_gen import TASKS
from kvbench.checks.fitness import (
    NOTHING,
    SLOTS,
    UPPER_HALF,
    Examination,
    Reads,
    destroyers,
    layer_name,
    reads_of,
    reads_table,
)
from kvbench.checks.mastery import Mastery, mastery_table
from tests.support.models.toy import KEY_HEADS, LAYERS, gemma3, model_of, sizes, toy_model


def reads(part: str, layers: list[float], upper: float, slots: float, before: float = 100.0) -> Reads:
    """Of two contexts of ten questions, as many right as is said."""
    right = {NOTHING: before, **{layer_name(n): one for n, one in enumerate(layers)}, UPPER_HALF: upper, SLOTS: slots}
    table = pd.DataFrame({place: [100.0 * (n < percent / 5) for n in range(20)] for place, percent in right.items()})
    return Reads(part, table, ["a", "b"] * 10)


def examined(*of_parts: Reads, masters: bool = True) -> Examination:
    reason = None if masters else "the model cannot do this task"
    mastery = Mastery("base", 5, 5, "Right", 94.0, 16.0, 20, reason)
    return Examination(model_of("llama"), 2, [TASKS["base"]], masteries=[mastery], reads=list(of_parts))


SOUND = reads("base", [95, 90, 85, 100], 60, 95)
VERDICTS = {
    "one layer": (
        reads("base", [100, 15, 95, 100], 100, 50),
        "reads base in layer 1 alone (100 to 15 without it): head and layer budgets and GER say nothing on this model",
    ),
    "two layers": (reads("base", [100, 15, 50, 100], 60, 50), "reads base in layers 1, 2, each needed"),
    "slots": (reads("base", [95, 90, 85, 100], 60, 90), "has no second way to base (100 to 90 without 30% of all"),
    "depth": (reads("base", [95, 90, 85, 100], 95, 95), "reads base in the lower half of its layers"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_the_verdict_says_what_a_board_cannot_show(name: str) -> None:
    bad, expected = VERDICTS[name]
    exam = examined(SOUND, bad)
    assert exam.verdict.startswith(expected)
    assert exam.is_doubtful
    assert exam.is_fit


def test_at_the_bounds_a_model_is_fit_for_every_board() -> None:
    at_bounds = reads("base", [75, 100], 90, 95)
    exam = examined(SOUND, at_bounds)
    assert exam.verdict == "reads by many routes and masters 1 of 1 tasks: fit for every board"
    assert not exam.is_doubtful


def test_a_model_that_masters_nothing_is_not_fit() -> None:
    exam = examined(masters=False)
    assert exam.verdict == "not fit: with the full cache it masters none of 1 tasks"
    assert not exam.is_fit


def test_costs_have_intervals_over_contexts() -> None:
    """All questions of one context are lost, and none of the other: chance may draw either twice."""
    table = pd.DataFrame({NOTHING: [100.0] * 4, "layer 0": [0.0, 0.0, 100.0, 100.0], UPPER_HALF: 100.0, SLOTS: 100.0})
    loss = Reads("base", table, ["a", "a", "b", "b"]).losses["layer 0"]
    assert (loss.right, loss.cost, loss.low, loss.high) == (50.0, 50.0, 0.0, 100.0)
    assert Reads("base", table, ["a"] * 4).losses["layer 0"].low is None


def test_the_findings_of_a_toy_model() -> None:
    """Random weights master nothing, so that no profile is measured."""
    exam = Examination(model_of("llama"), 1, [TASKS["base"], TASKS["hops"]])
    heard: list[str] = []
    findings = {one.check: (one.outcome, one.text) for one in exam.findings(heard.append)}
    assert list(findings) == ["loaded as", "chat template", "slots", "masters", "reads base", "reads hops, 2 facts"]
    assert findings["loaded as"][1].startswith("float32 on cpu")
    assert f"{LAYERS * KEY_HEADS} (layer, head) slots" in findings["slots"][1]
    assert findings["masters"][0] == "wrong"
    assert findings["reads base"] == ("note", "not measured: it does not master base at its highest level")
    assert heard == ["base"] * 4 + ["hops"] * 2, "the highest level and the lowest, by twelve questions each"
    assert not exam.is_fit
    assert [(row["task"], row["level"], row["mastered"]) for row in mastery_table(exam.masteries).plain()] == [
        ("base", "0 of 5", False),
        ("hops", "0 of 5", False),
    ]


def test_sliding_layers_are_told() -> None:
    """Presses leave those of Gemma 3 whole, with images and without; others end where the window does."""
    outcome, text = Examination(model_of("qwen3"), 1, ()).slots()
    assert (outcome, "no sliding layers" in text) == ("ok", True)
    mistral = toy_model("mistral", lambda: MistralForCausalLM(MistralConfig(**sizes(sliding_window=40))))
    outcome, text = Examination(mistral, 1, ()).slots()
    assert outcome == "note"
    assert f"; {LAYERS} sliding layers, so that sequences end at 40 tokens" in text
    for model in (
        toy_model("gemma3", lambda: gemma3(("sliding_attention", "full_attention"))),
        model_of("gemma3_text"),
    ):
        outcome, text = Examination(model, 1, ()).slots()
        assert outcome == "note"
        assert "1 of them sliding over" in text
        assert f"the other 1 have {KEY_HEADS} (layer, head) slots" in text
        assert "cannot run here: expected_attention, " in text
        assert "snapkv" not in text.partition("cannot run here")[2].split(", ")


@pytest.mark.parametrize("architecture", ["phi3", "qwen3", "gemma3"])
def test_every_architecture_has_a_profile(architecture: str) -> None:
    model = model_of(architecture)
    found = reads_of(model, TASKS["hops"], 2, 1, 0)
    questions = [question for question in TASKS["hops"].example(0, 0).questions if question.hops == 2]
    assert len(found.answers) == len(questions)
    assert list(found.answers) == list(destroyers(LAYERS))
    assert len(found.profile.without_layer) == LAYERS
    assert [row["destroyed"] for row in reads_table([found]).plain()] == list(found.answers)
