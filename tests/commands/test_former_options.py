"""Options that are written in another way now: one line says in which, and nothing is run."""

import pytest

from kvbench.cli.former import FORMER
from kvbench.cli.program import application
from tests.support.models.runs import CommandLine


@pytest.mark.parametrize(
    ("words", "spelling"),
    [
        (["run", "--dtypes", "fp16"], '--suite "numerics(dtypes=fp16)"'),
        (["plan", "--dtypes=fp16,bf16"], '--suite "numerics(dtypes=[fp16,bf16])"'),
        (["claims", "--sampling", "greedy"], '--suite "numerics(sampling=greedy)"'),
        (["run", "--no-deterministic"], '--suite "numerics(deterministic=no)"'),
        (["compare", "knorm", "--data", "text.txt"], '--tasks "TASK(data=text.txt)"'),
        (["run", "--defence=both"], '--tasks "ifeval(defence=both)"'),
        (["doctor", "--answer-prefix", "off"], '--tasks "TASK(prefix=off)"'),
        (["export", "--task", "base", "--depth", "0"], '--task "TASK(depth=0)"'),
        (["show", "base", "--depth", "0"], 'show "TASK(depth=0)"'),
        (["run", "--sampling"], '--suite "numerics(sampling=...)"'),
    ],
)
def test_a_former_option_is_answered_by_its_new_spelling(
    cli: CommandLine, words: list[str], spelling: str
) -> None:
    assert cli(*words) == 2
    (line,) = cli.err.splitlines()
    assert line.endswith(spelling)


@pytest.mark.parametrize("name", FORMER)
def test_no_former_option_is_an_option(name: str) -> None:
    options: set[str] = set()
    for parameter in application(name).params:
        options.update(parameter.opts, parameter.secondary_opts)
    assert options.isdisjoint(FORMER[name])
