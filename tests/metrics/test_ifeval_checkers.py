"""The official checkers of IFEval: what they say of answers whose outcome is known."""

import importlib
import json
from typing import get_args

import pytest

from datasets_gen import Directive
from datasets_gen.examples.directives import ARGUMENTS
from datasets_gen.tasks.ifeval import read_rows
from leaderboards.errors import MetricError
from leaderboards.metrics.judges.ifeval import CHECKERS, Judgement, check_directives, is_obeyed
from leaderboards.metrics.judges.obedience import loosely, strictly
from tests.support.tasks.suite import OFFICIAL_ROWS, needs_rows

pytestmark = pytest.mark.usefixtures("splitter")
WAYS: tuple[Judgement, ...] = get_args(Judgement)

# For each kind: its arguments, an answer that obeys and one that does not.
CASES: dict[str, tuple[dict[str, object], str, str]] = {
    "change_case:capital_word_frequency": (
        {"capital_frequency": 2, "capital_relation": "at least"},
        "TEA is GOOD for all",
        "TEA is good for all",
    ),
    "change_case:english_capital": ({}, "THIS IS A CUP OF TEA FOR YOU", "This is a cup of tea for you"),
    "change_case:english_lowercase": ({}, "this is a cup of tea for you", "This is a cup of tea for you"),
    "combination:repeat_prompt": ({"prompt_to_repeat": "Praise tea."}, "Praise tea. It is hot.", "Tea is hot."),
    "combination:two_responses": ({}, "Tea ****** Coffee", "Tea and coffee"),
    "detectable_content:number_placeholders": ({"num_placeholders": 2}, "[name] of [place]", "[name] of Velden"),
    "detectable_content:postscript": ({"postscript_marker": "P.S."}, "Tea.\nP.S. Drink it.", "Tea."),
    "detectable_format:constrained_response": ({}, "My answer is yes.", "Yes."),
    "detectable_format:json_format": ({}, '{"tea": 1}', "tea: 1"),
    "detectable_format:multiple_sections": (
        {"num_sections": 2, "section_spliter": "SECTION"},
        "SECTION 1\nTea.\nSECTION 2\nMore.",
        "SECTION 1\nTea.",
    ),
    "detectable_format:number_bullet_lists": ({"num_bullets": 2}, "* tea\n* milk", "* tea"),
    "detectable_format:number_highlighted_sections": ({"num_highlights": 1}, "Drink *tea* now", "Drink tea now"),
    "detectable_format:title": ({}, "<<Tea>> is hot", "Tea is hot"),
    "keywords:existence": ({"keywords": ["tea", "hot"]}, "Tea is hot", "Tea is warm"),
    "keywords:forbidden_words": ({"forbidden_words": ["hot"]}, "Tea is warm", "Tea is hot"),
    "keywords:frequency": ({"frequency": 2, "keyword": "tea", "relation": "at least"}, "Tea and tea", "Tea"),
    "keywords:letter_frequency": (
        {"let_frequency": 2, "let_relation": "less than", "letter": "t"},
        "Hot milk",
        "Hot tea",
    ),
    "language:response_language": (
        {"language": "de"},
        "Das ist eine Tasse Tee und sie ist sehr heiß",
        "This is a cup of tea and it is very hot",
    ),
    "length_constraints:nth_paragraph_first_word": (
        {"first_word": "tea", "nth_paragraph": 2, "num_paragraphs": 2},
        "One.\n\nTea is two.",
        "One.\n\nTwo is tea.",
    ),
    "length_constraints:number_paragraphs": ({"num_paragraphs": 2}, "Tea\n***\nMilk", "Tea and milk"),
    "length_constraints:number_sentences": (
        {"num_sentences": 3, "relation": "less than"},
        "Tea is hot. Milk is not.",
        "Tea is hot. Milk is not. So it goes.",
    ),
    "length_constraints:number_words": ({"num_words": 3, "relation": "at least"}, "Tea is hot", "Hot tea"),
    "punctuation:no_comma": ({}, "Tea is hot", "Tea, hot"),
    "startend:end_checker": ({"end_phrase": "That is all."}, "Tea. That is all.", "That is all. Tea."),
    "startend:quotation": ({}, '"Tea is hot"', "Tea is hot"),
}


def directive(kind: str) -> str:
    arguments = CASES[kind][0]
    return f"{kind} {json.dumps(arguments)}" if arguments else kind


def test_every_kind_has_a_case_with_all_its_arguments() -> None:
    assert {kind: sorted(arguments) for kind, (arguments, _, _) in CASES.items()} == {
        kind: sorted(names) for kind, names in ARGUMENTS.items()
    }


@pytest.mark.parametrize("kind", CASES)
def test_each_kind_is_judged_by_its_checker(kind: str) -> None:
    _, obeying, failing = CASES[kind]
    assert strictly([directive(kind)], obeying) == [True]
    assert loosely([directive(kind)], obeying) == [True]
    assert strictly([directive(kind)], failing) == [False]
    assert loosely([directive(kind)], failing) == [False]


def test_loosely_a_preface_and_asterisks_are_forgiven() -> None:
    directives = [directive("punctuation:no_comma"), directive("startend:quotation")]
    answer = 'Sure, here it is:\n**"Tea is hot"**'
    assert strictly(directives, answer) == [False, False]
    assert loosely(directives, answer) == [True, True]


def test_an_empty_answer_obeys_nothing_and_stays_in_the_denominator() -> None:
    directives = [directive("punctuation:no_comma"), directive("keywords:forbidden_words")]
    for answer in ("", " \n"):
        assert strictly(directives, answer) == loosely(directives, answer) == [False, False]


def test_an_answer_that_makes_a_checker_fail_obeys_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = importlib.import_module(f"{CHECKERS}.instructions_registry")
    monkeypatch.setattr(registry.INSTRUCTION_DICT["punctuation:no_comma"], "check_following", lambda *_: 1 / 0)
    directives = [directive("punctuation:no_comma"), directive("keywords:existence")]
    assert strictly(directives, "Tea is hot") == loosely(directives, "Tea is hot") == [False, True]


def test_the_same_answer_is_judged_the_same_every_time() -> None:
    german = Directive.parse(directive("language:response_language"))
    assert len({is_obeyed(german, "Tee ist warm und gut", "strict") for _ in range(20)}) == 1
    for mark in "!#":  # for which the checker draws a letter
        marks = {"let_frequency": 2, "let_relation": "at least", "letter": mark}
        counted = Directive("keywords:letter_frequency", json.dumps(marks))
        answers = {is_obeyed(counted, "Tea is an infusion of leaves", way) for _ in range(20) for way in WAYS}
        assert len(answers) == 1


def test_a_language_that_cannot_be_told_is_not_complained_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert strictly([directive("language:response_language")], "12") == [True]  # as the official checker has it
    assert capsys.readouterr().err == ""


@needs_rows
def test_the_official_rows_are_judged_one_directive_at_a_time_as_in_whole() -> None:
    rows = read_rows(OFFICIAL_ROWS)
    check_directives([("a row", directive) for row in rows for directive in row.directives])
    module = importlib.import_module(f"{CHECKERS}.utils")
    seen = set()
    for row in rows[::7]:
        kinds = [one.kind for one in row.directives]
        arguments = [json.loads(one.argument or "{}") for one in row.directives]
        if any(letter in "!#" for given in arguments if (letter := given.get("letter"))):
            continue  # the checker draws another letter each time
        texts = [str(one) for one in row.directives]
        for answer in (row.system, row.user.upper(), f"Sure, here.\n\n{row.user.lower()}\n* {row.system}"):
            example = module.InputExample(0, kinds, row.user, arguments)
            strict = module.test_instruction_following_strict(example, answer).follow_instruction_list
            loose = module.test_instruction_following_loose(example, answer).follow_instruction_list
            assert (strictly(texts, answer), loosely(texts, answer)) == (strict, loose)
            seen |= {*zip(strict, loose, strict=True)}
    assert seen == {(False, False), (False, True), (True, True)}


def test_no_checker_asks_for_the_prompt() -> None:
    registry = importlib.import_module(f"{CHECKERS}.instructions_registry")
    assert set(registry.INSTRUCTION_DICT) == set(ARGUMENTS)
    for kind, checker in registry.INSTRUCTION_DICT.items():
        one = checker(kind)
        one.build_description(**CASES[kind][0])
        assert set(one.get_instruction_args() or {}) == set(ARGUMENTS[kind])


def test_arguments_that_a_checker_cannot_use_are_found_before_a_run() -> None:
    klingon = Directive("language:response_language", '{"language": "tlh"}')
    with pytest.raises(MetricError, match=r"ifeval/test/0/3: language:response_language .* cannot be judged by"):
        check_directives([("ifeval/test/0/3", klingon)])
