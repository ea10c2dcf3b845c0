"""What is right and what matches exactly, over scripts, signs, letters, numbers and dates: a table,
a row a case."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_gen.texts.folding import fold
from leaderboards.metrics.judges.spoken import plain
from leaderboards.metrics.judges.text import TextScores, exact_match, score_text, token_f1

ABSTENTIONS = ("I don't know",)


def score_output(output: str, gold: str, *others: str, question: str = "") -> TextScores:
    return score_text(plain(output), [gold], True, ABSTENTIONS, [gold, *others], question=question)


# Output, gold, other stated values; right, exact match.
CASES = [
    # Letters: an article is none.
    ("", ("A",), False, False),
    (":", ("A",), False, False),
    ("The", ("A",), False, False),
    ("A.", ("A",), True, True),
    ("a", ("A",), True, True),
    ("A: Breveth", ("A",), True, False),
    ("A\n\nThe text says so.", ("A",), True, False),
    ("A man lives there.", ("A",), False, False),
    ("I think so.", ("I",), False, False),
    ("The answer is A because of that.", ("A",), True, False),
    ("It is B, not A.", ("B", "A"), True, False),
    ("A or B", ("A", "B"), False, False),
    # Signs belong to their word.
    ("O+", ("O-",), False, False),
    ("O−", ("O-",), True, True),
    ("O negative", ("O-", "O+"), True, False),
    ("The blood type is O, a variant.", ("O-",), False, False),
    ("C", ("C++",), False, False),
    ("C++", ("C",), False, False),
    ("C#", ("C++",), False, False),
    (">5", ("<5",), False, False),
    (">5", (">5",), True, True),
    ("A*", ("A*",), True, True),
    ("A", ("A*",), False, False),
    ("NET", (".NET",), False, False),
    ("O-O", ("O-O-O",), False, False),
    ("👎", ("👍",), False, False),
    ("It says 👍!", ("👍", "👎"), True, False),
    # Numbers are compared by their worth.
    ("3", ("3.0",), True, True),
    ("30", ("3.0",), False, False),
    ("3.10", ("3.1", "3.10"), False, False),  # both are stated: they are versions
    ("3.5", ("35",), False, False),
    ("10²", ("102",), False, False),
    ("1/2", ("12",), False, False),
    ("-5", ("5",), False, False),
    ("−5", ("-5",), True, True),
    ("10-20", ("20",), False, False),
    ("10–20", ("10-20",), True, True),
    ("5km", ("5 km",), True, False),
    ("6 km", ("5 km",), False, False),
    ("five km", ("5 km",), True, False),
    ("$1.5 million", ("$15 million",), False, False),
    ("2,400,000", ("2.4 million",), True, False),
    ("€5", ("$5",), False, False),
    ("5 dollars", ("$5",), True, False),
    ("5 percent", ("5%",), True, False),
    ("١٢", ("12",), True, True),
    ("１２", ("12",), True, True),
    ("1.234,56", ("1,234.56",), True, True),
    ("1\u202f234,56", ("1234.56",), True, True),
    ("12'000", ("12000",), True, True),
    ("12,34,567", ("1234567",), True, True),
    ("192.168.0.1", ("192.168.0.10",), False, False),
    ("the 1960s", ("1960",), False, False),
    ("v2.0", ("2.0",), True, False),
    ("v2.1", ("v2.0",), False, False),
    # Dates and times.
    ("March 5, 2024", ("2024-03-05",), True, False),
    ("am 5. März 2024", ("5 March 2024",), True, False),
    ("2024年3月5日", ("2024-03-05",), True, False),
    ("5 April 2024", ("2024-03-05",), False, False),
    ("2:30 pm", ("14:30",), True, False),
    ("2:30 am", ("14:30",), False, False),
    # One text in any form of Unicode; marks stay.
    ("Jose\u0301", ("José",), True, True),
    ("José", ("Jose\u0301",), True, True),
    ("Jose", ("José",), False, False),
    ("ﬁnale", ("finale",), True, True),
    ("STRASSE", ("Straße",), True, True),
    ("ISTANBUL", ("İstanbul",), True, True),
    ("İstanbul'da", ("İstanbul",), True, False),
    ("ΑΘΗΝΑ", ("Αθήνα",), True, True),
    ("МОСКВА", ("Москва",), True, True),
    ("U.S.", ("US",), True, True),
    ("Ada’s", ("Ada",), True, False),
    ("l’eau", ("eau",), True, False),
    # Scripts without spaces, and particles.
    ("東京です。", ("東京", "大阪"), True, False),
    ("東京。", ("東京", "大阪"), True, True),
    ("大阪ではなく東京です。", ("東京", "大阪"), True, False),
    ("不是东京，而是大阪", ("东京", "大阪"), False, False),
    ("東京", ("東京都",), False, False),
    ("เขาอยู่กรุงเทพ", ("กรุงเทพ",), True, False),
    ("서울에", ("서울",), True, False),
    ("서울대", ("서울",), False, False),
    ("بالقاهرة", ("القاهرة",), True, False),
    ("दिल्ली में", ("दिल्ली",), True, False),
    # Letters alone, without their marks, would be a word of it.
    ("दिल्", ("दिल्ली",), False, False),
    # Golds that say that there is no answer.
    ("I don't know.", ("unanswerable",), True, False),
    ("不知道", ("No Answer Present.",), True, False),
    ("Breveth", ("unanswerable",), False, False),
]


@pytest.mark.parametrize(("output", "values", "right", "exact"), CASES)
def test_what_is_right_and_what_matches_exactly(
    output: str, values: tuple[str, ...], right: bool, exact: bool
) -> None:
    found = score_output(output, *values)
    assert (found.right, found.em == 100) == (right, exact)
    assert found.em in (0, 100)
    assert found.em <= found.f1


def test_a_wrong_letter_is_an_answer() -> None:
    found = score_output("A", "B")
    assert (found.answered, found.hallucinated, found.f1) == (True, True, 0.0)
    silent = score_output("The", "B")
    assert (silent.answered, silent.hallucinated) == (False, False)


CHOICE = "Where does Ada live? A) Breveth B) Ambrova C) Orm"


@pytest.mark.parametrize(
    ("output", "right"),
    [
        ("A", True),
        ("Breveth", True),  # the text of the option
        ("A) Breveth", True),
        ("A) Ambrova", False),  # one option's letter and another one's text
        ("B", False),
        ("Ambrova", False),
        ("A, since B is where Tom lives.", False),  # another option is named
    ],
)
def test_an_option_has_a_letter_and_a_text(output: str, right: bool) -> None:
    assert score_output(output, "A", question=CHOICE).right is right
    assert score_output(output, "Breveth", question=CHOICE).right is right


# A text of somebody, in whatever script.
_VALUES = "Ada Falbrook|José Peña|Zürich|東京|서울|القاهرة|दिल्ली|Αθήνα|Казань|กรุงเทพ|O-|C++|-5 °C|12,000|3.1|2024-03-05|A"
VALUES = st.sampled_from(_VALUES.split("|"))
OUTPUTS = st.one_of(VALUES, st.text(max_size=20), st.builds("It is {}.".format, VALUES))


@settings(deadline=None, max_examples=200)
@given(output=OUTPUTS, gold=VALUES, other=VALUES)
def test_no_score_depends_on_the_form_of_unicode(output: str, gold: str, other: str) -> None:
    scores = {
        score_output(*(unicodedata.normalize(form, text) for text in (output, gold, other)))
        for form in ("NFC", "NFD")
    }
    mixed = score_output(unicodedata.normalize("NFD", output), gold, other)
    assert len(scores | {mixed}) == 1


@settings(deadline=None, max_examples=100)
@given(gold=st.one_of(VALUES, st.text(min_size=1, max_size=12).filter(lambda text: text.strip())))
def test_a_gold_equals_itself(gold: str) -> None:
    assert exact_match(gold, [gold]) == 100
    assert token_f1(gold, gold) == 100


@settings(deadline=None, max_examples=100)
@given(gold=VALUES, other=VALUES, behind=st.sampled_from([".", "。", "!", " ", '"', "\n"]))
def test_punctuation_around_an_answer_changes_no_score(gold: str, other: str, behind: str) -> None:
    assert score_output(gold + behind, gold, other).right
    assert score_output(gold + behind, gold, other) == score_output(gold, gold, other)


@settings(deadline=None, max_examples=300)
@given(text=st.text(max_size=30))
def test_a_folded_text_is_folded(text: str) -> None:
    assert fold(fold(text)) == fold(text)
