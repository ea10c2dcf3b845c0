"""The tokenizer of the toy models, built as that of the teaching models was: words of the train split over bytes."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from datasets_gen import ABSTENTION, TASKS
from datasets_gen.examples.lexicon import lexicon
from datasets_gen.writing.prose import TEMPLATES

LEAST_COUNT = 3  # a word that is seen less often in the texts is spelled
MODEL_MAX_LENGTH = 4096
PADDING, BEGIN, SYSTEM, USER, ASSISTANT, END = SPECIAL_TOKENS = (
    "<|pad|>",
    "<|begin|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|end|>",
)
# The space after <|user|> gives the first word of a context the same token as everywhere else in it.
CHAT_TEMPLATE = (
    "<|begin|>{% for message in messages %}"
    "{% if message['role'] == 'system' %}<|system|> {{ message['content'] }}"
    "{% elif message['role'] == 'user' %}<|user|> {{ message['content'] }}"
    "{% else %}<|assistant|> {{ message['content'] }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# Words with the space before them and with their apostrophe, numbers, runs of punctuation, white space.
WORDS = r" ?\p{L}+(?:'\p{L}+)?| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s"

# Where a word follows an opening bracket or quotation mark, and what is put there until the text is decoded: a word
# joiner, which shows nothing, and the space that it has elsewhere. It is the same token then.
OPENED_WORD = r"(?<=[(\[{\"])(?=\p{L})"
JOINED = "\u2060 "


def training_texts(seed: int, contexts: int, held_out: bool = False) -> Iterator[str]:
    """Yields contexts, questions and answers of the train split of every task, in the phrasings of training or,
    where only their words count, in those held out."""
    for task in TASKS.values():
        for index in range(contexts):
            example = task.example(seed, index, "train", held_out=held_out, taught=not held_out)
            yield " " + example.context
            for question in example.questions:
                yield f"\n{question.text} {task.instruction}"
                yield f" {question.perfect_output}"
    yield f" {ABSTENTION}"


def prose_texts() -> Iterator[str]:
    """Yields every word of the prose."""
    words = lexicon()
    for template in TEMPLATES:
        for adjective, place in zip(words.adjective, words.place, strict=True):
            yield " " + template.format(adjective=adjective, place=place, other=place)


def train_tokenizer(seed: int, contexts: int = 6000) -> PreTrainedTokenizerFast:
    """Trains a byte-level tokenizer in which every word of the texts, in each case that it is seen in, is one token.

    Other words are spelled byte by byte. The same seed gives the same tokenizer.

    With pieces merged by frequency a name was three tokens, its capitals eight and its small letters four others: to
    answer in capitals, in brackets or by initials was a matter of spelling by heart, and stayed a guess.
    """
    normalizer = normalizers.Replace(Regex(OPENED_WORD), JOINED)
    splitter = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    counts: Counter[str] = Counter()
    texts = (training_texts(seed, contexts), training_texts(seed, contexts // 4, held_out=True), prose_texts())
    for text in chain.from_iterable(texts):
        counts.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    words = sorted(word for word, count in counts.items() if count >= LEAST_COUNT)
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
