"""Finds what a model is fit for: which tasks it masters with the full cache, at which level, and
where it reads."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd
from scipy.stats import binomtest

from datasets_gen import Question, Task, at_level
from kvbench.checks.findings import Begin, Finding, Outcome, silent
from kvbench.engine.decode.loop import OverflowingModelError, fault_of_model
from kvbench.execution.local import Workers, model_of
from kvbench.experiments.build_grid import leave_out_tasks
from kvbench.experiments.catalogue import find_policy, unfit_for
from kvbench.experiments.collect import collect
from kvbench.experiments.grid import Grid, Setting
from kvbench.models.load import LoadedModel, find_decoder, longest_sequence, rotation_switch
from kvbench.models.pretrained import cache_shape
from kvbench.prompts.mode import Mode
from kvbench.prompts.prompt import WITHOUT_TEMPLATE, chat_template
from kvbench.store.run_file import Job
from kvbench.store.tables import CONTEXTS
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from leaderboards.aggregate.leading_measures import ABOVE_CHANCE, DIRECTIVES, find_lead
from leaderboards.aggregate.row import SummaryRow
from leaderboards.aggregate.summary import PlannedCells, summarise
from leaderboards.terminal.result_table import Column, ResultTable
from policies import FULL, POLICIES, Policy, attention_window

MODE: Mode = "agnostic"
TEXTS = {"context", "token_ends"}  # columns of a context that say nothing of an answer
LEVEL_CONTEXTS = 8  # at each level, at most
SEED = 7919  # of the contexts by which a level is chosen, apart from those that are measured then
# Percent: what is asked at a level that is just mastered falls to the floor at the smallest loss.
LEAST = 60.0
STEP = 4  # contexts that are asked at once, at most
NO_DOUBT = 12  # questions after which a level may be decided


def answers_of(
    model: LoadedModel,
    task: Task,
    policies: Sequence[Policy],
    contexts: int,
    seed: int,
    chosen: Callable[[Question], bool] = lambda question: True,
    begin: Begin = silent,
    first: int = 0,
    held_out: bool = False,
) -> pd.DataFrame:
    """Returns a row for each answer with its context and question. Raises
    :class:`OverflowingModelError`."""
    workers, fault = Workers(model, contexts), fault_of_model(model)
    setting = Setting(policies, (), seed, MODE).shared_by(workers.count, model.device)

    def answers(replica: LoadedModel, index: int) -> list[dict[str, object]]:
        example = task.example(seed, index, held_out=held_out)
        example = replace(example, questions=tuple(filter(chosen, example.questions)))
        if not example.questions:
            return []
        collected = collect(replica, task, [example], setting)
        if any(record.reason == fault for record in collected.records):
            raise OverflowingModelError(fault)
        questions = {
            question.question_id: question.model_dump() for question in collected.questions
        }
        (context,) = (row.model_dump(exclude=TEXTS) for row in collected.tables[CONTEXTS.name])
        return [
            context | questions[record.question_id] | record.model_dump()
            for record in collected.records
        ]

    rows: list[dict[str, object]] = []
    with workers.map(answers, range(first, first + contexts)) as results:
        for _ in range(contexts):
            begin(task.name)
            rows += next(results)
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Mastery:
    """Says whether a model can do a task with the full cache, and at which level."""

    task: str
    level: int  # the highest that it masters, or the lowest
    top_level: int
    measure: str
    reached: float | None  # in percent
    chance: float | None  # what a guess reaches, or silence where directives are obeyed, in percent
    questions: int
    reason: str | None  # why not; None if it can

    @property
    def needed(self) -> float:
        """Returns what has to be reached, in percent."""
        return max(LEAST, (self.chance or 0.0) + ABOVE_CHANCE)

    @property
    def at_top(self) -> bool:
        return self.reason is None and self.level == self.top_level

    @property
    def place(self) -> str:
        """Writes the level beside the highest one; nothing for a task without levels."""
        return f"{self.level} of {self.top_level}" if self.top_level else ""

    @property
    def is_without_doubt(self) -> bool:
        """Tells whether an exact 95 % interval lies on one side of what is needed."""
        if self.questions < NO_DOUBT or self.reached is None:
            return False
        interval = binomtest(
            round(self.reached / 100 * self.questions), self.questions
        ).proportion_ci(0.95)
        return not 100 * interval.low < self.needed <= 100 * interval.high


def enough(task: Task, contexts: int) -> int:
    """Returns how many contexts are asked: more than are given where a context has one question."""
    wanted = max(contexts, math.ceil(NO_DOUBT / task.questions_per_context))
    return wanted if task.most is None else min(wanted, task.most)


def highest_mastered(
    model: LoadedModel, task: Task, contexts: int, seed: int = 0, begin: Begin = silent
) -> Mastery:
    """Asks a task at its highest level, and at lower ones until one is mastered; returns what was
    found at the last. The lowest comes second: what is beyond a model there is beyond it at all
    levels between."""
    mastery = mastery_at(model, task, task.top_level, contexts, seed, begin)
    if not mastery.reason or not task.top_level:
        return mastery
    easiest = mastery_at(model, task, 0, contexts, seed, begin)
    if easiest.reason:
        return easiest
    for level in range(task.top_level - 1, 0, -1):
        mastery = mastery_at(model, task, level, contexts, seed, begin)
        if not mastery.reason:
            return mastery
    return easiest


def mastery_at(
    model: LoadedModel, task: Task, level: int, contexts: int, seed: int = 0, begin: Begin = silent
) -> Mastery:
    """Asks a task at a level with the full cache until there is no doubt; what cannot be asked is
    not mastered."""
    at = at_level(task, level) if task.top_level else task
    mastery = Mastery(task.name, level, task.top_level, "", None, at.chance, 0, None)
    rows: list[pd.DataFrame] = []
    contexts = enough(task, contexts)
    step = min(STEP, math.ceil(NO_DOUBT / task.questions_per_context))
    for first in range(0, contexts, step):
        count = min(step, contexts - first)
        try:
            rows.append(
                answers_of(
                    model, at, [POLICIES[FULL]], count, seed + SEED, begin=begin, first=first
                )
            )
        except OverflowingModelError:
            raise
        except KVBenchError as error:
            return replace(mastery, reason=f"it cannot be asked: {error}")
        mastery = _judged(mastery, at.chance, pd.concat(rows, ignore_index=True))
        if mastery.is_without_doubt:
            break
    return mastery


def _judged(mastery: Mastery, chance: float, answers: pd.DataFrame) -> Mastery:
    planned = PlannedCells(MODE, {}, {}, {mastery.task: chance} if chance > 0 else {})
    row: SummaryRow = summarise(answers, planned)[0]
    lead = find_lead(row)
    measure = lead.measures[0]
    value, guessed = measure.value(row), row.obeyed_by_silence if lead is DIRECTIVES else row.chance
    reached = None if value is None else value * measure.factor
    mastery = replace(
        mastery, measure=measure.title, reached=reached, chance=guessed, questions=row.n
    )
    reason = None if reached is not None else row.reason or "nothing is judged"
    if reached is not None and reached < mastery.needed:
        reason = (
            f"{measure.title.lower()} {reached:.0f} with the full cache, below {mastery.needed:.0f}"
        )
    return replace(mastery, reason=reason)


def with_levels_found(job: Job, grid: Grid) -> tuple[Job, LoadedModel]:
    """Returns a job at the highest levels that its model masters, and the model, which is loaded
    for that; :class:`KVBenchError` for a task without such a level."""
    # Of the others nothing is to be chosen.
    with_levels = [task.name for task, _ in grid.tasks if task.top_level]
    if not with_levels:
        raise KVBenchError("--difficulty auto: none of these tasks has levels: leave it out")
    names = ", ".join(with_levels)
    model = model_of(
        job,
        f", to find the levels of {names} that it masters, the highest first, by up to "
        f"{LEVEL_CONTEXTS} contexts each: it may take as long as the run; doctor tells them once",
    )
    masteries: list[Mastery] = []
    for task, _ in leave_out_tasks(grid, model.tokenizer, job).tasks:
        if not task.top_level:
            continue
        one = highest_mastered(model, task, LEVEL_CONTEXTS, job.seed)
        masteries.append(one)
        reached = "" if one.reached is None else f", {one.measure.lower()} {one.reached:.0f}"
        mastered = f"not mastered ({one.reason})" if one.reason else f"level {one.place}{reached}"
        console.print(f"{task.name}: {mastered}", soft_wrap=True)
    if beyond := [mastery.task for mastery in masteries if mastery.reason]:
        raise KVBenchError(
            f"--difficulty auto: {job.model} masters {', '.join(beyond)} at no level: leave them "
            f"out of --tasks, or give --difficulty 0 to see what it answers"
        )
    levels = ",".join(f"{mastery.task}={mastery.level}" for mastery in masteries)
    return job.model_copy(update={"difficulty": levels}), model


def command_of(model: str, masteries: Sequence[Mastery]) -> str:
    """Writes the command that runs what is mastered at its levels."""
    mastered = [mastery for mastery in masteries if not mastery.reason]
    names = ",".join(mastery.task for mastery in mastered)
    levels = ",".join(
        f"{mastery.task}={mastery.level}"
        for mastery in mastered
        if mastery.level < mastery.top_level
    )
    difficulty = f" --difficulty {levels}" if levels else ""
    return f"python -m kvbench run --model {model} --tasks {names}{difficulty}"


def _percent_text(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _percent(name: str, title: str | None = None) -> Column:
    return Column(name, title, _percent_text, right=True)


def mastery_table(masteries: Sequence[Mastery]) -> ResultTable:
    mastered = Column("mastered", text=lambda is_mastered: "yes" if is_mastered else "no")
    measured = (Column("measure", "by", cut=True), _percent("reached"), _percent("chance"))
    more = (Column("questions", right=True), Column("reason", shown=False))
    columns = (Column("task"), mastered, Column("level"), *measured, *more)
    rows = [
        (m.task, m.reason is None, m.place, m.measure, m.reached, m.chance, m.questions, m.reason)
        for m in masteries
    ]
    return ResultTable("mastery", columns, rows, "With the full cache, percent")


SLOT_SHARE = 0.3  # of all (layer, head, token) slots, destroyed at random
# A task, and of how many facts the questions are that count; None: all.
PARTS = (("base", None), ("hops", 2))
# What a model that reads by many routes loses, in points of exact match.
MOST_BY_A_LAYER = 25.0  # with any single layer
MOST_BY_SLOTS = 5.0  # with a share of all slots
LEAST_BY_UPPER_HALF = 10.0  # with the upper half of its layers


@dataclass(frozen=True)
class ReadProfile:
    """Exact match in percent: undisturbed, with the context's rows destroyed in each layer alone,
    in the upper half of the layers, and in a share of all slots. The properties say what these
    cost, in points."""

    part: str
    undisturbed: float
    without_layer: tuple[float, ...]
    without_upper_half: float
    without_slots: float

    @property
    def worst_layer(self) -> float:
        return self.undisturbed - min(self.without_layer)

    @property
    def upper_half(self) -> float:
        return self.undisturbed - self.without_upper_half

    @property
    def slots(self) -> float:
        return self.undisturbed - self.without_slots

    @property
    def limit(self) -> str:
        """Says what a board cannot show because of where these answers are read; nothing if it can
        show all."""
        before = f"{self.undisturbed:.0f} to"
        costly = [
            n
            for n, right in enumerate(self.without_layer)
            if self.undisturbed - right > MOST_BY_A_LAYER
        ]
        if costly:
            layers = (
                f"layers {', '.join(map(str, costly))}, each needed"
                if costly[1:]
                else f"layer {costly[0]} alone"
            )
            lost = f"{before} {min(self.without_layer):.0f} without the most needed"
            return f"reads {self.part} in {layers} ({lost}): head and layer budgets and GER say nothing on this model"
        if self.slots > MOST_BY_SLOTS:
            lost = f"{before} {self.without_slots:.0f} without {SLOT_SHARE:.0%} of all slots"
            return f"has no second way to {self.part} ({lost}): others may read elsewhere what is lost here"
        if self.upper_half < LEAST_BY_UPPER_HALF:
            lost = f"the upper costs {self.upper_half:.0f} points"
            return f"reads {self.part} in the lower half of its layers ({lost}): what a press does above cannot show"
        return ""


def reads_of(
    model: LoadedModel,
    task: Task,
    hops: int | None,
    contexts: int,
    seed: int,
    begin: Begin = silent,
) -> ReadProfile:
    """Measures where a model reads, on contexts of a task's test split."""
    layers = range(model.network.config.get_text_config().num_hidden_layers)
    destroyed = [
        *(f"layers={layer},rate=1" for layer in layers),
        "layers=H2,rate=1",
        f"unit=row,rate={SLOT_SHARE}",
    ]
    policies = [POLICIES[FULL], *(find_policy(f"gaussian_matched({where})") for where in destroyed)]

    def is_asked(question: Question) -> bool:
        return hops in (None, question.hops)

    rows = answers_of(model, task, policies, contexts, seed, is_asked, begin=begin)
    right = rows["em"].astype(float).groupby(rows["policy"]).mean()
    before, *without, upper_half, slots = (float(right[policy.name]) for policy in policies)
    part = task.name if hops is None else f"{task.name}, {hops} facts"
    return ReadProfile(part, before, tuple(without), upper_half, slots)


@dataclass
class Examination:
    """Examines one model. What was measured is held beside the findings."""

    model: LoadedModel
    contexts: int  # of each task
    tasks: Sequence[Task]  # as they are asked of the model
    seed: int = 0
    masteries: list[Mastery] = field(default_factory=list)
    profiles: list[ReadProfile] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Counts the contexts that are asked about, at most."""
        parts = {name for name, _ in PARTS} & {task.name for task in self.tasks}
        contexts_of_tasks = sum(
            (task.top_level + 1) * enough(task, self.contexts) for task in self.tasks
        )
        return contexts_of_tasks + len(parts) * self.contexts

    def findings(self, begin: Begin) -> Iterator[Finding]:
        """Yields all findings in turn, and measures what they rest on."""
        yield Finding("loaded as", "ok", f"{self.model.dtype_name} on {self.model.device}")
        yield Finding("chat template", *self.chat_template())
        if (switch := rotation_switch(self.model)) is not None:
            text = f"longrope: beyond {switch:,} tokens keys turn by other angles, and contexts that cross are refused"
            yield Finding("positions", "note", text)
        yield Finding("slots", *self.slots())
        for task in self.tasks:
            self.masteries.append(
                highest_mastered(self.model, task, self.contexts, self.seed, begin)
            )
        beyond, lower = list[str](), list[str]()
        for mastery in self.masteries:
            if mastery.reason:
                beyond.append(mastery.task)
            elif not mastery.at_top:
                lower.append(f"{mastery.task} at level {mastery.place}")
        count = len(self.masteries)
        masters = ", ".join([f"{count - len(beyond)} of {count} tasks with the full cache", *lower])
        masters += f": a board leaves {', '.join(beyond)} out of its means" if beyond else ""
        outcome: Outcome = "note" if beyond else "ok"
        if not self.is_fit:
            outcome = "wrong"
        yield Finding("masters", outcome, masters)
        at_top = {mastery.task for mastery in self.masteries if mastery.at_top}
        by_name = {task.name: task for task in self.tasks}
        for name, hops in PARTS:
            if name in at_top:
                profile = reads_of(self.model, by_name[name], hops, self.contexts, self.seed, begin)
                self.profiles.append(profile)
                if profile.limit:
                    yield Finding("reads", "note", profile.limit)
                else:
                    yield Finding("reads", "ok", f"{profile.part} everywhere")
            elif name in by_name:
                yield Finding(
                    "reads", "note", f"{name} is not mastered at its highest level: not measured"
                )

    def chat_template(self) -> tuple[Outcome, str]:
        tokenizer = self.model.tokenizer
        if tokenizer.chat_template is None:
            return "note", f"none: {WITHOUT_TEMPLATE}"
        try:
            chat_template(tokenizer)
        except KVBenchError as error:
            return "wrong", f"{error}: no task can be asked"
        try:
            chat_template(tokenizer, "system")
        except KVBenchError as error:
            return "note", f"it has no turn of a system ({error}): instructions cannot be asked"
        return "ok", "there is one, and every task can be asked"

    def slots(self) -> tuple[Outcome, str]:
        """Tells how many slots presses compress, and what sliding layers mean for them."""
        shape = cache_shape(self.model.network.config.get_text_config(), self.model.dtype_name)
        windows = [
            attention_window(layer.self_attn) for layer in find_decoder(self.model.network).layers
        ]
        layers, sliding = len(windows), sum(window is not None for window in windows)
        text = f"{layers} layers with {shape.kv_heads} key heads each: {shape.slots} (layer, head) slots are compressed"
        if not sliding:
            return "ok", f"{text}; no sliding layers"
        if not shape.windows:
            limit = f"sequences end at {longest_sequence(self.model):,} tokens"
            return "note", f"{text}; {sliding} sliding layers, so that {limit}"
        return "note", (
            f"{text}, in {layers - len(shape.windows)} of them; {sliding} slide over "
            f"{max(shape.windows):,} tokens and are left whole; cannot run here: "
            f"{', '.join(unfit_for(list(POLICIES.values()), shape))}"
        )

    @property
    def is_fit(self) -> bool:
        """Tells whether it masters a task; where it masters none, a board shows nothing."""
        return not all(mastery.reason for mastery in self.masteries)

    @property
    def is_doubtful(self) -> bool:
        return any(profile.limit for profile in self.profiles) or not self.profiles

    @property
    def verdict(self) -> str:
        """Says in a sentence what a board on the model can show."""
        mastered = [mastery.task for mastery in self.masteries if not mastery.reason]
        if not mastered:
            return f"not fit: with the full cache it masters none of {len(self.masteries)} tasks"
        if not self.profiles:
            return f"masters {', '.join(mastered)}; where it reads is not measured"
        worst_first = sorted(self.profiles, key=lambda profile: -profile.worst_layer)
        limit = next((profile.limit for profile in worst_first if profile.limit), "")
        return (
            limit
            or f"reads by many routes and masters {len(mastered)} of {len(self.masteries)} tasks"
        )


def reads_table(profiles: Sequence[ReadProfile]) -> ResultTable:
    """Returns a line for each part, with the right answers without each layer in turn."""
    layers = Column(
        "layers",
        "each layer",
        lambda layers: " ".join(map(_percent_text, layers)),
        of_sentences=True,
    )
    halves = (_percent("upper_half", "upper half"), _percent("slots", f"{SLOT_SHARE:.0%} of slots"))
    columns = (Column("part", "questions"), _percent("undisturbed"), layers, *halves)
    rows = [
        (
            profile.part,
            profile.undisturbed,
            profile.without_layer,
            profile.without_upper_half,
            profile.without_slots,
        )
        for profile in profiles
    ]
    return ResultTable(
        "reads", columns, rows, "Right answers in percent where the context's rows are destroyed in"
    )
