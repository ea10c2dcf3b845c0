"""A task is a named, versioned generator of examples."""

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

from datasets_gen.examples.errors import DatasetError, unknown_name
from datasets_gen.examples.example import Arm, Example, Question, Span, Split, StatedValue
from datasets_gen.examples.lexicon import LEXICON_SHA256
from datasets_gen.examples.scorer import Scorer

# Said after every question, and never part of what is compressed.
INSTRUCTION = "Answer briefly or say I don't know."
ABSTENTION = "I don't know"


# The tokens of a context of a run: of 768, a window of 64 and the sinks are a small part of what is
# kept at 0.9.
USUAL_TOKENS = 768
NATIVE = "native"  # instead of a number: each task has contexts of its own length
# Likewise: those that a run has unless another length is asked for.
USUAL: Literal["usual"] = "usual"

Profile = Literal["quick", "paper"]
MOST_TOKENS = 131_072


def digest_rows(rows: object) -> str:
    """Returns a short hash of rows of data, by which a version tells them from others."""
    return hashlib.sha256(ascii(rows).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Length:
    """How many tokens a context has, or up to 2 % less, and where in it the evidence stands. A
    number of tokens or a depth that cannot be raises :class:`DatasetError`."""

    tokens: int
    count: Callable[[str], int]  # the tokens of a text
    depth: float | None = (
        None  # of all evidence together, from 0, the beginning, to 1; None: scattered
    )
    counted_by: str = ""  # the model whose tokens these are

    def __post_init__(self) -> None:
        if not 1 <= self.tokens <= MOST_TOKENS:
            raise DatasetError(
                f"a context has 1 or more tokens and {MOST_TOKENS} at most, not {self.tokens}"
            )
        if self.depth is not None and not 0 <= self.depth <= 1:
            raise DatasetError(
                f"the depth of the evidence goes from 0, the beginning, to 1, the end, not "
                f"{self.depth}"
            )

    @property
    def text(self) -> str:
        return f"{self.tokens} tokens" + (f" of {self.counted_by}" if self.counted_by else "")

    @property
    def where(self) -> str:
        if self.depth is None:
            return "scattered"
        return f"together at depth {self.depth}"

    def variant_name(self, task: "Task") -> str:
        name = f"{self.text} {self.where}".replace(" ", "-")
        return f"{task.variant}+{name}" if task.variant else name

    def depths(self, rng: random.Random, count: int) -> list[float]:
        """Draws the depth of each piece of evidence, ascending; with a given depth the draw decides
        nothing."""
        drawn = sorted(rng.random() for _ in range(count))
        return drawn if self.depth is None else [self.depth] * count


@dataclass(frozen=True)
class Request:
    """Tells a generator what to draw."""

    split: Split
    level: int  # of difficulty
    questions: int  # at most
    held_out: bool = False  # whether it takes the phrasings that training never shows
    arm: Arm = ""  # the way in which the draw is written, empty where that is drawn too
    number: int = 0  # of the draw among those of its seed


@dataclass(frozen=True)
class Draft:
    """Holds what a generator draws: everything of an example but its identity."""

    context: str
    stated: tuple[StatedValue, ...]
    questions: tuple[Question, ...]
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Task:
    """A named, versioned generator of examples."""

    name: str
    version: str
    description: str
    make: Callable[[random.Random, Request], Draft]  # draws a context and its questions
    # By level, the percent right of the best guesser who knows how often each answer is right but
    # not the context. At level 0, the shortest, training starts; the last level is the task itself:
    # see at_level.
    chances: tuple[float, ...]
    contexts: Mapping[Profile, int]  # how many
    questions_per_context: int = 6
    instruction: str = INSTRUCTION
    abstentions: tuple[str, ...] = (ABSTENTION, "I do not know")
    max_new_tokens: int = 16
    role: Literal["user", "system", "text"] = (
        "user"  # whose turn of a chat the context is; text: there is no chat
    )
    answer_marker: str = ""  # stands before the answer in an output that shows its steps
    variant: str = ""
    level: str = ""  # of difficulty, such as "3 of 5", where it is not the highest: see at_level
    # The ways in which each draw is written, one context after the other.
    arms: tuple[Arm, ...] = ("",)
    most: int | None = None  # how many contexts there are, None where any number can be made
    paper: str = ""  # which has such a task
    family: str = ""  # the benchmark whose forms it has, whose name stands for all of its tasks
    begins_answers: bool = (
        False  # whether answers go on from the answer prefixes of their questions
    )
    # Where an answer ends that goes on from an answer prefix: with its sentence, its line, or its
    # tokens.
    answer_end: Literal["sentence", "line", "tokens"] = "sentence"
    usual_tokens: int = USUAL_TOKENS  # of a context, where a run gives no number
    notes: tuple[str, ...] = ()  # what may surprise whoever gave the data, a line each
    scorers: tuple[Scorer, ...] = ()  # of its own, beside the metrics of every task
    # Makes the task with contexts of a number of tokens; None where prose around its own contexts
    # does.
    with_length: "Callable[[Length], Task] | None" = None
    # Makes the task with a text that begins the answers; None where each question has its own, or
    # none at all.
    with_prefix: "Callable[[str], Task] | None" = None

    @property
    def top_level(self) -> int:
        return len(self.chances) - 1

    @property
    def chance(self) -> float:
        return self.chances[-1]

    @property
    def full_version(self) -> str:
        variant = f"+{self.variant}" if self.variant else ""
        return f"{self.version}{variant}+lexicon.{LEXICON_SHA256[:8]}"

    def example(
        self,
        seed: int,
        index: int,
        split: Split = "test",
        level: int | None = None,
        questions: int | None = None,
        held_out: bool = False,
    ) -> Example:
        """Makes example ``index`` of a seed: the same bytes on every machine, whatever else was
        generated.

        Raises :class:`DatasetError` for a split, level or number that the task has not, and what
        its generator raises.

        ``random.Random`` seeds itself from a string through SHA-512, which PYTHONHASHSEED does not
        touch."""
        level = self.top_level if level is None else min(level, self.top_level)
        questions = self.questions_per_context if questions is None else questions
        self._check_request(split, index, level, questions)
        # The arms of a draw follow one another.
        number, way = divmod(index, len(self.arms))
        draw = f"{self.name}/{split}/{seed}/{number}" + ("/held_out" if held_out else "")
        arm = self.arms[way]
        identity = f"{draw}/{arm}" if arm else draw
        # With the version, so that a new one draws new contexts; without the arm, so that all arms
        # have the same draws.
        rng = random.Random(f"{self.version}/{draw}")
        draft = self.make(rng, Request(split, level, questions, held_out, arm, number))
        # A generator knows no ids: they are set here.
        numbered = tuple(
            replace(question, id=f"{identity}/{i}") for i, question in enumerate(draft.questions)
        )
        return Example(
            identity,
            self.name,
            split,
            index,
            draft.context,
            draft.stated,
            numbered,
            draft.spans,
            arm,
            draw,
        )

    def _check_request(self, split: Split, index: int, level: int, questions: int) -> None:
        """Raises :class:`DatasetError` for an example that the task has not."""
        if split not in get_args(Split):
            raise DatasetError(unknown_name("split", split, get_args(Split)))
        for noun, value, least in (
            ("index", index, 0),
            ("level", level, 0),
            ("number of questions", questions, 1),
        ):
            if value < least:
                raise DatasetError(f"the {noun} of an example is {least} or more, not {value}")
        if self.most == 0:
            raise DatasetError(
                f"{self.name} has no rows of its own: run takes them from {self.name}(data=FILE)"
            )
        if self.most is not None and split != "test":
            raise DatasetError(f"{self.name} has a test split only, not '{split}'")
        if self.most is not None and index >= self.most:
            raise DatasetError(
                f"{self.name} has {self.most:,} contexts, and index {index} is none of them"
            )

    def generate(
        self, seed: int, count: int, split: Split = "test", held_out: bool = False
    ) -> Iterator[Example]:
        """Yields the first ``count`` examples of a seed. Raises :class:`DatasetError` for fewer
        than one."""
        if count < 1:
            raise DatasetError(f"the number of contexts is 1 or more, not {count}")
        return (self.example(seed, index, split, held_out=held_out) for index in range(count))


def _join_variant(name: str, task: Task) -> str:
    """Puts the name of a change before the variant that a task has already."""
    return f"{name}+{task.variant}" if task.variant else name


def with_questions(task: Task, count: int) -> Task:
    """Returns the task with the first ``count`` questions of each context. Raises
    :class:`DatasetError` for none, and for more than the task has.

    Contexts and questions are those of the whole task."""
    all_questions = task.questions_per_context
    if not 1 <= count <= all_questions:
        raise DatasetError(
            f"{task.name} asks 1 to {all_questions} questions of a context, not {count}"
        )
    if count == all_questions:
        return task
    name = f"questions.{count}"
    return replace(
        task,
        make=partial(_make_first, task.make, count, all_questions),
        questions_per_context=count,
        variant=_join_variant(name, task),
    )


def _make_first(
    make: Callable[[random.Random, Request], Draft],
    count: int,
    all_questions: int,
    rng: random.Random,
    request: Request,
) -> Draft:
    draft = make(rng, replace(request, questions=all_questions))
    return replace(draft, questions=draft.questions[: min(count, request.questions)])


def at_level(task: Task, level: int) -> Task:
    """Returns the task at one of its levels of difficulty, whatever level is asked of it; raises
    :class:`DatasetError` for a level that it has not.

    Contexts of a seed have the same ids at all levels: the version tells them apart, which names
    the level."""
    if not 0 <= level <= task.top_level:
        raise DatasetError(
            f"{task.name} has no level {level}: its levels are 0 to {task.top_level}"
        )
    name = f"level.{level}"
    return replace(
        task,
        description=f"{task.description}; level {level} of {task.top_level}",
        make=partial(_make_at_level, task.make, level),
        level=f"{level} of {task.top_level}" if level < task.top_level else "",
        chances=(task.chances[level],),
        variant=_join_variant(name, task),
        with_length=task.with_length and partial(_lengthen_at_level, task.with_length, level),
    )


def _make_at_level(
    make: Callable[[random.Random, Request], Draft],
    level: int,
    rng: random.Random,
    request: Request,
) -> Draft:
    return make(rng, replace(request, level=level))


def _lengthen_at_level(with_length: Callable[[Length], Task], level: int, length: Length) -> Task:
    return at_level(with_length(length), level)
