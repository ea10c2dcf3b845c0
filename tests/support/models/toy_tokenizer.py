"""The tokenizer of the toy models, built as that of the teaching models was: words of the train
split over bytes."""

from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from datasets_gen import ABSTENTION, TASKS

# Of texts of the train split and of prose, words that were seen three times or more; any other is
# spelled.
VOCABULARY = Path(__file__).parents[2] / "data" / "toy_words.txt"
MODEL_MAX_LENGTH = 4096
PADDING, BEGIN, SYSTEM, USER, ASSISTANT, END = SPECIAL_TOKENS = (
    "<|pad|>",
    "<|begin|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|end|>",
)
# The space after <|user|> gives the first word of a context the same token as everywhere else in
# it.
CHAT_TEMPLATE = (
    "<|begin|>{% for message in messages %}"
    "{% if message['role'] == 'system' %}<|system|> {{ message['content'] }}"
    "{% elif message['role'] == 'user' %}<|user|> {{ message['content'] }}"
    "{% else %}<|assistant|> {{ message['content'] }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Words with the space before them and with their apostrophe, numbers, runs of punctuation, white
# space.
WORDS = r" ?\p{L}+(?:'\p{L}+)?| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s"

# Where a word follows an opening bracket or quotation mark, and what is put there until the text is
# decoded: a word joiner, which shows nothing, and the space that it has elsewhere. It is the same
# token then.
OPENED_WORD = r"(?<=[(\[{\"])(?=\p{L})"
JOINED = "\u2060 "


def training_texts(seed: int, contexts: int) -> Iterator[str]:
    """Yields contexts, questions and answers of the train split of every task."""
    for task in TASKS.values():
        for index in range(contexts):
            example = task.example(seed, index, "train")
            yield " " + example.context
            for question in example.questions:
                yield f"\n{question.text} {task.instruction}"
                yield f" {question.perfect_output}"
    yield f" {ABSTENTION}"


def word_tokenizer() -> PreTrainedTokenizerFast:
    """Makes a byte-level tokenizer in which each word, in each case that it is seen in, is one
    token.

    Other words are spelled byte by byte.

    With pieces merged by frequency a name was three tokens, its capitals eight and its small
    letters four others: to answer in capitals, in brackets or by initials was a matter of spelling
    by heart, and stayed a guess."""
    normalizer = normalizers.Replace(Regex(OPENED_WORD), JOINED)
    splitter = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    words = VOCABULARY.read_text(encoding="utf-8").splitlines()
    entries = dict.fromkeys([*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *words])
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], ignore_merges=True))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace(JOINED, "")])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PADDING,
        bos_token=BEGIN,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        model_max_length=MODEL_MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )
