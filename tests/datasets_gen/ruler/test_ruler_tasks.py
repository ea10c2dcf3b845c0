"""RULER's tasks: what stands in a context is what was declared, read back from its text."""

import re
from collections import Counter
from collections.abc import Callable

import pytest

from datasets_gen import RULER, DatasetError, Example, Length, Question, Task
from datasets_gen.tasks.ruler import niah
from datasets_gen.tasks.ruler.form import short_words
from datasets_gen.tasks.ruler.words import COMMON, DOTS, counts_of_ranks
from kvbench.prompts.context_length import count_by

every_task = pytest.mark.parametrize("task", RULER.values(), ids=RULER)
lengths = pytest.mark.parametrize("tokens", [1024, 4096])
count = count_by("reference")
NEEDLE = re.compile(r"One of the special magic (numbers|uuids) for ([\w-]+) is: ([\w-]+)\.")
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


ESSAYS = [
    "It was late. The train had left, and nobody knew when another would come!",
    "Was it worth it? Yes.",
]


def of_tokens(
    task: Task, tokens: int, depth: float | None = None, counted: Callable[[str], int] = count
) -> Task:
    assert task.with_length is not None
    return task.with_length(Length(tokens, counted, depth, "reference"))


def only_question(example: Example) -> Question:
    (question,) = example.questions
    return question


def needles_in(text: str) -> list[tuple[str, str]]:
    """Every (key, value), in order."""
    return [(key, value) for _, key, value in NEEDLE.findall(text)]


def chain_in(text: str) -> tuple[str, list[str]]:
    """The value and the variables of the one chain of a text, in its order."""
    ((first, value),) = re.findall(r"^VAR (\w+) = (\d{5})$", text, re.MULTILINE)
    variables = [first]
    for name, before in re.findall(r"^VAR (\w+) = VAR (\w+)$", text, re.MULTILINE):
        assert before == variables[-1]
        variables.append(name)
    return value, variables


def lists_in(text: str) -> list[list[str]]:
    """The words of every numbered list, in order."""
    lists: list[list[str]] = []
    for number, word in re.findall(r"(\d+)\. (\S+)", text):
        if number == "1":
            lists.append([])
        lists[-1].append(word)
        assert int(number) == len(lists[-1])
    return lists


# --- the contract of every task


@every_task
def test_every_span_and_every_stated_value_is_where_it_says(task: Task) -> None:
    for example in of_tokens(task, 2000).generate(3, 6):
        for value in example.stated:
            assert example.context[value.start : value.end] == value.text
        for question in example.questions:
            check_spans(question, example)


def check_spans(question: Question, example: Example) -> None:
    of_kind: dict[str, list[str]] = {}
    for span in (*question.spans, *example.spans):
        assert 0 <= span.start < span.end <= len(example.context)
        of_kind.setdefault(span.kind, []).append(example.context[span.start : span.end])
    assert set(of_kind["answer"]) == set(question.golds) <= set(example.stated_values)
    assert all(subject in question.text for subject in of_kind.get("subject", []))
    assert len(of_kind.get("fact", [])) == (question.hops if "fact" in of_kind else 0)
    facts = [span for span in question.spans if span.kind == "fact"]
    for span in question.spans if facts else ():
        assert any(fact.start <= span.start and span.end <= fact.end for fact in facts)
    assert re.search(r"\S$", question.answer_prefix)


@lengths
@every_task
def test_a_context_has_the_tokens_asked_for_or_a_little_less(task: Task, tokens: int) -> None:
    """By the model's own tokenizer; a haystack of needles may lack one more needle."""
    for example in of_tokens(task, tokens).generate(5, 3):
        least = 0.98 * tokens
        if task.name in ("niah_multikey_2", "niah_multikey_3"):
            least = min(
                least, tokens - max(count(one[0]) for one in NEEDLE.finditer(example.context)) - 1
            )
        assert least <= count(example.context) <= tokens


@pytest.mark.parametrize("name", [name for name in RULER if name not in ("cwe", "fwe")])
def test_of_one_seed_every_length_and_depth_asks_the_same(name: str) -> None:
    asked = set()
    for tokens, depth in ((1024, None), (3000, None), (3000, 0.5)):
        questions = of_tokens(RULER[name], tokens, depth).example(1, 4).questions
        asked.add(tuple(question.text for question in questions))
    assert len(asked) == 1


@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", [name for name in RULER if name not in ("cwe", "fwe")])
def test_a_depth_sets_all_needles_together(name: str, depth: float) -> None:
    task = of_tokens(RULER[name], 3000, depth)
    assert f"depth-{depth}" in task.variant
    for example in task.generate(0, 3):
        facts = []
        for question in example.questions:
            facts += [span for span in question.spans if span.kind == "fact"]
        start = max(span.end for span in example.spans if span.start == 0) if name == "vt" else 0
        length = len(example.context) - start
        together = sum(fact.end - fact.start for fact in facts) / length
        away = [abs((fact.start - start) / length - depth) for fact in facts]
        assert max(away) < 0.1 + together


@pytest.mark.parametrize("name", ["cwe", "fwe"])
def test_what_has_no_needles_has_no_depth(name: str) -> None:
    with pytest.raises(DatasetError, match=f"{name} has none"):
        of_tokens(RULER[name], 3000, 0.5).example(0, 0)


@every_task
def test_too_few_tokens_are_one_clear_line(task: Task) -> None:
    with pytest.raises(DatasetError, match="too few"):
        of_tokens(task, 30).example(0, 0)


# --- needles


@pytest.mark.parametrize("name", niah.FORMS)
def test_needles_are_as_many_as_declared(name: str) -> None:
    form = niah.FORMS[name]
    for example in of_tokens(RULER[name], 2500).generate(2, 8):
        needles = needles_in(example.context)
        keys, values = Counter(key for key, _ in needles), [value for _, value in needles]
        assert len(set(values)) == len(values)
        asked_so_far: set[str] = set()
        assert len(example.questions) == {"niah_multikey_1": 4}.get(
            name, 8 if "key_" in name else 1
        )
        for question in example.questions:
            asked = {key for key in keys if key in question.text}
            assert len(asked) == form.queried
            assert not asked & asked_so_far
            asked_so_far |= asked
            assert {value for key, value in needles if key in asked} == set(question.golds)
            assert question.every_gold == (form.golds > 1)
            assert len(question.golds) == form.golds
            assert all(key in question.answer_prefix for key in asked)
        assert set(keys.values()) == {form.values}
        if form.haystack == "needles":
            assert len(keys) > 20
            assert re.fullmatch(r"[^\n]*\n+", NEEDLE.sub("", example.context)), (
                "nothing but needles"
            )
        else:
            assert len(needles) == form.keys * form.values
        assert set(example.stated_values) == {*keys, *values}
        pattern = {"word": r"[a-z]+-[a-z]+", "number": r"\d{7}", "uuid": UUID}
        assert all(re.fullmatch(pattern[form.key], key) for key in keys)
        assert all(re.fullmatch(pattern[form.value], value) for value in values)


@pytest.mark.parametrize(
    "name", [name for name, form in niah.FORMS.items() if form.haystack == "prose"]
)
def test_essays_are_the_texts_of_the_user(name: str) -> None:
    task = of_tokens(niah.in_essays(RULER[name], ESSAYS), 1024)
    assert task.variant != of_tokens(niah.in_essays(RULER[name], ESSAYS[:1]), 1024).variant
    for example in task.generate(0, 4):
        assert 0.95 * 1024 <= count(example.context) <= 1024
        prose = " ".join(
            example.context[span.start : span.end]
            for span in example.spans
            if span.kind == "distractor"
        )
        assert all(word in prose for text in ESSAYS for word in text.split()[:3])
        same = RULER[name].example(0, example.index)
        assert [question.text for question in example.questions] == [
            question.text for question in same.questions
        ]


# --- variables


def test_a_chain_has_four_hops_and_stands_behind_a_worked_one() -> None:
    for example in RULER["vt"].generate(0, 20):
        question = only_question(example)
        halves = example.context.split("A chain of variable assignments")
        assert len(halves) == 3
        (shown, names), (value, variables) = map(chain_in, halves[1:])
        assert (len(names), len(variables)) == (5, 5)
        assert question.golds == tuple(variables)
        assert f"the value {value}" in question.text
        assert shown != value
        assert (
            halves[1]
            .rstrip()
            .endswith(f"5 variables are assigned the value {shown}, they are: {' '.join(names)}")
        )
        assert question.answer_prefix.replace(value, shown) in halves[1]
        assert question.text.replace(value, shown) in halves[1]
        assert set(example.stated_values) == {shown, value, *names, *variables}


# --- words


@pytest.mark.parametrize(
    ("tokens", "others_of_example", "of_example", "of_list"),
    [
        (2000, 10, (3, 1), (6, 1)),
        (4095, 10, (3, 1), (6, 1)),
        (4096, 30, (10, 3), (30, 3)),
        (40_000, 30, (10, 3), (30, 3)),
    ],
)
def test_the_common_words_are_as_frequent_as_declared_and_no_other_word_is(
    tokens: int, others_of_example: int, of_example: tuple[int, int], of_list: tuple[int, int]
) -> None:
    for example in of_tokens(RULER["cwe"], tokens).generate(0, 3):
        question = only_question(example)
        worked, shown, asked = lists_in(example.context)
        for words, golds, (common, other) in (
            (worked, shown, of_example),
            (asked, question.golds, of_list),
        ):
            counts = Counter(words)
            assert {counts.pop(gold) for gold in golds} == {common}
            assert len(set(golds)) == COMMON
            assert set(counts.values()) == {other}
        assert len(set(worked)) == COMMON + others_of_example
        assert not set(worked) & set(asked)
        assert sum(span.kind == "answer" for span in question.spans) == COMMON * of_list[0]
        assert not [
            (gold, word)
            for gold in question.golds
            for word in set(asked)
            if gold in word and gold != word
        ]
        assert question.target == " ".join(
            f"{number}. {gold}" for number, gold in enumerate(question.golds, 1)
        )


@lengths
def test_coded_words_follow_zipf_and_the_three_stand_out(tokens: int) -> None:
    for example in of_tokens(RULER["fwe"], tokens).generate(0, 3):
        question, counts = (
            only_question(example),
            Counter(example.context.split("\n")[1].split(" ")),
        )
        ranked = counts.most_common()
        assert ranked[0][0] == DOTS
        assert [word for word, _ in ranked[1:4]] == list(question.golds)
        assert ranked[3][1] > ranked[4][1], "the third is more frequent than the fourth"
        declared = [
            times for times in counts_of_ranks(round(ranked[0][1] * 1.645), tokens // 50) if times
        ]
        assert all(
            abs(times - said) <= 1 for (_, times), said in zip(ranked, declared, strict=False)
        )
        assert abs(len(ranked) - len(declared)) <= 1
        assert all(re.fullmatch("[a-z]{6}", word) for word in counts if word != DOTS)
        assert len(question.spans) == sum(counts[gold] for gold in question.golds)


def test_chance_of_common_words_is_what_the_best_blind_guesser_scores() -> None:
    """It names any number of the words that may be common, of which each is as often as any
    other."""
    words = len(short_words())
    scores = [
        100 * 2 * (COMMON * named / words) / (COMMON + named) for named in range(1, words + 1)
    ]
    assert RULER["cwe"].chance == pytest.approx(max(scores), abs=0.05)
    assert all(task.chance == 0 for name, task in RULER.items() if name != "cwe")


# --- parts
