"""The reference model's tokenizer: byte-level BPE learned from the train split, with a chat template."""

from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from datasets_gen import ABSTENTION, TASKS

VOCABULARY_SIZE = 2048
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
# Words with the space before them and with their apostrophe, digits one by one, runs of punctuation, white space.
WORDS = r" ?\p{L}+(?:'\p{L}+)?| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s"


def training_texts(seed: int, contexts: int) -> Iterator[str]:
    """Contexts, questions and answers of the train split of every task."""
    for task in TASKS.values():
        for example in task.generate(seed, contexts, "train"):
            yield " " + example.context
            for question in example.questions:
                yield f"\n{question.text} {task.instruction}"
                yield f" {question.written}"
    yield f" {ABSTENTION}"


def train_tokenizer(seed: int, contexts: int = 6000) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer of :data:`VOCABULARY_SIZE` entries; the same for the same seed."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(seed, contexts), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PADDING,
        bos_token=BEGIN,
        eos_token=END,
        chat_template=CHAT_TEMPLATE,
        model_max_length=MODEL_MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )
