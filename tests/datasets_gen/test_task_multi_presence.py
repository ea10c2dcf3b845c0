"""Task ``multi_presence``: every question has the one answer that a reader of its text finds."""

import pytest

from datasets_gen.tasks.multi_presence import MULTI_PRESENCE, PERIODS
from tests.support.tasks.solvers.multi_presence import read, words_of
from tests.support.tasks.suite import asked, every_way, texts

every_level = pytest.mark.parametrize("level", range(MULTI_PRESENCE.top_level + 1))


# --- the answers


@every_level
def test_an_order_is_asked_of_all_mentions_of_a_person(level: int) -> None:
    for example, question in asked(every_way(MULTI_PRESENCE, level=level)):
        if question.type != "manipulated" or not question.answerable:
            continue
        facts = texts(example, question, "fact")
        ((period, person),) = {
            (period.name, words["subject"]) for fact in facts for period, words in read(fact)
        }
        mentions = [
            words
            for other, words in read(example.context)
            if (other.name, words["subject"]) == (period, person)
        ]
        assert question.hops == len(facts) == len(mentions) >= 2
        years = {words["value"]: words["year"] for words in mentions}
        assert years[question.golds[0]] in (min(years.values()), max(years.values()))


# --- the examples


@every_level
def test_nothing_asked_in_vain_is_true_of_what_was_said_last(level: int) -> None:
    """Whoever lived in Velden in 1960 may have lived there in 1964: the text must say otherwise, or
    nothing before."""
    checked = 0
    for example, question in asked(every_way(MULTI_PRESENCE, 10, level=level)):
        if question.answerable or question.type == "manipulated":
            continue
        for period in PERIODS:
            mentions = [words for other, words in read(example.context) if other is period]
            for slot in ("value", "subject"):
                for given in words_of(period, period.look_up[slot], question.text):
                    checked += 1
                    latest: dict[str, dict[str, str]] = {}
                    for words in sorted(mentions, key=lambda words: words["year"]):
                        if words["year"] <= given["year"]:
                            latest[words["subject"]] = words
                    known = given.keys() - {"year"}
                    true = [
                        words
                        for words in latest.values()
                        if all(words[name] == given[name] for name in known)
                    ]
                    assert not true, question
    assert checked > 10
