"""Writes the lessons of ``smollm2-routing`` as arrays: contexts of the train splits with their questions, texts that
are to stay as likely as they were, and what is watched."""

import importlib
import inspect
import pkgutil
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from train import CLIMB

from datasets_gen import FROM_DATA, RULER, TASKS, DatasetError, Example, Task
from kvbench.models.load import load_model
from kvbench.prompts.context_length import lengthen
from kvbench.prompts.mode import AnswerPrefix, Mode, asked_of
from kvbench.prompts.prompt import build_prompts, encode

SHARES = {  # how often each task comes: chains, lists and sums take longest to learn
    "base": 2, "knowledge": 3, "multi_presence": 5, "multi_entity": 4, "coreference": 3, "hops": 6, "long_context": 1,
    "arithmetic": 9, "instructions": 5,
}  # fmt: skip
LENGTHS: Mapping[int | None, int] = {None: 60, 768: 24, 400: 6, 550: 5, 1000: 5}  # tokens of a context: how often
LESSONS = (*range(100_000), *range(120_000, 140_000))
TEXTS = 9_000  # are held to the untrained model, so that it stays a language model
LIBRARIES = (  # whose docstrings are natural text
    *("scipy.stats", "scipy.optimize", "scipy.signal", "statsmodels.api", "pandas", "numpy", "sklearn", "torch"),
    *("matplotlib.pyplot", "torch.nn", "asyncio", "argparse", "logging", "collections", "email", "http", "unittest"),
    *("decimal", "subprocess", "threading", "socket", "typing", "random", "tkinter", "xml.dom", "difflib", "inspect"),
    *("zipfile", "shutil"),
)
REQUESTS = (
    *("What does this say?", "Summarize the text above.", "Explain it in plain words.", "Write a short answer."),
    *("Go on with the text.", "Rewrite this as a list.", "Give three examples.", "Write it in all capital letters."),
    *("Answer in two sentences.", "Say it in other words, with a title."),
)
WATCHED: Mapping[str, tuple[int | None, AnswerPrefix, bool]] = {  # tokens, answers begun, phrasings never seen
    "native": (None, "off", False),
    "begun": (None, "on", False),
    "768": (768, "off", False),
    "unseen": (None, "off", True),
}


class Writer:
    """Writes sequences as token ids, segments (0: the context, then a number a question) and what is an answer."""

    def __init__(self) -> None:
        self.model = load_model("smollm2", "cpu", "float32")
        self.rows: list[tuple[Sequence[int], Sequence[int], Sequence[int], str]] = []
        self.tasks: dict[tuple[str, int | None, AnswerPrefix], Task] = {}

    def task(self, name: str, tokens: int | None, prefix: AnswerPrefix) -> Task:
        if (name, tokens, prefix) not in self.tasks:
            known = {**FROM_DATA, **TASKS, **RULER}[name]
            longer = lengthen([known], tokens, None, self.model.count_tokens, "smollm2")
            self.tasks[name, tokens, prefix] = asked_of(longer, "smollm2", prefix)[0]
        return self.tasks[name, tokens, prefix]

    def add(self, task: Task, example: Example, rng: random.Random, mode: Mode = "agnostic", about: str = "") -> None:
        tokenizer = self.model.tokenizer
        prompt = rng.choice(build_prompts(tokenizer, task, example, mode))
        ids, segments, answers = list(prompt.token_ids), [0] * len(prompt.token_ids), [0] * len(prompt.token_ids)
        for number, question in enumerate(prompt.questions, 1):
            if not question.gold_ids:
                continue
            begun = task.begins_answers and question.question.answer_prefix and task.answer_end == "sentence"
            answer = [*question.gold_ids, *(encode(tokenizer, ".") if begun else ()), tokenizer.eos_token_id]
            ids += [*question.token_ids, *answer]
            segments += [number] * (len(question.token_ids) + len(answer))
            answers += [0] * len(question.token_ids) + [1] * len(answer)
        self.rows.append((ids, segments, answers, about))

    def lesson(self, index: int) -> None:
        rng = random.Random(f"lesson/{index}")
        (name,) = rng.choices(list(SHARES), list(SHARES.values()))
        (tokens,) = rng.choices(list(LENGTHS), list(LENGTHS.values()))
        if name in ("arithmetic", "long_context") and rng.random() < 0.5:
            tokens = None
        prefix: AnswerPrefix = "off" if rng.random() < (0.75 if name == "arithmetic" else 0.45) else "on"
        mode: Mode = "aware" if rng.random() < 0.08 else "agnostic"
        task, top = self.task(name, tokens, prefix), TASKS[name].top_level
        cap = min(top, 1 + int(index / CLIMB * top))
        level = cap if rng.random() < 0.75 else rng.randint(0, cap)
        questions = min(8, task.questions_per_context)
        self.add(task, task.example(7, index, "train", level, questions=questions, taught=True), rng, mode)

    def text(self, index: int, docs: Sequence[str]) -> None:
        """Adds a text of RULER or prose with its questions, or a docstring as it stands or in turns of a chat."""
        rng, tokenizer = random.Random(f"text/{index}"), self.model.tokenizer
        if rng.random() < 0.35:
            name = rng.choice([*RULER, "prose"])
            task = self.task(name, None if name == "prose" else rng.choice((500, 800, 1000)), "on")
            with suppress(DatasetError):  # 500 tokens are too few for some
                self.add(task, task.example(7, index, "train", questions=3), rng)
            return
        words = rng.choice(docs).split(" ")
        at = rng.randrange(max(1, len(words) - 300))
        doc = " ".join(words[at : at + 500])
        if rng.random() < 0.5:
            half = len(doc) // rng.choice((2, 3, 8))
            turns = [{"role": "system", "content": doc[:200]}] if rng.random() < 0.3 else []
            asked = rng.choice((f"{doc[:half]}\n{rng.choice(REQUESTS)}", f"{rng.choice(REQUESTS)}\n{doc[:half]}"))
            turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": doc[half:]}]
            doc = str(tokenizer.apply_chat_template(turns, tokenize=False))
        ids = encode(tokenizer, doc)[: rng.choice((256, 512, 768))]
        if len(ids) >= 64:
            self.rows.append((ids, [0] * len(ids), [0] * len(ids), ""))

    def save(self, path: Path) -> None:
        ids, segments, answers = ([one for row in self.rows for one in row[part]] for part in range(3))
        np.savez_compressed(
            path,
            ids=np.array(ids, np.uint16),
            segments=np.array(segments, np.uint8),
            answers=np.array(answers, np.uint8),
            lengths=np.array([len(row[0]) for row in self.rows], np.int32),
            about=np.array([row[3] for row in self.rows]),
        )
        self.rows = []


def docstrings() -> list[str]:
    texts: dict[str, None] = {}
    for name in LIBRARIES:
        modules: list[Any] = [importlib.import_module(name)]
        for found in list(pkgutil.iter_modules(getattr(modules[0], "__path__", [])))[:60]:
            if not found.name.startswith("_") and "test" not in found.name:
                with suppress(Exception):  # some need what is not installed
                    modules.append(importlib.import_module(f"{name}.{found.name}"))
        for one in modules:
            for _, member in [("", one), *inspect.getmembers(one)]:
                for piece in (member, *(vars(member).values() if inspect.isclass(member) else ())):
                    text = getattr(piece, "__doc__", None)
                    if isinstance(text, str) and len(text) > 500:
                        texts[inspect.cleandoc(text)] = None
    return list(texts)


def write_lessons(folder: Path) -> None:
    writer = Writer()
    for group, (tokens, prefix, unseen) in WATCHED.items():  # on a seed of the test split that no score is reported on
        for name in SHARES:
            task = writer.task(name, tokens, prefix)
            for index in range(40 if name == "arithmetic" else 12):
                example = task.example(424_242, index, "test", questions=16, held_out=unseen)
                writer.add(task, example, random.Random(), about=f"{name} {group}")
    writer.save(folder / "watched.npz")
    docs = docstrings()
    for index in range(TEXTS):
        writer.text(index, docs)
    writer.save(folder / "texts.npz")
    for number, index in enumerate(LESSONS):
        writer.lesson(index)
        if number % 1000 == 0:
            print(f"{number:,} of {len(LESSONS):,} lessons", flush=True)
    writer.save(folder / "lessons.npz")
