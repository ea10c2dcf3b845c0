"""The checkers of directives, and the answers that obey several at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_gen.examples.directives import (
    BRACKETS,
    DIRECTIVE_KINDS,
    MARKS,
    Directive,
    check,
    check_argument,
    compatible,
    exemplar,
    share_obeyed,
)

WORD = "walnut"
# For each directive: outputs that obey it, and near misses.
CASES: dict[Directive, tuple[tuple[str, ...], tuple[str, ...]]] = {
    Directive("begin", WORD): (
        ("walnut Velden", "Walnut, Velden", "[WALNUT VELDEN]", "walnut"),
        ("Velden walnut", "walnuts Velden", "a walnut Velden", "walnut-brown Velden"),
    ),
    Directive("end", WORD): (
        ("Velden walnut", "Velden, Walnut.", '"VELDEN WALNUT"', "walnut"),
        ("walnut Velden", "Velden walnuts", "Velden walnut indeed", "Velden hazel-walnut"),
    ),
    Directive("upper"): (
        ("VELDEN", "WALNUT 12 MAY 1990.", "[ADA]"),
        ("Velden", "VELDEn", "THE cITY"),
    ),
    Directive("lower"): (("velden", "title: 12 may", "(ada)"), ("Velden", "veldeN", "12 May 1990")),
    Directive("avoid", "Bank"): (
        ("Amber", "Amber Banks", "embankment"),
        (
            "Amber Bank",
            "amber bank",
            "AMBER BANK.",
            "[Bank] Amber",
            "Amber-Bank",
            "Amber Bank's",
            "Bank’s",
        ),
    ),
    Directive("exactly", "4"): (
        (
            "Velden indeed indeed indeed",
            "[ADA INDEED INDEED WALNUT]",
            "one, two; three - four.",
            "12 May 1990 indeed",
        ),
        ("Velden indeed indeed", "Velden indeed indeed indeed indeed", "four", "12 May 1990"),
    ),
    Directive("title", WORD): (
        ("Title: walnut Velden", "Title: walnut\nVelden", "[Title: walnut Velden]"),
        (
            *(
                "Title walnut Velden",
                "Title: walnuts Velden",
                "title: walnut",
                "Title: Velden",
                "Title: ",
            ),
            *(
                "Title: walnut-brown Velden",
                "Title: walnut's Velden",
                "Title: Walnut Velden",
                "Velden Title: walnut",
            ),
        ),
    ),
    Directive("brackets", "square"): (
        ("[Velden]", " [Velden / Velden]\n", "[Velden] / [Velden]"),
        (
            *(
                "(Velden)",
                "[Velden",
                "Velden]",
                "[Velden].",
                "It is [Velden]",
                "[]",
                "[Velden] Farlen [x]",
            ),
            *(
                "[] Velden []",
                "[Velden] [Velden]",
                "[Velden] / Velden]",
                "[Velden] / [Velden] / [Velden]",
            ),
        ),
    ),
    Directive("brackets", "round"): (("(Velden)",), ("[Velden]", "Velden()", "(Velden]")),
    Directive("brackets", "curly"): (("{Velden}",), ("[Velden]", "{Velden", "}Velden{")),
    Directive("quotes"): (
        ('"Velden"', '"Velden", "Velden"'),
        (
            "'Velden'",
            '"Velden',
            'Velden"',
            '"',
            '""',
            '"Velden".',
            '"Velden" said "Ada"',
            '"" Velden ""',
        ),
    ),
    Directive("twice", "slash"): (
        ("Velden / Velden", "Velden/Velden", "[Ada Barden / Ada Barden]", "[Ada] / [Ada]"),
        (
            "Velden",
            "Velden Velden",
            "Velden / Vardor",
            "Velden; Velden",
            "Velden / Velden / Velden",
            "Velden / velden",
        ),
    ),
    Directive("twice", "semicolon"): (
        ("Velden; Velden",),
        ("Velden / Velden", "Velden; ", "Velden, Velden"),
    ),
    Directive("twice", "comma"): (("Velden, Velden",), ("Velden; Velden", ", Velden", "Velden,")),
}
ANSWERS = ("Velden", "Ada Falbrook", "12 March 1950", "Honey Parade", "baker", "427")
ARGUMENTS = {
    "begin": st.just("pebble"),
    "end": st.just("feather"),
    "title": st.just("ribbon"),
    "avoid": st.just("Parade"),
    "exactly": st.sampled_from(["5", "6", "7"]),
    "brackets": st.sampled_from(list(BRACKETS)),
    "twice": st.sampled_from(list(MARKS)),
}


@st.composite
def some_directives(draw: st.DrawFn) -> list[Directive]:
    """Directives that go together, of one kind or more."""
    kinds: list[str] = []
    for kind in draw(st.permutations(list(DIRECTIVE_KINDS))):
        if compatible(kind, kinds):
            kinds.append(kind)
    kept = kinds[: draw(st.integers(1, 5))]
    return [Directive(kind, draw(ARGUMENTS.get(kind, st.just("")))) for kind in kept]


@pytest.mark.parametrize("directive", CASES, ids=str)
def test_a_checker_accepts_what_obeys_and_rejects_near_misses(directive: Directive) -> None:
    right, wrong = CASES[directive]
    assert [output for output in right if not check(directive, output)] == []
    assert [output for output in wrong if check(directive, output)] == []
    assert not any(check(directive, output) for output in ("", " \n", "...", "[]", '""', " / "))
    assert Directive.parse(str(directive)) == directive


def test_every_kind_and_every_named_argument_has_cases() -> None:
    assert {directive.kind for directive in CASES} == set(DIRECTIVE_KINDS)
    assert {d.argument for d in CASES if d.kind == "brackets"} == set(BRACKETS)
    assert {d.argument for d in CASES if d.kind == "twice"} == set(MARKS)


@given(some_directives(), st.sampled_from(ANSWERS))
def test_the_exemplar_obeys_all_its_directives_at_once(
    directives: list[Directive], answer: str
) -> None:
    output = exemplar(directives, answer)
    assert [directive for directive in directives if not check(directive, output)] == []
    assert share_obeyed(directives, output) == 1.0


@pytest.mark.parametrize(
    ("directive", "obeying", "disobeying"),
    [
        (
            "begin नमस्ते",
            "नमस्ते, दिल्ली",
            "दिल्ली नमस्ते",
        ),  # with marks, of which a word is not the letters alone
        ("begin 你好", "你好，东京", "东京，你好"),
        ("end Straße", "Lange STRASSE.", "Straße und Haus"),
        ("end cafe\u0301", "Le café", "Le cafe"),
        ("avoid 京", "大阪", "東京"),
        ("avoid été", "l'hiver", "L'e\u0301te\u0301"),
        ("exactly 2", "सीता दिल्ली", "सीता"),
        ("exactly 2", "东京", "东京市"),
        ("title Zürich", "Title: Zu\u0308rich ist schön", "Title: Zürichsee"),
        ("twice slash", "Zürich / Zu\u0308rich", "Zürich / Zurich"),
        ("upper", "ÉTÉ", "éTÉ"),
    ],
)
def test_directives_are_judged_in_every_script(
    directive: str, obeying: str, disobeying: str
) -> None:
    parsed = Directive.parse(directive)
    check_argument(parsed)
    assert (check(parsed, obeying), check(parsed, disobeying)) == (True, False)
