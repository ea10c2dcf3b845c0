"""The page of examples: which it shows, what it tells of them, and that hostile text stays text."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from leaderboards.pages.examples import WORST, build_examples, worst_examples
from leaderboards.rendering.templating import as_data
from tests.support.browsing.chromium import Chromium, needs_chromium, on_every_screen
from tests.support.browsing.pages import HOSTILE_IN_A_BROWSER as HOSTILE
from tests.support.browsing.pages import examples_in
from tests.support.records.synthetic_records import frame, record


def scored_answer(question: int, policy: str, f1: float, **more: Any) -> dict[str, Any]:
    outcome = {
        "f1": f1,
        "em": f1,
        "hallucinated": f1 < 50,
        "hallucination_kind": "confused" if f1 < 50 else None,
    }
    ratio = 0.0 if policy == "full" else 0.5
    return record(question_id=str(question), policy=policy, ratio=ratio, **(outcome | more))


def two_policies(**more: Any) -> DataFrame:
    """Five questions; the full cache fails at the last, and snapkv at the third and the last."""
    rows = [scored_answer(number, "full", 0.0 if number == 4 else 100.0) for number in range(5)]
    rows += [
        scored_answer(number, "snapkv", 0.0 if number in (2, 4) else 100.0, **more)
        for number in range(5)
    ]
    return frame(rows)


def test_the_answers_that_lose_most_against_the_full_cache_come_first() -> None:
    found, _ = worst_examples(two_policies())
    shown = found["cells"]["snapkv"]["0.5"]
    assert len(shown) == 5 < WORST, "there are no more"
    identities = [found["questions"][answer["question"]]["id"] for answer in shown]
    assert identities[0] == "2", "the fifth is lost under the full cache too"
    assert identities[1] == "4", "among equals what is hallucinated comes first"
    assert [answer["verdict"] for answer in shown] == ["hallucinated: confused"] * 2 + ["right"] * 3
    assert [answer["wrong"] for answer in shown] == [True, True, False, False, False]
    assert {answer["obeyed"] for answer in shown} == {None}, "there are no directives"
    found, _ = worst_examples(two_policies(directives_obeyed=0.5))
    obeyed = found["cells"]["snapkv"]["0.5"]
    assert {answer["obeyed"] for answer in obeyed} == {0.5}


def test_examples_are_about_several_contexts_the_worst_of_each_first() -> None:
    rows = []
    for context in range(4):
        for number in range(5):
            question = 10 * context + number
            where = {
                "example_id": f"base-{context}",
                "context": f"Context {context}.",
                "token_ends": b"",
            }
            f1 = 0.0 if context == 0 else 10.0 * context
            rows += [
                scored_answer(question, "full", 100.0, **where),
                scored_answer(question, "snapkv", f1, **where),
            ]
    found, _ = worst_examples(frame(rows))
    shown = found["cells"]["snapkv"]["0.5"]
    texts = [found["contexts"][answer["context"]]["text"] for answer in shown]
    assert texts == ["Context 0."] * 2 + ["Context 1."] * 2 + ["Context 2."] * 2


def test_what_is_kept_of_a_context_stands_once_and_each_answer_says_where() -> None:
    shares = {"1": bytes([255, 0]), "2": bytes([0, 0, 9]), "3": bytes([255, 0])}
    rows = []
    for number, kept in shares.items():
        where = {"context": f"Context {len(kept)}.", "token_ends": b"", "token_kept": kept}
        rows += [
            scored_answer(int(number), policy, 100.0, **where) for policy in ("full", "snapkv")
        ]
    found, together = worst_examples(frame(rows))
    assert len(together) == 5
    for answer in found["cells"]["snapkv"]["0.5"]:
        kept = shares[found["questions"][answer["question"]]["id"]]
        assert together[answer["kept"] :].startswith(kept)


def test_data_cannot_close_its_script_element() -> None:
    written = as_data({"output": HOSTILE})
    assert "<" not in written
    assert written.isascii()
    assert json.loads(written) == {"output": HOSTILE}
    page = build_examples(HOSTILE, "base", two_policies(output_text=HOSTILE))
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert examples_in(page)["cells"]["snapkv"]["0.5"][0]["output"] == HOSTILE


@pytest.fixture(scope="module")
def examples_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("site") / "examples-base.html"
    text = "Åda 🦊 lives in Oslo."
    ends = np.array([3, 5, 11, 14, 20], dtype="<u4").tobytes()
    kept = bytes([255, 0, 128, 1, 255])
    rows = two_policies(
        output_text=HOSTILE, context=text, token_ends=ends, token_kept=kept, answer_spans=[15, 19]
    )
    path.write_text(build_examples("toy", "base", rows), encoding="utf-8")
    return path


@needs_chromium
@on_every_screen
def test_the_page_is_quiet_fits_and_keeps_hostile_text_as_text(
    browser: Chromium, examples_page: Path, width: int, scheme: str
) -> None:
    browser.open_quietly(examples_page, width, scheme)
    assert browser.evaluate("document.querySelector('.output').textContent") == HOSTILE
    assert browser.evaluate("document.title") == "Examples of base · kvbench"


@needs_chromium
def test_every_token_is_as_dark_as_it_is_kept(browser: Chromium, examples_page: Path) -> None:
    browser.open(examples_page)
    tokens = browser.evaluate(
        "[...document.querySelector('.strip').children].map(each => each.textContent)"
    )
    assert tokens == ["Åda", " 🦊", " lives", " in", " Oslo."]
    gone = browser.evaluate(
        "[...document.querySelectorAll('.strip')[0].children].map(e => "
        "e.classList.contains('gone'))"
    )
    assert gone == [False, True, False, False, False]
    marked = "[...document.querySelectorAll('.strip')[0].querySelectorAll('.answer')].map(each => each.textContent)"
    assert browser.evaluate(marked) == [" Oslo."]
    shade = "Number(getComputedStyle(document.querySelector('.strip .token')).getPropertyValue('--kept'))"
    assert browser.evaluate(shade) == 1


@needs_chromium
def test_the_choice_is_in_the_address(browser: Chromium, examples_page: Path) -> None:
    browser.open(examples_page)
    assert browser.evaluate("document.getElementById('policy').value") == "snapkv"
    assert browser.evaluate("document.querySelectorAll('.example').length") == 5
    browser.evaluate(
        "(select => { select.value = 'right'; select.dispatchEvent(new Event('change')); })"
        "(document.getElementById('verdict'))"
    )
    browser.evaluate("new Promise(done => setTimeout(done, 50))")
    shown = (
        "[...document.querySelectorAll('.example')].map(each => each.textContent.includes('right'))"
    )
    assert browser.evaluate(shown) == [True] * 3
    browser.evaluate("location.hash = 'policy=full&level=0'")
    browser.evaluate("new Promise(done => setTimeout(done, 50))")
    assert browser.evaluate("document.getElementById('policy').value") == "full"
    browser.evaluate(
        "(select => { select.value = 'snapkv'; select.dispatchEvent(new Event('change')); })"
        "(document.getElementById('policy'))"
    )
    assert "policy=snapkv" in browser.evaluate("location.hash")
