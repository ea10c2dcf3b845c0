"""The register of claims, on records where the truth is known."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from pandas import DataFrame

from kvbench.commands.claims import job_of
from kvbench.experiments.build_grid import build_grid, check_job
from kvbench.prompts.context_length import count_by
from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import Claim, Experiment, Statistic
from leaderboards.claims.registry import claims
from leaderboards.claims.texts.faults import F
from leaderboards.claims.verdict import Judgement, judge
from policies.declaration.names import split_outside_brackets

EXPERIMENT = Experiment("made up", "base", "zeros", (("rate", "0.1,0.2"),), contexts=8)
CONTEXTS, QUESTIONS = 40, 4


def made_up(kept: Mapping[float, float], clean: float = 1.0, contexts: int = CONTEXTS, due: int = 0) -> Evidence:
    """Records of ``zeros`` that keep given shares of the answers, spread evenly; so many of each level failed."""
    rows = []
    for level, share in ((0.0, clean), *kept.items()):
        policy = "zeros" if level else "full"
        answers = contexts * QUESTIONS
        right = np.floor(np.arange(1, answers + 1) * share) > np.floor(np.arange(answers) * share)
        for number in range(answers):
            failed = level > 0 and number < due
            rows.append(
                {
                    "task": "base",
                    "policy": policy,
                    "level_kind": "rate",
                    "level": level,
                    "draw_id": f"base/{number % contexts}",
                    "status": "failed" if failed else "ok",
                    "right": None if failed else bool(right[number]),
                }
            )
    return Evidence(DataFrame(rows))


def claim(threshold: float, side: str = "at least", identifier: str = "F1") -> Claim:
    def measure(evidence: Evidence) -> list[Statistic]:
        found = evidence.of("base")
        return [Statistic(found.share_kept("zeros", 0.1), found.contexts)]

    return Claim(
        identifier=identifier,
        text=F,
        words="Zeros are survivable.",
        reported="nothing",
        statistic="what is kept",
        holds=(side, threshold),  # type: ignore[arg-type]
        experiments=(EXPERIMENT,),
        measure=measure,
    )


def verdict_of(one: Claim, evidence: Evidence) -> Judgement:
    (found,) = judge([one], {EXPERIMENT.name: evidence})
    return found


@pytest.mark.parametrize(
    ("kept", "threshold", "side", "verdict"),
    [
        (0.9, 0.5, "at least", "holds"),
        (0.2, 0.5, "at least", "does not hold"),
        (0.2, 0.5, "at most", "holds"),
        (0.9, 0.5, "at most", "does not hold"),
        (0.5, 0.5, "at least", "undecided"),
    ],
)
def test_verdict_is_on_the_side_of_the_truth(kept: float, threshold: float, side: str, verdict: str) -> None:
    found = verdict_of(claim(threshold, side), made_up({0.1: kept}))
    assert found.verdict == verdict
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(kept, abs=0.02)


def test_undecided_says_how_many_contexts_would_decide() -> None:
    """The interval of a share of 0.55 of 160 answers reaches below 0.5; four times the contexts are enough or so."""
    found = verdict_of(claim(0.5), made_up({0.1: 0.55}))
    assert found.verdict == "undecided"
    assert "contexts would decide" in found.why
    needed = int(found.why.split()[1].replace(",", ""))
    assert verdict_of(claim(0.5), made_up({0.1: 0.55}, contexts=4 * needed)).verdict == "holds"


def test_a_model_that_fails_has_a_number_and_no_verdict() -> None:
    """It keeps all of what the full cache has, far above the threshold, and is in no family of tests."""
    sound, low = made_up({0.1: 0.9}), made_up({0.1: 0.3}, clean=0.3)
    beside = replace(claim(0.5, identifier="F2"), experiments=(replace(EXPERIMENT, name="beside"),))
    found, judged = judge([claim(0.5), beside], {EXPERIMENT.name: low, "beside": sound})
    assert (found.verdict, found.p) == ("undecided", None)
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(1)
    assert found.estimate.low is not None
    assert found.estimate.low > 0.5
    assert found.why == "base: the full cache reaches 0.3 of right, not 0.5"
    (alone,) = judge([beside], {"beside": sound})
    assert (judged.verdict, judged.p) == (alone.verdict, alone.p)


def test_of_nothing_right_there_is_no_share() -> None:
    found = verdict_of(claim(0.5), made_up({0.1: 0.3}, clean=0.0))
    assert (found.verdict, found.estimate) == ("undecided", None)
    assert found.why == "base: the full cache reaches 0 of right, not 0.5"


def test_answers_that_failed_stay_in_the_denominator() -> None:
    found = made_up({0.1: 1.0}, due=CONTEXTS * QUESTIONS // 2).of("base")
    assert found.mean("zeros", 0.1)[0] == 0.5


def test_claims_of_a_text_are_corrected_together() -> None:
    """A p of 0.02 alone is none among twenty; the plain interval is shown, and the row says what became of it."""
    evidence = made_up({0.1: 0.58})
    alone = verdict_of(claim(0.5), evidence)
    together = judge([claim(0.5, identifier=f"F{number}") for number in range(1, 21)], {EXPERIMENT.name: evidence})
    assert alone.verdict == "holds"
    assert alone.p is not None
    assert alone.p > 0.05 / 20
    assert {one.verdict for one in together} == {"undecided"}
    assert together[0].why == "undecided once corrected for the claims tested with it"
    assert together[0].estimate == alone.estimate


@pytest.mark.parametrize("one", claims().values(), ids=claims())
def test_every_claim_can_be_run_as_declared(one: Claim) -> None:
    """Its experiment passes the checks of a run, and its policies have the names that records will have."""
    for experiment in one.experiments:
        job = job_of(experiment, limit=2)
        check_job(job)
        names = [policy.name for policy in build_grid(job, count_by(job.model)).setting.policies]
        assert set(names) >= set(split_outside_brackets(experiment.policies)), names
    assert one.identifier.startswith(one.text.letter)
    assert one.words.endswith(".")
    assert one.reported
    assert one.statistic
