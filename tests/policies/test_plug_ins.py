"""Policies from files and packages."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from kvpress import DecodingPress, KnormPress

import policies.declaration.plug_in
from datasets_gen import TASKS
from kvbench.engine.treat.plan import plan
from kvbench.engine.treat.prefill import prefill
from kvbench.experiments.catalogue import choose_policies, with_references
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt
from kvbench.system.errors import KVBenchError
from policies import (
    CacheTreatment,
    LevelRange,
    Needs,
    Policy,
    PolicyError,
    Situation,
    at_ratios,
    list_arguments,
    load_even_if_broken,
    load_plug_in,
    plug_ins,
)
from policies.declaration.contents import hash_contents
from policies.declaration.names import CONTROLS, BrokenPlugInError
from policies.presses.rescoring import FairEvictionPress

SITUATION = Situation(0.25, 100, 0, "example")
BASE = [TASKS["base"]]
PRESSES = """
from dataclasses import dataclass
from kvpress import DecodingPress, KnormPress, KVzipPress, ScorerPress
from policies import Policy

@dataclass
class Loud(ScorerPress):
    window_size: int = 8
    kind: str = "mean"

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return keys.norm(dim=-1)

class Kept(KVzipPress):
    pass

def decoding(compression_ratio, interval=1):
    return DecodingPress(KnormPress(), compression_interval=interval, target_size=int(100 * (1 - compression_ratio)))

def described():
    return Policy("described", "plug-in", "-", "for a test", lambda situation: KnormPress(situation.ratio))

class NoPress:
    def __init__(self, compression_ratio): pass

def gives_none(compression_ratio): return None
def breaks(compression_ratio): raise OSError("no weights")
def takes_nothing(): return 3
def leaves(compression_ratio): raise SystemExit(3)
number = 3
ready = described()
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "my presses.py"
    path.write_text(PRESSES)
    return str(path)


def test_a_press_class_of_a_file_is_a_policy(file: str) -> None:
    policy = load_plug_in(f"{file}:Loud(window_size=16, kind='max')")
    press = policy.press(SITUATION)
    assert press.compression_ratio == 0.25
    assert list_arguments(press) == {"window_size": 16, "kind": "max"}
    assert policy.name == "Loud(window_size=16, kind='max')"
    assert (policy.prefill, policy.while_decoding) == ("shared", False)


def test_whether_it_needs_its_own_prefill_is_found_out(file: str) -> None:
    assert load_plug_in(f"{file}:Kept").prefill == "private"
    decoding = load_plug_in(f"{file}:decoding(interval=2)")
    assert (decoding.prefill, decoding.while_decoding) == ("private", True)
    press: Any = decoding.press(SITUATION)
    assert isinstance(press, DecodingPress)
    assert (press.compression_interval, press.target_size) == (2, 75)
    assert load_plug_in("kvpress:KVzipPress").prefill == "private"


def test_the_code_of_a_plug_in_and_what_it_takes_from_beside_it_are_part_of_its_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that brings a press from another of its files, and a file that takes a helper from
    beside it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "some_helper.py").write_text("SCALE = 1.0\n")
    (tmp_path / "a_file.py").write_text(
        PRESSES + "\ndef late():\n    from some_helper import SCALE\n"
    )
    (tmp_path / "some_package").mkdir()
    (tmp_path / "some_package/inside.py").write_text(PRESSES)
    (tmp_path / "some_package/__init__.py").write_text("from .inside import Loud\n")
    for text, changed in (
        (f"{tmp_path / 'a_file.py'}:Loud", tmp_path / "a_file.py"),
        (f"{tmp_path / 'a_file.py'}:Loud", tmp_path / "some_helper.py"),
        ("some_package:Loud", tmp_path / "some_package/inside.py"),
    ):
        first = load_plug_in(text).code.origin
        assert load_plug_in(text).code.origin == first
        changed.write_text(changed.read_text() + "\n# changed\n")
        assert load_plug_in(text).code.origin != first


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "while True:\n    pass\nPress = None",
            "cannot be imported: TookTooLongError: it took longer than 0.1 s",
        ),
        (
            "def Press(compression_ratio):\n    while True:\n        try:\n            "
            "open('nowhere')\n        except Exception:\n            pass",
            "cannot be built: TookTooLongError: it took",
        ),
    ],
    ids=["import", "constructor that tries again whatever fails"],
)
def test_code_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    monkeypatch.setattr(policies.declaration.plug_in, "FOREIGN_SECONDS", 0.1)
    (tmp_path / "endless.py").write_text(f"{code}\n")
    policy = load_even_if_broken(f"{tmp_path / 'endless.py'}:Press")
    with pytest.raises(PolicyError, match=rf"{said}.*\(endless\.py:\d+\)$"):
        policy.press(SITUATION)


REFUSED = {
    "no file": ("nowhere.py:Loud", "there is no file nowhere.py"),
    "no such name": (
        "{file}:Lout",
        "has no 'Lout': did you mean 'Loud'[?] It has Loud, Kept, decoding, gives_none, breaks, "
        "leaves, ready$",
    ),
    "a file alone": (
        "{file}",
        "is a file: name a press in it, as .*presses.py:Loud, .*presses.py:Kept",
    ),
    "no press": ("{file}:NoPress", "NoPress is no press: derive it from kvpress.BasePress"),
    "gives none": ("{file}:gives_none", "it gives a NoneType, which is no kvpress.BasePress"),
    "breaks": ("{file}:breaks", "cannot be built: OSError: no weights"),
    "leaves": ("{file}:leaves", "cannot be built: SystemExit: 3"),
    "no ratio": ("{file}:takes_nothing", "it has no parameter compression_ratio"),
    "neither": ("{file}:number", "neither a press class, nor a function, nor a Policy"),
    "unknown argument": (
        "{file}:Loud(widow_size=3)",
        "there is no argument widow_size: did you mean window_size[?] it takes window_size, kind$",
    ),
    "no argument like it": (
        "{file}:decoding(zzz=3)",
        "there is no argument zzz: it takes interval$",
    ),
    "the ratio": (
        "{file}:Loud(compression_ratio=0.3)",
        "a run sets the compression_ratio: leave it out",
    ),
    "positional": ("{file}:Loud(3)", "write arguments as"),
    "no literal": ("{file}:Loud(window_size=open('x'))", "write arguments as"),
    "no module": (
        "no.such.package:Press",
        "no.such.package cannot be imported: ModuleNotFoundError",
    ),
    "no name": ("{file}:", "names no plug-in"),
    "no Python": ("sys:exit", "sys is no module of Python code"),
    "complete": ("{file}:ready(window_size=3)", "a Policy is complete and takes no arguments"),
}
# A run records these, and goes on.
BROKEN = {"no press", "gives none", "breaks", "leaves", "no ratio", "neither"}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_press_is_refused_in_one_line(case: str, file: str) -> None:
    text, said = REFUSED[case]
    with pytest.raises(PolicyError, match=said) as refused:
        load_plug_in(text.format(file=file))
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, BrokenPlugInError) == (case in BROKEN)
    with pytest.raises(PolicyError, match=said):
        load_even_if_broken(text.format(file=file)).press(SITUATION)


@pytest.mark.parametrize(
    "content", ["import nothing_there", "def f(:", "raise SystemExit(3)", "1 / 0"]
)
def test_a_file_that_does_not_import_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.py").write_text(f"{content}\nPress = None\n")
    with pytest.raises(
        PolicyError, match=r"bad\.py cannot be imported: [A-Z].*\(bad\.py:1\)$"
    ) as refused:
        load_plug_in(f"{tmp_path / 'bad.py'}:Press")
    assert "\n" not in str(refused.value)


def test_installed_packages_bring_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name, value, module = "theirs", "kvpress:KnormPress", "kvpress"

        def load(self) -> Any:
            return KnormPress

    monkeypatch.setattr(
        policies.declaration.plug_in,
        "entry_points",
        lambda group: [Entry()] if group == "kvbench.policies" else [],
    )
    assert isinstance(plug_ins()["theirs"].press(SITUATION), KnormPress)
    assert [policy.name for policy in choose_policies("theirs", BASE, "agnostic")] == ["theirs"]
    assert "theirs" in [policy.name for policy in choose_policies("all", BASE, "agnostic")]
    monkeypatch.setattr(Entry, "load", lambda self: 1 / 0)
    with pytest.raises(
        PolicyError, match=r"the plug-in theirs \(kvpress:KnormPress\): it cannot be imported: Zero"
    ):
        plug_ins()["theirs"].press(SITUATION)
    monkeypatch.setattr(Entry, "name", "snapkv")
    with pytest.raises(
        KVBenchError, match="an installed package brings a policy 'snapkv', as kvbench does"
    ):
        choose_policies("all", BASE, "agnostic")


# --- choosing


SYSTEM = [TASKS["instructions"]]


def test_any_press_that_keeps_by_score_can_be_protected_and_its_plain_form_runs_beside_it(
    file: str,
) -> None:
    names = f"keydiff+whitelist,{file}:Loud(kind='a+b')+fair,snapkv+fair"
    chosen = with_references(choose_policies(names, SYSTEM, "agnostic"))
    own = [policy.name for policy in chosen if policy.name not in CONTROLS]
    plain = ["keydiff", "Loud(kind='a+b')", "snapkv"]
    assert own == [*plain, "keydiff+whitelist", "Loud(kind='a+b')+fair", "snapkv+fair"]
    loud = chosen[own.index("Loud(kind='a+b')+fair") - len(own)]
    press = loud.press(replace(SITUATION, spans=((2, 9),)))
    assert isinstance(press, FairEvictionPress)
    assert (type(press.press).__name__, press.spans, press.window) == ("Loud", ((2, 9),), False)
    assert loud.code.origin, "the code of the plug-in is part of it"
    assert with_references(chosen) == chosen


OF_ATTENTIONS = """
from kvpress import ScorerPress

class Indexed(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return attentions[0].sum(-2)

class Other(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return helper(keys)

def helper(keys):
    return 1 / 0
"""


@pytest.mark.parametrize(
    ("press", "place", "explained"),
    [("Indexed", "(theirs.py:6)", True), ("Other", "(theirs.py:13)", False)],
)
def test_the_error_of_a_press_names_the_line_of_its_author_and_explains_missing_attention(
    press: str, place: str, explained: bool, tmp_path: Path, llama: LoadedModel, prompt: Prompt
) -> None:
    (tmp_path / "theirs.py").write_text(OF_ATTENTIONS)
    policy = load_plug_in(f"{tmp_path / 'theirs.py'}:{press}")
    (branch,) = prefill(llama, prompt, plan([policy], at_ratios([0.5]), prompt, seed=0)).branches
    assert place in str(branch.error)
    assert ("as h2o does" in str(branch.error)) == explained
    assert "\n" not in str(branch.error)


FORMER = """
from kvpress import KnormPress
from policies import Policy

def build(situation):
    return KnormPress(situation.ratio)

policy = Policy("mine", "plug-in", "-", "for a test", build, {keyword}=None)
"""


@pytest.mark.parametrize(
    ("keyword", "group", "record", "name"),
    [
        ("needs_question", "needs", Needs, "question"),
        ("highest_ratio", "levels", LevelRange, "highest_ratio"),
        ("step_treatment", "treatment", CacheTreatment, "step_treatment"),
    ],
)
def test_a_former_keyword_of_a_policy_is_answered_by_its_new_place(
    tmp_path: Path, keyword: str, group: str, record: type, name: str
) -> None:
    file = tmp_path / "former.py"
    file.write_text(FORMER.format(keyword=keyword))
    with pytest.raises(PolicyError) as raised:
        load_plug_in(f"{file}:policy")
    message = str(raised.value)
    assert f"no {keyword} any more: write {group}=policies.{record.__name__}({name}=" in message
    assert "\n" not in message
    assert name in {field.name for field in fields(record)}
    assert group in {field.name for field in fields(Policy)}


LENGTHS = """
from kvpress import SnapKVPress

def short(compression_ratio, context_length):
    return SnapKVPress(compression_ratio, window_size=context_length // 10)
"""


def test_a_plug_in_that_asks_is_told_the_length_of_the_context(tmp_path: Path) -> None:
    (tmp_path / "lengths.py").write_text(LENGTHS)
    short = load_plug_in(f"{tmp_path / 'lengths.py'}:short")
    windows = [
        short.press(replace(SITUATION, context_length=length)).window_size for length in (100, 600)
    ]
    assert windows == [10, 60]
    given = load_plug_in(f"{tmp_path / 'lengths.py'}:short(context_length=50)")
    assert given.press(SITUATION).window_size == 5, "what is written counts"


READS = """
import importlib, json
from pathlib import Path
from dataclasses import dataclass
from kvpress import KnormPress
{top}

@dataclass
class Reading(KnormPress):
    weights: str = ""

    def score(self, *arguments, **options):
        {inside}
        return super().score(*arguments, **options)
"""


@pytest.mark.parametrize(
    ("top", "inside", "changed"),
    [
        ("", "Path(__file__).with_name('scales.json').read_text()", "scales.json"),
        (
            "",
            "(Path(__file__).parent / 'tables' / 'scales.json').read_text()",
            "tables/scales.json",
        ),
        (
            "SCALES = json.loads((Path(__file__).parent / ('scales' + '.json')).read_text())",
            "pass",
            "scales.json",
        ),
        ("", "importlib.import_module('a_scale_of_mine')", "a_scale_of_mine.py"),
        ("", "import a_package_of_mine.inner", "a_package_of_mine/__init__.py"),
        ("", "import an_installed_one", "site-packages/an_installed_one/__init__.py"),
        ("", "import an_installed_one", "site-packages/an_installed_one/inner.py"),
        ("", "open(self.weights)", "given.bin"),
    ],
)
def test_what_a_plug_in_reads_and_imports_is_part_of_its_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: str, inside: str, changed: str
) -> None:
    files = (
        "scales.json",
        "tables/scales.json",
        "a_scale_of_mine.py",
        "a_package_of_mine/__init__.py",
        "given.bin",
    )
    installed = (
        "site-packages/an_installed_one/__init__.py",
        "site-packages/an_installed_one/inner.py",
    )
    for name in (
        *files,
        *installed,
        "a_package_of_mine/inner.py",
        "unrelated.py",
        "unrelated.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    (tmp_path / "a_reader.py").write_text(READS.format(top=top, inside=inside))

    def origin() -> str:
        hash_contents.cache_clear()
        return load_plug_in(
            f"{tmp_path / 'a_reader.py'}:Reading(weights='{tmp_path / 'given.bin'}')"
        ).code.origin

    first = origin()
    for unrelated in ("unrelated.py", "unrelated.json"):
        (tmp_path / unrelated).write_text("2")
    assert origin() == first
    (tmp_path / changed).write_text("2")
    assert origin() != first


def test_the_spelling_of_arguments_makes_no_other_policy(file: str) -> None:
    one, other = (
        load_plug_in(f"{file}:Loud({text})")
        for text in ("window_size=16, kind='max'", 'kind="max",window_size=16')
    )
    assert one.name == other.name
    assert one.code.origin == other.code.origin
