"""Mistral's own vocabulary, the one production tokenizer that the package index holds: 131,072 tokens."""

from functools import cache
from pathlib import Path

import mistral_common
from transformers import PreTrainedTokenizerFast
from transformers.integrations.mistral import convert_tekken_tokenizer

VOCABULARY = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
# The turns as this version of Mistral's format (v3) writes them: a system prompt begins the user's turn.
TURNS = (
    "{{ bos_token }}[INST]{% for message in messages %}"
    "{{ message.content }}{{ '' if loop.last else '\n\n' }}{% endfor %}[/INST]"
)


@cache
def tekken() -> PreTrainedTokenizerFast:
    """Converts the vocabulary to a fast tokenizer, which takes about five seconds."""
    tokenizer: PreTrainedTokenizerFast = convert_tekken_tokenizer(str(VOCABULARY))
    tokenizer.chat_template = TURNS
    return tokenizer
