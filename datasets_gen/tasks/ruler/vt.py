"""Task ``vt``: a chain of variables with one value, in noise, behind a worked example (arXiv
2404.06654)."""

import itertools
import random
import string
from dataclasses import replace
from functools import partial

from datasets_gen.examples.example import Span
from datasets_gen.examples.task import Draft, Length, Request
from datasets_gen.examples.wording import QuestionText
from datasets_gen.tasks.ruler.form import (
    USUAL_LENGTH,
    Needle,
    lay_out,
    noise,
    noise_of_tokens,
    occurrences,
    ruler_task,
)
from datasets_gen.writing.questions import answerable

HOPS = 4
# Of different length, so that no variable of the example is one of the question.
LETTERS, LETTERS_OF_EXAMPLE = 5, 3  # of a variable
NOISE_OF_EXAMPLE = 60  # sentences: with its chain and its answer about 500 tokens
FIRST = "VAR {answer} = {subject}"
NEXT = "VAR {answer} = VAR {before}"
LEAD = "A chain of variable assignments is hidden in the text below. Follow it from its value to its last variable.\n"
QUESTION = "Which variables are assigned the value {value} in the text above? Name all of them."
PREFIX = (
    "By the chain of variable assignments in the text above, {variables} variables are assigned "
    "the value {value}, they are:"
)


def draw_chain(rng: random.Random, letters: int) -> list[Needle]:
    """Draws the assignments of a chain: a value of five digits, and a variable for it and for each
    hop."""
    names: list[str] = []
    while len(names) < HOPS + 1:
        name = "".join(rng.choices(string.ascii_uppercase, k=letters))
        names += [name] if name not in names else []
    first = Needle(FIRST, {"answer": names[0], "subject": str(rng.randint(10_000, 99_999))})
    return [
        first,
        *(Needle(NEXT, {"answer": name, "before": names[at]}) for at, name in enumerate(names[1:])),
    ]


def _ask(chain: list[Needle]) -> tuple[str, str, list[str]]:
    """Returns the question about a chain, its answer prefix and the variables to be named."""
    value, variables = chain[0].words["subject"], [one.words["answer"] for one in chain]
    return QUESTION.format(value=value), PREFIX.format(value=value, variables=len(chain)), variables


def _example(rng: random.Random, other: list[Needle]) -> tuple[str, list[str]]:
    """Writes the worked example; returns it with the value and the variables of its chain, which is
    another one."""
    while True:
        chain = draw_chain(rng, LETTERS_OF_EXAMPLE)
        # With one value for both, the variables of the example would be right too.
        if chain[0].words["subject"] != other[0].words["subject"]:
            break
    depths = USUAL_LENGTH.depths(rng, len(chain))
    question, prefix, variables = _ask(chain)
    text = lay_out(LEAD, noise(NOISE_OF_EXAMPLE), chain, depths, "\n").text
    return f"{text}\n{question}\n{prefix} {' '.join(variables)}\n\n", [
        chain[0].words["subject"],
        *variables,
    ]


def _make(rng: random.Random, _: Request, length: Length) -> Draft:
    chain = draw_chain(rng, LETTERS)
    example, said = _example(rng, chain)
    depths = length.depths(rng, len(chain))
    write = partial(lay_out, example + LEAD, needles=chain, depths=depths, joint="\n")
    laid = write(noise_of_tokens(rng, length, lambda hay: write(hay).text))
    text, prefix, variables = _ask(chain)
    spans = tuple(itertools.chain.from_iterable(laid.needles))
    # In reverse: from the value to those that have it. The target is written as in the worked
    # example.
    question = answerable(
        QuestionText(text, prefix), variables[0], "thing", "reverse", spans, hops=len(chain)
    )
    question = replace(
        question, golds=tuple(variables), type="part", target=" ".join(variables), every_gold=True
    )
    stated = occurrences(laid.text, {chain[0].words["subject"], *variables, *said})
    # Without the empty line that follows the example.
    worked = Span("distractor", 0, len(example) - 2)
    return Draft(laid.text, stated, (question,), (worked, *laid.distractors))


VT = ruler_task(
    "vt",
    f"RULER's variable tracking: a chain of {HOPS} hops in noise, behind a worked example",
    _make,
    30,
)
