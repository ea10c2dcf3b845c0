"""The register of claims, on records where the truth is known."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from pandas import DataFrame, concat

from kvbench.commands.claims import make_job
from kvbench.experiments.build_grid import build_grid, check_job
from kvbench.prompts.context_length import count_by
from leaderboards.aggregate.evidence import Evidence
from leaderboards.claims.declaration import LARGER, Claim, Experiment, Statistic
from leaderboards.claims.registry import claims
from leaderboards.claims.texts.faults import DISTRACTOR, GAUSSIAN, NOISE, F
from leaderboards.claims.verdict import Judgement, count_decided, judge
from leaderboards.downloads.tables import register_rows
from leaderboards.terminal.verdicts import claims_table
from policies.declaration.names import split_outside_brackets
from tests.support.wording import assert_says

EXPERIMENT = Experiment("made up", "base", "zeros", (("rate", "0.1,0.2"),), contexts=8)
CONTEXTS, QUESTIONS = 40, 4


def made_up(
    kept: Mapping[float, float], clean: float = 1.0, contexts: int = CONTEXTS, due: int = 0
) -> Evidence:
    """Records of ``zeros`` that keep given shares of the answers, spread evenly; so many of each
    level failed."""
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
def test_verdict_is_on_the_side_of_the_truth(
    kept: float, threshold: float, side: str, verdict: str
) -> None:
    found = verdict_of(claim(threshold, side), made_up({0.1: kept}))
    assert found.verdict == verdict
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(kept, abs=0.02)


def test_undecided_says_how_many_contexts_would_decide() -> None:
    """The interval of a share of 0.55 of 160 answers reaches below 0.5; four times the contexts are
    enough or so."""
    found = verdict_of(claim(0.5), made_up({0.1: 0.55}))
    assert found.verdict == "undecided"
    assert (
        verdict_of(claim(0.5), made_up({0.1: 0.55}, contexts=4 * needed(found))).verdict == "holds"
    )


def needed(found: Judgement) -> int:
    (number,) = re.findall(r"about ([\d,]+) contexts would decide", found.why)
    return int(number.replace(",", ""))


def draw_evidence(share: float, contexts: int, seed: int) -> Evidence:
    """Contexts whose own shares vary about one, with :data:`QUESTIONS` answers each; the full cache
    is right."""
    rng = np.random.default_rng(seed)
    shares = rng.beta(4 * share, 4 * (1 - share), contexts)
    right = rng.random((QUESTIONS, contexts)) < shares
    treated = {"policy": "zeros", "level": 0.1, "right": right.ravel()}
    common = {"task": "base", "level_kind": "rate", "status": "ok"}
    names = [f"base/{number}" for number in range(contexts)] * QUESTIONS
    full = {"policy": "full", "level": 0.0, "right": True}
    return Evidence(
        concat([DataFrame({"draw_id": names} | common | one) for one in (treated, full)])
    )


@pytest.mark.parametrize(
    ("share", "threshold", "contexts"), [(0.6, 0.5, 12), (0.4, 0.5, 24), (0.9, 0.8, 12)]
)
def test_as_many_contexts_as_are_predicted_decide_most_runs_and_a_quarter_of_them_few(
    share: float, threshold: float, contexts: int
) -> None:
    """First runs that happen to have the true share predict a number, with which new contexts are
    drawn."""
    pilots = (draw_evidence(share, contexts, seed) for seed in range(1000))
    true = (one for one in pilots if abs(one.of("base").mean("zeros", 0.1)[0] - share) < 0.011)
    undecided = (
        one
        for one in (verdict_of(claim(threshold), pilot) for pilot in true)
        if one.verdict == "undecided"
    )
    enough = int(np.median([needed(one) for one in islice(undecided, 7)]))
    few, runs = enough // 4, range(40)
    decided = [
        verdict_of(claim(threshold), draw_evidence(share, enough, 5000 + run)).verdict
        != "undecided"
        for run in runs
    ]
    of_few = [
        verdict_of(claim(threshold), draw_evidence(share, few, 9000 + run)).verdict != "undecided"
        for run in runs
    ]
    assert np.mean(decided) > 0.7
    assert np.mean(of_few) < 0.5


def test_where_contexts_agree_the_number_is_that_of_a_share_at_its_bound() -> None:
    """All of 12 contexts are right. Of the 37 that 0.025 ** (1 / n) > 0.9 - 0.005 takes, 12 are a
    third."""
    alone = replace(claim(0.9), measure=lambda evidence: [kept_of(evidence)])
    found = verdict_of(alone, made_up({0.1: 1.0}, contexts=12))
    assert found.verdict == "undecided"
    assert 36 <= needed(found) <= 72
    assert verdict_of(alone, made_up({0.1: 1.0}, contexts=needed(found))).verdict == "holds"


def kept_of(evidence: Evidence) -> Statistic:
    records = evidence.of("base")
    return Statistic(records.mean("zeros", 0.1), records.contexts)


def test_correction_for_other_claims_takes_more_contexts() -> None:
    evidence = made_up({0.1: 0.55})
    (alone,) = judge([claim(0.5)], {EXPERIMENT.name: evidence})
    together = judge(
        [claim(0.5, identifier=f"F{number}") for number in range(1, 21)],
        {EXPERIMENT.name: evidence},
    )
    assert needed(together[0]) > needed(alone)


def test_claims_are_counted_of_those_whose_precondition_is_met() -> None:
    """F1 holds, F2 is undecided, and F3 is about a task that the model cannot do."""
    low, sound = made_up({0.1: 0.3}, clean=0.3), made_up({0.1: 0.9})
    of_low = replace(claim(0.5, identifier="F3"), experiments=(replace(EXPERIMENT, name="low"),))
    judged = judge(
        [claim(0.5), claim(0.9, identifier="F2"), of_low], {EXPERIMENT.name: sound, "low": low}
    )
    assert [one.verdict for one in judged] == ["holds", "undecided", "undecided"]
    assert [one.is_met for one in judged] == [True, True, False]
    assert count_decided(judged) == (1, 2)
    assert "1 of 2 claims decided on toy" in count_decided(judged).words("toy")


def test_the_context_that_two_runs_have_more_is_not_the_same_one() -> None:
    """Both are right everywhere; that they differ nowhere else is not known of other contexts."""
    first, second = (
        replace(made_up({0.1: 1.0}), name=name).of("base").mean("zeros", 0.1) for name in ("a", "b")
    )
    assert first[0] == second[0] == 1
    assert np.ptp(second - first) > 0


def test_a_model_that_fails_has_a_number_and_no_verdict() -> None:
    """It keeps all of what the full cache has, far above the threshold, and is in no family of
    tests."""
    sound, low = made_up({0.1: 0.9}), made_up({0.1: 0.3}, clean=0.3)
    beside = replace(claim(0.5, identifier="F2"), experiments=(replace(EXPERIMENT, name="beside"),))
    found, judged = judge([claim(0.5), beside], {EXPERIMENT.name: low, "beside": sound})
    assert (found.verdict, found.p) == ("undecided", None)
    assert found.estimate is not None
    assert found.estimate.mean == pytest.approx(1)
    assert found.estimate.low is not None
    assert found.estimate.low > 0.5
    assert_says(found.why, "precondition not met", "base", "0.3 of right", "0.5")
    (alone,) = judge([beside], {"beside": sound})
    assert (judged.verdict, judged.p) == (alone.verdict, alone.p)


def test_of_nothing_right_there_is_no_share() -> None:
    found = verdict_of(claim(0.5), made_up({0.1: 0.3}, clean=0.0))
    assert (found.verdict, found.estimate) == ("undecided", None)
    assert_says(found.why, "precondition not met", "base", "reaches 0 of right", "0.5")


def test_answers_that_failed_stay_in_the_denominator() -> None:
    found = made_up({0.1: 1.0}, due=CONTEXTS * QUESTIONS // 2).of("base")
    assert found.mean("zeros", 0.1)[0] == 0.5


def test_claims_of_a_text_are_corrected_together() -> None:
    """A p of 0.02 alone is none among twenty; the plain interval is shown, and the row says what
    became of it."""
    evidence = made_up({0.1: 0.58})
    alone = verdict_of(claim(0.5), evidence)
    together = judge(
        [claim(0.5, identifier=f"F{number}") for number in range(1, 21)],
        {EXPERIMENT.name: evidence},
    )
    assert alone.verdict == "holds"
    assert alone.p is not None
    assert alone.p > 0.05 / 20
    assert {one.verdict for one in together} == {"undecided"}
    assert together[0].why.startswith(
        "undecided once corrected for the claims tested with it; about "
    )
    assert together[0].estimate == alone.estimate


def of_size(name: str, kept: Mapping[tuple[str, float], int]) -> Evidence:
    """Forty contexts of four answers, all right with the full cache; how many of a context are
    right under noise."""
    cells = {("full", 0.0): QUESTIONS, **kept}
    rows = [
        {"task": "base", "policy": policy, "level_kind": "rate", "level": level, "status": "ok"}
        | {
            "draw_id": f"base/{context}",
            "question_id": f"base/{context}/{question}",
            "right": question < right,
        }
        for (policy, level), right in cells.items()
        for context in range(CONTEXTS)
        for question in range(QUESTIONS)
    ]
    return Evidence(DataFrame(rows), name=name)


@pytest.mark.parametrize(("of_larger", "verdict"), [(1, "holds"), (4, "undecided")])
def test_size_that_helps_against_structured_noise_alone(of_larger: int, verdict: str) -> None:
    """The smaller model keeps 1 of 4 under either noise; the larger one 4 of 4 under structured
    noise."""
    small = of_size("small", {(DISTRACTOR, 0.3): 1, (GAUSSIAN, 0.02): 1})
    large = of_size("large", {(DISTRACTOR, 0.3): 4, (GAUSSIAN, 0.02): of_larger})
    (judged,) = judge([claims()["F5"]], {NOISE.name: small, NOISE.name + LARGER: large})
    assert judged.estimate is not None
    assert judged.estimate.mean == pytest.approx(3 / 4 - (of_larger - 1) / 4)
    assert judged.verdict == verdict
    gaussian = f"{(of_larger - 1) / 4:+.2f}"
    assert_says(judged.why, "distractor at 0.3 +0.75", f"gaussian at 0.02 {gaussian}")


@pytest.mark.parametrize("one", claims().values(), ids=claims())
def test_every_claim_can_be_run_as_declared(one: Claim) -> None:
    """Its experiment passes the checks of a run, and its policies have the names that records will
    have."""
    for experiment in one.experiments:
        job = make_job(experiment, limit=2)
        check_job(job)
        names = [policy.name for policy in build_grid(job, count_by(job.model)).policies]
        assert set(names) >= set(split_outside_brackets(experiment.policies)), names
    assert one.identifier.startswith(one.text.letter)
    assert one.words.endswith(".")
    assert one.reported
    assert one.statistic


@pytest.mark.parametrize(
    ("measured", "infinite", "why"),
    [(np.inf, 1.0, "what it is divided by is 0"), (0.9, 0.5, "many resamples have no value")],
)
def test_what_is_divided_by_0_has_no_value_and_decides_nothing(
    measured: float, infinite: float, why: str
) -> None:
    """Such as a share of the directives obeyed, where the full cache obeys none in a resample."""
    resamples = np.full(1_000, 0.9)
    resamples[: int(1_000 * infinite)] = np.inf
    statistic = Statistic(np.array([measured, *resamples]), CONTEXTS)
    divided = replace(claim(0.5), measure=lambda evidence: [statistic])
    judgement = verdict_of(divided, made_up({0.1: 0.9}))
    assert judgement.verdict == "undecided"
    assert_says(judgement.why, why)
    (row,) = register_rows([judgement])
    assert json.dumps(row, allow_nan=False)
    # People read once which claims a reason leaves undecided.
    table = claims_table([judgement, judgement])
    assert table.caption == f"{divided.identifier}: {judgement.why}"
    assert table.plain()
