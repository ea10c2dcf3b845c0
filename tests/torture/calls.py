"""Bad calls: hostile words and values that no option takes, added to a cheap call of each
command."""

import importlib
from collections.abc import Mapping
from math import inf, nan
from typing import TypeVar, get_args, get_type_hints

import hypothesis
from hypothesis import strategies as st

from kvbench.cli.program import application

HOSTILE = (
    *(
        "",
        " ",
        "nan",
        "inf",
        "-inf",
        "-1",
        "0",
        "1e400",
        "1e-320",
        "9" * 6000,
        "1" + "0" * 400,
        "0x10",
        "1:0:0",
        ",",
    ),
    *(
        "~nosuch/x",
        "LOOP",
        "FILE",
        "FOLDER",
        "FOLDER/none/x",
        "../../x",
        "/dev/null",
        "/proc/self/mem",
        "s3::x",
        "://",
    ),
    *(
        "x://y",
        "\x1b[31mred",
        "\udcff",
        "a\0b",
        "\u202etxt",
        "👻",
        "x" * 5000,
        "%s",
        "{",
        "[1",
        "$(x)",
        "a,b,,",
        "\n",
    ),
    *(
        "None",
        "--",
        "=",
        "²",
        "nowhere.py:P",
        "FILE:P",
        "kvpress:Nosuch",
        "snapkv+",
        "+fair",
        "snapkv+int9",
    ),
    *("os:system", "zeros(rate=", "memory://x"),
)
# A cheap call of each command, to which hostile options are added. bench and claims measure for
# minutes where what is named is known.
CHEAP: Mapping[str, list[str]] = {
    "site": ["RUN", "--site", "OUT"],
    "figures": ["RUN", "--out", "OUT", "--formats", "nosuch"],
    "score": ["RUN"],
    "plan": ["--limit", "1"],
    "ls": ["tasks"],
    "export": ["--task", "base", "--limit", "1", "--out", "OUT"],
    "show": ["base"],
    "doctor": ["nosuch"],
    "import-kvpress": ["FOLDER"],
    "check-submission": ["RUN", "--replay", "0"],
    "compare": ["knorm", "--against", "snapkv", "--model", "MODEL", "--out", "FILE"],
    "bench": ["--policies", "nosuch"],
    "claims": ["--model", "MODEL", "--out", "OUT", "--site", "OUT", "--only", "X"],
}
# They take minutes where what is given is good.
UNTOUCHED = ("--help", "-h", "--executor")


# Of an option that is given again the last counts: these two stay cheap by theirs.
LAST_STAYS = ("bench", "claims")
Drawn = TypeVar("Drawn")


def drawn(strategy: st.SearchStrategy[Drawn], seed: int) -> Drawn:
    """Draws the example that a seed makes; the first of a test is the simplest, whatever the
    seed."""
    found: list[Drawn] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=2, phases=[hypothesis.Phase.generate], database=None, deadline=None
    )
    @hypothesis.given(strategy)
    def keep(example: Drawn) -> None:
        found.append(example)

    keep()
    return found[-1]


@st.composite
def bad_calls(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Draws a command and up to three words to add to it: its options by their declarations, with
    values of their type that no option takes or with hostile ones, and words alone."""
    name = draw(st.sampled_from(["run", *CHEAP]))
    options = [one for one in application(name).params if one.param_type_name == "option"]
    types = get_type_hints(
        importlib.import_module(f"kvbench.commands.{name.replace('-', '_')}").command
    )
    words: list[str] = []
    for option in (
        draw(st.lists(st.sampled_from(options), min_size=1, max_size=3)) if options else ()
    ):
        if (typed := option.opts[-1]) not in UNTOUCHED:
            value = draw(st.one_of(st.sampled_from(HOSTILE), _values_of(types.get(option.name))))
            words += draw(st.sampled_from([[typed, value], [f"{typed}={value}"], [value], [typed]]))
    return name, words


def _values_of(declared: object) -> st.SearchStrategy[str]:
    """Makes values of an option's type: numbers that no option takes, as others would be good
    calls, or any text."""
    whole = st.one_of(st.integers(max_value=-1), st.integers(min_value=10**16))
    kinds = get_args(declared) or (declared,)
    if int in kinds:
        return whole.map(str)
    if float in kinds:
        return st.one_of(whole, st.floats(max_value=-1e-9), st.sampled_from([nan, inf])).map(str)
    return st.text(max_size=60)
