"""A run made by somebody else: a sound one passes, and whatever was edited is found, and where."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from datasets_gen import TASKS
from kvbench.checks.submission.check import CHECKS, examine
from kvbench.experiments.grid import Grid
from kvbench.experiments.setting import Setting
from kvbench.models.load import LoadedModel, load_model
from kvbench.publish.site import publish_summary
from kvbench.store.record import StoredAnswer
from kvbench.store.scoring import rescore, scores_of, text_scores
from kvbench.store.store import Store
from kvbench.store.tables import CONTEXTS, QUESTIONS, RECORDS
from policies import POLICIES, at_ratios
from tests.support.models.runs import CommandLine, execute

NOTED = {(check, outcome) for check in (*CHECKS, "replay") for outcome in ("note", "unchecked")}
SNAPKV = [POLICIES[name] for name in ("full", "snapkv")]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a shipped model: all that can be checked of a run can be checked of this one."""
    grid = Grid([(TASKS["base"], 2)], Setting(SNAPKV, at_ratios((0.5, 0.9)), seed=3))
    folder = tmp_path_factory.mktemp("runs") / "original"
    store = execute(load_model("reference", "cpu"), grid, folder, "a test")
    publish_summary(store, store.frame())
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def wrong(folder: Path) -> dict[str, str]:
    """What is found by the checks that fail."""
    return {finding.check: finding.text for finding in examine(folder) if finding.outcome == "wrong"}


def edit(folder: Path, change: Callable[[StoredAnswer], dict[str, object]], number: int = 0) -> None:
    """Changes one answer of snapkv, in whichever table the columns are, and has the summary follow."""
    store = Store.open(folder)
    answer = store.read_answers(store.record_file("base", 0, "snapkv"))[number]
    changes = change(answer)
    for table, row in zip(
        (RECORDS, QUESTIONS, CONTEXTS), (answer.record, answer.question, answer.context), strict=True
    ):
        own = {name: value for name, value in changes.items() if name in table.columns}
        path = store.path(table, "base", 0, "snapkv")
        rows = store.read_rows(table, path)
        store.write_rows(table, path, [one.model_copy(update=own) if one == row else one for one in rows])
    publish_summary(store, store.frame(possible=False))


def test_a_sound_run_passes_and_is_left_as_it_was(cli: CommandLine, run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert cli("check-submission", run) == 0
    told = cli.out
    assert all(
        f"\n{check} " in told
        for check in ("completeness", "questions", "scores", "outputs", "costs", "names", "summary")
    )
    assert "wrong" not in told
    assert [finding.check for finding in examine(run) if finding.outcome != "ok"] == ["replay"], "no answer is new"
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_composed_policy_may_keep_what_its_plain_one_keeps(cli: CommandLine, tmp_path: Path) -> None:
    """TOVA keeps the same tokens in all heads of a layer, and no registry holds ``tova+shared``."""
    assert cli(*cli.words("--tasks", "base", "--limit", "1", "--policies", "tova,tova+shared")) == 0, cli.err
    (names,) = [finding for finding in examine(tmp_path / "runs/x") if finding.check == "names"]
    assert names.outcome == "ok", names.text


def mean(answer: StoredAnswer) -> dict[str, object]:
    return {"f1": 100.0 - (answer.record.f1 or 0.0) / 2}


def edited_output(answer: StoredAnswer) -> dict[str, object]:
    """With the scores that it has: the text alone tells nothing of it."""
    target = answer.question.target
    return {"output_text": target, **text_scores(target, answer.question, answer.context)}


def edited_gold(answer: StoredAnswer) -> dict[str, object]:
    given = answer.question.model_copy(update={"golds": [answer.record.output_text or "nothing"]})
    return {"golds": given.golds, **text_scores(answer.record.output_text, given, answer.context)}


def shorter_context(answer: StoredAnswer) -> dict[str, object]:
    tokens = answer.question.context_tokens - 8
    return {"context_tokens": tokens, "realised_ratio": 1 - (answer.record.kept_tokens or 0.0) / tokens}


def tokens_of(answer: StoredAnswer) -> list[int]:
    return list(answer.record.output_token_ids or ())


def all_kept(answer: StoredAnswer) -> dict[str, object]:
    """With the routing metrics that follow, at the realised ratio that it had."""
    shares = bytes([255] * len(answer.record.token_kept))
    layers = len(answer.record.ger_by_layer or ())
    rates = {"eviction_rate": 0.0, "ger": 0.0, "slot_coverage": 1.0, "ger_by_layer": [0.0] * layers}
    return {"token_kept": shares, **rates}


def another_ratio(answer: StoredAnswer) -> dict[str, object]:
    """As if records of two ratios were exchanged: count, share and bytes agree."""
    tokens, kept = answer.question.context_tokens, answer.record.kept_tokens or 0.0
    count = round(0.7 * tokens)
    size = int((answer.record.kv_bytes or 0) * count / kept)
    return {"kept_tokens": float(count), "realised_ratio": 1 - count / tokens, "kv_bytes": size, "token_kept": None}


def no_output(answer: StoredAnswer) -> dict[str, object]:
    return {"output_text": None, "output_token_ids": None}


# What is changed of an answer; the check that finds it; what it says.
FORGERIES: list[tuple[Callable[[StoredAnswer], dict[str, object]], str, str]] = [
    (mean, "scores", "f1 is"),
    (edited_output, "outputs", "its tokens say"),
    (edited_gold, "questions", "golds is"),
    (lambda answer: {"context": f"{answer.context.context} "}, "questions", "context is"),
    (lambda _: {"task_version": "0.0.1"}, "questions", "task version 0.0.1"),
    (lambda _: {"realised_ratio": 0.75}, "costs", "realised_ratio is 0.75"),
    (  # the one follows from the other, the bytes do not
        lambda answer: {"realised_ratio": 0.25, "kept_tokens": 0.75 * answer.question.context_tokens},
        "costs",
        "bytes of the full cache",
    ),
    (lambda _: {"ger": 1.5}, "costs", "ger is 1.5"),
    (lambda answer: {"ger": 1 - (answer.record.ger or 0.0)}, "costs", "its tokens come to"),
    (lambda answer: {"slot_coverage": (answer.record.slot_coverage or 1.0) / 2}, "costs", "slot_coverage is"),
    (lambda _: {"ger_by_layer": [1.0]}, "costs", "tells of 1 layers, others of 12"),
    (  # all of the answer survives in each layer taken alone, and some of it nowhere
        lambda answer: {"ger": 1.0, "token_kept": None, "ger_by_layer": [0.0] * len(answer.record.ger_by_layer or ())},
        "costs",
        "in a layer alone less",
    ),
    (lambda answer: {"token_ends": answer.context.token_ends[:-1]}, "costs", "a part of a number"),
    (
        lambda answer: {name: getattr(answer.question, name)[:-1] for name in ("evidence_spans", "answer_spans")},
        "costs",
        "a part of a number or of a span",
    ),
    (lambda _: {"press_arguments": "{not json"}, "costs", "no JSON object"),
    (shorter_context, "costs", "the tokenizer makes"),
    (no_output, "outputs", "ok and has no output"),
    (lambda _: {"output_token_ids": [5] * 200}, "outputs", "200 tokens, where 16 are allowed"),
    (all_kept, "costs", "token_kept comes to"),
    (another_ratio, "costs", "asked for is"),
    (lambda answer: {"ended": not answer.record.ended}, "outputs", "ended is"),
    (lambda answer: {"output_token_ids": [*tokens_of(answer), tokens_of(answer)[-1]]}, "outputs", "behind an end"),
    (lambda answer: {"output_token_ids": tokens_of(answer)[:-1]}, "outputs", "ended is True"),
    (lambda answer: {"output_token_ids": tokens_of(answer)[:-1], "ended": False}, "outputs", "without an end token"),
    (lambda _: {"output_token_ids": [10**9]}, "outputs", "tokens that the model does not have"),
]


@pytest.mark.parametrize(("change", "check", "column"), FORGERIES)
def test_a_forged_record_is_found_and_named(
    run: Path, change: Callable[[StoredAnswer], dict[str, object]], check: str, column: str
) -> None:
    number, answer = next(
        (number, answer)
        for number, answer in enumerate(answers_of(run))
        if answer.record.f1 != 100 and answer.question.golds and answer.record.ger is not None
    )
    edit(run, change, number)
    found = wrong(run)
    assert column in found[check]
    place = f"snapkv at ratio {answer.record.ratio:g}, {answer.record.question_id}"
    said_once = not set(change(answer)) <= set(RECORDS.columns)  # whoever answers, it is about the question
    assert (answer.context.example_id if said_once else place) in found[check]


def answers_of(folder: Path) -> list[StoredAnswer]:
    store = Store.open(folder)
    return store.read_answers(store.record_file("base", 0, "snapkv"))


def test_a_forged_score_fails_the_command_in_one_line(cli: CommandLine, run: Path) -> None:
    edit(run, mean)
    line = f"error: {run} does not hold what it says (scores): do not put it on a board"
    assert cli.error("check-submission", run) == line
    assert rescore(Store.open(run))[1] == 1  # which is how the check knows


def test_a_forged_score_of_a_failed_answer_is_found(run: Path) -> None:
    unanswered = {**no_output(answers_of(run)[0]), "status": "failed", "reason": "it broke"}
    edit(run, lambda _: unanswered)
    assert "answers failed" not in str(wrong(run))
    assert set(wrong(run)) == {"scores"}
    edit(run, lambda _: {**unanswered, **dict.fromkeys(scores_of(answers_of(run)[1]))})
    assert wrong(run) == {}
    assert any(finding.outcome == "note" and "1 answers failed" in finding.text for finding in examine(run))


def test_a_summary_that_says_more_than_the_records_is_found(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    row = next(row for row in summary if row["policy"] == "snapkv")
    row["f1"] += 5
    (run / "summary.json").write_text(json.dumps(summary))
    assert "snapkv on base: f1 is" in wrong(run)["summary"]
    (run / "summary.json").write_text("[")
    assert "cannot be read" in wrong(run)["summary"]


def test_records_that_are_missing_twice_or_surplus_are_found(run: Path) -> None:
    store = Store.open(run)
    path = store.record_file("base", 0, "snapkv")
    records = store.read_rows(RECORDS, path)
    store.write_rows(RECORDS, path, records[1:])
    assert f"{records[0].question_id} missing" in wrong(run)["completeness"]
    store.write_rows(RECORDS, path, [*records, records[0]])
    assert f"{records[0].question_id} there twice" in wrong(run)["completeness"]
    surplus = records[0].model_copy(update={"level": 0.7, "ratio": 0.7})
    store.write_rows(RECORDS, path, [*records, surplus])
    assert "snapkv at ratio 0.7 of base" in wrong(run)["completeness"]
    path.unlink()
    assert "missing" in wrong(run)["completeness"]


def test_files_that_are_damaged_or_misplaced_are_found(run: Path) -> None:
    store = Store.open(run)
    path = store.record_file("base", 0, "snapkv")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "snapkv.parquet cannot be read" in wrong(run)["files"]
    path.write_bytes(store.record_file("base", 0, "full").read_bytes())
    assert "snapkv.parquet holds a record of full" in wrong(run)["files"]
    table = store.read(RECORDS, path)
    store.write_table(path, table.drop_columns(["f1"]))
    assert "lacks 'f1': the kvbench that wrote it did not have this metric" in wrong(run)["files"]


@pytest.mark.parametrize(
    ("edits", "check", "text"),
    [
        ({"status": "failed", "reason": "interrupted"}, "run.json", "not complete but failed: interrupted"),
        ({"model_fingerprint": "0123456789abcdef"}, "model", "not that of the installed one"),
        ({"mode": "aware"}, "questions", "was run in mode agnostic"),
        ({"seed": 4}, "completeness", "missing"),
        ({"created": "2031-01-01T00:00:00+00:00"}, "run.json", "it began at 2031"),
        ({"finished": "yesterday"}, "run.json", "its times are none"),
        ({"scope": "system"}, "run.json", "base has no system prompt"),
        ({"kvbench_version": "9.9"}, "code", "it says 9.9"),
        ({"packages": {"kvpress": "0.4.0"}}, "code", "it says kvpress 0.4.0, its source needs"),
    ],
)
def test_an_edited_identity_is_found(run: Path, edits: dict[str, object], check: str, text: str) -> None:
    content = json.loads((run / "run.json").read_text())
    for name, value in edits.items():
        (content if name in content else content["identity"])[name] = value
    (run / "run.json").write_text(json.dumps(content))
    assert text in wrong(run)[check]


@pytest.mark.parametrize(
    ("edits", "text"),
    [
        ({"paper": "arXiv 0000.00000"}, "snapkv has paper 'arXiv 0000.00000', not"),
        ({"origin": "0123456789abcdef"}, "snapkv has origin '0123456789abcdef', not ''"),
        ({"arguments": {"window_size": 1}}, "snapkv has arguments {'window_size': 1}, not {"),
        ({"name": "snapkw"}, "snapkw is no policy of this code"),
    ],
)
def test_a_policy_that_is_not_what_its_name_says_is_found(run: Path, edits: dict[str, object], text: str) -> None:
    content = json.loads((run / "run.json").read_text())
    content["identity"]["policies"][1].update(edits)
    (run / "run.json").write_text(json.dumps(content))
    assert text in wrong(run)["code"]


def test_bytes_of_the_full_cache_are_those_of_the_models_shape(run: Path) -> None:
    """Doubled everywhere, they agree with each other."""
    store = Store.open(run)
    for path in store.record_files():
        rows = store.read_rows(RECORDS, path)
        store.write_rows(RECORDS, path, [row.model_copy(update={"kv_bytes": 2 * row.kv_bytes}) for row in rows])
    publish_summary(store, store.frame())
    assert "by the model's shape it takes" in wrong(run)["costs"]


def test_more_bytes_than_the_kept_tokens_take_are_found(run: Path) -> None:
    """A press that frees holds what it keeps, and no part of what it evicts."""
    store = Store.open(run)
    path = store.record_file("base", 0, "snapkv")
    rows = store.read_rows(RECORDS, path)
    store.write_rows(RECORDS, path, [row.model_copy(update={"kv_bytes": row.kv_bytes + 2}) for row in rows])
    publish_summary(store, store.frame())
    assert "bytes of the full cache" in wrong(run)["costs"]


def test_files_that_no_run_writes_and_a_missing_summary_are_found(run: Path) -> None:
    store = Store.open(run)
    shutil.copy(store.record_file("base", 0, "snapkv"), run / "notes.parquet")
    (run / "records/base/00007").mkdir()
    assert wrong(run) == {"files": "notes.parquet is no file of this run"}
    (run / "notes.parquet").unlink()
    (run / "summary.json").unlink()
    assert "there is no summary.json" in wrong(run)["summary"]
    shutil.copy(store.record_file("base", 0, "snapkv"), run / "records/base/00007/snapkv.parquet")
    assert "records/base/00007/snapkv.parquet is no file of this run" in wrong(run)["files"]


def test_what_no_number_shows_is_found_when_cells_are_answered_again(run: Path) -> None:
    """The answers of the full cache, under the name of snapkv and beside snapkv's own costs."""
    store = Store.open(run)
    (last,) = [finding for finding in examine(run, cells=3) if finding.check == "replay"]
    assert (last.outcome, last.text[:8]) == ("ok", "3 cells,")
    of_full = {record.question_id: record for record in store.read_rows(RECORDS, store.record_file("base", 0, "full"))}
    path, taken = store.record_file("base", 0, "snapkv"), ("output_text", "output_token_ids", "ended")
    records = [
        row.model_copy(update={name: getattr(of_full[row.question_id], name) for name in taken})
        for row in store.read_rows(RECORDS, path)
    ]
    assert records != store.read_rows(RECORDS, path)
    store.write_rows(RECORDS, path, records)
    rescore(store)
    publish_summary(store, store.frame())
    assert wrong(run) == {}
    (last,) = [finding for finding in examine(run, cells=100) if finding.check == "replay"]
    assert last.outcome == "wrong"
    assert "output_token_ids is" in last.text


def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setitem(CHECKS, "tasks", breaks)
    found = wrong(run)
    assert found == {"tasks": "it cannot be examined (OverflowError: too large)"}


def test_an_edited_chance_level_is_found(run: Path) -> None:
    content = json.loads((run / "run.json").read_text())
    content["identity"]["tasks"][0]["chance"] = 1.0
    (run / "run.json").write_text(json.dumps(content))
    assert "base has chance '1.0'" in wrong(run)["tasks"]


def test_an_identity_with_something_missing_is_one_clear_line(cli: CommandLine, run: Path) -> None:
    content = json.loads((run / "run.json").read_text())
    del content["identity"]["seed"]
    (run / "run.json").write_text(json.dumps(content))
    assert "run.json is damaged (identity.seed: Field required)" in cli.error("check-submission", run)


def test_what_cannot_be_checked_is_noted(llama: LoadedModel, run: Path, tmp_path: Path) -> None:
    """Of other code, of a model that does not ship, and of a task in another version."""
    store = execute(llama, Grid([(TASKS["base"], 1)], Setting(SNAPKV, at_ratios((0.5,)))), tmp_path / "toy", "a test")
    notes = {(finding.check, finding.outcome) for finding in examine(store.folder)} & NOTED
    assert notes == {("model", "note"), ("outputs", "unchecked"), ("replay", "unchecked")}
    assert wrong(store.folder) == {"summary": "there is no summary.json: python -m kvbench score writes it"}
    content = json.loads((run / "run.json").read_text())
    content["identity"]["source"] = "0123456789abcdef"
    content["identity"]["tasks"][0]["version"] = "0.0.1"
    (run / "run.json").write_text(json.dumps(content))
    store = Store.open(run)
    path = store.path(CONTEXTS, "base", 0)
    rows = [row.model_copy(update={"task_version": "0.0.1"}) for row in store.read_rows(CONTEXTS, path)]
    store.write_rows(CONTEXTS, path, rows)
    notes = {(finding.check, finding.outcome) for finding in examine(run)} & NOTED
    assert notes == {("code", "note"), *((check, "unchecked") for check in ("tasks", "questions", "replay"))}
    assert wrong(run) == {}
    store.record_file("base", 0, "snapkv").unlink()
    assert "missing" in wrong(run)["completeness"]


def test_the_tokenizer_of_a_model_in_a_folder_is_used_unless_the_folder_changed(
    cli: CommandLine, tmp_path: Path
) -> None:
    what = ["--tasks", "base", "--policies", "knorm", "--ratios", "0.5", "--limit", "1"]
    assert cli("run", *what, "--model", cli.model, "--out", tmp_path / "runs", "--site", tmp_path / "site") == 0
    (folder,) = (path.parent for path in tmp_path.rglob("run.json"))
    findings = {finding.text for finding in examine(folder) if finding.check == "outputs"}
    assert "as their tokens say" in findings
    assert not any("not decoded" in text for text in findings)
    (Path(cli.model) / "note.json").write_text("{}")
    try:
        findings = {finding.text for finding in examine(folder) if finding.check == "outputs"}
    finally:
        (Path(cli.model) / "note.json").unlink()
    assert any("that is here has another fingerprint" in text for text in findings)


def test_a_forgery_in_a_run_of_the_default_length_is_found(cli: CommandLine, tmp_path: Path) -> None:
    """Contexts of so many tokens of the run's model are made again, and answered again, as native ones are."""
    words = (
        "--model",
        "reference-small",
        "--tasks",
        "base",
        "--limit",
        "1",
        "--policies",
        "recency",
        "--ratios",
        "0.9",
    )
    assert cli("run", *words, "--context-tokens", "300", "--out", tmp_path, "--name", "x", "--quiet") == 0, cli.err
    assert cli("check-submission", tmp_path / "x") == 0
    assert cli.out.startswith("sound")
    store = Store.open(tmp_path / "x")
    full = {record.question_id: record for record in store.read_rows(RECORDS, store.record_file("base", 0, "full"))}
    path, taken = store.record_file("base", 0, "recency"), ("output_text", "output_token_ids", "ended")
    rows = store.read_rows(RECORDS, path)
    forged = [row.model_copy(update={name: getattr(full[row.question_id], name) for name in taken}) for row in rows]
    assert forged != rows
    store.write_rows(RECORDS, path, forged)
    rescore(store)
    publish_summary(store, store.frame())
    assert "(replay)" in cli.error("check-submission", tmp_path / "x")


def test_what_was_not_checked_is_not_called_sound(cli: CommandLine, run: Path) -> None:
    assert cli("check-submission", run, "--replay", "0") == 0
    assert "nothing wrong found, but not checked: replay" in cli.out
    assert "sound" not in cli.out
