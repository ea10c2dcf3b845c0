"""The page on errors says what is true of records whose truth is known."""

import pytest
from pandas import concat

from kvbench.experiments.build_grid import build_grid
from kvbench.store.run_file import Job
from leaderboards.claims.declaration import Experiment
from leaderboards.claims.texts.errors import ERRORS, QUANTISED, SIGNS
from leaderboards.rendering.listing import Listing
from leaderboards.studies.declaration import StudyInput, StudySection, build_study
from leaderboards.studies.errors.published import ROWS
from leaderboards.studies.errors.study import STUDY
from leaderboards.studies.errors.treatments import treatments_among
from leaderboards.studies.faults.study import STUDY as FAULTS
from tests.support.records.damaged_records import treated_records

BIASED, WIDE = "multiplicative_uniform(low=0,high=2)", "multiplicative_uniform(low=-1.5,high=1.5)"


@pytest.fixture(scope="module")
def page() -> tuple[str, dict[str, StudySection]]:
    """A bias costs all, uniform errors a quarter, normal ones a half, all of it by the keys; int4 nothing."""
    records = treated_records(
        {
            "multiplicative_uniform": lambda rate, question: rate == 0 or question > 0,
            BIASED: lambda rate, question: rate == 0,
            WIDE: lambda rate, question: rate == 0 or question > 0,
            "multiplicative_normal": lambda rate, question: rate == 0 or question > 1,
            "multiplicative_normal(tensor=K)": lambda rate, question: rate == 0 or question > 1,
            "multiplicative_normal(tensor=V)": lambda rate, question: True,
        },
        (0.0, 1.0),
        repeats=2,
    )
    bits = treated_records({"int4": lambda ratio, question: True}, (0.0,), kind="ratio")
    records = concat([records, bits]).drop_duplicates(["policy", "level", "repeat", "question_id"])
    given = StudyInput("toy", records)
    assert STUDY.takes(given)
    text, content = build_study(STUDY, given)
    return text, {part.identifier: part for part in content.parts}


def rows(part: StudySection) -> dict[str, tuple[str, ...]]:
    listing: Listing = part.listings[0]
    return {row[0]: row[1:] for row in listing.rows}


def test_ours_stand_beside_theirs_with_interval_and_contexts(page: tuple[str, dict[str, StudySection]]) -> None:
    table = rows(page[1]["control"])
    assert table["int4"] == ("fewer bits", "100 [100 to 100]", "8", "98", "115")
    assert table["multiplicative_uniform at 0"][1:] == ("100 [100 to 100]", "8", "–", "–")
    assert table["multiplicative_uniform"][1:] == (
        *("75 [75 to 75]", "8", "83"),
        "83 (by its counts 53), 85 (by its counts 61)",
    )
    assert table[BIASED][1:] == ("0 [0 to 0]", "8", "–", "“random tokens”")
    assert table["int8"] == ("–", "not run", "–", "98", "91")
    assert "multiplicative_normal(tensor=K)" not in table


def test_the_arithmetic_of_the_text_is_computed(page: tuple[str, dict[str, StudySection]]) -> None:
    part = page[1]["contradictions"]
    assert [row[1:] for row in part.listings[0].rows] == [
        ("0.83", "27.4 / 51.3 = 0.53", "-0.30"),
        ("0.85", "31.4 / 51.3 = 0.61", "-0.24"),
    ]
    for remark in ("keep 0.91, which is below the 0.98", "both keep 0.61: no difference"):
        assert remark in str(part.text)
    counts = [figure for row in ROWS for figure in row.next_token if figure.share is not None]
    assert [figure.share for figure in counts] == pytest.approx([27.4 / 51.3, 31.4 / 51.3])


def test_what_differs_in_one_thing_is_set_against_the_other(page: tuple[str, dict[str, StudySection]]) -> None:
    table = rows(page[1]["matched"])
    assert table[f"{BIASED} − multiplicative_uniform"] == ("0 [0 to 0]", "75 [75 to 75]", "-75 [-75 to -75]", "yes")
    assert table[f"multiplicative_normal − {WIDE}"][2:] == ("-25 [-25 to -25]", "yes")


def test_keys_are_set_against_values(page: tuple[str, dict[str, StudySection]]) -> None:
    half = "50 [50 to 50]"
    expected = (half, half, "100 [100 to 100]", "-50 [-50 to -50]")
    assert rows(page[1]["tensors"])["multiplicative_normal"] == expected


def test_answers_of_every_treatment_have_an_outcome(page: tuple[str, dict[str, StudySection]]) -> None:
    table = rows(page[1]["outcomes"])
    assert table[BIASED] == ("0", "100", "0")
    assert table["int4"] == ("100", "0", "0")


def test_noise_is_drawn_over_its_spread(page: tuple[str, dict[str, StudySection]]) -> None:
    treatments = treatments_among(["int4", "multiplicative_normal(std=0.87)", WIDE, BIASED, "zeros", "sign_flip"])
    assert [one.sort for one in treatments] == ["fewer bits", "uniform", "uniform", "normal", "signs"]
    assert [one.spread or 0 for one in treatments] == pytest.approx([0, 0.866, 0.577, 0.87, 0], abs=1e-3)
    assert [one.centred for one in treatments] == [False, True, False, True, False]
    assert len(page[1]["spreads"].pictures) == 1


def test_it_takes_runs_with_fewer_bits_and_errors_alone() -> None:
    faults = treated_records({"multiplicative_uniform": lambda rate, question: True}, (0.0, 1.0))
    assert not STUDY.takes(StudyInput("toy", faults))
    assert not FAULTS.takes(StudyInput("toy", faults))  # a single rate is no curve


@pytest.mark.parametrize("experiment", [*QUANTISED, *ERRORS, *SIGNS], ids=lambda one: one.name)
def test_the_suite_has_every_answer_that_claims_of_text_e_ask_for(experiment: Experiment) -> None:
    """In the same tables, so that either borrows what the other has run."""
    suite = build_grid(Job(suite="errors"), len)
    levels = dict(experiment.levels)
    job = Job(
        tasks=experiment.tasks,
        policies=experiment.policies,
        controls=False,
        levels=levels,
        repeats=experiment.repeats,
        limit=experiment.contexts,
    )
    claim = build_grid(job, len)
    assert claim.setting.tables == suite.setting.tables
    assert claim.setting.scope == suite.setting.scope
    contexts = {(task.name, task.full_version): count for task, count in suite.tasks}
    assert all(contexts[task.name, task.full_version] >= count for task, count in claim.tasks)
    policies = {policy.name: policy for policy in suite.setting.policies}
    for policy in claim.setting.policies:
        assert set(claim.points(policy)) <= set(suite.points(policies[policy.name]))
