"""Rows of IFEval: both kinds, and what is damaged."""

import json
from pathlib import Path

import pytest

from datasets_gen import DatasetError, Directive
from datasets_gen.examples.directives import ARGUMENTS
from datasets_gen.tasks.ifeval import ifeval_task, read_rows
from leaderboards.metrics.judges.obedience import families
from tests.support.tasks.samples_of_ifeval import OF_HUB, PLAIN, SPLIT, changed, written
from tests.support.tasks.suite import OFFICIAL_ROWS, needs_rows


def test_a_split_row_is_a_system_message_to_obey_and_a_request(tmp_path: Path) -> None:
    (row,) = read_rows(written(tmp_path, SPLIT))
    assert (row.system, row.user) == ("Use no commas. Use at least 3 words.", "Praise tea.")
    assert [str(directive) for directive in row.directives] == [
        "punctuation:no_comma",
        'length_constraints:number_words {"num_words": 3, "relation": "at least"}',
    ]
    assert [Directive.parse(str(directive)) for directive in row.directives] == list(row.directives)
    assert families([str(directive) for directive in row.directives]) == [
        "punctuation",
        "length_constraints",
    ]


def test_a_plain_row_is_all_context_and_nulls_are_no_arguments(tmp_path: Path) -> None:
    plain, of_hub = read_rows(written(tmp_path, PLAIN, OF_HUB))
    assert plain == of_hub
    task = ifeval_task([plain])
    example = task.example(0, 0)
    assert task.role == "user"
    assert (example.context, example.spans, example.arm) == (SPLIT["prompt"], (), "")
    (question,) = example.questions
    assert (question.text, question.golds, question.perfect_output, question.spans) == (
        "",
        (),
        "",
        (),
    )
    assert question.directives == plain.directives


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "no JSON (Expecting property name enclosed in double quotes at column 2)"),
        ([1], "the row is no JSON object"),
        (changed(instruction_id_list=None), "'instruction_id_list' is missing"),
        (changed(instruction_id_list=[], kwargs=[]), "'instruction_id_list' is empty"),
        (changed(kwargs={}), "'kwargs' is no list"),
        (changed(kwargs=[{}]), "2 instructions have 1 kwargs"),
        (
            changed(kwargs=[{}, {"num_words": 3}]),
            "number_words takes num_words, relation, and is given num_words",
        ),
        (
            changed(kwargs=[{"commas": 1}, {}]),
            "punctuation:no_comma takes nothing, and is given commas",
        ),
        (
            changed(kwargs=[{}, {"num_words": "3", "relation": "at least"}]),
            "number_words is no int",
        ),
        (
            changed(kwargs=[{}, {"num_words": 0, "relation": "at least"}]),
            "its checker would draw one at random",
        ),
        (
            changed(instruction_id_list=["punctuation:no_coma", "length_constraints:number_words"]),
            "unknown instruction 'punctuation:no_coma': did you mean 'punctuation:no_comma'?",
        ),
        (changed(messages="both"), "'messages' is no list"),
        (
            changed(messages=SPLIT["messages"][::-1]),
            "one of the role system and then one of the role user",
        ),
        (
            changed(messages=[{"role": "system", "content": " "}, SPLIT["messages"][1]]),
            "'content' is no text, or an",
        ),
        ({**PLAIN, "prompt": 3}, "'prompt' is no text"),
        ({name: value for name, value in PLAIN.items() if name != "prompt"}, "'prompt' is missing"),
        (
            PLAIN,
            "the row is plain and the rows before it are split into messages: keep them in two "
            "files",
        ),
    ],
)
def test_a_damaged_row_is_one_line_that_names_its_line(
    row: object, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(SPLIT)}\n\n{row if isinstance(row, str) else json.dumps(row)}\n")
    with pytest.raises(DatasetError) as complaint:
        read_rows(path)
    assert str(complaint.value).startswith(f"{path}, line 3: ")
    assert said in str(complaint.value)
    assert "\n" not in str(complaint.value)


@needs_rows
def test_the_official_rows_are_read() -> None:
    rows = read_rows(OFFICIAL_ROWS)
    assert len(rows) == 539
    assert {directive.kind for row in rows for directive in row.directives} == set(ARGUMENTS)
    texts = [json.loads(line)["messages"] for line in OFFICIAL_ROWS.read_text().splitlines()]
    assert [[row.system, row.user] for row in rows] == [
        [one["content"] for one in both] for both in texts
    ]
