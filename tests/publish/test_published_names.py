"""What is published names no place of the machine that made it, and keeps nothing of an earlier
site in its folder."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from kvbench.models.natural import cache_folder
from kvbench.publish.claims import publish_register
from kvbench.publish.comparison import publish_comparison
from kvbench.publish.former_files import MANIFEST
from kvbench.publish.places import distinct_names, name_of_place, without_places
from kvbench.publish.site import publish_sites
from kvbench.store.store import Store
from kvbench.system.errors import KVBenchError
from leaderboards.claims.registry import chosen_claims
from tests.support.models.runs import CommandLine
from tests.support.records.small_store import small_store

PRESS = """
from dataclasses import dataclass

from kvpress import KnormPress, ScorerPress


@dataclass
class WeighedPress(KnormPress):
    weights: str = ""


@dataclass
class BrokenPress(ScorerPress):
    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        raise FileNotFoundError(2, "No such file", "{folder}/my weights/w.bin")
"""
ROW = {
    "context": "Ada Falk lives in Oslo. Bo Lind lives in Rome.",
    "question": "Where does Ada Falk live?",
    "answer": "Oslo",
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/srv/a/w.bin is missing, see /srv/a/press.py (press.py:6).", "w.bin is missing, see press.py (press.py:6)."),
        ("--model /srv/m/llama --tasks a,/srv/q.d/q.jsonl --out=/srv/x/", "--model llama --tasks a,q.jsonl --out=x"),
        ("my.py:Press(path='/home/ann smith/w 1.bin')", "my.py:Press(path='w 1.bin')"),
        ('File "/usr/lib/python3.11/random.py", line 3, in f', 'File "random.py", line 3, in f'),
        ("PosixPath('/tmp/x y/z.bin'), file:///srv/a/w.bin", "PosixPath('z.bin'), w.bin"),
        ("of /home/ann, /Users/ann/x/y and /root", "of ~, y and ~"),
        ("~/models/llama, ~ann/x and ../../other/rows.jsonl", "llama, x and rows.jsonl"),
        # What is no place of a machine stays.
        ("meta-llama/Llama-3.1-8B and/or 1/2, 12 tokens/s", "meta-llama/Llama-3.1-8B and/or 1/2, 12 tokens/s"),
        ("https://example.org/home/ann/x, a / b, runs/1, ./x", "https://example.org/home/ann/x, a / b, runs/1, ./x"),
    ],
)  # fmt: skip
def test_a_text_has_names_in_place_of_paths(text: str, shown: str) -> None:
    assert without_places(text) == shown
    assert without_places(shown) == shown


def test_a_user_without_a_home_has_names_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert without_places("of /srv/ann/x and /home/bea/y") == "of x and y"
    assert name_of_place("/srv/models/llama") == "llama"
    monkeypatch.delenv("KVBENCH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    with pytest.raises(KVBenchError, match="set KVBENCH_CACHE"):
        cache_folder()


def test_a_home_with_white_space_is_shortened_without_quotes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/data of/ann smith")
    monkeypatch.chdir(tmp_path)
    assert (
        without_places("cannot read /data of/ann smith/models/w.bin today")
        == "cannot read w.bin today"
    )
    assert without_places(f"cannot read {tmp_path}/w.bin") == "cannot read w.bin"
    assert name_of_place("/data of/ann smith") == "~"


def test_places_as_a_whole_have_names_and_those_below_the_current_folder_stay() -> None:
    names = {
        "/srv/my models/llama": "llama",
        "../x": "x",
        "~/x/": "x",
        "org/name": "org/name",
        "runs/x": "runs/x",
    }
    assert {place: name_of_place(place) for place in names} == names
    assert distinct_names(["/a/llama", "/b/llama", "llama", "/a/llama"]) == {
        "/a/llama": "llama",
        "/b/llama": "llama (2)",
        "llama": "llama (3)",
    }


def texts_of(site: Path) -> dict[Path, str]:
    """Reads every file of a site; of a table the texts of all cells, and what stands beside
    them."""
    texts = {}
    for path in (path for path in site.rglob("*") if path.is_file()):
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            texts[path] = f"{table.to_pydict()} {table.schema.metadata}"
        else:
            texts[path] = path.read_text(encoding="utf-8")
    return texts


def test_no_file_of_a_site_names_a_place_of_the_machine(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model, the data, the press and what it complains of lie in a home folder, and the runs
    elsewhere."""
    home = tmp_path / "data of" / "ann smith"
    shutil.copytree(cli.model, home / "models/tiny")
    (home / "mine.jsonl").write_text(json.dumps(ROW) + "\n")
    press = home / "press.py"
    press.write_text(PRESS.replace("{folder}", str(home)))
    monkeypatch.setenv("HOME", str(home))
    places = [
        "--model",
        home / "models/tiny",
        "--out",
        tmp_path / "runs",
        "--limit",
        1,
        "--ratios",
        0.5,
    ]
    policies = f"{press}:WeighedPress(weights='{home}/w.bin'),{press}:BrokenPress"
    run = [
        "run",
        *places,
        "--tasks",
        f"base,{home}/mine.jsonl",
        "--policies",
        policies,
        "--name",
        "x",
    ]
    assert cli(*run, "--context-tokens", "native", "--site", tmp_path / "site") == 1, (
        "one press is broken"
    )
    store = Store.open(tmp_path / "runs/x")
    assert "my weights" in " ".join(store.frame()["reason"].dropna()), "else nothing is tried"
    weighed = next(
        policy.name for policy in store.identity.policies if policy.name.startswith("Weighed")
    )
    publish_comparison(
        store, store.frame(), weighed, ["random"], tmp_path / "site", {}, [f"see {press}"]
    )
    model = str(home / "models/tiny")
    publish_register(
        chosen_claims("R1"),
        model,
        {"routes": store},
        0,
        tmp_path / "site",
        model,
        None,
        home / "mine.jsonl",
    )
    texts = texts_of(tmp_path / "site")
    assert {path.suffix for path in texts} == {".html", ".csv", ".parquet", ".json"}
    assert len(texts) > 12
    for path, text in texts.items():
        for secret in (str(tmp_path), "ann smith", "data of", "my weights", "/home/"):
            assert secret not in text, f"{path}: …{text[max(0, text.find(secret) - 200) :][:300]}"
    assert "WeighedPress(weights=&#39;w.bin&#39;)" in texts[tmp_path / "site/index.html"]
    assert "--model tiny" in texts[tmp_path / "site/method.html"]
    assert json.loads(texts[tmp_path / "site/data/entry.json"])["model"] == "tiny"
    assert set(pq.read_table(tmp_path / "site/data/records.parquet")["model"].to_pylist()) == {
        "tiny"
    }
    # What is no site is left as it is: a run finds its model and its press again.
    assert store.identity.model == model


def as_plain(value: object) -> object:
    return (
        list(value)
        if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
        else value
    )


def test_texts_of_people_stay_as_they_are_and_so_do_numbers(tmp_path: Path) -> None:
    store = small_store(tmp_path / "runs/x")
    publish_sites([store], tmp_path / "site")
    published, records = (
        pq.read_table(tmp_path / "site/data/records.parquet").to_pandas(),
        store.frame(),
    )
    for column in (
        "context",
        "question",
        "golds",
        "output_text",
        "f1",
        "ger",
        "policy",
        "press_arguments",
    ):
        assert list(map(str, map(as_plain, published[column]))) == list(
            map(str, map(as_plain, records[column]))
        ), column


def run_of(folder: Path, tasks: list[str]) -> Store:
    """A run of some tasks of the small store."""
    store = small_store(folder)
    content = json.loads((folder / "run.json").read_text())
    for task in [one["name"] for one in content["identity"]["tasks"] if one["name"] not in tasks]:
        for rows in folder.glob(f"*/{task}"):
            shutil.rmtree(rows)
    content["identity"]["tasks"] = [
        one for one in content["identity"]["tasks"] if one["name"] in tasks
    ]
    (folder / "run.json").write_text(json.dumps(content))
    return Store.open(store.folder)


@pytest.mark.parametrize("has_list", [True, False], ids=["listed", "of a version without a list"])
def test_what_an_earlier_build_wrote_and_this_one_does_not_is_removed(
    tmp_path: Path, has_list: bool
) -> None:
    site = tmp_path / "site"
    publish_sites([run_of(tmp_path / "runs/both", ["base", "hops"])], site)
    store = run_of(tmp_path / "runs/base", ["base"])
    publish_comparison(store, store.frame(), "snapkv", ["random"], site, {})
    mine = {
        site / "notes.html": "mine",
        site / "data/mine.csv": "a,b",
        site / "index.txt": "mine",
        site / "pages/x.html": "x",
    }
    for path, text in mine.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    if not has_list:
        (site / MANIFEST).unlink()
    assert (site / "examples-hops.html").is_file()
    publish_sites([store], site)
    assert not [*site.rglob("*hops*")]
    assert not (site / "task-base.html").exists(), "a single task is on the front page"
    for path, text in mine.items():
        assert path.read_text() == text, "nobody's but the writer's"
    assert (site / "compare-snapkv.html").is_file()
    listed = set(json.loads((site / MANIFEST).read_text()))
    assert {
        "index.html",
        "method.html",
        "examples-base.html",
        "data/records.parquet",
        "data/cells.csv",
    } <= listed
    assert not listed & {path.name for path in mine}


def test_a_list_from_elsewhere_removes_nothing_outside_of_the_pages(tmp_path: Path) -> None:
    site, store = tmp_path / "site", run_of(tmp_path / "runs/base", ["base"])
    publish_sites([store], site)
    outside, script = tmp_path / "outside.html", site / "script.sh"
    for path in (outside, script):
        path.write_text("kept")
    (site / MANIFEST).write_text(
        json.dumps(["../outside.html", str(outside), "script.sh", "data/../../outside.html"])
    )
    publish_sites([store], site)
    assert outside.read_text() == script.read_text() == "kept"
    (site / MANIFEST).write_text("{")
    publish_sites([store], site)
    assert "index.html" in json.loads((site / MANIFEST).read_text())


def test_a_build_that_is_interrupted_leaves_no_file_that_the_next_one_forgets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    with monkeypatch.context() as patch:
        patch.setattr(
            "kvbench.publish.site.write_study_tables",
            lambda *_: (_ for _ in ()).throw(KeyboardInterrupt),
        )
        with pytest.raises(KeyboardInterrupt):
            publish_sites([run_of(tmp_path / "runs/both", ["base", "hops"])], site)
    assert (site / "examples-hops.html").is_file()
    publish_sites([run_of(tmp_path / "runs/base", ["base"])], site)
    assert not [*site.rglob("*hops*")]
