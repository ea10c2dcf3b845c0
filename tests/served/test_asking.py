"""What a server is sent, what is read from its answer, and how it is found out what it takes."""

from dataclasses import replace
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from datasets_gen import TASKS, Task
from kvbench.prompts.mode import phrase_tasks
from kvbench.prompts.prompt import build_prompts
from kvbench.served.address import Address
from kvbench.served.answer import ServedAnswer, read_answer
from kvbench.served.chat import Chat, Continuation, cut_answer, messages
from kvbench.served.client import Client
from kvbench.served.facts import read_facts
from kvbench.served.probe import find_questioner
from kvbench.served.questioner import Questioner
from kvbench.served.raw import Raw
from kvbench.studies.registry import SUITES
from kvbench.system.errors import KVBenchError
from tests.support.models.runs import CommandLine
from tests.support.serving.stub import Stub, running

BASE = phrase_tasks([TASKS["base"]], "another model")[0]
NEEDS = {"add_generation_prompt": False, "continue_final_message": True}


def words(text: str) -> int:
    return len(text.split())


def questioner_of(stub: Stub, tokenizer: PreTrainedTokenizerFast | None = None) -> Questioner:
    with Client(Address.read(stub.url)) as client:
        return find_questioner(client, stub.model, 0, words, tokenizer)


@pytest.mark.parametrize(
    ("stub", "continuation"),
    [
        (Stub(), Continuation({}, repeats_beginning=False)),
        (Stub(repeats=True), Continuation({}, repeats_beginning=True)),
        (Stub(needs_fields=True), Continuation(NEEDS, repeats_beginning=False)),
        (Stub(continues=False), None),
    ],
)
def test_it_is_probed_whether_a_server_goes_on_from_a_beginning(
    stub: Stub, continuation: Continuation | None
) -> None:
    with running(stub):
        questioner = questioner_of(stub)
    assert isinstance(questioner, Chat)
    assert questioner.continuation == continuation
    assert questioner.begins_answers is (continuation is not None)
    assert ("goes on" in questioner.sentence) is questioner.begins_answers


def test_an_answer_is_begun_only_where_the_server_goes_on_from_it() -> None:
    example = BASE.example(0, 0)
    question = example.questions[0]
    user, assistant = messages(BASE, example, question)
    assert user["content"].startswith(example.context)
    assert user["content"].endswith(question.text)
    assert assistant == {"role": "assistant", "content": question.answer_prefix}
    alone = replace(BASE, begins_answers=False)
    assert [turn["role"] for turn in messages(alone, example, question)] == ["user"]
    chat = Chat("m", 0, words, Continuation(NEEDS, True), {"chat_template_kwargs": {}})
    begun, itself = chat.requests(BASE, example)[0], chat.requests(alone, example)[0]
    assert begun.body.items() >= NEEDS.items()
    assert begun.body["stop"] == ["\n"]
    assert "chat_template_kwargs" not in begun.body
    assert itself.body.keys().isdisjoint({"stop", *NEEDS})
    assert "chat_template_kwargs" in itself.body


def test_a_system_prompt_is_the_turn_of_the_system() -> None:
    tasks: list[Task] = [task for task in SUITES["instructions"].tasks if task.role == "system"]
    example = tasks[0].example(0, 0)
    system, user, *_ = messages(tasks[0], example, example.questions[0])
    assert system == {"role": "system", "content": example.context}
    assert example.context not in user["content"]
    assert user["content"].strip()


@pytest.mark.parametrize(
    ("text", "end", "cut"),
    [
        (" Oslo. He lives", "sentence", (" Oslo.", True)),
        (" A. F. Fox. And", "sentence", (" A. F. Fox.", True)),
        (" 3.5 miles", "sentence", (" 3.5 miles", False)),
        (' "Oslo." And', "sentence", (' "Oslo."', True)),
        (" Oslo\nQuestion", "sentence", (" Oslo", True)),
        (" Oslo. He lives\nthere", "line", (" Oslo. He lives", True)),
        ("东京。他", "sentence", ("东京。他", False)),
    ],
)
def test_an_answer_that_was_begun_ends_with_its_sentence_or_line(
    text: str, end: Any, cut: tuple[str, bool]
) -> None:
    assert cut_answer(text, end) == cut


def test_a_beginning_that_the_server_repeats_is_no_part_of_the_answer() -> None:
    question = BASE.example(0, 0).questions[0]
    text = f"{question.answer_prefix} Oslo. He"
    answer = ServedAnswer(text=text, is_stopped=False)
    repeating = Chat("m", 0, words, Continuation({}, repeats_beginning=True), {})
    assert repeating.read(BASE, question, answer).text == "Oslo."
    assert repeating.read(BASE, question, answer).ended
    other = Chat("m", 0, words, Continuation({}, repeats_beginning=False), {})
    assert other.read(BASE, question, answer).text.startswith(question.answer_prefix)


def test_token_numbers_are_those_of_a_run_in_this_process(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    example = BASE.example(0, 0)
    (prompt,) = build_prompts(tokenizer, BASE, example, "agnostic")
    with running(Stub()) as stub:
        questioner = questioner_of(stub, tokenizer)
        assert isinstance(questioner, Raw)
    requests = questioner.requests(BASE, example)
    assert len(requests) == len(prompt.questions)
    for request, question in zip(requests, prompt.questions, strict=True):
        assert request.body["prompt"] == [*prompt.token_ids, *question.token_ids]
        assert request.stored.context_tokens == len(prompt.token_ids)
    answer = ServedAnswer(text=" Oslo\nand more", is_stopped=False)
    written = questioner.read(BASE, example.questions[0], answer)
    assert written.ended
    assert "more" not in written.text
    assert written.token_ids


def test_a_server_that_takes_no_token_numbers_is_told_with_the_way_out(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    with (
        running(Stub(takes_numbers=False)) as stub,
        pytest.raises(KVBenchError, match=r"takes no token numbers: .*prompt=chat"),
    ):
        questioner_of(stub, tokenizer)


@pytest.mark.parametrize(
    ("response", "words_of_fault"),
    [
        ({"object": "list"}, "answers in another form"),
        ({"choices": []}, "answers with no choice"),
        ({"choices": [{"message": {"content": [1]}}]}, "answers in another form"),
    ],
)
def test_answers_of_another_form_are_refused(response: dict[str, Any], words_of_fault: str) -> None:
    with pytest.raises(KVBenchError, match=words_of_fault):
        read_answer(response)


def test_a_message_without_content_is_an_empty_answer() -> None:
    response = {"choices": [{"message": {"content": None}, "finish_reason": "length"}]}
    assert read_answer(response) == ServedAnswer(text="", is_stopped=False)


def test_what_a_server_tells_is_stored_without_places_and_strange_fields() -> None:
    settings = {
        "build_info": "b1",
        "total_slots": 4,
        "kv_cache_dtype": "fp8",
        "attention_backend": "/opt/secret/backend",
        "host": "10.0.0.7",
        "chat_template": "{{ messages }}",
        "default_generation_settings": {"n_ctx": 4096},
    }
    with running(Stub(settings=settings)) as stub, Client(Address.read(stub.url)) as client:
        facts = read_facts(client)
        stub.settings = {**settings, "kv_cache_dtype": "auto"}
        other = read_facts(client)
    assert facts.name == "stub-1b.gguf"
    assert facts.settings.items() >= {"kv_cache_dtype": "fp8", "n_ctx": "4096"}.items()
    assert facts.settings.keys().isdisjoint({"host", "attention_backend", "api_key"})
    assert "messages" not in facts.settings["chat_template"]
    assert other != facts
    assert other.fingerprint == facts.fingerprint  # a flag makes no other model


@pytest.mark.parametrize(
    ("listed", "shown"),
    [
        ("/home/ada/models/a.gguf", "a.gguf"),
        ("models/a.gguf", "a.gguf"),
        ("C:\\Users\\ada\\a.gguf", "a.gguf"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("/srv/Qwen3-8B", "Qwen3-8B"),
    ],
)
def test_a_model_is_shown_without_its_place(listed: str, shown: str) -> None:
    with running(Stub(model=listed)) as stub, Client(Address.read(stub.url)) as client:
        facts = read_facts(client)
    assert (facts.model, facts.name) == (listed, shown)


@pytest.mark.parametrize(
    ("options", "words_of_fault"),
    [
        (["--policies", "snapkv"], "its one policy is full"),
        (["--ratios", "0.5"], "--ratios: a server shows answers and no cache"),
        (["--mode", "aware"], "--mode: a server shows answers and no cache"),
        (["--difficulty", "auto"], "--difficulty auto finds levels"),
        (["--tasks", "prose"], "prose asks for the likelihoods of a text"),
    ],
)
def test_options_that_need_the_model_are_refused_before_anything_is_sent(
    cli: CommandLine, options: list[str], words_of_fault: str
) -> None:
    with running(Stub()) as stub:
        assert cli("run", "--model", stub.url, "--name", "x", *options) == 1
        assert words_of_fault in cli.complaint
        assert stub.headers == []
        assert cli("run", "--model", stub.url, "--tasks", "base") == 1
        assert "needs a --name" in cli.complaint
        assert stub.headers == []


def test_plan_says_how_many_contexts_show_five_points_and_sends_nothing(cli: CommandLine) -> None:
    with running(Stub()) as stub:
        assert cli("plan", "--model", stub.url, "--tasks", "base,hops", "--limit", 24) == 0
        assert stub.headers == []
    assert "contexts that show 5 points" in cli.out
    assert "24 contexts show" in cli.out


def test_commands_that_need_the_model_itself_say_so(cli: CommandLine) -> None:
    assert cli("doctor", "snapkv", "--model", "http://localhost:1/v1") == 1
    assert "which run and plan take" in cli.complaint
