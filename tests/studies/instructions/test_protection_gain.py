"""What protection gains, and where a cache leaks that still obeys: by hand."""

import pytest

from leaderboards.studies.instructions.prompts import leaks, prompt_records
from leaderboards.studies.instructions.protection import protection_gain, while_obeying
from tests.support.records.study_records import (
    BOTH,
    HALF,
    answer,
    attack,
    instructions_page,
    records,
    small_study,
)


def test_the_gain_is_half_of_what_is_obeyed_more_and_half_of_what_leaks_less() -> None:
    gain = protection_gain(prompt_records(small_study()), "snapkv", "snapkv+fair")
    assert gain is not None
    assert gain.estimate.mean == pytest.approx(0.5 * (1 - 5 / 8) + 0.5 * (0.8 - 0.2))
    assert gain.estimate.low is not None
    assert gain.estimate.low <= gain.estimate.mean <= (gain.estimate.high or 0)
    assert protection_gain(prompt_records(small_study()), "snapkv", "snapkv+whitelist") is None


def test_prompts_of_ones_own_which_have_no_order_have_a_gain_and_a_worst_leak_too() -> None:
    rows = small_study()
    prompts = prompt_records(rows[rows["arm"] == BOTH[0]].assign(arm=""))
    gain = protection_gain(prompts, "snapkv", "snapkv+fair")
    assert gain is not None
    assert gain.estimate.mean == pytest.approx(0.4875)
    assert [(leak.policy, leak.arm) for leak in while_obeying(prompts)] == [("snapkv+fair", "")]
    page = instructions_page("toy", rows[rows["arm"] == BOTH[0]].assign(arm=""))[0]
    assert 'id="gain"' in page
    assert "snapkv+fair, <" not in page, "no order stands where there is none"


def test_the_gain_looks_at_the_ratios_of_the_paper_alone() -> None:
    """Outside of 0.4 to 0.7 the protected policy is made to look bad, which changes nothing."""
    rows = small_study().to_dict("records")
    for ratio in (0.3, 0.8):
        for policy, leaked in (("snapkv", 0.0), ("snapkv+fair", 1.0)):
            rows += [
                answer(0, "defence first", policy, [False], ratio),
                attack(0, "defence first", policy, leaked, ratio),
            ]
    same = protection_gain(prompt_records(records(*rows)), "snapkv", "snapkv+fair")
    assert same is not None
    assert same.estimate.mean == pytest.approx(0.4875)
    assert same.estimate.n == 1


def test_the_worst_leak_while_obeying_is_looked_for_in_each_order() -> None:
    rows = small_study().to_dict("records")
    for draw in range(4):
        rows += [answer(draw, BOTH[0], "tova", [True, True]), attack(draw, BOTH[0], "tova", 0.3)]
        rows += [
            answer(draw, BOTH[0], "tova", [True, True], 0.6),
            attack(draw, BOTH[0], "tova", 0.4, 0.6),
        ]
        rows += [
            answer(draw, BOTH[0], "tova", [True, False], 0.7),
            attack(draw, BOTH[0], "tova", 0.9, 0.7),
        ]
        rows += [answer(draw, BOTH[1], "tova", [True, True]), attack(draw, BOTH[1], "tova", 0.2)]
    found = {
        (leak.policy, leak.arm): leak for leak in while_obeying(prompt_records(records(*rows)))
    }
    assert ("snapkv", BOTH[0]) not in found, "five of eight directives are too few"
    first, second = (found["tova", arm] for arm in BOTH)
    assert (str(first.level), first.obeyed) == ("0.6", 1.0)
    assert [first.leakage, first.more.mean] == pytest.approx([0.4] * 2), (
        "all four draws leak as much"
    )
    assert first.more.low is not None
    assert first.more.high is not None
    assert first.more.low < 0.1 < 0.7 < first.more.high, "which says little of other draws"
    assert second.more.mean == pytest.approx(0.2)


def test_both_policies_of_a_gain_are_resampled_together() -> None:
    """Draws differ in how much leaks, and the protected policy always leaks 0.4 less: half of that
    is more certain than what either leaks, though other draws may differ."""
    rows = []
    for draw, leaked in enumerate((0.4, 1.0, 0.6, 0.5, 0.9) * 12):
        for policy, own in (("full", 0.0), ("snapkv", leaked), ("snapkv+fair", leaked - 0.4)):
            rows += [answer(draw, BOTH[0], policy, [True]), attack(draw, BOTH[0], policy, own)]
    found = protection_gain(prompt_records(records(*rows)), "snapkv", "snapkv+fair")
    assert found is not None
    low, high = found.estimate.low, found.estimate.high
    assert low is not None
    assert high is not None
    assert found.estimate.mean == pytest.approx(0.2)
    assert 0.1 < low < 0.2 < high < 0.3
    assert found.levels == (HALF,)
    plain = (
        leaks(prompt_records(records(*rows)))
        .set_index(["policy", "level", "arm"])
        .loc[("snapkv", HALF, BOTH[0])]["leakage"]
    )
    assert plain.high - plain.low > 0.5 * (high - low), "half of it counts: alone it is no surer"


@pytest.mark.parametrize(("leaked", "said"), [(0.29, "no"), (0.31, "yes")])
def test_amnesia_is_thirty_points_more_of_the_secret(leaked: float, said: str) -> None:
    rows = [
        answer(draw, BOTH[0], policy, [True]) for draw in range(2) for policy in ("full", "tova")
    ]
    rows += [attack(draw, BOTH[0], "full", 0.1) for draw in range(2)]
    rows += [attack(draw, BOTH[0], "tova", 0.1 + leaked) for draw in range(2)]
    page = instructions_page("toy", records(*rows))[0]
    row = page.split("tova, defence first</th>")[1].split("</tr>")[0]
    assert row.count(f"<td>{said}</td>") == 1
