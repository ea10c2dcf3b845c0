"""Writes the tables of needles from ``docs/needles.json``, which holds what ``make published``
measured."""

import json
from pathlib import Path

import numpy as np

from docs.scripts.markdown import NOT_MEASURED, table
from kvbench.commands.ls import LISTINGS
from leaderboards.statistics.intervals import mean_interval

NEEDLES = Path(__file__).parents[1] / "needles.json"
GUESS = "a guess without the text"


def needles() -> str:
    """Returns what SmolLM2 answers rightly under policies, and how far a number may be off."""
    content = json.loads(NEEDLES.read_text(encoding="utf-8"))
    model = content["models"]["smollm2"]
    contexts = content["contexts_of_a_task"]
    answers = model["tasks"] * contexts
    # The interval of a share is widest where half of the answers are right.
    half_right = np.repeat([0.0, 1.0], answers // 2)
    low, high = mean_interval(half_right)
    return (
        f"Percent of right answers of {model['name']}, by the share of the cache that is removed "
        f"({model['tasks']} tasks, {contexts} contexts each, {content['tokens']:,} tokens):\n\n"
        f"{_right_answers('smollm2')}\n\n"
        f"A number counts {answers} answers. The true one may lie up to {50 * (high - low):.0f} "
        f"points above or below it (95 % interval)."
    )


def needles_on_gemma3() -> str:
    """Returns what Gemma 3 answers rightly under policies."""
    return _right_answers("gemma3")


def _right_answers(model: str) -> str:
    """Returns a table of policies by ratio; the last row is what a guess reaches."""
    content = json.loads(NEEDLES.read_text(encoding="utf-8"))
    measured = content["models"][model]
    ratios = content["ratios"]
    ideas = {row["policy"]: row["what it keeps"] for row in LISTINGS["policies"]().plain()}
    rows = []
    for name, right in measured["right"].items():
        rows.append((f"`{name}`", ideas[name], *right))
    guesses = [measured["chance"]] * len(ratios)
    rows.append((GUESS, NOT_MEASURED, *guesses))
    shares = [f"{100 * ratio:.0f} % removed" for ratio in ratios]
    return table(("policy", "what it keeps", *shares), rows)
