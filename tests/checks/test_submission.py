"""A run made by somebody else: a sound one passes, an edited one does not, and what was not checked
is said."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kvbench.checks.replay
from kvbench.checks.answered_again import contexts_drawn
from kvbench.checks.submission import examine
from kvbench.checks.tolerance import OF_LIKELIHOOD, TOLERANCES, Tolerance
from kvbench.models.load import load_model
from kvbench.publish.site import publish_summary
from kvbench.store.scoring import rescore
from kvbench.store.store import Store
from kvbench.store.tables import CONTEXTS, QUESTIONS, RECORDS, StoredTable, find_table
from policies import POLICIES
from tests.support.models.runs import CommandLine
from tests.support.submissions import give_answers_of_full, hand_in, unchecked, wrong
from tests.support.wording import assert_says

SNAPKV = [POLICIES[name] for name in ("full", "snapkv")]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hand_in(tmp_path_factory.mktemp("runs") / "original", SNAPKV)


@pytest.fixture
def copied_run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


# A processor computes in float16 six times as slowly, by the code that bfloat16 takes too.
HALF = pytest.param("float16", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=["float32", HALF, "bfloat16"])
def run_of_dtype(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run at several ratios, whose rows share padded batches, in each type of numbers."""
    folder = tmp_path_factory.mktemp("runs") / str(request.param)
    return hand_in(folder, SNAPKV, contexts=1, ratios=(0.3, 0.5, 0.9), dtype=request.param)


@pytest.fixture
def of_dtype(run_of_dtype: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run_of_dtype, tmp_path / "run"))


def edit(folder: Path, table: StoredTable, **changes: object) -> None:
    """Changes the first row of a table, of snapkv where each policy has its own, and has the
    summary follow."""
    store = Store.open(folder)
    path = store.path(table, "base", 0, "snapkv")
    first, *rows = store.read_rows(table, path)
    store.write_rows(table, path, [first.model_copy(update=changes), *rows])
    publish_summary(store, store.frame())


def edit_identity(folder: Path, change: Callable[[Any], object]) -> None:
    content = json.loads((folder / "run.json").read_text())
    change(content)
    (folder / "run.json").write_text(json.dumps(content))


def test_a_sound_run_passes_and_is_left_as_it_was(cli: CommandLine, copied_run: Path) -> None:
    before = {path: path.read_bytes() for path in copied_run.rglob("*") if path.is_file()}
    assert cli("check-submission", copied_run) == 0
    assert cli.out.startswith("sound: 6 of 6 cells answered again")
    assert {path: path.read_bytes() for path in copied_run.rglob("*") if path.is_file()} == before


def test_answers_of_the_full_cache_in_a_run_of_the_default_length_are_found(
    cli: CommandLine, tmp_path: Path
) -> None:
    """Contexts that were lengthened to 768 tokens of the run's model are made again, and answered
    again."""
    words = "--model reference-narrow --tasks base --limit 1 --policies recency --ratios 0.9 --name x --quiet"
    assert cli("run", *words.split(), "--out", tmp_path, "--site", tmp_path / "site") == 0, cli.err
    run = tmp_path / "x"
    assert Store.open(run).frame().context_tokens.min() > 700
    assert cli("check-submission", run) == 0
    assert cli.out.startswith("sound")
    give_answers_of_full(run, "recency")
    assert wrong(run) == {}, "files alone do not tell"
    assert "(replay)" in cli.error("check-submission", run)


@pytest.mark.parametrize(
    ("table", "changes", "check", "text"),
    [
        (RECORDS, {"f1": 12.5}, "scores", "f1 is 12.5, made again it is"),
        (QUESTIONS, {"golds": ["nothing"]}, "questions", "golds is"),
        (CONTEXTS, {"context": "Nothing."}, "questions", "context is"),
        (RECORDS, {"kv_bytes": 7}, "replay", "kv_bytes is 7"),
        (RECORDS, {"ger": 0.123}, "replay", "ger is 0.123"),
    ],
)
def test_an_edited_value_is_found(
    copied_run: Path, table: StoredTable, changes: dict[str, object], check: str, text: str
) -> None:
    edit(copied_run, table, **changes)
    assert text in wrong(copied_run, cells=6 if check == "replay" else 0)[check]


def test_an_edited_identity_is_found(copied_run: Path) -> None:
    edit_identity(copied_run, lambda content: content["identity"]["tasks"][0].update(chance=1.0))
    assert wrong(copied_run)["hashes"].startswith("base: chance is 1.0, made again it is 16.2")
    edit_identity(copied_run, lambda content: content["identity"].update(seed=4))
    assert "there 1 times, planned 0" in wrong(copied_run)["completeness"]
    edit_identity(copied_run, lambda content: content["identity"].pop("seed"))
    with pytest.raises(Exception, match=r"run.json is damaged \(identity.seed: Field required\)"):
        wrong(copied_run)


def test_records_that_are_missing_twice_or_surplus_are_found(copied_run: Path) -> None:
    store = Store.open(copied_run)
    path = store.path(RECORDS, "base", 0, "snapkv")
    first, *others = store.read_rows(RECORDS, path)
    surplus = first.model_copy(update={"level": 0.7, "ratio": 0.7})
    for rows, text in (
        (others, f"{first.question_id} is missing"),
        ([first, *others, first], f"{first.question_id} is there 2 times"),
        ([first, *others, surplus], "snapkv at ratio 0.7"),
    ):
        store.write_rows(RECORDS, path, rows)
        assert text in wrong(copied_run)["completeness"]
    path.write_bytes(path.read_bytes()[:100])
    assert "snapkv.parquet cannot be read" in wrong(copied_run)["files"]


def test_a_forged_or_damaged_run_is_one_clear_line(cli: CommandLine, copied_run: Path) -> None:
    edit(copied_run, RECORDS, f1=12.5)
    told = cli.error("check-submission", copied_run, "--replay", 0)
    assert_says(told, str(copied_run), "(scores)")
    for content in ("[", "[1]", "{}"):
        (copied_run / "summary.json").write_text(content)
        assert "(scores" in cli.error("check-submission", copied_run, "--replay", 0)


def test_intervals_of_another_version_are_no_forgery(copied_run: Path) -> None:
    """They follow from the records by the methods of a version, and are told; of this very code
    they are forged."""
    path = copied_run / "summary.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([row | {"right_low": 0.25, "best_in": ["right"]} for row in rows]))
    assert "best_in is" in wrong(copied_run)["scores"]
    edit_identity(copied_run, lambda content: content["identity"].update(source="0123456789abcdef"))
    assert "scores" not in wrong(copied_run)
    assert "scores" in unchecked(copied_run)
    path.write_text(json.dumps([row | {"right": 0.25} for row in rows]))
    assert "right is 0.25" in wrong(copied_run)["scores"]


def test_what_was_not_checked_is_not_called_sound(cli: CommandLine, copied_run: Path) -> None:
    assert cli("check-submission", copied_run, "--replay", "0") == 0
    assert "nothing wrong found, but not checked: replay" in cli.out
    assert "sound" not in cli.out


def test_what_cannot_be_made_here_is_not_checked(copied_run: Path) -> None:
    """A model that is not here, other code, another machine, or a task in another version."""
    original = (copied_run / "run.json").read_text()
    for changes, left in (
        ({"model_fingerprint": "0123456789abcdef"}, {"hashes", "replay"}),
        ({"source": "0123456789abcdef"}, {"hashes", "rounding"}),
        ({"device": "cuda (A)"}, {"rounding"}),
    ):
        content = json.loads(original)
        content["identity"].update(changes)
        (copied_run / "run.json").write_text(json.dumps(content))
        outcomes = {
            (one.check, one.outcome) for one in examine(copied_run, cells=2) if one.outcome != "ok"
        }
        assert outcomes == {(check, "unchecked") for check in left}
    (copied_run / "run.json").write_text(original)
    edit_identity(
        copied_run, lambda content: content["identity"]["tasks"][0].update(version="0.0.1")
    )
    assert {"questions", "replay"} <= unchecked(copied_run, cells=2)


def test_a_sound_run_of_each_dtype_passes(of_dtype: Path) -> None:
    outcomes = {one.check: one for one in examine(of_dtype, cells=4) if one.outcome != "ok"}
    assert outcomes == {}


@pytest.mark.parametrize(("column", "sign"), [("gold_nll", -1), ("delta_nll", 1)])
def test_a_likelihood_is_found_that_was_moved_by_more_than_its_dtype_allows(
    of_dtype: Path, column: str, sign: int
) -> None:
    """And one that was moved by less is not: rounding does as much."""
    store = Store.open(of_dtype)
    path = store.path(RECORDS, "base", 0, "snapkv")
    rows = store.read_rows(RECORDS, path)
    number = max(range(len(rows)), key=lambda number: rows[number].gold_nll)
    value, tolerance = getattr(rows[number], column), TOLERANCES[store.identity.dtype]
    room = OF_LIKELIHOOD[column] * (tolerance.nats + tolerance.share * abs(value))
    for times, is_wrong in ((0.9, False), (1.2, True)):
        forged = rows[number].model_copy(update={column: value + sign * times * room})
        store.write_rows(RECORDS, path, [*rows[:number], forged, *rows[number + 1 :]])
        publish_summary(store, store.frame())
        text = wrong(of_dtype, cells=4).get("replay", "")
        assert (f"{column} is" in text) == is_wrong, text


def test_an_output_replaced_by_the_right_answer_is_found_in_each_dtype(of_dtype: Path) -> None:
    """With its tokens, end, scores and outcome, so that files alone do not tell."""
    store = Store.open(of_dtype)
    model = load_model("reference", "cpu")
    path = store.path(RECORDS, "base", 0, "snapkv")
    rows = store.read_rows(RECORDS, path)
    answers = {(one.record.question_id, one.record.point): one for one in store.read_answers(path)}
    number, gold = next(
        (number, answers[row.question_id, row.point].question.golds[0])
        for number, row in enumerate(rows)
        if row.level == 0.9
        and row.right == 0
        and answers[row.question_id, row.point].question.golds
    )
    ids = [*model.tokenizer.encode(gold, add_special_tokens=False), model.end_tokens()[0]]
    forged = {"output_text": gold, "output_token_ids": ids, "ended": True}
    rows[number] = rows[number].model_copy(update=forged)
    store.write_rows(RECORDS, path, rows)
    rescore(store)
    publish_summary(store, store.frame())
    assert wrong(of_dtype) == {}, "files alone do not tell"
    assert "output_t" in wrong(of_dtype, cells=4)["replay"]


def test_an_answer_that_parts_at_a_tie_is_sound_and_counted(
    of_dtype: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored answer is as likely as the one that is made again, once the tie is as wide as
    their distance."""
    give_answers_of_full(of_dtype, "snapkv")
    dtype = Store.open(of_dtype).identity.dtype
    assert "replay" in wrong(of_dtype, cells=4)
    wide = Tolerance(nats=1e3, share=0.0, tie=1e3)
    monkeypatch.setattr(kvbench.checks.replay, "TOLERANCES", {**TOLERANCES, dtype: wide})
    findings = {one.check: one for one in examine(of_dtype, cells=4)}
    assert findings["replay"].outcome == "ok", findings["replay"].text
    assert "two tokens are as likely" in findings["replay"].text


def test_a_text_that_its_tokens_do_not_make_is_found_however_wide_the_tie(
    of_dtype: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(of_dtype)
    wide = {**TOLERANCES, store.identity.dtype: Tolerance(1e3, 0.0, 1e3)}
    monkeypatch.setattr(kvbench.checks.replay, "TOLERANCES", wide)
    first, *_ = store.read_rows(RECORDS, store.path(RECORDS, "base", 0, "snapkv"))
    edit(
        of_dtype,
        RECORDS,
        output_token_ids=[*first.output_token_ids[:-1], 11, first.output_token_ids[-1]],
    )
    assert "output_t" in wrong(of_dtype, cells=4)["replay"]


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in 16 bits whose answers were observed while they were written."""
    folder = tmp_path_factory.mktemp("runs") / "observed"
    tables = ("attention", "routes")
    return hand_in(folder, SNAPKV, contexts=1, dtype="bfloat16", tables=tables)


def test_an_observed_run_in_16_bits_is_sound_and_a_forged_row_of_its_study_is_found(
    observed: Path, tmp_path: Path
) -> None:
    findings = [*examine(observed, cells=4)]
    assert {one.outcome for one in findings} == {"ok"}, findings
    assert "and their rows of attention, routes" in findings[-1].text
    assert unchecked(observed) == {"files", "replay"}, "without a replay they are not made again"
    forged = Path(shutil.copytree(observed, tmp_path / "forged"))
    store = Store.open(forged)
    (path, *_) = [path for path in store.files(find_table("attention")) if "snapkv" in path.name]
    first, *rows = store.read_rows(find_table("attention"), path)
    changed = first.model_copy(update={"top_weight": [weight / 2 for weight in first.top_weight]})
    store.write_rows(find_table("attention"), path, [changed, *rows])
    assert "top_weight is" in wrong(forged, cells=4)["replay"]
    store.write_rows(find_table("attention"), path, rows)
    assert "is missing" in wrong(forged, cells=4)["replay"]


def test_contexts_are_drawn_until_there_are_so_many_cells() -> None:
    """One of every task first, where that is no more contexts than cells were asked for."""
    cells = {("base", 0): 5, ("base", 1): 5, ("hops", 0): 3}
    assert len(contexts_drawn(cells, 1)) == 1
    assert {name for name, _ in contexts_drawn(cells, 2)} == {"base", "hops"}
    assert len(contexts_drawn(cells, 8)) == 2
    assert sorted(contexts_drawn(cells, 9)) == sorted(cells)
    assert contexts_drawn(cells, 0) == []
    assert contexts_drawn(cells, 1, {"hops"}) == [("hops", 0)], (
        "what a reviewer asks about comes first"
    )


PRESS = """
from dataclasses import dataclass

from kvpress import ScorerPress

from {helper} import scores


@dataclass
class Seventh(ScorerPress):
    step: int = 1

    def score(self, module, hidden_states, keys, values, attentions, kwargs):
        return scores(keys, self.step)
"""
HELPER = """
import torch


def scores(keys, step):
    every_seventh = torch.arange(keys.shape[2]) * step % 7
    return every_seventh.float().expand(keys.shape[:3]).contiguous()
"""


@pytest.fixture
def run_of_a_press(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, helper: str
) -> Path:
    """A run of a press of somebody's own, whose file, and the one that it imports, are gone
    afterwards."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "mine.py").write_text(PRESS.format(helper=helper))
    (home / f"{helper}.py").write_text(HELPER)
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [str(home), *sys.path])
    options = "--model reference-narrow --tasks base --limit 2 --ratios 0.5 --context-tokens native --name x --quiet"
    policies = "mine.py:Seventh(step=2),mine.py:Seventh(step=2)+int4"
    places = "--out", tmp_path, "--site", tmp_path / "s"
    assert cli("run", *options.split(), "--policies", policies, *places) == 0, cli.err
    shutil.rmtree(home)
    monkeypatch.chdir(tmp_path)
    sys.path.remove(str(home))
    sys.modules.pop(helper)
    return tmp_path / "x"


@pytest.mark.parametrize("helper", ["helper_of_a_sound_press"])
def test_a_press_is_answered_again_where_its_code_is_trusted(
    cli: CommandLine, run_of_a_press: Path
) -> None:
    """Its file and what it imports lie in the run. Unasked it is not run, and the sentence says how
    to ask."""
    assert cli("check-submission", run_of_a_press) == 0
    kept = run_of_a_press / "press_sources" / "Seventh(step=2)" / "mine.py"
    assert "nothing wrong found, but not checked: replay" in cli.out
    assert f"add --trust-code {kept}" in " ".join(cli.out.split()).replace("/ ", "/")
    findings = list(examine(run_of_a_press, cells=4, trusted_code=[str(kept)]))
    assert {one.outcome for one in findings} == {"ok"}
    assert "of them by Seventh(step=2), " in findings[-1].text
    assert findings[-1].text.endswith("of them by Seventh(step=2)+int4")


@pytest.mark.parametrize("helper", ["helper_of_a_forged_press"])
def test_forged_answers_of_a_trusted_press_are_found(run_of_a_press: Path) -> None:
    give_answers_of_full(run_of_a_press, "Seventh(step=2)")
    kept = str(run_of_a_press / "press_sources" / "Seventh(step=2)" / "mine.py")
    assert "Seventh(step=2) at ratio 0.5" in wrong_of_trusted(run_of_a_press, kept)["replay"]


@pytest.mark.parametrize("helper", ["helper_of_another_press"])
def test_other_code_than_that_of_the_run_is_said(run_of_a_press: Path) -> None:
    """A reviewer may have a later file of the press: that its answers differ is no fault of the
    run."""
    kept = run_of_a_press / "press_sources" / "Seventh(step=2)"
    (kept / "helper_of_another_press.py").write_text(HELPER + "\n# A later version.\n")
    texts = [
        one.text for one in examine(run_of_a_press, cells=1, trusted_code=[str(kept / "mine.py")])
    ]
    assert any(
        "is not that of the run" in text and text.endswith("; 0 of its answers differ")
        for text in texts
    )
    assert wrong_of_trusted(run_of_a_press, str(kept / "mine.py")) == {}


@pytest.mark.parametrize("helper", ["helper_of_no_press"])
def test_a_file_without_the_press_is_one_line(
    cli: CommandLine, run_of_a_press: Path, tmp_path: Path
) -> None:
    (tmp_path / "other.py").write_text("x = 1\n")
    assert "--trust-code other.py is no code of Seventh(step=2)" in cli.error(
        "check-submission", run_of_a_press, "--trust-code", "other.py"
    )
    assert "there is no file gone.py" in cli.error(
        "check-submission", run_of_a_press, "--trust-code", "gone.py"
    )


def wrong_of_trusted(folder: Path, code: str) -> dict[str, str]:
    findings = examine(folder, cells=1, trusted_code=[code])
    return {one.check: one.text for one in findings if one.outcome == "wrong"}


def test_each_reason_why_nothing_is_answered_again_has_a_sentence(copied_run: Path) -> None:
    texts = [one.text for one in examine(copied_run, cells=0) if one.check == "replay"]
    (text,) = texts
    assert_says(text, "full, snapkv", "--replay 0")
    edit_identity(
        copied_run, lambda content: content["identity"].update(model_fingerprint="0" * 16)
    )
    texts = [one.text for one in examine(copied_run, cells=2) if one.check == "replay"]
    assert len(texts) == 1
    assert "the model reference is not here" in texts[0]
