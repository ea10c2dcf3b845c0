"""A control token that is spelled in a document, a question or a prefix is text; the chat
template's own are not."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from datasets_gen import TASKS, Span
from kvbench.models.load import load_tokenizer
from kvbench.prompts.control_tokens import control_tokens, encode_with_offsets
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import Prompt, build_prompts, encode
from tests.prompts.test_prompt import tekken

TURN = (
    "<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n<|im_start|>assistant\n<think></think>"
)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False)
PLAIN = "Ada lives in  Oslo.\n\n\t(«日本» é) 12,000 <b>x</b> a\u0301 "


def small(
    model: models.Model, trainer: trainers.Trainer, **parts: object
) -> PreTrainedTokenizerFast:
    """A tokenizer with tokens of Qwen's kind: special ones, and <think>, which is not special."""
    backend = Tokenizer(model)
    for name, part in parts.items():
        setattr(backend, name, part)
    backend.train_from_iterator(
        [PLAIN, "user assistant im_start im_end think < | > / s</s>"] * 3, trainer
    )
    # Behind the vocabulary, as in Llama 3 and Qwen.
    backend.add_special_tokens(
        [AddedToken(one, normalized=False, special=True) for one in ("<|im_start|>", "<|im_end|>")]
    )
    backend.add_tokens(
        [AddedToken(one, normalized=False) for one in ("<think>", "</think>", "<b>", "\n\n")]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", eos_token="</s>"
    )
    tokenizer.chat_template = TURN
    return tokenizer


@cache
def byte_level() -> PreTrainedTokenizerFast:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<unk>", "</s>"], initial_alphabet=alphabet
    )
    return small(models.BPE(), trainer, pre_tokenizer=BYTES, decoder=decoders.ByteLevel())


@cache
def unigram() -> PreTrainedTokenizerFast:
    """Whose pieces are chosen by their scores, </s> among them, and whose first word has a space
    before it."""
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>", "</s>"], unk_token="<unk>"
    )
    before = pre_tokenizers.Metaspace(prepend_scheme="first")
    return small(models.Unigram(), trainer, pre_tokenizer=before, normalizer=normalizers.NFKC())


@cache
def reference() -> PreTrainedTokenizerBase:
    return load_tokenizer("reference")


TOKENIZERS: dict[str, Callable[[], PreTrainedTokenizerBase]] = {
    "reference": reference,
    "tekken": tekken,
    "byte_level": byte_level,
    "unigram": unigram,
}
every_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)


def numbers_of_controls(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    controls = control_tokens(tokenizer)
    return {
        number
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.content in controls
    }


@every_tokenizer
def test_a_text_around_a_spelling_has_the_tokens_that_it_has_without_one(name: str) -> None:
    """The template's part and the text are encoded together, so that their seam is kvpress's
    too."""
    tokenizer = TOKENIZERS[name]()
    first, *_, last = control_tokens(tokenizer)
    head = f"{first}user\n"
    usual = tokenizer(head + PLAIN, add_special_tokens=False, return_offsets_mapping=True)
    assert encode_with_offsets(tokenizer, head + PLAIN, ((0, len(head)),))[0] == tuple(
        usual["input_ids"]
    )
    ids, offsets = encode_with_offsets(tokenizer, f"{head}{PLAIN}\n {last}", ((0, len(head)),))
    before = len(usual["input_ids"]) - 2  # the last tokens may join what follows
    assert list(ids[:before]) == usual["input_ids"][:before]
    assert [tuple(pair) for pair in offsets[:before]] == [
        tuple(pair) for pair in usual["offset_mapping"][:before]
    ]


@every_tokenizer
def test_every_spelling_is_text_that_is_decoded_as_it_was_written(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    controls, head = control_tokens(tokenizer)[:40], f"{control_tokens(tokenizer)[0]}user\n"
    for spelling in controls:
        text = f"x {spelling} x"
        assert numbers_of_controls(tokenizer) & set(
            tokenizer.encode(text, add_special_tokens=False)
        ), "else no test"
        ids, offsets = encode_with_offsets(tokenizer, head + text, ((0, len(head)),))
        assert [one for one in ids if one in numbers_of_controls(tokenizer)][1:] in (
            [],
            [tokenizer.unk_token_id],
        )
        assert offsets[-1][1] == len(head + text)
        if name != "unigram":  # whose vocabulary has no piece for most letters
            assert str(tokenizer.decode(list(ids), skip_special_tokens=True)).endswith(text)
        assert not {tokenizer.eos_token_id} & set(encode(tokenizer, text))


def test_tokens_of_the_template_are_controls_and_tokens_of_white_space_and_html_are_text() -> None:
    assert set(control_tokens(byte_level())) == {
        "<unk>",
        "</s>",
        "<|im_start|>",
        "<|im_end|>",
        "<think>",
        "</think>",
    }


def prompt_with(gold: str, mark: str, mode: Mode) -> Prompt:
    """A prompt that holds a mark in its context and its question, and the gold in its answer prefix
    too."""
    task, example = replace(TASKS["base"], begins_answers=True), TASKS["base"].example(0, 1)
    context = f"A {mark}user. Oslo is {gold}. {mark}"
    start = context.index(f"{gold}.")
    question = replace(
        next(one for one in example.questions if one.answerable),
        text=f"What {mark} is Oslo?",
        golds=(gold,),
        target=None,
        spans=(Span("answer", start, start + len(gold)),),
        answer_prefix=f"Oslo {gold} is",
    )
    of_one_question = replace(example, context=context, stated=(), spans=(), questions=(question,))
    (prompt,) = build_prompts(byte_level(), task, of_one_question, mode)
    return prompt


@pytest.mark.parametrize("mode", ["agnostic", "aware"])
@pytest.mark.parametrize("mark", ["<|im_end|>", "<think>", "<|im_start|>"])
def test_a_prompt_has_the_control_tokens_of_its_template_alone(mode: Mode, mark: str) -> None:
    """Whether they are spelled in the context, the question, the answer prefix or the gold."""
    tokenizer, controls = byte_level(), numbers_of_controls(byte_level())
    plain, spelled = prompt_with("north", "nothing", mode), prompt_with("</s>", mark, mode)
    of_plain, of_spelled = (
        [
            [token for token in ids if token in controls]
            for ids in (one.token_ids, one.questions[0].token_ids)
        ]
        for one in (plain, spelled)
    )
    assert of_plain == of_spelled
    # <|im_start|>, <|im_end|>, <|im_start|>, <think> and </think>.
    assert len(of_plain[0] + of_plain[1]) == 5
    question = spelled.questions[0]
    evidence = str(tokenizer.decode([spelled.token_ids[place] for place in question.answer_tokens]))
    assert evidence.strip(" .") == "</s>"
    assert str(tokenizer.decode(list(question.gold_ids))).strip() == "</s>"
    assert not controls & set(question.gold_ids)
    read = tokenizer.decode([spelled.token_ids[place] for place in spelled.context_tokens])
    assert spelled.example.context in read
