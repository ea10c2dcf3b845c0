"""A policy is a named way to build a kvpress press for a budget."""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol

from policies.declaration.lazy import kvpress, torch
from policies.declaration.levels import EVICTION, LEVEL_KINDS, RATIO, UNTREATED, Level, Point
from policies.declaration.names import PolicyError
from policies.declaration.shape import ModelShape
from policies.declaration.steps import PrefillTreatment, States, StepTreatment, WriteTreatment

Family = Literal[
    "control",
    "scorer",
    "wrapper",
    "prefill",
    "decoding",
    "protection",
    "deployed",
    "quantisation",
    "fault",
    "plug-in",
]
Attention = Literal["sdpa", "eager"]
Prefill = Literal["shared", "private"]
Counted = Literal["head", "layer", "cache", "nowhere"]
Argument = int | float | str
Press = Any  # a kvpress.BasePress: kvpress has no types, and is not imported to name them
FIRST_VERSION = "1.0.0"
# At most, of an exact number. Nobody keeps a cache in float32, which computes where 16 bits are
# slower: beside it a format of fewer bits would save twice as much as in use.
CACHE_NUMBER_BYTES = 2


def exact_bytes(number_bytes: int) -> int:
    """Returns the bytes in which a cache keeps a number as it is, of those in which it is
    computed."""
    return min(number_bytes, CACHE_NUMBER_BYTES)


class Donor(Protocol):
    """Holds the full cache of another context of the same task."""

    @property
    def keys(self) -> "Sequence[torch.Tensor]":
        """Returns the keys of each layer, shape (num_kv_heads, tokens, head_dim)."""

    @property
    def values(self) -> "Sequence[torch.Tensor]":
        """Returns the values of each layer, shape (num_kv_heads, tokens, head_dim)."""


@dataclass(frozen=True)
class Situation:
    """Holds what a policy may look at when it builds a press for one context."""

    ratio: float  # asked share of the cache to remove, in [0, 1); 0 for a policy that removes none
    context_length: int  # tokens in the compressed region
    seed: int  # of this draw
    example_id: str
    # At its end, of the question; 0 where the cache is compressed before it is seen.
    question_tokens: int = 0
    spans: tuple[tuple[int, int], ...] = ()  # half-open ranges of positions that are instructions
    # Positions, for the oracle alone: empty unless the policy is ``per_question``.
    answer_tokens: tuple[int, ...] = ()
    evidence_tokens: tuple[int, ...] = ()  # likewise
    # Prose to calibrate heads on.
    texts: Callable[[], Sequence[str]] = field(default=tuple, repr=False, compare=False)
    level: Level = UNTREATED  # what was asked for
    # Reads another context.
    donor: Callable[[], "Donor"] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Baseline:
    """Names what a user of kvpress runs for this policy, and on which attention, where that is not
    the press itself."""

    build: Callable[[Situation], Press]
    attention: Attention


@dataclass(frozen=True)
class HeadRows:
    """Tells what one head of one layer holds."""

    rows: int
    size: int  # numbers in a key, and in a value
    number_bytes: int  # of each as the model computes it
    layer: int = 0
    layers: int = 1  # of the model

    @property
    def exact_bytes(self) -> int:
        """Returns the bytes of a number that is kept as it is."""
        return exact_bytes(self.number_bytes)


@dataclass(frozen=True, kw_only=True)
class CacheTreatment:
    """Declares how a policy acts on the rows that its press leaves, as quantisations and faults do;
    most do nothing."""

    # Builds what acts once on what the press left of some branches, before any question is read.
    # All questions of a branch share its rows.
    prefill_treatment: Callable[[Sequence[Situation]], PrefillTreatment] | None = None
    # Builds what acts on the cache between steps, for some answers: their situations, and the ids
    # of their questions. Each is then decoded from a copy of what the press kept, together with all
    # other branches.
    step_treatment: Callable[[Sequence[Situation], Sequence[str]], StepTreatment] | None = None
    # By tensor, the bits of the codewords in which its step treatment, a quantisation, stores rows.
    codeword_bits: Mapping[States, int] = field(default_factory=dict)
    # It acts on such codewords of the quantisation right before it, and raises :class:`PolicyError`
    # for bits that they have not.
    check_codewords: Callable[[Mapping[States, int]], None] | None = None
    # Counts the bytes that the keys and values of one head take, where they are not stored as the
    # model computes them.
    stored_bytes: Callable[[Situation, HeadRows], int] | None = None
    # Puts a press around another, for a treatment of what the model writes while it reads the
    # context.
    wrap: Callable[[Press, Situation], Press] | None = None
    # Builds what changes the rows of questions and answers as they are written, for some branches.
    # Those of the context are written under the press.
    write_treatment: Callable[[Sequence[Situation]], WriteTreatment] | None = None
    # It changes the rows that it keeps: which these are does not tell what is read, and they may
    # hold NaN.
    corrupts: bool = False
    # Infinity or NaN of one question must not reach another: each is decoded from its own copy of
    # what is kept.
    own_rows: bool = False
    arguments: Mapping[str, Argument] = field(default_factory=dict)  # beside those of its press
    # Of these, what depends on the situation.
    fitted: Callable[[Situation], Mapping[str, Argument]] = lambda _: {}

    @property
    def changes_rows(self) -> bool:
        """Tells whether the rows that are read are other ones than the press leaves."""
        acts = self.prefill_treatment or self.step_treatment or self.write_treatment
        return bool(self.corrupts or acts)

    def arguments_in(self, situation: Situation) -> dict[str, Argument]:
        """Returns its arguments in a situation, which stand beside those of the press."""
        return {**self.arguments, **self.fitted(situation)}


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Declares what a model, a context and a run must have for a policy."""

    more_tokens_than: int = 1  # that the context must have; kvpress asserts it
    question: bool = False  # it reads the question with the context (``--mode aware``)
    spans: bool = False  # it protects instructions and means nothing without
    donor: bool = False  # it takes rows of another context: ``Situation.donor``
    weights: str = ""  # what has to be downloaded for a model, if anything
    calibration: bool = False  # it measures each model first, which takes a multiple of a prefill
    # Raises :class:`PolicyError` for a model that it cannot treat, such as one without a layer that
    # it is aimed at.
    check_model: Callable[[ModelShape], None] | None = None


@dataclass(frozen=True, kw_only=True)
class LevelRange:
    """Declares at which levels of its kinds a policy runs."""

    highest_ratio: float = 1.0  # above it the policy has no press, and no cell is planned
    # By kind of level, the value from which on it means nothing: no cell is planned there.
    below: Mapping[str, float] = field(default_factory=dict)
    # It runs at these levels and at no other, whatever a run asks for.
    only: tuple[Level, ...] | None = None
    # The text of levels, by kind, at which it runs where none are asked for; else those of the
    # kind.
    defaults: Mapping[str, str] = field(default_factory=dict)

    def holds(self, level: Level) -> bool:
        """Tells whether a level of the policy's kinds is within its range."""
        if self.only is not None and level not in self.only:
            return False
        least_share = level.share(1) or 0.0  # of a longer context it is as much or more
        if least_share > self.highest_ratio:
            return False
        return level.value < self.below.get(level.kind, math.inf)


@dataclass(frozen=True)
class PlugInCode:
    """Names the code of a policy that is not of this package."""

    origin: str = ""  # its hash, which is part of a run's identity
    # Its files, by the path under which a run keeps them; the file of the plug-in is the first.
    files: Mapping[str, Path] = field(default_factory=dict, compare=False)
    # The text of what stands in no file, as in a cell of a notebook, by the same kind of path.
    texts: Mapping[str, str] = field(default_factory=dict, compare=False)


# By a former keyword of :class:`Policy`, how it is written now.
MOVED_KEYWORDS = {
    "more_tokens_than": "needs=policies.Needs(more_tokens_than=...)",
    "needs_question": "needs=policies.Needs(question=...)",
    "needs_spans": "needs=policies.Needs(spans=...)",
    "needs_donor": "needs=policies.Needs(donor=...)",
    "weights": "needs=policies.Needs(weights=...)",
    "check_model": "needs=policies.Needs(check_model=...)",
    "highest_ratio": "levels=policies.LevelRange(highest_ratio=...)",
    "levels_below": "levels=policies.LevelRange(below=...)",
    "only": "levels=policies.LevelRange(only=...)",
    "default_levels": "levels=policies.LevelRange(defaults=...)",
    "origin": "code=policies.PlugInCode(origin=...)",
    "sources": "code=policies.PlugInCode(files=...)",
}
for treatment_field in fields(CacheTreatment):
    MOVED_KEYWORDS[treatment_field.name] = (
        f"treatment=policies.CacheTreatment({treatment_field.name}=...)"
    )


@dataclass(frozen=True)
class Policy:
    """A registry entry: what a policy is. It builds a fresh press each time and holds none.

    Raises ``TypeError`` for a former keyword, which says how it is written now."""

    name: str
    family: Family
    paper: str
    description: str
    build: Callable[[Situation], Press]
    # Of levels that it takes; one without does the same in every run, at no level.
    kinds: tuple[str, ...] = EVICTION
    random: bool = False  # it draws at random: a run may repeat it, and each draw is another
    budget: str = "as many tokens in every head"  # how it reaches a ratio, in a few words
    # Where the asked number of tokens is kept exactly; a layer's is summed over its heads.
    counted: Counted = "head"
    # It shortens the cache; else it masks what it evicts, and an allocator still holds it.
    frees: bool = True
    rewrites: bool = False  # what it keeps is not what it was given: it merges, turns or blanks
    # Shared: it acts in ``compress`` alone, after the attention of a layer has run on the full
    # cache.
    prefill: Prefill = "shared"
    # It acts on the cache also while an answer is written, which is then written alone.
    while_decoding: bool = False
    # The scores of the press, or of the press inside it, do not depend on the ratio: one scoring
    # serves all ratios.
    ratio_free_score: bool = False
    per_question: bool = False  # one press for each question, as it is told where the answer lies
    # The press rotates the keys that it keeps to new positions, so that decoding goes on from their
    # number and not from the length of the context.
    renumbers: bool = False
    # The plain policy that this one protects: what it gains is measured against that.
    around: "Policy | None" = None
    # Arguments that are smaller on short contexts, with their values where the context is long
    # enough: those of the paper as kvpress has them. A name is that of the press's argument, or the
    # end of it behind a dot.
    paper_arguments: Mapping[str, float] = field(default_factory=dict)
    # Keep the same by design: the identity audit does not report them.
    same_as: tuple[str, ...] = ()
    baseline: Baseline | None = None  # how kvpress itself does the same, if by another press
    by_default: bool = False  # a run that names no policies has it
    # A trap of its code that its paper does not have: a sentence for its page, without the stop.
    caveat: str = ""
    # Raised when the same arguments come to do another thing: answers of before are stale then.
    version: str = FIRST_VERSION
    needs: Needs = field(default_factory=Needs)
    levels: LevelRange = field(default_factory=LevelRange)  # of its kinds
    # Of the rows that its press leaves.
    treatment: CacheTreatment = field(default_factory=CacheTreatment)
    code: PlugInCode = field(default_factory=PlugInCode)

    def __new__(cls, *_: Any, **keywords: Any) -> "Policy":
        # Python's own message would say that the keyword is unexpected, and not where it went.
        for name in keywords:
            if name in MOVED_KEYWORDS:
                raise TypeError(f"Policy has no {name} any more: write {MOVED_KEYWORDS[name]}")
        return super().__new__(cls)

    @property
    def ways(self) -> str:
        """Lists its family, whether it is a default, shares the prefill and frees memory, and what
        it needs."""
        ways: list[str] = [self.family]
        if self.by_default:
            ways.append("default")
        ways.append(self.prefill)
        ways.append("frees" if self.frees else "masks")
        if self.rewrites:
            ways.append("rewrites")
        if self.while_decoding:
            ways.append("decoding")
        if self.needs.question:
            ways.append("aware mode")
        if self.needs.spans:
            ways.append("instructions")
        if self.needs.weights:
            ways.append(f"needs {self.needs.weights}")
        return ", ".join(ways)

    @property
    def takes_ratios(self) -> bool:
        return not self.kinds or RATIO.name in self.kinds

    def points_among(self, points: Iterable[Point]) -> tuple[Point, ...]:
        """Selects the points of its kinds and within its reach; draws after the first if it draws
        at random."""
        # Without levels it stands at the one level of the full cache, in as many draws as are asked
        # for.
        if not self.kinds:
            draws = {0}
            if self.random:
                draws.update(point.repeat for point in points)
            return tuple(Point(UNTREATED, repeat) for repeat in sorted(draws))
        chosen = []
        for point in points:
            is_drawn = self.random or point.repeat == 0
            if is_drawn and point.level.kind in self.kinds and self.levels.holds(point.level):
                chosen.append(point)
        return tuple(chosen)

    def levels_among(self, points: Iterable[Point]) -> tuple[Level, ...]:
        levels = [point.level for point in self.points_among(points)]
        return tuple(dict.fromkeys(levels))

    def typical_situation(self, length: int, question_tokens: int = 0) -> Situation:
        """Returns a context at a typical level of its first kind, to build a press that is looked
        at and not run."""
        if not self.kinds:
            return Situation(0.0, length, 0, "", question_tokens)
        kind = LEVEL_KINDS[self.kinds[0]]
        level = Level(kind.name, kind.typical)
        ratio = min(level.share(length) or 0.0, self.levels.highest_ratio)
        return Situation(ratio, length, 0, "", question_tokens, level=level)

    def press(self, situation: Situation) -> Press:
        """Builds a fresh press; raises :class:`PolicyError` if the situation is none for it."""
        if situation.context_length <= self.needs.more_tokens_than:
            raise PolicyError(
                f"{self.name} needs a context longer than {self.needs.more_tokens_than} tokens, "
                f"this one has {situation.context_length}: use longer contexts or leave the policy out"
            )
        if situation.ratio > self.levels.highest_ratio:
            raise PolicyError(
                f"{self.name} removes at most {self.levels.highest_ratio:g} of a context, and "
                f"{situation.ratio:.3f} are asked for: use a larger budget or leave the policy out"
            )
        if self.needs.question and not situation.question_tokens:
            raise PolicyError(f"{self.name} reads the question with the context: use --mode aware")
        return self.build(situation)


def replaced_hooks(press: Press) -> list[str]:
    """Names the parts of kvpress that call ``compress`` after each layer, where the press replaces
    them."""
    kind, base = type(press), kvpress.BasePress
    hooks = ("__call__", "forward_hook")
    return [name for name in hooks if getattr(kind, name) != getattr(base, name)]


def list_arguments(press: Press) -> dict[str, int | float | str]:
    """Returns the press's own arguments by name, those of a press inside it behind its name and a
    dot.

    The ratio is left out, which every record has, and what the situation says.
    """
    arguments: dict[str, int | float | str] = {}
    for name in inspect.signature(type(press)).parameters:
        value = getattr(press, name, None)
        if name in ("compression_ratio", "ratio", "seed", "example_id"):
            continue
        if isinstance(value, bool | int | float | str):
            arguments[name] = value
        for inner_name, inner_press in _presses_inside(name, value):
            for argument, inner_value in list_arguments(inner_press).items():
                arguments[f"{inner_name}.{argument}"] = inner_value
    return arguments


def _presses_inside(name: str, value: Any) -> list[tuple[str, Press]]:
    """Lists the presses that an argument holds, each with its name; those of a list are
    numbered."""
    if isinstance(value, kvpress.BasePress):
        return [(name, value)]
    if not isinstance(value, list) or not all(
        isinstance(item, kvpress.BasePress) for item in value
    ):
        return []
    return [(f"{name}.{number}", item) for number, item in enumerate(value)]
