"""Facts that answers need and no context states, learned by heart: sums, initials, decades.

An answer asks for few of them, and there are thousands: after 100 million tokens of answers the model read the right
numbers and wrote "3 + 7 = 12".
"""

import random
from collections.abc import Sequence

import torch
from torch.nn import functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from datasets_gen.examples.lexicon import draw_people, draw_value
from datasets_gen.tasks.arithmetic import LARGEST_CHANGE, LARGEST_FACTOR, MOST
from kvbench.prompts.prompt import encode

DRILL_ROWS, DRILL_LENGTH = 1, 64  # for each batch of a task; with 4 all were known after 900 steps
DRILL_WEIGHT = 0.5
EQUATION_SHARE = 0.6  # of the drills
NO_LABEL = -100


def drills(tokenizer: PreTrainedTokenizerBase, seed: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Makes the drills of a batch: token ids, and the same where a token is asked for, -100 elsewhere; both of shape
    (:data:`DRILL_ROWS`, :data:`DRILL_LENGTH`)."""
    rng = random.Random(f"drill/{seed}/{number}")
    rows = [_row(tokenizer, rng) for _ in range(DRILL_ROWS)]
    return torch.tensor([tokens for tokens, _ in rows]), torch.tensor([labels for _, labels in rows])


def drill_loss(model: PreTrainedModel, token_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Computes the mean loss of the tokens that are asked for, each given those before it."""
    model.set_attn_implementation("sdpa")
    logits = model(input_ids=token_ids, use_cache=False).logits[:, :-1]
    return F.cross_entropy(logits.flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=NO_LABEL)


def _row(tokenizer: PreTrainedTokenizerBase, rng: random.Random) -> tuple[Sequence[int], Sequence[int]]:
    tokens: list[int] = []
    labels: list[int] = []
    end = encode(tokenizer, ".")
    while len(tokens) < DRILL_LENGTH:
        given, asked = (encode(tokenizer, text) for text in _drill(rng))
        tokens += [*given, *asked, *end]
        labels += [*[NO_LABEL] * len(given), *asked, *[NO_LABEL] * len(end)]
    return tokens[:DRILL_LENGTH], labels[:DRILL_LENGTH]


def _drill(rng: random.Random) -> tuple[str, str]:
    """Draws what is given and what is asked for."""
    if rng.random() < EQUATION_SHARE:
        return _equation(rng)
    if rng.random() < 0.5:
        name = draw_people(rng, "train", 1)[0]
        return f" {name}", f" {' '.join(word[0] for word in name.split())}"
    date = draw_value(rng, "date")
    return f" {date}", f" {date[-4:-1]}0s"


def _equation(rng: random.Random) -> tuple[str, str]:
    """Draws a sum as ``arithmetic`` writes it, with the numbers that it can have."""
    while True:
        sign, first = rng.choice("+-*"), rng.randint(0, MOST)
        match sign:
            case "+":
                second = rng.randint(2, rng.choice((LARGEST_CHANGE, LARGEST_FACTOR**2)))
                result = first + second
            case "-":
                second = rng.randint(2, LARGEST_CHANGE)
                result = first - second
            case _:
                second = rng.choice((2, 3) if first > LARGEST_FACTOR else range(2, LARGEST_FACTOR + 1))
                result = first * second
        if 0 <= result <= MOST:
            return f" {first} {sign} {second} =", f" {result}"
