"""Examines a model: which tasks it masters, where it reads, and so what a board on it can show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from datasets_gen import Question, Task
from kvbench.checks.findings import Begin, Finding, Outcome, percent_column, percent_text, silent
from kvbench.checks.mastery import Mastery, collect_answers, enough, highest_mastered
from kvbench.experiments.catalogue import find_policy, unfit_for
from kvbench.models.load import LoadedModel, find_decoder, longest_sequence, rotation_switch
from kvbench.models.pretrained import cache_shape
from kvbench.prompts.prompt import WITHOUT_TEMPLATE, chat_template
from kvbench.system.errors import KVBenchError
from leaderboards.terminal.result_table import Column, ResultTable
from policies import FULL, POLICIES, attention_window

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
        costly_layers: list[str] = []
        for layer, right in enumerate(self.without_layer):
            if self.undisturbed - right > MOST_BY_A_LAYER:
                costly_layers.append(str(layer))
        if costly_layers:
            layers = f"layer {costly_layers[0]} alone"
            if len(costly_layers) > 1:
                layers = f"layers {', '.join(costly_layers)}, each needed"
            lost = f"{before} {min(self.without_layer):.0f} without the most needed"
            return (
                f"reads {self.part} in {layers} ({lost}): head and layer budgets and GER say "
                f"nothing on this model"
            )
        if self.slots > MOST_BY_SLOTS:
            lost = f"{before} {self.without_slots:.0f} without {SLOT_SHARE:.0%} of all slots"
            return (
                f"has no second way to {self.part} ({lost}): others may read elsewhere what is "
                f"lost here"
            )
        if self.upper_half < LEAST_BY_UPPER_HALF:
            lost = f"the upper costs {self.upper_half:.0f} points"
            return (
                f"reads {self.part} in the lower half of its layers ({lost}): what a press does "
                f"above cannot show"
            )
        return ""


def measure_reads(
    model: LoadedModel,
    task: Task,
    hops: int | None,
    contexts: int,
    seed: int,
    begin: Begin = silent,
) -> ReadProfile:
    """Measures where a model reads, on contexts of a task's test split."""
    layers: int = model.network.config.get_text_config().num_hidden_layers
    destroyed = [f"layers={layer},rate=1" for layer in range(layers)]
    # H2 is the upper half of the layers; a unit of rows is one slot of layer, head and token.
    destroyed += ["layers=H2,rate=1", f"unit=row,rate={SLOT_SHARE}"]
    policies = [POLICIES[FULL]]
    for where in destroyed:
        policies.append(find_policy(f"gaussian_matched({where})"))

    def is_asked(question: Question) -> bool:
        return hops in (None, question.hops)

    rows = collect_answers(model, task, policies, contexts, seed, is_asked, begin=begin)
    right = rows["em"].astype(float).groupby(rows["policy"]).mean()
    # In the order in which the policies were listed above.
    before, *without, upper_half, slots = (float(right[policy.name]) for policy in policies)
    part = task.name
    if hops is not None:
        part = f"{task.name}, {hops} facts"
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
        parts = dict(PARTS)
        steps = 0
        for task in self.tasks:
            steps += (task.top_level + 1) * enough(task, self.contexts)
            if task.name in parts:
                steps += self.contexts
        return steps

    def findings(self, begin: Begin) -> Iterator[Finding]:
        """Yields all findings in turn, and measures what they rest on."""
        yield Finding("loaded as", "ok", f"{self.model.dtype_name} on {self.model.device}")
        yield Finding("chat template", *self.chat_template())
        if (switch := rotation_switch(self.model)) is not None:
            text = f"longrope: beyond {switch:,} tokens keys turn by other angles, and contexts that cross are refused"
            yield Finding("positions", "note", text)
        yield Finding("slots", *self.slots())
        for task in self.tasks:
            mastery = highest_mastered(self.model, task, self.contexts, self.seed, begin)
            self.masteries.append(mastery)
        yield Finding("masters", *self.mastered_tasks())
        yield from self._reads(begin)

    def mastered_tasks(self) -> tuple[Outcome, str]:
        """Tells how many tasks it masters, and which ones only at a lower level."""
        beyond: list[str] = []
        lower: list[str] = []
        for mastery in self.masteries:
            if mastery.reason:
                beyond.append(mastery.task)
            elif not mastery.at_top:
                lower.append(f"{mastery.task} at level {mastery.place}")
        count = len(self.masteries)
        text = ", ".join([f"{count - len(beyond)} of {count} tasks with the full cache", *lower])
        if beyond:
            text += f": a board leaves {', '.join(beyond)} out of its means"
        if not self.is_fit:
            return "wrong", text
        if beyond:
            return "note", text
        return "ok", text

    def _reads(self, begin: Begin) -> Iterator[Finding]:
        """Measures where it reads the tasks that it masters at their highest level."""
        at_top = {mastery.task for mastery in self.masteries if mastery.at_top}
        by_name = {task.name: task for task in self.tasks}
        for name, hops in PARTS:
            if name not in by_name:
                continue
            if name not in at_top:
                text = f"{name} is not mastered at its highest level: not measured"
                yield Finding("reads", "note", text)
                continue
            profile = measure_reads(
                self.model, by_name[name], hops, self.contexts, self.seed, begin
            )
            self.profiles.append(profile)
            if profile.limit:
                yield Finding("reads", "note", profile.limit)
            else:
                yield Finding("reads", "ok", f"{profile.part} everywhere")

    def chat_template(self) -> tuple[Outcome, str]:
        """Tells which turns the chat template of the model has."""
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
        layers = sliding = 0
        for layer in find_decoder(self.model.network).layers:
            layers += 1
            if attention_window(layer.self_attn) is not None:
                sliding += 1
        text = (
            f"{layers} layers with {shape.kv_heads} key heads each: {shape.slots} (layer, head) "
            f"slots are compressed"
        )
        if not sliding:
            return "ok", f"{text}; no sliding layers"
        if not shape.windows:
            limit = f"sequences end at {longest_sequence(self.model):,} tokens"
            return "note", f"{text}; {sliding} sliding layers, so that {limit}"
        unfit = ", ".join(unfit_for(list(POLICIES.values()), shape))
        return "note", (
            f"{text}, in {layers - len(shape.windows)} of them; {sliding} slide over "
            f"{max(shape.windows):,} tokens and are left whole; cannot run here: {unfit}"
        )

    @property
    def is_fit(self) -> bool:
        """Tells whether it masters a task; where it masters none, a board shows nothing."""
        return not all(mastery.reason for mastery in self.masteries)

    @property
    def is_doubtful(self) -> bool:
        """Tells whether a board may not show all, or whether that is not known."""
        return any(profile.limit for profile in self.profiles) or not self.profiles

    @property
    def verdict(self) -> str:
        """Says in a sentence what a board on the model can show."""
        mastered = [mastery.task for mastery in self.masteries if not mastery.reason]
        if not mastered:
            return f"not fit: with the full cache it masters none of {len(self.masteries)} tasks"
        if not self.profiles:
            return f"masters {', '.join(mastered)}; where it reads is not measured"
        for profile in sorted(self.profiles, key=lambda profile: -profile.worst_layer):
            if profile.limit:
                return profile.limit
        return f"reads by many routes and masters {len(mastered)} of {len(self.masteries)} tasks"


def _percents_text(values: Sequence[float]) -> str:
    return " ".join(map(percent_text, values))


def reads_table(profiles: Sequence[ReadProfile]) -> ResultTable:
    """Returns a line for each part, with the right answers without each layer in turn."""
    columns = (
        Column("part", "questions"),
        percent_column("undisturbed"),
        Column("layers", "each layer", _percents_text, of_sentences=True),
        percent_column("upper_half", "upper half"),
        percent_column("slots", f"{SLOT_SHARE:.0%} of slots"),
    )
    rows: list[tuple[object, ...]] = []
    for profile in profiles:
        destroyed = (profile.without_layer, profile.without_upper_half, profile.without_slots)
        rows.append((profile.part, profile.undisturbed, *destroyed))
    return ResultTable(
        "reads", columns, rows, "Right answers in percent where the context's rows are destroyed in"
    )
