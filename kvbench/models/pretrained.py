"""Reads configurations and tokenizers from the files of a model. Code beside them is never run: transformers would ask
on a terminal, and run it on "y"."""

from typing import Any

from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerBase

NO_CODE = {"trust_remote_code": False}


def read_config(source: str) -> Any:
    return AutoConfig.from_pretrained(source, **NO_CODE)


def read_tokenizer(source: str) -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, **NO_CODE)
    return tokenizer
