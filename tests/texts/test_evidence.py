"""Where a value stands in a context, the sentence around it, and what is said of golds at
reading."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_gen import DatasetError, Question, Task
from datasets_gen.tasks.own_questions import own_questions
from datasets_gen.texts.context import Context
from datasets_gen.texts.matching import Item
from datasets_gen.texts.sentences import MOST_CHARACTERS, Sentences
from leaderboards.metrics.judges.text import score_text
from tests.support.wording import assert_says

BRIDGE = "It carries 12 lamps. The bridge cost 12,000 crowns. It is 12.5 metres long, 3.12 wide and -5 deep."


@pytest.mark.parametrize(
    ("context", "value", "places"),
    [
        (BRIDGE, "12", ["12"]),  # not that of 12,000, 12.5 or 3.12
        (BRIDGE, "12000", ["12,000"]),
        (BRIDGE, "twelve", ["12"]),
        (BRIDGE, "5", []),
        (BRIDGE, "-5", ["-5"]),
        ("Born on March 5, 2024.", "2024-03-05", ["March 5, 2024"]),
        ("彼女は東京に住んでいる。", "東京", ["東京"]),
        ("그는 서울에서 산다.", "서울", ["서울"]),  # without its particle
        ("تعيش بالقاهرة", "القاهرة", ["القاهرة"]),
        ("Il boit de l'eau.", "eau", ["eau"]),
        ("Breveth is far.", "breveth", ["Breveth"]),
        ("It is us in the US.", "US", ["US"]),  # the same letters go before others
        ("A man got grade A.", "A", ["A"]),  # the letter, not the article
        ("She lives in Paris, France.", "Paris France", ["Paris, France"]),
        ("He owns a harp, a flute and a cello.", "flute and harp", ["flute", "harp"]),
        ("Jean-Luc came.", "Jean", []),
        ("Servers 3f2b-12 and B-12.", "12", []),
    ],
)
def test_a_value_stands_where_a_reader_finds_it(
    context: str, value: str, places: list[str]
) -> None:
    assert [context[start:end] for start, end in Context(context).places_of(value)] == places


@pytest.mark.parametrize(
    ("context", "value", "sentence"),
    [
        (BRIDGE, "12,000", "The bridge cost 12,000 crowns."),
        (
            "Dr. A. Falbrook lives in Breveth. Tom too.",
            "Breveth",
            "Dr. A. Falbrook lives in Breveth.",
        ),
        ("弟は大阪にいる。彼女は東京に住んでいる。", "東京", "彼女は東京に住んでいる。"),
        ("राम मुंबई में है। सीता दिल्ली में है।", "दिल्ली", "सीता दिल्ली में है।"),
        (
            "name: Ada\ndays of annual leave: 25\nroom: 3",
            "25",
            "days of annual leave: 25",
        ),  # a line
        ("“He left.” “She lives in Velden!” he said.", "Velden", "“She lives in Velden!”"),
    ],
)
def test_the_sentence_or_line_around_a_value(context: str, value: str, sentence: str) -> None:
    ((start, end),) = Context(context).places_of(value)
    first, last = Sentences(context).around(start, end)
    assert context[first:last] == sentence


def test_a_text_without_full_stops_is_no_sentence() -> None:
    context = f"{'word ' * 400}Breveth {'word ' * 400}"
    ((place),) = Context(context).places_of("Breveth")
    start, end = Sentences(context).around(*place)
    assert "Breveth" in context[start:end]
    assert MOST_CHARACTERS - 20 < end - start <= MOST_CHARACTERS + 5
    assert set(context[start:end].split()) == {"word", "Breveth"}


class WholeContext(Context):
    """Looks at all of its text, be there a candidate or not."""

    def _windows(self, item: Item) -> list[tuple[int, int]]:
        return [(0, len(self.text))]


_PIECES = "Ada’s |O'Brien |Jean-Luc |U.S. |the US, |us |A man |grade A. |O- |O negative |C++ |C sharp, |12 |12,000 |twelve "
_PIECES += "|-5 °C |5km |10-20 |$5 |5 March 2024. |2024-03-05 |9 am |2:30 pm |東京。|大阪に|서울에서 |القاهرة |للقاهرة "
_PIECES += "|İstanbul'da |STRASSE |ﬁn |½ |\n|"
PIECES = [*_PIECES.split("|"), "word " * 30]
_SOUGHT = "Ada|OBrien|Jean|us|A|O-|C++|C#|12|twelve|-5 °C|5 km|20|$5|2024-03-05|9|14:30|東京|서울|القاهرة|İstanbul|fin|0.5"
SOUGHT = [*_SOUGHT.split("|"), "Straße", "word"]


@settings(deadline=None, max_examples=150)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=12), value=st.sampled_from(SOUGHT))
def test_nothing_is_missed_where_only_what_stands_around_a_candidate_is_read(
    pieces: list[str], value: str
) -> None:
    text = "".join(pieces)
    assert Context(text).places_of(value) == WholeContext(text).places_of(value)


def written(folder: Path, *rows: object) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def questions_of(task: Task) -> tuple[Question, ...]:
    return task.example(0, 0).questions


CONTEXT = "Marie Curie was born in Warsaw in 1867. She keeps 3 owls."


def test_only_what_answers_the_like_is_another_answer(tmp_path: Path) -> None:
    """The output is right alone, and stays so once another question stands on the context."""
    who = {"question": "Who was born in Warsaw?", "answers": "Marie Curie"}
    where = {"question": "Where was Marie born?", "answers": "Warsaw"}
    flat = {"question": "Where does she live?", "answers": "Paris"}
    task = own_questions(written(tmp_path, {"context": CONTEXT, "questions": [where, who, flat]}))
    example, (asked, other, _) = task.example(0, 0), questions_of(task)
    assert (asked.others, other.others) == (("Paris",), ())

    def is_right(output: str) -> bool:
        values = (example.stated_values, asked.others, asked.text)
        return score_text(output, asked.golds, True, (), *values).right

    assert is_right("Marie Curie was born in Warsaw.")
    assert not is_right("Warsaw or Paris")


def test_what_surprises_is_said_at_reading(tmp_path: Path) -> None:
    questions = [
        {"question": "Where?", "answers": "Krakow"},
        {"question": "Where to?", "answers": "Warsaw"},
        {"question": "Whose?", "answers": "No Answer Present."},
        {"question": "Who?", "answers": []},
        {"question": "How many owls?", "answers": [3.0]},
        {"question": "And?", "answers": "WARSAW"},
        {"question": "Why?", "answers": "I don't know"},
    ]
    task = own_questions(written(tmp_path, {"context": CONTEXT, "questions": questions}))
    away, unanswerable, alike = task.notes
    assert_says(away, "1 of 4 answers")
    assert_says(unanswerable, "2 questions", "'No Answer Present.', '[]'")
    assert_says(alike, "compared as equal", "'Warsaw' and 'WARSAW'")
    assert [one.answerable for one in questions_of(task)] == [
        True,
        True,
        False,
        False,
        True,
        True,
        False,
    ]
    assert questions_of(task)[4].golds == ("3",)


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Where?", "options": ["Warsaw", "Paris"], "answer": "A"},
        {
            "question": "Where?",
            "choices": {"text": ["Warsaw", "Paris"], "label": ["A", "B"]},
            "answer": "A",
        },
        {
            "question": "Where?",
            "choice_A": "Warsaw",
            "choice_B": "Paris",
            "answer": "A",
            "domain": "people",
        },
        {"question": "Where?", "options": ["A. Warsaw", "B. Paris"], "answer": 0},
    ],
)
def test_options_are_set_into_the_question_and_carry_the_evidence(
    tmp_path: Path, row: dict[str, object]
) -> None:
    task = own_questions(written(tmp_path, {"context": CONTEXT, **row}))
    (question,) = questions_of(task)
    assert (question.text, question.golds) == ("Where?\nA) Warsaw\nB) Paris", ("A",))
    assert [CONTEXT[span.start : span.end] for span in question.spans] == [
        "Warsaw",
        "Marie Curie was born in Warsaw in 1867.",
    ]


@pytest.mark.parametrize(
    ("row", "golds", "answerable"),
    [
        (
            {
                "input": "Where?",
                "answers": ["Warsaw"],
                "length": 9,
                "dataset": "qasper",
                "_id": "x",
            },
            ("Warsaw",),
            True,
        ),
        (
            {
                "question": "Where?",
                "answers": {"text": ["Warsaw"], "answer_start": [24]},
                "id": "1",
            },
            ("Warsaw",),
            True,
        ),
        (
            {"question": "Where?", "answers": {"text": [], "answer_start": []}, "title": "t"},
            ("I don't know",),
            False,
        ),
        (
            {"question": "Where?", "answers": ["Warsaw"], "task": "x", "all_classes": None},
            ("Warsaw",),
            True,
        ),
    ],
)
def test_rows_of_public_data_sets_are_taken_as_they_are(
    tmp_path: Path, row: dict[str, object], golds: tuple[str, ...], answerable: bool
) -> None:
    (question,) = questions_of(own_questions(written(tmp_path, {"context": CONTEXT, **row})))
    assert (question.text, question.golds, question.answerable) == ("Where?", golds, answerable)


def test_a_row_with_one_answer_is_read_as_strictly_as_any_other(tmp_path: Path) -> None:
    row = {"context": CONTEXT, "question": "Where?", "answer": "Warsaw"}
    with pytest.raises(
        DatasetError, match="unknown field 'anwser_prefix': did you mean 'answer_prefix'"
    ):
        own_questions(written(tmp_path, {**row, "anwser_prefix": "x"}))
    marked = own_questions(written(tmp_path, {**row, "system": True, "evidence": "born in Warsaw"}))
    assert marked.role == "system"
    assert [CONTEXT[one.start : one.end] for one in questions_of(marked)[0].spans] == [
        "Warsaw",
        "born in Warsaw",
    ]


def test_texts_are_read_in_one_form_of_unicode(tmp_path: Path) -> None:
    context = "Jose\u0301 lives in Zu\u0308rich."
    task = own_questions(
        written(tmp_path, {"context": context, "question": "Where?", "answers": "Zürich"})
    )
    assert task.example(0, 0).context == "José lives in Zürich."
    assert len(questions_of(task)[0].spans) == 2
