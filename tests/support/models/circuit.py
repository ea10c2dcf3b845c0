"""A model whose weights copy the answer by one known head, and contexts that it answers.

A context is a row of words such as ``k3=v5``, each of them one token that says key and value. The
question ``q3?`` asks for a key. One query head of one layer looks for the word with the key, and
copies its value to the output; all other heads read and write noise. Nothing is learned, and
positions mean nothing to that head."""

import random
from functools import cache

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from datasets_gen import Question, Span, StatedValue, Task
from datasets_gen.examples.task import Draft, Request
from kvbench.models.load import LoadedModel, wrap_model

KEYS = VALUES = 12
LAYERS, QUERY_HEADS, KEY_HEADS, SIZE = 3, 4, 2, 32
GROUP = QUERY_HEADS // KEY_HEADS
LAYER, HEAD = 1, 3  # the query head that copies
KEY_HEAD = HEAD // GROUP  # whose rows it reads
HIDDEN = 64
SHARP = 4.0  # how much more the word with the key is attended to
NOISE = 0.01
# What the numbers of a state stand for.
KEY, VALUE, ASKED, ANSWER, DONE = 0, 12, 24, 36, 48
PAIRS = [(key, value) for key in range(KEYS) for value in range(VALUES)]
WORDS = ["<s>", "</s>", *(f"k{key}=v{value}" for key, value in PAIRS)]
WORDS += [*(f"q{key}?" for key in range(KEYS)), *(f"v{value}" for value in range(VALUES))]
NUMBER = {word: number for number, word in enumerate(WORDS)}


def _tokenizer() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel(NUMBER, unk_token="<s>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")
    # Nothing may stand behind a question: the circuit answers its last token.
    tokenizer.chat_template = (
        "{{ bos_token }}{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    )
    return tokenizer


@cache
def circuit() -> LoadedModel:
    """Returns the model. Tests leave it as it is."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=HIDDEN,
        head_dim=SIZE,
        intermediate_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=QUERY_HEADS,
        num_key_value_heads=KEY_HEADS,
        # Of the numbers of a head, only the first pair turns with the position, and the circuit
        # does not use it.
        rope_parameters={"rope_type": "default", "rope_theta": 1e30},
        bos_token_id=NUMBER["<s>"],
        eos_token_id=NUMBER["</s>"],
        initializer_range=0.2,
        tie_word_embeddings=False,
    )
    network = LlamaForCausalLM(config)
    with torch.no_grad():
        _plant(network)
    network.set_attn_implementation("sdpa")
    return wrap_model("circuit", network, _tokenizer(), "circuit")


def _plant(network: LlamaForCausalLM) -> None:
    network.model.embed_tokens.weight.zero_()
    network.lm_head.weight.zero_()
    for key, value in PAIRS:
        network.model.embed_tokens.weight[
            NUMBER[f"k{key}=v{value}"], [KEY + key, VALUE + value]
        ] = 1.0
    for key in range(KEYS):
        network.model.embed_tokens.weight[NUMBER[f"q{key}?"], ASKED + key] = 1.0
    for value in range(VALUES):
        network.model.embed_tokens.weight[NUMBER[f"v{value}"], DONE] = 1.0
        network.lm_head.weight[NUMBER[f"v{value}"], ANSWER + value] = 1.0
    network.lm_head.weight[NUMBER["</s>"], DONE] = 4.0
    for layer in network.model.layers:
        layer.mlp.down_proj.weight.zero_()
        layer.self_attn.o_proj.weight.mul_(NOISE)
    attention = network.model.layers[LAYER].self_attn
    for weight, first in (
        (attention.q_proj.weight, HEAD * SIZE),
        (attention.k_proj.weight, KEY_HEAD * SIZE),
    ):
        weight[first : first + SIZE] = 0.0
    attention.v_proj.weight[KEY_HEAD * SIZE : (KEY_HEAD + 1) * SIZE] = 0.0
    attention.o_proj.weight[:, HEAD * SIZE : (HEAD + 1) * SIZE] = 0.0
    for number in range(12):
        place = 1 + number  # behind the number that turns
        attention.q_proj.weight[HEAD * SIZE + place, ASKED + number] = SHARP
        attention.k_proj.weight[KEY_HEAD * SIZE + place, KEY + number] = 1.0
        attention.v_proj.weight[KEY_HEAD * SIZE + place, VALUE + number] = 1.0
        attention.o_proj.weight[ANSWER + number, HEAD * SIZE + place] = 1.0


def _draft(rng: random.Random, request: Request) -> Draft:
    """Gives each key a value of its own, in any order, and asks for some of them."""
    keys, values = rng.sample(range(KEYS), KEYS), rng.sample(range(VALUES), VALUES)
    words = [f"k{key}=v{value}" for key, value in zip(keys, values, strict=True)]
    stated: list[StatedValue] = []
    questions: list[Question] = []
    start = 0
    for place, (key, value) in enumerate(zip(keys, values, strict=True)):
        end = start + len(words[place])
        stated.append(StatedValue(f"v{value}", start, end))
        if place % 4 == 1 and len(questions) < request.questions:
            span = (Span("answer", start, end),)
            questions.append(
                Question("", f"q{key}?", (f"v{value}",), True, "forward", "thing", 1, span)
            )
        start = end + 1
    return Draft(" ".join(words), tuple(stated), tuple(questions))


TASK = Task(
    "circuit", "1", "for a test", _draft, (0.0,), {"quick": 4}, 3, instruction="", max_new_tokens=3
)
