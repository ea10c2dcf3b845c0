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
        (["run", "--workers", "4"], '--executor "ray(workers=4)"'),
        (["run", "--address=ray://10.0.0.1:1"], '--executor "ray(address=ray://10.0.0.1:1)"'),
        (["compare", "knorm", "--cell-seconds", "9"], '--executor "local(cell_seconds=9)"'),
        (["run", "--compress", "system"], '--mode "agnostic(compress=system)"'),
        (["run", "--device-map", "auto"], '--device "cuda(map=auto)"'),
        (["run", "--beside", "runs/a"], "python -m kvbench site RUN --beside runs/a does it"),
        (["run", "--phrasings", "held-out"], "export and show write them"),
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


def test_the_main_command_has_at_most_28_options() -> None:
    options = {parameter.name for parameter in application("run").params}
    assert len(options | {"help"}) <= 28, "give what one suite or task reads to it, in brackets"
