"""Results of kvpress's own evaluation: read as its files tell them, ranked, marked, and told apart
from ours."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datasets_gen.examples.jsonl import golds_in
from kvbench.commands.import_kvpress import read_result, results_in
from kvbench.system.errors import KVBenchError
from leaderboards.pages.imported import build_imported
from tests.support.browsing.pages import HOSTILE, Elements
from tests.support.models.runs import CommandLine
from tests.support.records.kvpress_folders import evaluation


def rows_of(page: str) -> list[dict[str, str]]:
    header, *rows = Elements(page).rows
    return [dict(zip(header, row, strict=True)) for row in rows if row != header]


@pytest.mark.parametrize(
    ("metrics", "scores", "tasks"),
    [
        (43.21, {"score": 43.21}, 1),
        (
            {"correct": 3, "answered": 4, "accuracy": 0.5, "total": 6},
            {"correct": 3, "answered": 4, "accuracy": 0.5, "total": 6},
            1,
        ),
        ({"qa_1": {"string_match": 80.0}, "vt": {"string_match": 60.0}}, {"string_match": 70.0}, 2),
        ({"shortdep_qa": {"bleu1": 0.25, "bert": 0.5}}, {"bleu1": 0.25, "bert": 0.5}, 1),
        ({"rouge1": float("nan")}, {"rouge1": None}, 1),
        (
            {"a": {"string_match": 80.0}, "b": {"string_match": float("nan")}},
            {"string_match": None},
            2,
        ),
        ({}, {}, 1),
        (None, {"score": None}, 1),
    ],
)
def test_every_form_of_metrics_is_read_under_its_names(
    tmp_path: Path, metrics: object, scores: dict[str, float], tasks: int
) -> None:
    found = read_result(evaluation(tmp_path / "x", metrics))
    assert dict(found.scores) == scores
    assert found.tasks == tasks


def test_the_settings_come_from_the_configuration(tmp_path: Path) -> None:
    folder = evaluation(
        tmp_path / "any name", 1.0, compression_ratio=0.25, fraction=0.1, query_aware=True
    )
    found = read_result(folder)
    assert (found.dataset, found.press, found.ratio) == ("ruler/4096", "snapkv", 0.25)
    assert found.model == "meta-llama/Meta-Llama-3.1-8B-Instruct"
    assert found.setting == "query_aware True, fp8 False, fraction 0.1, seed 42, dtype auto"
    assert "window_size=64" in found.arguments
    assert read_result(evaluation(tmp_path / "other", 1.0, data_dir=None)).dataset == "ruler"


def test_our_scores_are_computed_from_the_predictions(tmp_path: Path) -> None:
    """Paris is right; Rome is half of "Rome city" in F1 (2/3) and no exact match."""
    found = read_result(evaluation(tmp_path / "x", 12.0))
    assert found.f1 == pytest.approx((100 + 200 / 3) / 2)
    assert found.em == 50.0
    assert (found.predictions, found.answers) == (2, 2)
    without = read_result(evaluation(tmp_path / "y", 12.0, answers=[]))
    assert (without.f1, without.em, without.predictions, without.answers) == (None, None, 2, 0)


@pytest.mark.parametrize(
    ("task", "output", "f1", "em"),
    [
        # One word of four and of one: 2 * 1 / (1 + 4); all of them in another order; all with three
        # words beside them.
        ("niah_multivalue", "11", 40.0, 0.0),
        ("niah_multivalue", "44, 33, 22 and 11", 100.0, 100.0),
        ("niah_multiquery", "They are here: 11, 22, 33, 44", 100 * 2 * 4 / (7 + 4), 0.0),
        ("vt", "", 0.0, 0.0),
        ("qa_1", "11", 100.0, 100.0),  # each gold of a question is right
        ("qa_2", "11 22 33 44", 40.0, 0.0),
    ],
)
def test_a_list_of_ruler_asks_for_all_of_its_values(
    tmp_path: Path, task: str, output: str, f1: float, em: float
) -> None:
    folder = evaluation(tmp_path / "x", 1.0, [output], ["['11' '22' '33' '44']"])
    table = (folder / "predictions.csv").read_text().replace("qa,", f"{task},")
    (folder / "predictions.csv").write_text(table)
    result = read_result(folder)
    assert result.f1 == pytest.approx(f1)
    assert result.em == em


def test_lists_of_other_data_sets_hold_golds_that_are_each_right(tmp_path: Path) -> None:
    folder = evaluation(
        tmp_path / "x", 1.0, ["11"], ["['11' '22']"], dataset="longbench", data_dir="hotpotqa"
    )
    (folder / "predictions.csv").write_text(
        "task,predicted_answer,answers\nhotpotqa,11,['11' '22']\n"
    )
    assert read_result(folder).em == 100.0


OTHER_SETTINGS: list[dict[str, Any]] = [
    {"query_aware": True},
    {"fp8": True},
    {"fraction": 0.1},
    {"seed": 1},
    {"max_context_length": 4096},
    {"max_new_tokens": 32},
    {"key_channel_compression_ratio": 0.4},
    {"threshold": -3.0},
    {"target_size": 512},
    {"needle_depth": [10, 50]},
    {"model": "meta-llama/Llama-3.2-1B"},
    {"model_kwargs": {"dtype": "bfloat16"}},
    {"of_a_fork": "yes"},
]


@pytest.mark.parametrize("other", OTHER_SETTINGS)
def test_rows_of_unlike_settings_are_never_ranked_together_and_the_page_shows_both(
    cli: CommandLine, tmp_path: Path, other: dict[str, Any]
) -> None:
    evaluation(tmp_path / "results/usual", {"qa": {"string_match": 50.0}})
    evaluation(tmp_path / "results/other", {"qa": {"string_match": 90.0}}, **other)
    assert cli("import-kvpress", tmp_path / "results", "--site", tmp_path / "site") == 0
    page = (tmp_path / "site/imported.html").read_text()
    assert [row["rank"] for row in rows_of(page)] == ["1", "1"]
    notes = re.findall(r'<p class="quiet">(.*?query_aware.*?)</p>', page)
    assert len(set(notes)) == 2
    (name, value), *_ = other.items()
    shown = {
        "model": value,
        "model_kwargs": "dtype bfloat16",
        "needle_depth": "needle_depth 10 and 50",
    }.get(name, f"{name} {value}")
    assert any(str(shown).replace(".0", "") in note for note in notes)
    assert ("fields that kvbench does not know (of_a_fork)" in cli.complaint) == (
        name == "of_a_fork"
    )


def test_the_question_in_view_is_one_setting_under_its_old_and_its_new_name(tmp_path: Path) -> None:
    old = read_result(evaluation(tmp_path / "old", 1.0, compress_questions=True, query_aware=None))
    new = read_result(evaluation(tmp_path / "new", 1.0, query_aware=True))
    assert old.setting == new.setting
    assert "query_aware True" in new.setting
    with pytest.raises(
        KVBenchError, match="compress_questions and query_aware are one setting, and differ"
    ):
        read_result(evaluation(tmp_path / "both", 1.0, query_aware=True, compress_questions=False))
    attention = evaluation(
        tmp_path / "eager",
        1.0,
        model_kwargs={"torch_dtype": "auto", "attn_implementation": "eager"},
    )
    agnostic = read_result(evaluation(tmp_path / "agnostic", 1.0))
    assert read_result(attention).setting == agnostic.setting, (
        "ObservedAttentionPress runs with eager alone"
    )
    assert read_result(attention).arguments.endswith(", attn_implementation eager")


def test_objects_of_python_in_a_configuration_are_read_as_plain_data(tmp_path: Path) -> None:
    """kvpress writes FineGrainedFP8Config so, where fp8 is asked for."""
    folder = evaluation(tmp_path / "x", 1.0, fp8=True)
    config = (folder / "config.yaml").read_text().replace(
        "  dtype: auto\n",
        "  dtype: auto\n  quantization_config: !!python/object:transformers.FineGrainedFP8Config\n"
        "    quant_method: !!python/object/apply:transformers.QuantizationMethod\n    - fp8\n",
    )  # fmt: skip
    (folder / "config.yaml").write_text(config)
    assert "quant_method" in config
    assert (
        read_result(folder).setting
        == "query_aware False, fp8 True, fraction 1, seed 42, dtype auto"
    )


def test_places_of_the_machine_are_shown_as_names(cli: CommandLine, tmp_path: Path) -> None:
    press = f"DuoAttentionPress(pattern='{tmp_path}/patterns/duo.npz')"
    options: dict[str, Any] = {
        "press_init_command": press,
        "output_dir": str(tmp_path),
        "weights_of_a_fork": f"{tmp_path}/w.bin",
    }
    for user in ("ada", "bea"):
        evaluation(tmp_path / "results" / user, 1.0, model=f"/home/{user}/models/llama", **options)
    without("metrics.json")(evaluation(tmp_path / "results/bad", 1.0))
    cli("import-kvpress", tmp_path / "results", "--site", tmp_path / "site")
    texts = [path.read_text() for path in (tmp_path / "site").rglob("*") if path.is_file()]
    assert len(texts) == 4, "the page, its download, its entry and the list"
    for text in texts:
        assert str(tmp_path) not in text
        assert "/home/" not in text
        assert "llama (2)" in text, "two models are two"


@pytest.mark.parametrize(
    ("text", "golds"),
    [
        ("Paris", ["Paris"]),
        ("['Paris']", ["Paris"]),
        ("['Ada' 'Ada Lovelace']", ["Ada", "Ada Lovelace"]),
        ("['Ada'\n \"Ada's sister\"]", ["Ada", "Ada's sister"]),
        ("['Ada', 'Bea']", ["Ada", "Bea"]),
        ("[1] a list of one", ["[1] a list of one"]),
        ("[]", []),
        ("", []),
        ("NaN", ["NaN"]),
    ],
)
def test_golds_are_texts_or_lists_of_either_kind(text: str, golds: list[str]) -> None:
    assert golds_in(text) == golds


def test_a_folder_of_folders_becomes_ranked_rows_marked_as_imported(
    cli: CommandLine, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    for press, ratio, score in (
        ("knorm", 0.5, 60.0),
        ("snapkv", 0.5, 80.0),
        ("snapkv", 0.9, 60.0),
        ("tova", 0.9, 10.0),
    ):
        evaluation(
            results / f"ruler__4096__{press}__{ratio:.2f}",
            {"qa": {"string_match": score}},
            press_name=press,
            compression_ratio=ratio,
        )
    evaluation(results / "loogle__x", {"qa": {"bleu1": 0.5}}, dataset="loogle", data_dir=None)
    assert cli("import-kvpress", results, "--site", tmp_path / "site") == 0
    assert "5 rows of kvpress" in cli.out
    page = (tmp_path / "site/imported.html").read_text()
    rows = rows_of(page)
    loogle, *ruler = rows
    assert (loogle["score, by kvpress"], loogle["rank"]) == ("bleu1 0.5", "1")
    assert [
        (row["press"], row["ratio"], row["rank"], row["score, by kvpress"]) for row in ruler
    ] == [
        ("snapkv", "0.5", "1", "string_match 80"),
        ("knorm", "0.5", "2", "string_match 60"),
        ("snapkv", "0.9", "2", "string_match 60"),
        ("tova", "0.9", "4", "string_match 10"),
    ]
    assert {row["F1, by kvbench"] for row in rows} == {"83.3"}
    assert {row["EM, by kvbench"] for row in rows} == {"50.0"}


Spoil = Callable[[Path], object]


def without(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def with_content(name: str, content: str) -> Spoil:
    return lambda folder: (folder / name).write_text(content)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without("config.yaml"), "config.yaml is missing"),
        (without("metrics.json"), "metrics.json is missing"),
        (without("predictions.csv"), "predictions.csv is missing"),
        (with_content("config.yaml", "dataset: [ruler"), "config.yaml cannot be read"),
        (with_content("config.yaml", "- ruler"), "all of it: Input should be a valid dictionary"),
        (
            with_content("config.yaml", "a: &a [x, x]\ndataset: [*a, *a]"),
            "dataset: Input should be a valid string",
        ),
        (with_content("config.yaml", "dataset: 3"), "dataset: Input should be a valid string"),
        (
            with_content(
                "config.yaml", "dataset: a\nmodel: b\npress_name: c\ncompression_ratio: 7"
            ),
            "compression_ratio: Input should be less than or equal to 1",
        ),
        (
            with_content("config.yaml", "!!python/object/apply:os.system ['echo hello']"),
            "config.yaml cannot be read",
        ),
        (with_content("metrics.json", '{"qa": '), "metrics.json cannot be read"),
        (with_content("metrics.json", "[1]"), "metrics.json cannot be read"),
        (
            with_content("metrics.json", '{"qa": {"string_match": "many"}}'),
            "metrics.json cannot be read",
        ),
        (
            with_content("metrics.json", '{"qa": {"string_match": 1}, "mean": 1}'),
            "metrics.json cannot be read",
        ),
        (with_content("predictions.csv", ""), "predictions.csv cannot be read"),
        (with_content("predictions.csv", "answer\nParis\n"), "no column predicted_answer"),
        (
            with_content("predictions.csv", "predicted_answer\nmore,Paris\n"),
            "other numbers of columns",
        ),
    ],
)
def test_a_broken_folder_is_one_line_and_the_rest_goes_on(
    cli: CommandLine, tmp_path: Path, spoil: Spoil, message: str
) -> None:
    evaluation(tmp_path / "results" / "good", 50.0)
    spoil(evaluation(tmp_path / "results" / "bad", 50.0))
    assert cli("import-kvpress", tmp_path / "results", "--site", tmp_path / "site") == 1
    told = cli.err.splitlines()
    (line,) = [line for line in told if line.startswith("left out: ")]
    assert str(tmp_path / "results" / "bad") in line
    assert message in line
    assert told[-1].startswith("error: 1 folders could not be read")
    page = (tmp_path / "site/imported.html").read_text()
    assert len(rows_of(page)) == 1
    assert "What could not be read" in page


def test_what_holds_nothing_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(KVBenchError, match="there is no folder"):
        results_in(tmp_path / "nowhere")
    with pytest.raises(KVBenchError, match="holds no results of kvpress"):
        results_in(tmp_path)
    without("config.yaml")(evaluation(tmp_path / "bad", 50.0))
    with pytest.raises(
        KVBenchError, match=r"holds no results of kvpress: .*config.yaml is missing"
    ):
        results_in(tmp_path)


def test_hostile_text_never_reaches_the_page_as_markup(tmp_path: Path) -> None:
    evaluation(
        tmp_path / "x",
        {HOSTILE: {HOSTILE: 1.0}},
        [HOSTILE, HOSTILE],
        [HOSTILE, HOSTILE],
        **dict.fromkeys(
            ("dataset", "model", "press_name", "press_init_command", "max_context_length"), HOSTILE
        ),
    )
    rows, _ = results_in(tmp_path)
    page = build_imported(HOSTILE, rows, [HOSTILE])
    assert HOSTILE not in page
    assert re.findall(r"<img|<script[^>]*>", page) == ["<script>"]  # the page's own
    assert rows_of(page)[0]["press"] == HOSTILE
    assert page == build_imported(HOSTILE, rows, [HOSTILE])
