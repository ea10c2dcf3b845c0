"""Presses in memory: classes, functions, objects and policies, also from the cells of a
notebook."""

import linecache
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kvpress
import pytest
from kvpress import AdaKVPress, ComposedPress, DecodingPress, KnormPress, ScorerPress, SnapKVPress

import kvbench
from kvbench.api.arguments import PressesInMemory
from policies import POLICIES, Policy
from policies.declaration.cells import find_code
from policies.declaration.in_memory import policy_in_memory
from tests.support.models.runs import SHORT, assert_answers_equal, timeless

CELL = """
from kvpress import ScorerPress

STRENGTH = 2


def strength(values):
    return STRENGTH * values.norm(dim=-1)


class Loudest(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return strength(values)
"""
Cells = Callable[..., dict[str, Any]]


@dataclass
class FromTheEnd(ScorerPress):
    """Keeps the last tokens, and the first as well."""

    sinks: int = 0

    def score(self, module: Any, hidden_states: Any, keys: Any, *_: Any) -> Any:
        places = keys[..., 0].detach().clone()
        places[...] = places.new_tensor(range(places.shape[-1]))
        places[..., : self.sinks] = places.shape[-1]
        return places


def by_function(compression_ratio: float) -> Any:
    return FromTheEnd(compression_ratio, sinks=4)


@pytest.fixture
def run_cells(monkeypatch: pytest.MonkeyPatch) -> Cells:
    """Runs texts as a notebook runs its cells: one after the other, with their lines kept."""

    def run(*texts: str) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": "__main__"}
        for number, text in enumerate(texts):
            file = f"<cell {number} of {id(names)}>"
            entry = (len(text), None, text.splitlines(keepends=True), file)
            monkeypatch.setitem(linecache.cache, file, entry)
            exec(compile(text, file, "exec"), names)
        return names

    return run


def test_a_press_of_a_cell_is_known_by_its_source(run_cells: Cells) -> None:
    press = run_cells(CELL)["Loudest"]
    policy = policy_in_memory(press)
    assert policy.name == "Loudest"
    assert policy.code.texts == {"Loudest.py": CELL.rstrip() + "\n"}
    assert policy_in_memory(run_cells(CELL)["Loudest"]).code == policy.code
    weaker = policy_in_memory(run_cells(CELL.replace("values.norm", "(-values).norm"))["Loudest"])
    assert weaker.code != policy.code


def test_what_a_press_calls_of_other_cells_belongs_to_it(run_cells: Cells) -> None:
    first, second = CELL.split("class Loudest")
    second = f"class Loudest{second}"
    policy = policy_in_memory(run_cells(first, second)["Loudest"])
    (text,) = policy.code.texts.values()
    assert text.index("def strength") < text.index("class Loudest")
    origins = {policy.code.origin}
    origins.add(policy_in_memory(run_cells(first.replace("2", "3"), second)["Loudest"]).code.origin)
    # The number stands in no cell that the press is of, and is read all the same.
    later = run_cells(first, second, "STRENGTH = 5")
    origins.add(policy_in_memory(later["Loudest"]).code.origin)
    assert len(origins) == 3


def test_a_data_class_of_a_cell_has_its_arguments(run_cells: Cells) -> None:
    text = CELL.replace("class", "@dataclass\nclass").replace(
        "):\n    def", "):\n    sinks: int = 0\n\n    def"
    )
    text = f"from dataclasses import dataclass\n{text}"
    press = run_cells(text)["Loudest"]
    policy = policy_in_memory(press(sinks=3))
    assert policy.name == "Loudest(sinks=3)"
    assert policy.code.files == {}
    assert policy.code.texts == {"Loudest.py": text.rstrip() + "\n"}
    assert policy_in_memory(run_cells(text)["Loudest"](sinks=3)).code == policy.code


def test_code_that_nothing_keeps_is_known_by_what_it_does() -> None:
    origins = set()
    for text in (CELL, CELL.replace("norm(dim=-1)", "sum(dim=-1)")):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(text, names)
        code = find_code(names["Loudest"], "Loudest")
        assert code.texts == {}
        origins.add(code.origin)
    assert len(origins) == 2


def test_a_press_of_a_module_is_known_by_its_file_and_one_of_kvpress_by_none() -> None:
    code = policy_in_memory(FromTheEnd).code
    assert next(iter(code.files.values())) == Path(__file__)
    assert policy_in_memory(SnapKVPress).code.origin == ""
    assert policy_in_memory(POLICIES["snapkv"]) is POLICIES["snapkv"]


def test_an_object_is_a_template_whose_ratio_is_swept() -> None:
    template = FromTheEnd(0.9, sinks=2)
    policy = policy_in_memory(template)
    assert policy.name == "FromTheEnd(sinks=2)"
    situation = policy.typical_situation(100)
    built = policy.build(replace(situation, ratio=0.25))
    assert (built.compression_ratio, built.sinks) == (0.25, 2)
    assert template.compression_ratio == 0.9
    assert policy_in_memory(AdaKVPress(SnapKVPress(window_size=8))).name == (
        "AdaKVPress(press=SnapKVPress(window_size=8))"
    )
    assert policy_in_memory(AdaKVPress(KnormPress())).build(situation).press.compression_ratio > 0


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (3, "an object of type int is no press"),
        (int, "int is no press: derive it from kvpress.BasePress"),
        (lambda compression_ratio: KnormPress(compression_ratio), "'<lambda>' is no name"),
        (len, "len, handed in from memory cannot be built"),
        (ComposedPress([KnormPress(), KnormPress()]), "a ratio in each of its presses"),
        (DecodingPress(KnormPress()), "no compression_ratio that a run could set"),
        (kvpress.ThinKPress(), "takes no compression_ratio"),
    ],
    # Functions have another address in each process.
    ids=["number", "type", "lambda", "builtin", "composed", "decoding", "no ratio"],
)
def test_what_is_no_press_is_said_in_one_sentence(target: Any, sentence: str) -> None:
    with pytest.raises(kvbench.KVBenchError, match=sentence):
        PressesInMemory().join_names("policies", [target])


def test_two_presses_of_one_name_are_refused() -> None:
    with pytest.raises(kvbench.KVBenchError, match="two policies are named 'FromTheEnd'"):
        PressesInMemory().join_names("policies", [FromTheEnd(), FromTheEnd()])


@pytest.fixture(scope="module")
def mixed_run(toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> kvbench.RunResult:
    """A run of presses of all kinds. Tests read it and change nothing."""
    folder = tmp_path_factory.mktemp("mixed")
    text = CELL
    names: dict[str, Any] = {"__name__": "__main__"}
    linecache.cache["<a cell>"] = (len(text), None, text.splitlines(keepends=True), "<a cell>")
    exec(compile(text, "<a cell>", "exec"), names)
    mine = Policy(
        name="mine",
        family="plug-in",
        paper="-",
        description="a policy of a test",
        build=lambda situation: by_function(situation.ratio),
        same_as=("by_function", "FromTheEnd(sinks=4)"),
    )
    chosen = ["knorm", KnormPress, FromTheEnd(sinks=4), by_function, names["Loudest"], mine]
    return kvbench.run(
        toy_folder,
        tasks=["base"],
        policies=chosen,
        ratios=0.5,
        limit=1,
        context_tokens="native",
        max_new_tokens=SHORT,
        out=folder / "runs",
        site=folder / "site",
    )


def test_presses_in_memory_answer_as_those_of_the_command_line(
    mixed_run: kvbench.RunResult, toy_run: Path
) -> None:
    of_command = kvbench.load(toy_run / "runs" / "x").records()
    records = timeless(mixed_run.records())
    by_name = dict(list(records.groupby("policy")))
    mine = ["FromTheEnd(sinks=4)", "by_function", "Loudest", "mine"]
    assert {*mine, "KnormPress", "knorm", "full", "random"} <= by_name.keys()
    expected = timeless(of_command[of_command["task"] == "base"])
    expected = expected[expected["policy"] == "knorm"].reset_index(drop=True)
    for name in ("knorm", "KnormPress"):
        rows = by_name[name].reset_index(drop=True).assign(policy="knorm")
        columns = [column for column in rows if column != "press_arguments"]
        assert_answers_equal(rows[columns], expected[columns])
    for column in ("output_text", "cache_digest", "realised_ratio"):
        answers = [list(by_name[name][column]) for name in mine if name != "Loudest"]
        assert answers[0] == answers[1] == answers[2]
    # Two names for one method are reported, as on the command line.
    assert "knorm" in mixed_run.fault
    assert "KnormPress" in mixed_run.fault


def test_the_source_of_a_cell_lies_beside_the_run(mixed_run: kvbench.RunResult) -> None:
    kept = mixed_run.folder / "press_sources" / "Loudest" / "Loudest.py"
    assert "class Loudest" in kept.read_text(encoding="utf-8")
