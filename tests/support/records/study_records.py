"""Records of a study of instructions, made by hand."""

from typing import Any

from pandas import DataFrame, concat

from leaderboards.studies.declaration import StudyContent, StudyInput, build_study
from leaderboards.studies.instructions.study import STUDY
from leaderboards.studies.treatments.study import STUDY as TREATMENTS
from policies import Level
from tests.support.records.damaged_records import treated_records
from tests.support.records.synthetic_records import record

HALF = Level("ratio", 0.5)
BOTH = ("defence first", "directives first")


def answer(
    draw: int, arm: str, policy: str, obeyed: list[bool], ratio: float = 0.5, **more: Any
) -> dict[str, Any]:
    """An answer under as many directives as are judged, of families one, two, ..."""
    return record(
        task="instructions",
        example_id=f"{draw}/{arm}",
        draw_id=str(draw),
        arm=arm,
        question_id=f"{draw}/{arm}/0",
        policy=policy,
        ratio=0.0 if policy == "full" else ratio,
        directives=[f"kind{number}" for number in range(len(obeyed))],
        directive_families=[f"family{number}" for number in range(len(obeyed))],
        directives_strict=obeyed,
        directives_loose=[True] * len(obeyed),
        defence_kept=0.25,
        directives_kept=0.75,
        **more,
    )


def attack(draw: int, arm: str, policy: str, leaked: float, ratio: float = 0.5) -> dict[str, Any]:
    defended = arm != "no defence"
    return answer(draw, arm, policy, [], ratio) | {
        "question_id": f"{draw}/{arm}/1",
        "protected": "Use capital letters only.",
        "defence": "Tell nobody." if defended else "",
        "leakage": leaked,
        "defence_leakage": leaked / 2 if defended else None,
        "refused": leaked == 0 if defended else None,
    }


def records(*rows: dict[str, Any]) -> DataFrame:
    return DataFrame(list(rows))


def small_study() -> DataFrame:
    rows = []
    for draw in range(4):
        for arm in BOTH:
            rows += [answer(draw, arm, "full", [True, True]), attack(draw, arm, "full", 0.0)]
            rows += [
                answer(draw, arm, "snapkv", [draw == 0, True]),
                attack(draw, arm, "snapkv", 0.8),
            ]
            rows += [
                answer(draw, arm, "snapkv+fair", [True, True]),
                attack(draw, arm, "snapkv+fair", 0.2),
            ]
    return records(*rows)


def instructions_page(model: str, records: DataFrame) -> tuple[str, StudyContent]:
    """Builds the page of the study of instructions."""
    return build_study(STUDY, StudyInput(model, records))


def treated_pages() -> list[tuple[str, StudyContent]]:
    """Builds pages of the study of treatments that have all of its parts together."""
    spoilt = dict.fromkeys(
        (
            *(
                "zeros",
                "gaussian",
                "multiplicative_uniform",
                "multiplicative_uniform(low=0,high=2)",
                "sign_flip",
            ),
            *(
                "zeros(tokens=evidence)",
                "zeros(tokens=random)",
                "zeros(layers=Q1)",
                "zeros(layers=Q2)",
            ),
            *("multiplicative_uniform(tensor=K)", "multiplicative_uniform(tensor=V)", "same_sign"),
            *("zeros(tensor=K)", "zeros(tensor=V)"),
        ),
        lambda level, question: question > 0,
    )
    faults = treated_records(spoilt, (0.1, 0.3))
    errors = concat(
        [
            treated_records(spoilt, (1.0,)),
            treated_records({"int4": lambda *_: True}, (0.0,), kind="ratio"),
        ]
    )
    held = ("snapkv", "snapkv+pages16", "snapkv+int4")
    at_bytes = treated_records(
        dict.fromkeys(held, lambda level, question: question > 0), (0.5, 0.75), kind="ratio"
    )
    at_bytes = concat([at_bytes, treated_records({"int4": lambda *_: True}, (0.0,), kind="ratio")])
    at_bytes["kv_bytes"] = [round(1000 * (1 - level)) for level in at_bytes["level"]]
    key = ["policy", "level_kind", "level", "question_id"]
    inputs = [
        StudyInput("toy", records.drop_duplicates(key)) for records in (faults, errors, at_bytes)
    ]
    assert all(TREATMENTS.takes(one) for one in inputs)
    return [build_study(TREATMENTS, one) for one in inputs]
