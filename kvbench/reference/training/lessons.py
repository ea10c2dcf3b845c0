"""Chooses what is learned when: which task comes next, and how hard it is by then."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from datasets_gen import TASKS
from datasets_gen.tasks.long_context import LONG_CONTEXT
from kvbench.prompts.mode import Mode

# How often a task comes where all are as far from being mastered. Chains, long answers and many kinds of question take
# the longest to learn.
SHARES: Mapping[str, int] = {
    "base": 2,
    "knowledge": 3,
    "multi_presence": 4,
    "multi_entity": 2,
    "coreference": 3,
    "hops": 5,
    "long_context": 2,
    "arithmetic": 3,
    "instructions": 5,
}
EASIER_SHARE = 0.5  # of the batches come from a lower level than the one reached, so that nothing is forgotten
# The batches that say the task's instruction where each mode has it; it is as long as a question and teaches little.
INSTRUCTED_SHARES: Mapping[Mode, float] = {"agnostic": 0.2, "aware": 0.1}
PROSE_SHARE = 0.25  # of the batches have contexts set in prose, from the level on at which phrasings vary
PROSE_LEVEL = 3
PROSE_WORDS = (40, 1200)  # fewest and most; each factor of length is as likely as any other
RUNNING_SHARE = 0.15  # of the batches also predict the context itself
MASTERED = 0.1  # a level is left when the running answer loss falls below it
LEAST_NEED, MOST_NEED = 0.3, 6.0
PATIENCE = 60  # batches without a noticeable fall of that loss, after which a level is left all the same
SETTLED = 20  # batches that a level lasts at least
# Practised most, one after the other and up to this level, before all are practised alike: with nine lessons alike the
# Llama architecture guessed between two people for 1,300 steps, and chains of two facts stayed a guess. What is not
# practised at all is forgotten: 300 steps of `multi_presence` alone took two-fact chains from mastered to none.
FIRST: Mapping[str, int] = {
    "base": 2,
    "hops": 4,
    "arithmetic": 4,
    "multi_presence": 4,
    "coreference": 4,
    "knowledge": 4,
}
FIRST_SHARE = 0.5  # of the batches, of the task that is practised most; all, while no other has been begun
FIRST_BATCHES = 1000  # of a level, at most
FIRST_PATIENCE = 120  # batches without a noticeable fall, of the task that is practised most
# Of the shares of reads that are hidden. A chain is not learned where a link is missing, so that the task that is
# practised most, and half of the batches of the others, have little hidden.
LITTLE_HIDDEN = 0.25
LITTLE_HIDDEN_SHARE = 0.5
MOST_EXAMPLES = 1000  # of a batch; each takes its own


@dataclass
class Lesson:
    """Says where one task stands. ``batches``: at the present level; ``lowest``: the running
    answer loss there when it last fell noticeably, ``stalled`` batches ago."""

    level: int = 0
    batches: int = 0
    answer_loss: float = 10.0
    lowest: float = 10.0
    stalled: int = 0

    def learn(self, answer_loss: float) -> None:
        """Takes note of the loss of one more batch of the present level."""
        self.batches += 1
        self.answer_loss = answer_loss if self.batches == 1 else 0.9 * self.answer_loss + 0.1 * answer_loss
        falls = self.answer_loss < 0.95 * self.lowest
        self.lowest, self.stalled = (self.answer_loss, 0) if falls else (self.lowest, self.stalled + 1)

    def need(self) -> float:
        """Returns how much the task is to be practised: the farther from being mastered, the more, within bounds."""
        return min(MOST_NEED, max(LEAST_NEED, self.answer_loss / MASTERED))

    def is_over(self, patience: int) -> bool:
        mastered = self.batches >= SETTLED and self.answer_loss < MASTERED
        return mastered or self.stalled >= patience or self.batches >= FIRST_BATCHES

    def rise(self) -> None:
        self.level, self.batches, self.lowest, self.stalled = self.level + 1, 0, 10.0, 0


@dataclass(frozen=True)
class Assignment:
    """A batch to learn from next. ``mode``: the one in whose order the instruction is said, if it is. ``words``: of
    prose that the contexts are set in. ``running``: whether the text of the contexts is predicted too. ``hidden``: what
    part of the shares of hidden reads it has."""

    task: str
    level: int
    first: int
    mode: Mode | None
    words: int = 0
    running: bool = False
    hidden: float = 1.0


def _draw_words(rng: random.Random) -> int:
    fewest, most = PROSE_WORDS
    return int(fewest * (most / fewest) ** rng.random()) if rng.random() < PROSE_SHARE else 0


@dataclass
class Curriculum:
    """All lessons. The same seed gives the same assignments, also after a kill."""

    lessons: dict[str, Lesson] = field(default_factory=lambda: {name: Lesson() for name in TASKS})

    @classmethod
    def at_the_top(cls) -> "Curriculum":
        """Starts all lessons at their last level, for a model that knows the tasks."""
        return cls({name: Lesson(level=task.top_level) for name, task in TASKS.items()})

    def go_back(self, task: str, level: int) -> None:
        """Has a task practised again from a lower level on; most of all, where that is one of :data:`FIRST`."""
        self.lessons[task] = Lesson(level=level)

    def first(self) -> str | None:
        """Returns the task that is practised most at present."""
        return next((name for name, level in FIRST.items() if self.lessons[name].level <= level), None)

    def assign(self, seed: int, number: int) -> Assignment:
        """Chooses what batch ``number`` of a training is made of."""
        rng = random.Random(f"lesson/{seed}/{number}")
        first = self.first()
        begun = [name for name in TASKS if not first or self.lessons[name].level > 0]
        needs = [SHARES[name] * self.lessons[name].need() for name in begun]
        name = first if first and (rng.random() < FIRST_SHARE or not begun) else rng.choices(begun, needs)[0]
        lesson = self.lessons[name]
        level = lesson.level if name == first or rng.random() >= EASIER_SHARE else rng.randint(0, lesson.level)
        hidden = LITTLE_HIDDEN if name == first or rng.random() < LITTLE_HIDDEN_SHARE else 1.0
        modes: list[Mode | None] = [*INSTRUCTED_SHARES, None]
        shares = [*INSTRUCTED_SHARES.values(), 1 - sum(INSTRUCTED_SHARES.values())]
        mode = rng.choices(modes, shares)[0] if level > 0 else None
        words = _draw_words(rng) if level >= PROSE_LEVEL and name != LONG_CONTEXT.name else 0
        running = level > 0 and rng.random() < RUNNING_SHARE
        return Assignment(name, level, number * MOST_EXAMPLES, mode, words, running, hidden)

    def note(self, done: Assignment, answer_loss: float) -> None:
        """Takes note of the loss of an assignment. Nothing here depends on how long the whole training will be."""
        lesson, top = self.lessons[done.task], TASKS[done.task].top_level
        if done.level < lesson.level:
            return
        lesson.learn(answer_loss)
        if lesson.level == top:
            return
        # What is practised most is stayed with until it is mastered: all others build on it.
        if lesson.is_over(FIRST_PATIENCE if done.task == self.first() else PATIENCE):
            lesson.rise()
