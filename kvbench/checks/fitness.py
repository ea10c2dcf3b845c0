"""Checks whether a model is fit for the benchmark, and what a board on it can show."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import pandas as pd

from datasets_gen import Question, Task
from kvbench.checks.findings import Begin, Finding, Outcome, silent
from kvbench.checks.mastery import Mastery, answers_of, enough, highest_mastered, percent_text
from kvbench.experiments.catalogue import find_policy, unfit_for
from kvbench.models.load import LoadedModel, decoder_of, longest_sequence, rotation_switch
from kvbench.models.pretrained import cache_shape
from kvbench.prompts.prompt import WITHOUT_TEMPLATE, chat_template
from kvbench.system.errors import KVBenchError
from leaderboards.statistics.bootstrap import percentile_interval, resampled_means
from leaderboards.terminal.result_table import Column, ResultTable
from policies import FULL, POLICIES, Policy, attention_window

SLOT_SHARE = 0.3  # of all (layer, head, token) slots, destroyed at random
PARTS = (("base", None), ("hops", 2))  # a task, and of how many facts the questions are that count; None: all
NOTHING, UPPER_HALF, SLOTS = "nothing", "the upper half", f"{SLOT_SHARE:.0%} of all slots"
BLOCKS = "▁▂▃▄▅▆▇█"


def part_name(task: str, hops: int | None) -> str:
    return task if hops is None else f"{task}, {hops} facts"


@dataclass(frozen=True)
class ReadProfile:
    """Exact match in percent: undisturbed, with the context's rows destroyed in each layer alone, in the upper half of
    the layers, and in a share of all slots."""

    part: str
    undisturbed: float
    without_layer: tuple[float, ...]
    without_upper_half: float
    without_slots: float

    @property
    def most_needed_layer(self) -> int:
        return self.without_layer.index(min(self.without_layer))

    @property
    def worst_layer(self) -> float:
        """Returns what that layer costs, in points."""
        return self.undisturbed - min(self.without_layer)

    @property
    def upper_half(self) -> float:
        """Returns what the upper half of the layers costs, in points."""
        return self.undisturbed - self.without_upper_half

    @property
    def slots(self) -> float:
        """Returns what the share of all slots costs, in points."""
        return self.undisturbed - self.without_slots

    @property
    def bars(self) -> str:
        """Draws what is still right without each layer, from 0 to 100 percent."""
        return "".join(BLOCKS[min(len(BLOCKS) - 1, int(one / 100 * len(BLOCKS)))] for one in self.without_layer)

    @property
    def lines(self) -> list[str]:
        """Writes the profile as lines to be printed."""
        layers = " ".join(f"{percent:.0f}" for percent in self.without_layer)
        return [
            f"{self.part}: {self.undisturbed:.0f} right; rows destroyed in each layer alone: {layers}",
            f"  costs: layer {self.most_needed_layer} {self.worst_layer:.0f}, {UPPER_HALF} {self.upper_half:.0f}, "
            f"{SLOTS} {self.slots:.0f}",
        ]


@dataclass(frozen=True)
class Loss:
    """The score that a model loses when rows of the cache are destroyed in one place."""

    destroyed: str  # the place
    right: float  # exact match in percent
    cost: float  # in points of it
    low: float | None  # the ends of the interval of the cost, over contexts; None for a single context
    high: float | None


@dataclass(frozen=True)
class Reads:
    """The answers that a read profile is made of."""

    part: str
    answers: pd.DataFrame  # one row for each question; a column for each place that is destroyed, by name: 0 or 100
    contexts: Sequence[str]  # the context of each question

    @cached_property
    def losses(self) -> dict[str, Loss]:
        """Returns the losses by place. Questions of a context stand together in a resample."""
        return {place: self._loss(place) for place in self.answers.columns}

    @property
    def count(self) -> int:
        """Counts the contexts."""
        return len(set(self.contexts))

    def _loss(self, place: str) -> Loss:
        costs = (self.answers[NOTHING] - self.answers[place]).to_numpy(dtype=float)
        means = resampled_means(costs, list(self.contexts), seed=0) if self.count > 1 else None
        low, high = (None, None) if means is None else percentile_interval(means)
        return Loss(place, float(self.answers[place].mean()), float(costs.mean()), low, high)

    @property
    def profile(self) -> ReadProfile:
        right = {place: loss.right for place, loss in self.losses.items()}
        layers = tuple(right[place] for place in right if place not in (NOTHING, UPPER_HALF, SLOTS))
        return ReadProfile(self.part, right[NOTHING], layers, right[UPPER_HALF], right[SLOTS])


def layer_name(number: int) -> str:
    return f"layer {number}"


def destroyers(layers: int) -> Mapping[str, Policy]:
    """Returns the treatments of a profile by the place that each destroys, in the order of a profile."""
    names = {NOTHING: FULL}
    names |= {layer_name(number): f"gaussian_matched(layers={number},rate=1)" for number in range(layers)}
    names |= {UPPER_HALF: "gaussian_matched(layers=H2,rate=1)", SLOTS: f"gaussian_matched(unit=row,rate={SLOT_SHARE})"}
    return {place: find_policy(name) for place, name in names.items()}


def counts(question: Question, hops: int | None) -> bool:
    """Tells whether a question belongs to a part."""
    return hops is None or question.hops == hops


def reads_of(
    model: LoadedModel, task: Task, hops: int | None, contexts: int, seed: int, begin: Begin = silent
) -> Reads:
    """Measures where a model reads, on contexts of a task's test split."""
    places = destroyers(model.network.config.get_text_config().num_hidden_layers)
    of_policy = {policy.name: place for place, policy in places.items()}
    rows = answers_of(model, task, list(places.values()), contexts, seed, partial(counts, hops=hops), begin=begin)
    right = rows.assign(place=rows["policy"].map(of_policy), right=rows["em"].astype(float))
    table = right.pivot(index=["example_id", "question_id"], columns="place", values="right")[list(places)]
    return Reads(part_name(task.name, hops), table, list(table.index.get_level_values("example_id")))


# What a model that reads by many routes loses, in points of exact match.
MOST_BY_A_LAYER = 25.0  # with any single layer
MOST_BY_SLOTS = 5.0  # with a share of all slots
LEAST_BY_UPPER_HALF = 10.0  # with the upper half of its layers


@dataclass
class Examination:
    """Examines one model. What was measured is held beside the findings."""

    model: LoadedModel
    contexts: int  # of each task
    tasks: Sequence[Task]  # as they are asked of the model
    seed: int = 0
    masteries: list[Mastery] = field(default_factory=list)
    reads: list[Reads] = field(default_factory=list)

    @property
    def steps(self) -> int:
        """Counts the contexts that are asked about, at most."""
        asked = sum((task.top_level + 1) * enough(task, self.contexts) for task in self.tasks)
        return asked + self.contexts * len(self._parts)

    @property
    def _parts(self) -> list[tuple[Task, int | None]]:
        """Lists the parts of a read profile that are among the tasks."""
        by_name = {task.name: task for task in self.tasks}
        return [(by_name[name], hops) for name, hops in PARTS if name in by_name]

    @property
    def layers(self) -> int:
        return int(self.model.network.config.get_text_config().num_hidden_layers)

    def findings(self, begin: Begin) -> Iterator[Finding]:
        """Yields all findings in turn, and measures what they rest on."""
        yield Finding("loaded as", *self.loaded_as())
        yield Finding("chat template", *self.chat_template())
        if (switch := rotation_switch(self.model)) is not None:
            text = (
                f"longrope: beyond {switch:,} tokens it turns keys by other angles, and contexts that cross are refused"
            )
            yield Finding("positions", "note", text)
        yield Finding("slots", *self.slots())
        for task in self.tasks:
            self.masteries.append(highest_mastered(self.model, task, self.contexts, self.seed, begin))
        yield Finding("masters", *self._masters())
        mastered = {one.task for one in self.masteries if one.at_top}
        for task, hops in self._parts:
            if task.name not in mastered:
                text = f"not measured: it does not master {task.name} at its highest level"
                yield Finding(f"reads {part_name(task.name, hops)}", "note", text)
                continue
            reads = reads_of(self.model, task, hops, self.contexts, self.seed, begin)
            self.reads.append(reads)
            yield from _of_reads(reads)

    def loaded_as(self) -> tuple[Outcome, str]:
        text = f"{self.model.dtype_name} on {self.model.device}"
        if self.model.dtype_name == "float32":
            return "ok", f"{text}: differences between policies are not of rounding"
        return "ok", f"{text}: a near tie between two tokens may fall otherwise on another machine"

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
        return "ok", "there is one, and the turns of system and user stand apart: every task can be asked"

    def slots(self) -> tuple[Outcome, str]:
        """Tells how many slots presses compress, and what sliding layers mean for them."""
        config, network = self.model.network.config.get_text_config(), self.model.network
        shape = cache_shape(config, self.model.dtype_name)
        attentions = [layer.self_attn for layer in decoder_of(network).layers]
        sliding = sum(attention_window(attention) is not None for attention in attentions)
        compressed = f"{shape.slots} (layer, head) slots, and a token counts as gone (GER) when all have lost it"
        text = f"{self.layers} layers with {shape.kv_heads} key heads each"
        if not sliding:
            return "ok", f"{text}: {compressed}; no sliding layers"
        if not shape.windows:
            limit = f"sequences end at {longest_sequence(self.model):,} tokens"
            return "note", f"{text}: {compressed}; {sliding} sliding layers, so that {limit}"
        others = self.layers - len(shape.windows)
        return "note", (
            f"{text}, {sliding} of them sliding over {max(shape.windows):,} tokens, which presses leave whole; the "
            f"other {others} have {compressed}; ratios, budgets and GER are of these, bytes of all; cannot run here: "
            f"{', '.join(unfit_for(list(POLICIES.values()), shape))}"
        )

    def _masters(self) -> tuple[Outcome, str]:
        lacking = [one.task for one in self.masteries if one.reason]
        lower = [f"{one.task} at level {one.place}" for one in self.masteries if not (one.reason or one.at_top)]
        text = f"{len(self.masteries) - len(lacking)} of {len(self.masteries)} tasks with the full cache"
        if lower:
            text += f", {', '.join(lower)}"
        if not lacking:
            return "ok", f"{text}: all of them enter a board's means"
        outcome: Outcome = "wrong" if len(lacking) == len(self.masteries) else "note"
        return outcome, f"{text}: a board marks {', '.join(lacking)} and leaves them out of its means"

    @property
    def is_fit(self) -> bool:
        """Tells whether it masters a task; where it masters none, a board shows nothing."""
        return not all(one.reason for one in self.masteries)

    @property
    def is_doubtful(self) -> bool:
        return not self.reads or any(map(_contradiction, self.reads))

    @property
    def verdict(self) -> str:
        """Says in a sentence what a board on the model can show."""
        mastered = [one.task for one in self.masteries if not one.reason]
        if not mastered:
            return f"not fit: with the full cache it masters none of {len(self.masteries)} tasks"
        if not self.reads:
            return f"masters {', '.join(mastered)}; where it reads is not measured"
        worst_first = sorted(self.reads, key=lambda reads: -reads.profile.worst_layer)
        if reasons := [text for reads in worst_first if (text := _contradiction(reads))]:
            return reasons[0]
        fit = "fit for every board" if len(mastered) == len(self.masteries) else "fit for boards of these"
        return f"reads by many routes and masters {len(mastered)} of {len(self.masteries)} tasks: {fit}"


def _contradiction(reads: Reads) -> str:
    """Says what a board cannot show because of where these answers are read; nothing if it can show all."""
    profile = reads.profile
    costly = [n for n, right in enumerate(profile.without_layer) if profile.undisturbed - right > MOST_BY_A_LAYER]
    if costly:
        several = len(costly) > 1
        layers = f"layers {', '.join(map(str, costly))}, each needed" if several else f"layer {costly[0]} alone"
        without = layer_name(profile.most_needed_layer) if several else "it"
        lost = f"{profile.undisturbed:.0f} to {min(profile.without_layer):.0f} without {without}"
        return f"reads {reads.part} in {layers} ({lost}): head and layer budgets and GER say nothing on this model"
    if profile.slots > MOST_BY_SLOTS:
        lost = f"{profile.undisturbed:.0f} to {profile.without_slots:.0f} without {SLOTS}"
        return f"has no second way to {reads.part} ({lost}): what is lost here in few slots, others may read elsewhere"
    if profile.upper_half < LEAST_BY_UPPER_HALF:
        return (
            f"reads {reads.part} in the lower half of its layers (the upper costs {profile.upper_half:.0f} points): "
            "what a press does above cannot show"
        )
    return ""


def _of_reads(reads: Reads) -> Iterator[Finding]:
    """Yields what is lost with the worst layer, with scattered slots and with the upper half."""
    before, profile = reads.losses[NOTHING].right, reads.profile
    worst, budgets = layer_name(profile.most_needed_layer), "head and layer budgets and GER"
    met = (
        profile.worst_layer <= MOST_BY_A_LAYER,
        profile.slots <= MOST_BY_SLOTS,
        profile.upper_half >= LEAST_BY_UPPER_HALF,
    )
    criteria = (  # where rows are destroyed, how many points may be lost, and what follows if so, or if not
        ("one layer", worst, MOST_BY_A_LAYER, f"{budgets} mean something", f"{budgets} say nothing"),
        ("slots", SLOTS, MOST_BY_SLOTS, "what one slot loses is read in another", "what few slots lose is missed"),
        ("depth", UPPER_HALF, LEAST_BY_UPPER_HALF, "presses show at all depths", "what a press does there cannot show"),
    )
    for is_met, (name, place, bound, follows, follows_else) in zip(met, criteria, strict=True):
        loss = reads.losses[place]
        interval = "" if loss.low is None else f" ({loss.low:.0f} to {loss.high:.0f})"
        text = f"{before:.0f} to {loss.right:.0f} without {place}, {loss.cost:.0f} points{interval}: "
        text += follows if is_met else follows_else
        if loss.low is not None and loss.high is not None and loss.low < bound < loss.high:
            text += f"; the bound of {bound:g} is within the interval: see --limit"
        yield Finding(f"{name}, {reads.part}", "ok" if is_met else "note", text)


def reads_table(reads: Sequence[Reads]) -> ResultTable:
    """Returns a row for each place that is destroyed; people see a line for each part, with a bar for each layer."""
    names = ("part", "destroyed", "right", "cost", "cost_low", "cost_high", "questions", "contexts")
    rows = [
        (one.part, *(loss.destroyed, loss.right, loss.cost, loss.low, loss.high), len(one.answers), one.count)
        for one in reads
        for loss in one.losses.values()
    ]
    shown = (
        Column("questions"),
        Column(NOTHING, text=percent_text, right=True),
        Column("layers", "each layer", of_sentences=True),
        Column("worst", "worst", text=percent_text, right=True),
        Column(UPPER_HALF, "upper half", text=percent_text, right=True),
        Column(SLOTS, f"{SLOT_SHARE:.0%} of slots", text=percent_text, right=True),
    )
    profiles = [one.profile for one in reads]
    lines = [
        (p.part, p.undisturbed, p.bars, min(p.without_layer), p.without_upper_half, p.without_slots) for p in profiles
    ]
    view = ResultTable("reads", shown, lines, "Right answers in percent where the context's rows are destroyed in")
    return ResultTable("reads", tuple(map(Column, names)), rows, view=view)
