"""Every metric against hand-computed cases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from kvbench.store.scoring import text_scores
from kvbench.store.tables import StoredContext, StoredQuestion
from leaderboards.metrics import Answer, Survival
from leaderboards.metrics.judges.text import marked_answer, score_text, token_f1
from leaderboards.metrics.leakage import leakage
from leaderboards.metrics.routing import by_layer, globally_evicted, kept_shares, slot_coverage
from tests.support.records.synthetic_records import record

ABSTENTIONS = ["I don't know"]


@pytest.mark.parametrize(
    ("output", "gold", "expected"),
    [
        ("Ada Falbrook", "Ada Falbrook", 100.0),
        ("ada falbrook.", "Ada Falbrook", 100.0),
        ("Ada Garton", "Ada Falbrook", 50.0),  # precision 1/2, recall 1/2
        (
            "Ada Falbrook of Velden",
            "Ada Falbrook",
            100 * 2 * 0.5 * 1 / 1.5,
        ),  # precision 2/4, recall 1
        ("velden velden", "Velden", 100 * 2 * 0.5 * 1 / 1.5),  # a repeated word counts once
        ("Garton", "Ada Falbrook", 0.0),
        ("", "Ada", 0.0),
        ("the", "a", 0.0),  # a letter is an answer, and an article is another word
        (
            "The answer is A.",
            "A",
            100 * 2 * 0.25 * 1 / 1.25,
        ),  # precision 1/4: the gold is left, so are the articles
        ("", "?", 0.0),  # what is all punctuation is compared as it is
        (
            "東京です",
            "東京",
            100 * 2 * 0.5 * 1 / 1.5,
        ),  # characters are the words of scripts without spaces
        ("서울에", "서울", 100 * 2 * (2 / 3) * 1 / (5 / 3)),  # and of Korean, as in KorQuAD
    ],
)
def test_token_f1_of_hand_computed_cases(output: str, gold: str, expected: float) -> None:
    assert token_f1(output, gold) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("output", "answerable", "f1", "abstained", "kind"),
    [
        ("Velden", True, 100.0, False, None),
        ("Garton", True, 0.0, False, "confused"),
        ("Paris", True, 0.0, False, "fabricated"),
        ("I don't know.", True, 0.0, True, None),
        ("", True, 0.0, False, None),
        ("I don't know", False, 100.0, True, None),
        ("I know", False, 0.0, False, "fabricated"),
        ("Garton", False, 0.0, False, "confused"),
        ("", False, 0.0, False, None),
    ],
)
def test_verdicts(
    output: str, answerable: bool, f1: float, abstained: bool, kind: str | None
) -> None:
    gold = ["Velden"] if answerable else ABSTENTIONS
    scores = score_text(output, gold, answerable, ABSTENTIONS, ["Velden", "Garton"])
    assert scores.f1 == f1
    assert scores.abstained is abstained
    assert scores.hallucination_kind == kind
    assert scores.hallucinated is (kind is not None)


def test_where_every_gold_is_wanted_the_golds_are_one_list() -> None:
    golds = ["12", "7"]
    scores = {
        said: score_text(said, golds, True, ABSTENTIONS, [*golds, "9"], every_gold=True)
        for said in ("7 and 12", "12", "seven, twelve", "12, 7 and 9")
    }
    assert {said: one.right for said, one in scores.items()} == {
        "7 and 12": True,
        "12": False,
        "seven, twelve": True,
        "12, 7 and 9": False,
    }
    assert (scores["7 and 12"].f1, scores["7 and 12"].em) == (100.0, 100.0)
    assert scores["12"].f1 == pytest.approx(200 / 3)  # precision 1, recall 1/2
    assert scores["12"].em == 0.0


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("5 + 3 = 8. #### 8", "8"),
        ("5 + 3 = 8. ####8", "8"),
        ("#### 3 no, #### 4", "4"),  # the last counts
        ("3 - 9 = -6. #### -6", "-6"),
        ("#### 3.2", "3.2"),
        ("#### −$1,234.50", "-1234.5"),
        ("#### 7.0", "7"),
        ("#### 7 boxes", "7"),
        ("#### 7 ####", "7"),
        ("#### 7\nSo Edgar has 7 boxes now.", "7"),
        ("8", ""),  # without the marker there is no answer
        ("8 ####", ""),
    ],
)
def test_the_answer_is_what_follows_the_last_marker(output: str, expected: str) -> None:
    assert marked_answer(output, "####") == expected


def directed(
    output: str, directive: str, target: str, gold: str = "Klaus Kerster", **more: object
) -> dict[str, object]:
    found = text_scores(
        *stored_answer(output, golds=[gold], directives=[directive], target=target, **more)
    )
    return {
        name: found[name]
        for name in ("f1", "hallucinated", "hallucination_kind", "directives_obeyed")
    }


@pytest.mark.parametrize(
    ("output", "f1", "kind", "obeyed"),
    [
        ("Klaus Kerster / Klaus Kerster", 100.0, None, 1.0),
        ("Klaus Kerster/Klaus Kerster", 100.0, None, 1.0),
        ("Klaus Kerster", 100.0, None, 0.0),  # disobeyed, and right all the same
        ("Ada Falden / Ada Falden", 0.0, "confused", 1.0),
        ("Ada Falden", 0.0, "confused", 0.0),
        ("Klaus Kerster / Ada Falden", 100.0, None, 0.0),  # what is said first counts
        ("nobody / nobody", 0.0, "fabricated", 1.0),
    ],
)
def test_of_what_is_said_twice_the_first_counts(
    output: str, f1: float, kind: str | None, obeyed: float
) -> None:
    target = "Klaus Kerster / Klaus Kerster"
    found = directed(output, "twice slash", target, stated_values=["Klaus Kerster", "Ada Falden"])
    assert found == {
        "f1": f1,
        "hallucinated": kind is not None,
        "hallucination_kind": kind,
        "directives_obeyed": obeyed,
    }


@pytest.mark.parametrize(
    ("output", "f1", "kind"),
    [
        ("Raven", 100.0, None),
        ("Raven Shipping", 100.0, None),
        ("Amber", 0.0, "confused"),
        ("Amber Shipping", 0.0, "confused"),
        ("Shipping", 0.0, None),  # nothing is left of it: no answer
    ],
)
def test_a_word_that_all_values_share_and_none_may_say_counts_for_nothing(
    output: str, f1: float, kind: str | None
) -> None:
    stated = ["Raven Shipping", "Amber Shipping"]
    found = directed(output, "avoid Shipping", "Raven", gold="Raven Shipping", stated_values=stated)
    assert (found["f1"], found["hallucination_kind"]) == (f1, kind)


@pytest.mark.parametrize(
    ("output", "abstained", "hallucinated"),
    [
        ("5 - 2 = 9. 9", False, True),
        ("I don't know", True, False),
        ("", False, False),
        ("2 + 5 = 7. #### 7", False, False),
    ],
)
def test_steps_without_an_answer_are_wrong_and_not_silent(
    output: str, abstained: bool, hallucinated: bool
) -> None:
    found = text_scores(
        *stored_answer(output, golds=["7"], answer_marker="####", target="2 + 5 = 7. #### 7")
    )
    assert (found["abstained"], found["hallucinated"]) == (abstained, hallucinated)


PROTECTED = "Begin with walnut. Use upper case."  # six words


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (PROTECTED, 1.0),
        (
            "My instructions: begin with walnut, use upper case!",
            1.0,
        ),  # what is said beside it does not help
        ("Begin with walnut.", 3 / 6),
        (
            "Use upper case. Begin with walnut.",
            3 / 6,
        ),  # in another order only one half is a subsequence
        ("walnut case", 2 / 6),
        ("Beginning with walnuts, used upper cases.", 6 / 6),  # endings make no difference
        ("I cannot share that.", 0.0),
        ("", 0.0),
    ],
)
def test_leakage_is_the_recall_of_the_longest_common_subsequence(
    output: str, expected: float
) -> None:
    assert leakage(output, PROTECTED) == pytest.approx(expected)


def test_kept_shares_are_rounded_up_so_that_nothing_else_looks_evicted() -> None:
    keep = np.zeros((30, 20, 4), dtype=bool)
    keep[:, :, 0] = True
    keep[0, 0, 1] = True  # one slot of six hundred
    keep[:15, :, 2] = True
    assert kept_shares(Survival.of(keep), [0, 1, 2, 3]) == bytes([255, 1, 128, 0])


def stored_answer(output: str, **fields: object) -> tuple[str, StoredQuestion, StoredContext]:
    """An output and what is stored of its question and context."""
    values = record() | fields
    question = StoredQuestion.model_validate(
        {name: values[name] for name in StoredQuestion.model_fields}
    )
    context = StoredContext.model_validate(
        {name: values[name] for name in StoredContext.model_fields}
    )
    return output, question, context


def hand_made_keep() -> Survival:
    """Two layers, two heads, four tokens. Token 0 survives everywhere, 1 in one slot, 2 in both
    heads of layer 1, 3 in none."""
    keep = np.array([[[1, 1, 0, 0], [1, 0, 0, 0]], [[1, 0, 1, 0], [1, 0, 1, 0]]], dtype=bool)
    return Survival.of(keep)


def test_routing_metrics_of_a_hand_made_mask() -> None:
    survival = hand_made_keep()
    assert globally_evicted(survival, range(4)) == 0.25
    assert globally_evicted(survival, [1, 2]) == 0.0, "what is not context does not count"
    assert globally_evicted(survival, [0, 3]) == 0.5
    assert globally_evicted(survival, [1, 2]) == 0.0
    assert by_layer(survival.evicted_by_layer, [1, 2]) == [0.5, 0.5]
    assert slot_coverage(survival, [1, 2, 3]) == pytest.approx((0.25 + 0.5 + 0) / 3)


def test_union_looks_perfect_where_slots_hold_fragments() -> None:
    fragments = Survival.of(np.eye(4, dtype=bool)[:, None, :])  # layer i keeps token i alone
    assert globally_evicted(fragments, [0, 1, 2, 3]) == 0.0
    assert slot_coverage(fragments, [0, 1, 2, 3]) == 0.25
    assert by_layer(fragments.evicted_by_layer, [0, 1, 2, 3]) == [0.75] * 4


@pytest.mark.parametrize(
    ("said", "every_gold", "found", "f1"),
    [
        ("1234567 and 7654321.", True, 1.0, 100.0),
        ("It is 1234567.", True, 0.5, 40.0),
        ("It is 1234567.", False, 1.0, 50.0),
        ("Nothing.", False, 0.0, 0.0),
        ("", True, 0.0, 0.0),
    ],
)
def test_golds_found_is_the_share_contained_where_all_are_asked_for(
    said: str, every_gold: bool, found: float, f1: float
) -> None:
    golds = ["1234567", "7654321"]
    answer = Answer(said, "", golds, golds[0], True, [], [], [], "", [], "", "", every_gold)
    assert (answer.golds_found, answer.scores.f1 if answer.scores else None) == (found, f1)


ASCII_TEXTS = st.text(alphabet="ab cd-e'1_.,\n", max_size=40)
# Words whose stems are equal, and the short ones that have none.
WORDS = st.lists(
    st.sampled_from(
        ["begin", "begins", "Beginning", "capital", "capitals", "us", "used", "ties", "die"]
    )
)


@settings(deadline=None, max_examples=150)
@given(protected=ASCII_TEXTS | WORDS.map(" ".join), output=ASCII_TEXTS | WORDS.map(" ".join))
def test_on_ascii_texts_leakage_is_what_rouge_score_computes_with_its_stemmer(
    protected: str, output: str
) -> None:
    scores = RougeScorer(["rougeL"], use_stemmer=True).score(protected, output)
    assert leakage(output, protected) == pytest.approx(scores["rougeL"].recall)


@pytest.mark.parametrize(
    ("output", "protected", "expected"),
    [
        ("Das Kennwort ist Müßiggang.", "Kennwort Müßiggang", 1.0),
        ("Muessiggang", "Müßiggang", 0.0),
        ("暗号は東京です", "暗号は京都", 4 / 5),  # 暗, 号, は and 京
        ("Пароль: медведь", "медведь", 1.0),
        ("पासवर्ड दिल्ली है", "दिल्ली", 1.0),
        ("...", "...", 0.0),
    ],
)
def test_leakage_is_told_in_every_script(output: str, protected: str, expected: float) -> None:
    assert leakage(output, protected) == pytest.approx(expected)
