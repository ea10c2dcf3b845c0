"""Examples become the tokens that kvpress itself would read, and spans become the right ones of
them."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import mistral_common
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from kvpress import KVPressTextGenerationPipeline
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.integrations.mistral import convert_tekken_tokenizer

from datasets_gen import FROM_DATA, RULER, TASKS, Example, Span, Task
from kvbench.checks.against_kvpress import as_written, is_handed_over_whole, texts_for_pipeline
from kvbench.models.load import LoadedModel
from kvbench.prompts.mode import Mode, phrase_tasks
from kvbench.prompts.prompt import (
    Prompt,
    Role,
    _find_ends,
    answer_ends,
    answer_text,
    build_prompts,
    chat_template,
    overlapping_tokens,
)
from tests.support.models.toy import toy_tokenizer
from tests.support.models.toy_tokenizer import BEGIN, SPECIAL_TOKENS, training_texts
from tests.support.tasks.suite import texts

VOCABULARY = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
# Tokens of the vocabulary: its most frequent ones, as all 131,072 take seconds to convert.
MOST = 32_768
# The turns as this version of Mistral's format (v3) writes them: a system prompt begins the user's
# turn.
TURNS = (
    "{{ bos_token }}[INST]{% for message in messages %}"
    "{{ message.content }}{{ '' if loop.last else '\n\n' }}{% endfor %}[/INST]"
)


@contextmanager
def vocabulary() -> Iterator[str]:
    """The file of a vocabulary of the most frequent tokens alone, which are those that are merged
    first."""
    content = json.loads(VOCABULARY.read_text())
    content["config"]["default_vocab_size"] = MOST
    with TemporaryDirectory() as folder:
        path = Path(folder) / VOCABULARY.name
        path.write_text(json.dumps(content))
        yield str(path)


@cache
def tekken() -> PreTrainedTokenizerFast:
    """Converts the vocabulary to a fast tokenizer."""
    with vocabulary() as path:
        tokenizer: PreTrainedTokenizerFast = convert_tekken_tokenizer(path)
    tokenizer.chat_template = TURNS
    return tokenizer


# As Llama 3 cuts text into words: a full stop and the line break behind it are one.
LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TRIMMING = (
    "<|begin|><|system|>\nBe brief.\n{% for message in messages %}<|user|>\n{{ message['content'] "
    "| trim }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% if not "
    "enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
every_mode = pytest.mark.parametrize("mode", ["agnostic", "aware"])


@cache
def without_chat_template() -> PreTrainedTokenizerFast:
    tokenizer = deepcopy(toy_tokenizer())
    tokenizer.chat_template = None
    return tokenizer


@cache
def with_another_template() -> PreTrainedTokenizerFast:
    """Trims the content, says more before it, and closes an empty thought after it."""
    tokenizer = deepcopy(toy_tokenizer())
    tokenizer.chat_template = TRIMMING
    return tokenizer


@cache
def like_llama3() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(LLAMA3_WORDS), behavior="isolated")
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator([*training_texts(0, 100), "One.\nTwo.\n" * 500], trainer)
    template = toy_tokenizer().chat_template
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token=BEGIN, chat_template=template)


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "reference": toy_tokenizer,
    "no chat template": without_chat_template,
    "another template": with_another_template,
    "like Llama 3": like_llama3,
    "Mistral's tekken": tekken,
}
every_tokenizer = pytest.mark.parametrize("make", TOKENIZERS.values(), ids=TOKENIZERS)


def spell(tokenizer: PreTrainedTokenizerBase, token_ids: Iterable[int]) -> str:
    return str(tokenizer.decode(list(token_ids)))


@cache
def built(
    tokenizer: PreTrainedTokenizerBase, name: str, mode: Mode
) -> list[tuple[Example, Prompt]]:
    task = TASKS[name]
    return [
        (e, prompt)
        for e in task.generate(0, 3)
        for prompt in build_prompts(tokenizer, task, e, mode)
    ]


def prompts(
    tokenizer: PreTrainedTokenizerBase, task: Task, mode: Mode
) -> list[tuple[Example, Prompt]]:
    """Prompts of three examples, built once for all tests."""
    return built(tokenizer, task.name, mode)


# --- spans to tokens


@every_tokenizer
@every_mode
@every_task
def test_answer_tokens_read_as_the_answer(
    make: Callable[[], PreTrainedTokenizerFast], mode: Mode, task: Task
) -> None:
    tokenizer = make()
    for example, prompt in prompts(tokenizer, task, mode):
        for ask in prompt.questions:
            answers = texts(example, ask.question, "answer")
            text = spell(tokenizer, [prompt.token_ids[place] for place in ask.answer_tokens])
            assert all(answer in text for answer in answers)
            # At most a space before each and a full stop behind it.
            assert len(text) <= sum(len(answer) + 2 for answer in answers)


@every_tokenizer
@every_task
def test_answer_tokens_are_evidence_and_lie_in_the_context(
    make: Callable[[], PreTrainedTokenizerFast], task: Task
) -> None:
    for _, prompt in prompts(make(), task, "agnostic"):
        for ask in prompt.questions:
            assert set(ask.answer_tokens) <= set(ask.evidence_tokens)
            # The first is no evidence.
            assert all(0 < place < len(prompt.token_ids) for place in ask.evidence_tokens)
            assert bool(ask.evidence_tokens) == ask.question.answerable


@given(st.data())
def test_tokens_of_any_span_spell_it_and_are_adjacent(data: st.DataObject) -> None:
    tokenizer = toy_tokenizer()
    context = TASKS["base"].example(0, data.draw(st.integers(0, 50))).context
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    encoded = tokenizer(
        "<|begin|>" + context, add_special_tokens=False, return_offsets_mapping=True
    )
    places = overlapping_tokens(
        [Span("fact", start, end)], encoded["offset_mapping"], len("<|begin|>")
    )
    assert places == tuple(range(places[0], places[-1] + 1))
    assert context[start:end] in spell(tokenizer, [encoded["input_ids"][place] for place in places])
    inner = spell(tokenizer, [encoded["input_ids"][place] for place in places[1:-1]])
    # Neither the first nor the last token is there in vain.
    assert len(inner) < end - start or len(places) == 1


# --- the two modes


@every_tokenizer
@every_task
def test_the_instruction_stands_before_the_question_or_behind_a_compressed_one(
    make: Callable[[], PreTrainedTokenizerFast], task: Task
) -> None:
    tokenizer = make()
    template = chat_template(tokenizer, task.role)
    alone_cue = template.cue.lstrip()
    before = f"{task.instruction}{template.cue}" if task.instruction else alone_cue
    behind = f" {task.instruction}" if task.instruction else ""
    for example in task.generate(0, 5):
        (agnostic,) = build_prompts(tokenizer, task, example, "agnostic")
        start = template.head + example.context + template.between
        for ask, aware in zip(
            agnostic.questions, build_prompts(tokenizer, task, example, "aware"), strict=True
        ):
            (alone,) = aware.questions
            assert alone.question == ask.question
            read = spell(tokenizer, agnostic.token_ids + ask.token_ids)
            assert read == f"{start}{before}{ask.question.text}{template.tail}"
            read = spell(tokenizer, aware.token_ids + alone.token_ids)
            assert read == f"{start}{alone_cue}{ask.question.text}{behind}{template.tail}"


# --- kvpress's own cut


@every_tokenizer
@every_task
def test_segments_are_those_of_kvpress(
    make: Callable[[], PreTrainedTokenizerFast], task: Task, llama: LoadedModel
) -> None:
    if task.role == "system":
        pytest.skip("kvpress's pipeline writes no system's turn")
    tokenizer = make()
    pipeline = KVPressTextGenerationPipeline(model=llama.network, tokenizer=tokenizer)
    for example in task.generate(0, 3):
        (prompt,) = build_prompts(tokenizer, task, example, "agnostic")
        parts = texts_for_pipeline(
            replace(llama, tokenizer=tokenizer), task, example.questions, "agnostic"
        )
        whole = is_handed_over_whole(replace(llama, tokenizer=tokenizer), task)
        context = chat_template(tokenizer).head + example.context if whole else example.context
        with as_written(tokenizer) if whole else nullcontext():
            theirs = pipeline.preprocess(
                context, [decoded for _, decoded in parts], "", max_context_length=4096
            )
        assert theirs["context_ids"][0].tolist() == list(prompt.token_ids)
        assert [ids[0].tolist() for ids in theirs["questions_ids"]] == [
            list(ask.token_ids) for ask in prompt.questions
        ]


# --- answers that are begun


def begun(task: Task) -> tuple[Task, Example]:
    """A task whose answers are begun, and an example whose first question has an answer prefix."""
    example = task.example(0, 0)
    first = replace(example.questions[0], answer_prefix="Tamar Malbrook lives in")
    return replace(task, begins_answers=True), replace(
        example, questions=(first, *example.questions[1:])
    )


@every_tokenizer
@every_mode
def test_a_begun_answer_stands_last_and_the_gold_goes_on_from_it(
    make: Callable[[], PreTrainedTokenizerFast], mode: Mode
) -> None:
    tokenizer = make()
    task, example = begun(TASKS["base"])
    prompt = build_prompts(tokenizer, task, example, mode)[0]
    text = spell(tokenizer, prompt.questions[0].token_ids)
    joint = "" if chat_template(tokenizer).tail[-1:].isspace() else " "
    assert text.endswith(f"{chat_template(tokenizer).tail}{joint}Tamar Malbrook lives in")
    assert "Tamar Malbrook lives in" not in spell(tokenizer, prompt.token_ids)
    assert spell(tokenizer, prompt.questions[0].gold_ids) == f" {example.questions[0].golds[0]}"
    without = build_prompts(tokenizer, replace(task, begins_answers=False), example, mode)[0]
    assert (
        text == spell(tokenizer, without.questions[0].token_ids) + joint + "Tamar Malbrook lives in"
    )
    assert without.token_ids == prompt.token_ids


def ends_with(tokenizer: PreTrainedTokenizerFast, task: Task, text: str) -> str:
    """What is left of a text that a model writes, up to its end."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    return spell(tokenizer, tuple(answer_ends(tokenizer, task).until_end(ids)[0]))


def test_a_begun_answer_ends_with_its_sentence_or_its_line(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    sentence, line = (
        replace(TASKS["base"], begins_answers=True),
        replace(TASKS["base"], answer_end="line"),
    )
    line = replace(line, begins_answers=True)
    assert ends_with(tokenizer, sentence, " Velden. He works") == " Velden."
    assert ends_with(tokenizer, sentence, " A. F. and B. G.") == " A. F. and B. G."
    assert ends_with(tokenizer, line, " Velden. He works") == " Velden. He works"
    for task in (sentence, line):
        assert ends_with(tokenizer, task, " Velden\nHe works") == " Velden\n"


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("東京。弟", "東京。"),
        ("क्या? हाँ", "क्या?"),
        ("दिल्ली। राम", "दिल्ली।"),
        ("هل؟ لا", "هل؟"),
        ("А. Б. Пушкин. Он", "А. Б. Пушкин."),  # initials end no sentence in any script
        ("「東京」。」弟", "「東京」。」"),
    ],
)
def test_the_end_of_a_sentence_is_told_in_every_script(text: str, end: str) -> None:
    """Each character is a token, but for a full stop with what closes behind it."""
    pieces = [*dict.fromkeys(regex.findall(r"[.。।؟?]+[」]*|\X", text)), "[UNK]"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    ends = _find_ends(words)
    ids = [vocabulary[piece] for piece in regex.findall(r"[.。।؟?]+[」]*|\X", text)]
    kept, is_ended = ends.until_end(ids)
    assert ("".join(pieces[one] for one in kept), is_ended) == (end, True)


def test_an_answer_that_is_not_begun_ends_by_the_model_unless_it_has_no_template(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    text = " Velden. He\nworks"
    assert ends_with(tokenizer, TASKS["base"], text) == text
    assert ends_with(without_chat_template(), TASKS["base"], text) == " Velden. He\n"
    assert (
        ends_with(without_chat_template(), replace(TASKS["base"], answer_end="tokens"), text)
        == text
    )
    assert ends_with(without_chat_template(), FROM_DATA["prose"], text) == text


def test_only_the_shipped_models_begin_their_answers_themselves() -> None:
    tasks = list(TASKS.values())
    assert (
        phrase_tasks(tasks, "reference") == tasks == phrase_tasks(tasks, "reference-narrow", "off")
    )
    for asked in (
        phrase_tasks(tasks, "org/model"),
        phrase_tasks(tasks, "reference", "on"),
        phrase_tasks(tasks, "smollm2", "on"),
    ):
        assert all(task.begins_answers and task.max_new_tokens >= 32 for task in asked)
    assert not any(task.begins_answers for task in phrase_tasks(tasks, "org/model", "off"))
    # An adapter was taught the tasks, and is its base in all others.
    assert phrase_tasks(tasks, "smollm2-routing") == tasks
    assert phrase_tasks(list(RULER.values()), "smollm2-routing")[0].begins_answers
    assert phrase_tasks([FROM_DATA["prose"]], "org/model") == [FROM_DATA["prose"]]


def test_a_begun_answer_is_the_number_and_not_the_steps_to_it(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    (begun,) = phrase_tasks([TASKS["arithmetic"]], "smollm2")
    for index in range(5):
        steps, number = (
            task.example(1, index).questions[0] for task in (TASKS["arithmetic"], begun)
        )
        assert "####" in steps.perfect_output
        assert number.perfect_output == steps.golds[0]
        (question,) = build_prompts(tokenizer, begun, begun.example(1, index), "agnostic")[
            0
        ].questions
        assert answer_text(tokenizer, question.gold_ids) == steps.golds[0]


@every_tokenizer
def test_a_system_prompt_is_the_turn_of_the_system_and_the_question_that_of_the_user(
    make: Callable[[], PreTrainedTokenizerFast],
) -> None:
    tokenizer = make()
    task = TASKS["instructions"]
    for example in task.generate(0, 3):
        (prompt,) = build_prompts(tokenizer, task, example, "agnostic")
        for ask in prompt.questions:
            turns = [("system", example.context), ("user", ask.question.text)]
            whole = f"{BEGIN}{example.context}\nQuestion: {ask.question.text}\nAnswer:"
            if tokenizer.chat_template:
                whole = str(
                    tokenizer.apply_chat_template(
                        [{"role": role, "content": content} for role, content in turns],
                        tokenize=False,
                        add_generation_prompt=True,
                        enable_thinking=False,
                    )
                )
            assert spell(tokenizer, prompt.token_ids + ask.token_ids) == whole
        assert spell(tokenizer, prompt.token_ids).endswith(example.context)


@pytest.mark.parametrize("role", ["user", "system"])
def test_tekken_is_encoded_as_by_mistral_itself(role: Role) -> None:
    example = TASKS["instructions"].example(0, 0)
    question = example.questions[0].text
    turns = [("user", f"{example.context}\n{question}")]
    if role == "system":
        turns = [("system", example.context), ("user", question)]
    messages = [{"role": turn, "content": content} for turn, content in turns]
    with vocabulary() as path:
        mistral = MistralTokenizer.from_file(path)
    theirs = mistral.encode_chat_completion(ChatCompletionRequest(messages=messages))
    assert tekken().apply_chat_template(messages, return_dict=False) == theirs.tokens


# --- spans by kind, and what else is stated


@every_mode
@every_task
def test_spans_by_kind_make_up_the_evidence_and_distractors_are_other_stated_values(
    tokenizer: PreTrainedTokenizerFast, mode: Mode, task: Task
) -> None:
    for example, prompt in prompts(tokenizer, task, mode):
        for value, positions in prompt.stated.items():
            places = [place for place in example.stated if place.text == value]
            assert all(example.context[place.start : place.end] == value for place in places)
            text = spell(tokenizer, [prompt.token_ids[position] for position in positions])
            assert text.count(value) >= len({(place.start, place.end) for place in places})
        for ask in prompt.questions:
            by_kind = {kind: set(positions) for kind, positions in ask.spans.items()}
            distractors = by_kind.pop("distractor")
            assert by_kind["answer"] == {*ask.answer_tokens}
            directives = {span for span in ask.question.spans if span.kind not in by_kind}
            assert set.union(*by_kind.values()) <= {*ask.evidence_tokens}
            assert directives or set.union(*by_kind.values()) == {*ask.evidence_tokens}
            assert distractors.isdisjoint(ask.evidence_tokens)
            wrong = {value for value in prompt.stated if value not in ask.question.golds}
            assert distractors <= {position for value in wrong for position in prompt.stated[value]}
