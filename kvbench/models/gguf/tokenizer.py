"""Builds the tokenizer of a GGUF file from the file's own fields, as llama.cpp reads them.

transformers 5.2 builds another one: it takes the end token from the first token's field, ignores
which pre-tokenizer the file names, and gives a vocabulary of Gemma no merges."""

from collections.abc import Iterator, Sequence

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE

from kvbench.models.gguf.header import Header
from kvbench.system.errors import KVBenchError

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4  # types of tokens in the format
SPACE = "▁"  # stands for a space in a vocabulary of SentencePiece
# The words of Llama 3 and Qwen 2 differ in how many digits make one.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA_3 = ("llama-bpe", "llama3", "llama-v3")
NAMES = ("gpt-2", "smollm", "qwen2", *LLAMA_3)  # of pre-tokenizers in tokenizer.ggml.pre


def build_tokenizer(header: Header) -> Tokenizer:
    """Builds a tokenizer; raises :class:`KVBenchError` for a vocabulary or a pre-tokenizer that is
    not known here."""
    kind, tokens = header.tokenizer_field("model"), header.tokenizer_field("tokens")
    if not tokens:
        raise KVBenchError(f"{header.path} holds no tokens: use a GGUF file with its vocabulary")
    if kind == "gpt2":
        tokenizer = _byte_level(header, tokens)
    elif kind == "llama":
        tokenizer = _sentence_piece(header, tokens)
    else:
        raise KVBenchError(
            f"{header.path} has a vocabulary of the kind '{kind}': only gpt2 and llama can be read"
        )
    _add_special_tokens(tokenizer, header, tokens)
    _add_ends(tokenizer, header, tokens)
    return tokenizer


def special_token(header: Header, name: str) -> str | None:
    """Returns the token that a field names by its number, such as ``bos``."""
    number, tokens = header.tokenizer_field(f"{name}_token_id"), header.tokenizer_field("tokens")
    return tokens[number] if number is not None and number < len(tokens) else None


def _byte_level(header: Header, tokens: Sequence[str]) -> Tokenizer:
    name = header.tokenizer_field("pre")
    if name not in NAMES:
        raise KVBenchError(
            f"{header.path} splits words by '{name}', which is not known here: only "
            f"{', '.join(NAMES)}"
        )
    merges = [tuple(merge.split(" ", 1)) for merge in header.tokenizer_field("merges") or ()]
    # Llama 3 takes a word whole that is in the vocabulary, whatever merges would make of it.
    tokenizer = Tokenizer(BPE(_numbered(tokens), merges, ignore_merges=name in LLAMA_3))
    prefix = bool(header.tokenizer_field("add_space_prefix"))
    # It spells bytes as letters, and splits nothing: the words are split before.
    alone = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)
    if name in ("gpt-2", "smollm"):
        words = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=True)
        digits = [pre_tokenizers.Digits(individual_digits=True)] if name == "smollm" else []
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, words])
    else:
        split = pre_tokenizers.Split(Regex(WORDS % (1 if name == "qwen2" else 3)), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, alone])
    if name == "qwen2":
        # No field says so, and every tokenizer.json of Qwen does.
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(header: Header, tokens: Sequence[str]) -> Tokenizer:
    unknown = special_token(header, "unknown")
    tokenizer = Tokenizer(
        BPE(
            _numbered(tokens),
            list(_merges(header, tokens)),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    # Where the file says nothing llama.cpp puts a space in front, too.
    prefix = header.tokenizer_field("add_space_prefix") in (True, None)
    spaces = [normalizers.Replace(" ", SPACE)]
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), *spaces] if prefix else spaces
    )
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges(header: Header, tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields every pair of tokens that makes a third, the best third first: such a file holds no
    merges. The best has the highest score, and stands first among those of one score."""
    vocabulary = set(tokens)
    scores = header.tokenizer_field("scores") or [0.0] * len(tokens)
    for number in sorted(range(len(tokens)), key=lambda number: -scores[number]):
        whole = tokens[number]
        for cut in range(1, len(whole)):
            if whole[:cut] in vocabulary and whole[cut:] in vocabulary:
                yield whole[:cut], whole[cut:]


def _numbered(tokens: Sequence[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def _add_special_tokens(tokenizer: Tokenizer, header: Header, tokens: Sequence[str]) -> None:
    """Marks the tokens that stand for themselves in a text, whatever is around them."""
    kinds = header.tokenizer_field("token_type") or ()
    special, plain = list[AddedToken](), list[AddedToken]()
    for token, kind in zip(tokens, kinds, strict=False):
        if kind in (UNKNOWN, CONTROL):
            special.append(AddedToken(token, normalized=False, special=True))
        elif kind == USER_DEFINED:
            plain.append(AddedToken(token, normalized=False, special=False))
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(plain)


def _add_ends(tokenizer: Tokenizer, header: Header, tokens: Sequence[str]) -> None:
    """Puts first and last token around a text as the file says, or as llama.cpp does where it says
    nothing."""
    always = header.tokenizer_field("model") == "llama" or header.tokenizer_field("pre") in LLAMA_3
    first, last = special_token(header, "bos"), special_token(header, "eos")
    at_first = header.tokenizer_field("add_bos_token")
    if at_first is None:
        at_first = always
    before, after = list[str](), list[str]()
    if first and at_first:
        before.append(first)
    if last and header.tokenizer_field("add_eos_token"):
        after.append(last)
    if before or after:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            pair=[*before, "$A", *after, *before, "$B:1", *after],
            special_tokens=[(token, tokens.index(token)) for token in {*before, *after}],
        )
