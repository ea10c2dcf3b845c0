"""Task ``prose``: its texts, what is compressed and what is measured, and a run from end to end."""

import json
import math
from pathlib import Path

import pytest
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

import kvbench.experiments.data
from datasets_gen import DatasetError, Length
from datasets_gen.tasks.prose import (
    CONTEXT,
    CONTINUATION,
    LEAD,
    PROSE,
    WINDOW,
    join_articles,
    prose_task,
    read_texts,
)
from kvbench.experiments.data import with_data
from kvbench.prompts.prompt import build_prompts
from kvbench.store.run_file import TaskOptions
from kvbench.store.store import Store
from tests.support.models.runs import CommandLine
from tests.support.wording import assert_says

WORDS = " ".join(f"word{number}" for number in range(2 * WINDOW + 5))


def test_a_generated_text_tells_its_facts_again_and_each_value_stands_in_the_context() -> None:
    for example in PROSE.generate(3, 20):
        (question,) = example.questions
        told = [example.context[span.start : span.end] for span in question.spans]
        values, sentences = told[::2], told[1::2]
        assert question.perfect_output == " ".join(sentences)
        assert all(value in sentence for value, sentence in zip(values, sentences, strict=True))
        assert question.text in example.context
        assert question.text not in question.perfect_output
        assert question.golds == ()


def test_a_text_that_is_not_there_or_is_none_is_named(tmp_path: Path) -> None:
    missing, binary = tmp_path / "none.txt", tmp_path / "binary.txt"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match=r"^data=.*none\.txt: No such file"):
        read_texts(missing)
    with pytest.raises(DatasetError, match=r"^data=.*binary\.txt .* UTF-8: give a \.txt"):
        read_texts(binary)


def test_given_texts_are_cut_into_stretches_and_their_rest_is_left_out() -> None:
    task = prose_task([WORDS, "too short"])
    assert task.contexts["paper"] == task.most == 2
    second = task.example(0, 1)
    words = WORDS.split()[WINDOW : 2 * WINDOW]
    assert second.context == " ".join(words[:CONTEXT])
    assert second.questions[0].text == " ".join(words[CONTEXT : CONTEXT + LEAD])
    assert second.questions[0].perfect_output == " ".join(words[CONTEXT + LEAD :])
    assert task.full_version != prose_task([WORDS.replace("word0 ", "other ")]).full_version
    with pytest.raises(DatasetError, match="no text of the data has 40 words"):
        prose_task(["too short"])


@pytest.mark.parametrize("tokens", [40, 700, 100_000])
def test_given_texts_are_cut_to_contexts_of_as_many_tokens_as_are_asked_for(tokens: int) -> None:
    """Here a word of six letters is two tokens: no context has more than are asked for, or could
    have one word more."""

    def count(text: str) -> int:
        return sum(max(1, len(word) // 3) for word in text.split())

    with_length = prose_task([WORDS]).with_length
    assert with_length is not None
    if tokens == 100_000:
        with pytest.raises(
            DatasetError, match="no text of the data has 100,000 tokens and 70 words behind them"
        ):
            with_length(Length(tokens, count))
        return
    task = with_length(Length(tokens, count))
    assert task.most
    words, start = WORDS.split(), 0
    assert tokens < 700 or task.most == 1
    for example in task.generate(0, task.most):
        size = len(example.context.split())
        assert example.context == " ".join(words[start : start + size])
        assert count(example.context) <= tokens < count(" ".join(words[start : start + size + 1]))
        start += size + LEAD + CONTINUATION
    assert with_length(Length(tokens, count)).full_version != prose_task([WORDS]).full_version


def test_two_policies_are_compared_by_the_next_tokens_of_own_text(
    cli: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / "text.txt"
    path.write_text(WORDS)
    small = ["--limit", 1, "--ratios", 0.9, "--context-tokens", 300, "--out", tmp_path / "runs"]
    words = ["compare", "recency", "--against", "knorm", "--tasks", f"prose(data={path})", *small]
    assert (
        cli(
            *words, "--model", cli.model, "--site", tmp_path / "site", "--name", "x", "--every-task"
        )
        == 0
    ), cli.err
    assert "recency next tokens, on prose: too few" in " ".join(cli.out.split())
    store = Store.open(tmp_path / "runs/x")
    frame = store.frame()
    # With the beginning of a text.
    assert 290 <= frame.context_tokens.min() <= frame.context_tokens.max() <= 302
    error = cli.error("compare", "recency", "--tasks", f"base(data={path})")
    assert_says(error, "data", "ifeval, gsm8k, prose", "base")
    assert error.count("ifeval, gsm8k, prose") == 1, "said once, and not for each side"


def test_context_lead_and_continuation_are_one_text_without_a_chat(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    example = PROSE.example(0, 0)
    (prompt,) = build_prompts(tokenizer, PROSE, example, "agnostic")
    (question,) = prompt.questions
    whole = [*prompt.token_ids, *question.token_ids, *question.gold_ids]
    text = f"{example.context} {question.question.text} {question.question.perfect_output}"
    assert tokenizer.decode(whole) == (tokenizer.bos_token or "") + text
    assert question.answer_tokens


@pytest.mark.parametrize("form", ["none", "text.jsonl"])
def test_a_run_measures_the_likelihood_of_next_tokens_alone(
    cli: CommandLine, tmp_path: Path, form: str
) -> None:
    task = "prose"
    if form != "none":
        path = tmp_path / form
        path.write_text(json.dumps({"text": WORDS}) if form.endswith("jsonl") else WORDS)
        task = f"prose(data={path})"
    assert cli(*cli.words("--tasks", task, "--limit", "2")) == 0, cli.err
    store = Store.open(tmp_path / "runs/x")
    frame = store.frame()
    assert set(frame.status) == {"ok"}
    assert frame.gold_nll.map(math.isfinite).all()
    assert (frame[frame.policy == "full"].delta_nll == 0).all()
    assert (frame[frame.policy == "recency"].delta_nll != 0).any()
    assert frame[["f1", "hallucinated", "masked", "due", "unended"]].isna().all(axis=None)


def test_the_reference_of_python_is_running_text_that_every_machine_has(
    cli: CommandLine, tmp_path: Path
) -> None:
    (task,) = with_data([PROSE], {"prose": TaskOptions(data=Path("python"))})
    contexts = task.most or 0
    assert contexts > 100
    for index in range(0, contexts, 10):
        example = task.example(0, index)
        assert len(example.context.split()) >= 20
        assert "::=" not in example.context, "it has no grammar"
        assert "***" not in example.context, "nor headings"
    assert cli(*cli.words("--tasks", "prose(data=python)", "--limit", "2")) == 0, cli.err
    assert cli("show", tmp_path / "runs/x") == 0, cli.err
    assert task.example(0, 0).questions[0].text.split()[0] in cli.out


def test_wikitext_comes_from_the_hub_and_its_rows_are_joined_to_articles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows as they stand there: with a space and a line end, empty ones between paragraphs."""
    body = WORDS.split()
    rows = [
        *("", " = Robert = \n", "", f" {' '.join(body[:300])} \n", " = = Career = = \n"),
        *(f" {' '.join(body[300:])} \n", " = Du Fu = \n", " Too short . \n"),
    ]
    asked = []

    def load(hub: str, split: str, name: str) -> Dataset:
        asked.append((hub, name, split))
        return Dataset.from_list([{"text": row} for row in rows])

    monkeypatch.setattr(kvbench.experiments.data, "fault_of_hub", lambda: "")
    monkeypatch.setattr("datasets.load_dataset", load)
    (task,) = with_data([PROSE], {"prose": TaskOptions(data=Path("wikitext"))})
    assert asked == [("Salesforce/wikitext", "wikitext-2-raw-v1", "test")]
    assert task.most == 2
    assert task.example(0, 0).context.startswith("= Robert = word0 ")
    assert (
        "= = Career = = word300"
        in f"{task.example(0, 1).context} {task.example(0, 1).questions[0].text}"
    )
    articles = join_articles([("row", {"text": row}) for row in rows])
    assert [len(text.split()) for text in articles] == [0, 453, 7]
    with pytest.raises(DatasetError, match="row 3: 'text' is no text"):
        join_articles([("row 3", {"text": None})])
