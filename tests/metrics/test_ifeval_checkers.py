"""The official checkers of IFEval: what they say of answers whose outcome is known."""

import hashlib
import importlib
import json
from pathlib import Path

import nltk
import pytest

from datasets_gen import Directive
from datasets_gen.tasks.ifeval import read_rows
from leaderboards.errors import MetricError
from leaderboards.metrics.judges.obedience import (
    CHECKERS,
    SPLITTER,
    check_directives,
    loosely,
    official,
    strictly,
)
from tests.support.tasks.suite import OFFICIAL_ROWS, needs_rows

EXISTENCE = 'keywords:existence {"keywords": ["tea", "hot"]}'
WORDS = 'length_constraints:number_words {"num_words": 3, "relation": "at least"}'


@pytest.mark.parametrize(
    ("directive", "obeying", "failing"),
    [
        ("punctuation:no_comma", "Tea is hot", "Tea, hot"),
        (EXISTENCE, "Tea is hot", "Tea is warm"),
        (WORDS, "Tea is hot", "Hot tea"),
        (
            'combination:repeat_prompt {"prompt_to_repeat": "Praise tea."}',
            "Praise tea. It is hot.",
            "Tea is hot.",
        ),
        (
            'length_constraints:number_sentences {"num_sentences": 3, "relation": "less than"}',
            "Tea is hot. Milk is not.",
            "Tea is hot. Milk is not. So it goes.",
        ),
    ],
)
def test_a_directive_is_judged_by_its_checker(directive: str, obeying: str, failing: str) -> None:
    assert strictly([directive], obeying) == loosely([directive], obeying) == [True]
    assert strictly([directive], failing) == loosely([directive], failing) == [False]


def test_loosely_a_preface_and_asterisks_are_forgiven() -> None:
    directives = ["punctuation:no_comma", "startend:quotation"]
    answer = 'Sure, here it is:\n**"Tea is hot"**'
    assert strictly(directives, answer) == [False, False]
    assert loosely(directives, answer) == [True, True]


def test_an_empty_answer_obeys_nothing_and_stays_in_the_denominator() -> None:
    for answer in ("", " \n"):
        assert (
            strictly(["punctuation:no_comma"], answer)
            == loosely(["punctuation:no_comma"], answer)
            == [False]
        )


# Of each file of nltk's own punkt_tab for English: its lines in order, hashed, as they are sets.
PUNKT_TAB = {
    "abbrev_types.txt": "0ab7d6b126eed733",
    "collocations.tab": "73d7f183e9cf31ee",
    "ortho_context.tab": "d762d271cb556bab",
    "sent_starters.txt": "8a66e19f1bf6a030",
}


@pytest.mark.usefixtures("looked_for_again")
def test_the_splitter_of_sentences_comes_with_the_extra_and_nothing_is_downloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(nltk, "download", lambda *_: pytest.fail("nltk downloads"))
    official()
    folder = Path(nltk.data.find(SPLITTER))
    hashes = {}
    for file in folder.iterdir():
        lines = sorted(file.read_text(encoding="utf-8").split("\n"))
        hashes[file.name] = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    assert hashes == PUNKT_TAB
    # Whoever knows no abbreviations counts four sentences.
    two = 'length_constraints:number_sentences {"num_sentences": 3, "relation": "less than"}'
    assert strictly([two], "Dr. Smith came to Mr. Jones. They had tea.") == [True]


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
        for answer in (
            row.system,
            row.user.upper(),
            f"Sure, here.\n\n{row.user.lower()}\n* {row.system}",
        ):
            example = module.InputExample(0, kinds, row.user, arguments)
            strict = module.test_instruction_following_strict(
                example, answer
            ).follow_instruction_list
            loose = module.test_instruction_following_loose(example, answer).follow_instruction_list
            assert (strictly(texts, answer), loosely(texts, answer)) == (strict, loose)
            seen |= {*zip(strict, loose, strict=True)}
    assert seen == {(False, False), (False, True), (True, True)}


def test_arguments_that_a_checker_cannot_use_are_found_before_a_run() -> None:
    klingon = Directive("language:response_language", '{"language": "tlh"}')
    with pytest.raises(
        MetricError, match=r"ifeval/test/0/3: language:response_language .* cannot be judged by"
    ):
        check_directives([("ifeval/test/0/3", klingon)])
