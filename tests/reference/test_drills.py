"""What is learned by heart: right, asked for where it is to be known, and learned by a model."""

import operator
import re

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from datasets_gen import TASKS
from kvbench.models.shipped import folder_of
from kvbench.reference.training.architecture import SHAPES, new_model
from kvbench.reference.training.drills import NO_LABEL, drill_loss, drills

SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    read: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(folder_of("reference"))
    return read


def test_what_is_asked_for_is_true_and_nothing_else_is_asked_for(tokenizer: PreTrainedTokenizerFast) -> None:
    kinds = {"equation": 0, "decade": 0, "initials": 0}
    for number in range(60):
        token_ids, labels = drills(tokenizer, 5, number)
        assert token_ids.shape == labels.shape
        for tokens, asked in zip(token_ids, labels, strict=True):
            assert torch.equal(tokens[asked != NO_LABEL], asked[asked != NO_LABEL])
            sentences = str(tokenizer.decode(tokens)).split(".")[:-1]  # the last is cut off
            for sentence in sentences:
                if equation := re.fullmatch(r" (\d+) ([-+*]) (\d+) = (\d+)", sentence):
                    first, sign, second, result = equation.groups()
                    assert SIGNS[sign](int(first), int(second)) == int(result) <= 99
                    kinds["equation"] += 1
                elif date := re.fullmatch(r" \d+ \w+ (\d{3})\d (\d{3})0s", sentence):
                    assert date[1] == date[2]
                    kinds["decade"] += 1
                else:
                    name = re.fullmatch(r" (\w)\w+ (\w)\w+ (\w) (\w)", sentence)
                    assert name
                    assert name.groups()[:2] == name.groups()[2:]
                    kinds["initials"] += 1
            text = str(tokenizer.decode(asked[asked != NO_LABEL]))
            assert re.fullmatch(r"( \d+| \d{3}0s?| [A-Z])+", text)
    assert min(kinds.values()) > 50


def test_a_small_model_learns_them(tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    model = new_model(tokenizer, "reference-qwen", SHAPES["narrow"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    token_ids, labels = drills(tokenizer, 5, 0)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = drill_loss(model, token_ids, labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 2


def test_training_asks_each_kind_as_often_as_any_other() -> None:
    task = TASKS["knowledge"]
    for taught, expected in ((False, 3 / 18), (True, 1 / 3)):
        examples = [task.example(5, index, "train", task.top_level, 16, taught=taught) for index in range(60)]
        types = [question.type for example in examples for question in example.questions]
        assert types.count("part") / len(types) == pytest.approx(expected, abs=0.05)
