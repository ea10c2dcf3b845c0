"""The registry of suites, and what a run covers by its options and by its suite."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict

from datasets_gen import (
    FAMILIES,
    KNOWN_TASKS,
    RULER,
    TASKS,
    Task,
    by_name,
    get_task,
    is_file_of_questions,
    unknown_name,
)
from datasets_gen.tasks.gsm8k import GSM8K
from datasets_gen.tasks.ifeval import IFEVAL, Placement
from datasets_gen.tasks.instructions import INSTRUCTIONS_IN_ARMS
from datasets_gen.tasks.prose import PROSE
from datasets_gen.tasks.ruler import niah
from kvbench.experiments.options import QUICK, choose
from kvbench.models.names import OF_CHECKPOINT
from kvbench.prompts.mode import Mode, Scope
from kvbench.system.errors import KVBenchError
from policies import PROTECTED
from policies.faults.options import AIMED

LevelTexts = Mapping[str, str]  # by kind of level, the text of its option


class NoArguments(BaseModel):
    """Declares that a name takes nothing in brackets."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _without_brackets(text: object) -> object:
    return text.strip("[]") if isinstance(text, str) else text


Several = Annotated[str, BeforeValidator(_without_brackets)]  # such as [fp32,bf16]


class NumericsArguments(NoArguments):
    """Declares what ``--suite numerics`` takes in brackets; the names are those of a job's
    fields."""

    dtypes: Several | None = None  # fp64, fp32, bf16, fp16; all but fp64
    sampling: Several | None = None  # greedy, top_k, top_p; all
    deterministic: bool | None = None  # only algorithms that give the same bits again; yes


@dataclass(frozen=True)
class PaperSize:
    """Says how the paper of a suite asked, where its summary tells: what ``--profile paper`` means
    then."""

    contexts: Mapping[str, int]  # by task; of others as many as the profile says
    tokens: int  # of an answer at most
    repeats: int
    without: tuple[str, ...] = ()  # kinds of directives whose rows of IFEval are left out


@dataclass(frozen=True)
class Suite:
    """Declares a suite. Whatever the options of a run give is taken from them instead."""

    name: str
    description: str
    tasks: Sequence[Task]  # that it has unless others are named
    policies: str | None = None  # as ``--policies`` takes them
    scope: Scope = "context"  # what is compressed
    defence: Placement = "none"  # where a defence stands in prompts from elsewhere
    tables: tuple[str, ...] = ()  # of studies, which its runs fill (kvbench.store.tables)
    levels: LevelTexts = field(default_factory=dict)  # none: the default ones of its policies
    # Of the policies that run at these alone.
    own_levels: Mapping[str, LevelTexts] = field(default_factory=dict)
    repeats: int = 1
    dtype: str | None = (
        None  # as ``--dtype`` takes it, or OF_CHECKPOINT, of what compares types of numbers
    )
    limit: int | None = (
        None  # contexts per task, where no other profile than the quick one is asked for
    )
    paper_size: PaperSize | None = None
    if_aware: str | None = None  # policies of ``--mode aware``, where they are others
    needs_right_answers: bool = True  # of the full cache; else what it measures shows without them
    arguments: type[BaseModel] = NoArguments  # that stand behind its name in brackets

    @property
    def all_levels(self) -> dict[str, str]:
        """Joins the texts of its levels, by kind."""
        by_kind: dict[str, dict[str, None]] = {}  # a dict and no set, since the order counts
        for levels in (self.levels, *self.own_levels.values()):
            for kind, text in levels.items():
                by_kind.setdefault(kind, {})[text] = None
        return {kind: ",".join(texts) for kind, texts in by_kind.items()}

    def size_at(self, profile: str) -> PaperSize | None:
        """Returns how the paper asked, where the profile is that of the paper."""
        return self.paper_size if profile == "paper" else None

    def contexts_of(self, task: Task, profile: str) -> int | None:
        """Returns how many contexts of a task it has, and ``None`` where the profile alone says
        that."""
        if profile == QUICK:
            return self.limit
        size = self.size_at(profile)
        return size.contexts.get(task.name) if size else None


def at(names: Iterable[str], **levels: str) -> dict[str, LevelTexts]:
    """Gives policies levels of their own, such as ``at(("zeros",), rate="0.1,0.5")``."""
    return dict.fromkeys(names, levels)


# Text F replaces single values while answers are written, drawn anew before every pass: its tables
# 1 and 2.
FRESH = "unit=value,phase=every_step,persistence=transient"
FRESH_KINDS = tuple(f"{kind}({FRESH})" for kind in ("gaussian", "zeros", "distractor"))
FRESH_RATES = "0.02,0.05,0.08,0.1,0.15,0.2,0.25,0.3,0.4,0.5"
BANDS = tuple(f"gaussian(layers={band},{FRESH})" for band in ("Q1", "Q2", "Q3", "Q4", "H1", "H2"))
_AS_IN_TEXT_F = at(FRESH_KINDS, rate=FRESH_RATES) | at(BANDS, rate="0.01,0.02,0.04")

# The same cache, damaged once, after the context is read. Rate 0 would be the full cache, bit for
# bit.
RATES = "0.01,0.05,0.1,0.3"
KINDS = (
    *("gaussian", "gaussian_matched", "zeros", "distractor", "stale"),
    *("multiplicative_uniform", "multiplicative_normal", "bias", "sign_flip"),
)
AIMED_KINDS = ("gaussian", "zeros")  # noise and nothing: what aims and tensors are tried with


def _with(option: str, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{kind}({option}={value})" for kind in AIMED_KINDS for value in values)


_AT_FEW_RATES = at((*_with("tensor", "KV"), *_with("tokens", AIMED)), rate="0.1,0.3")
_FLIPS = at(("bitflip",), rate="0.00001,0.0001")  # of all bits: what answers with infinity and NaN
_OWN_LEVELS = _AS_IN_TEXT_F | _AT_FEW_RATES | _FLIPS

FAULTS = Suite(
    name="faults",
    description="What a damaged cache breaks, replaced while answers are written and damaged once: kinds, rates, bands",
    tasks=(TASKS["base"],),
    policies=",".join((*_AS_IN_TEXT_F, *KINDS, *_AT_FEW_RATES, *_FLIPS)),
    levels={"rate": RATES},
    own_levels=_OWN_LEVELS,
    repeats=5,
    limit=10,
    needs_right_answers=False,
)

# The tables of text E, whose error acts on each key and value "as it enters the KV cache" (5.3).
WRITTEN = "phase=write"
# The text's own types are llama.cpp's, q8_0 and q4_0.
BITS = ("q8_0", "q4_0", "int8", "int4", "int3", "int2", "fp8_e4m3", "fp8_e5m2")
_PARTS = ("", "tensor=K,", "tensor=V,")  # keys against values
_UNIFORM = tuple(
    f"multiplicative_uniform({WRITTEN}{bounds})"
    for bounds in ("", ",low=0,high=2", ",low=-1.5,high=1.5")
)
_NORMAL = tuple(
    f"multiplicative_normal({WRITTEN}{spread})"
    for spread in ("", ",std=0.1", ",std=0.25", ",std=0.87")
)
_ERRORS_OF_PARTS = tuple(
    f"{kind}({part}{WRITTEN})"
    for kind in ("multiplicative_uniform", "multiplicative_normal")
    for part in _PARTS[1:]
)
_SIGNS = tuple(f"{kind}({part}{WRITTEN})" for kind in ("sign_flip", "same_sign") for part in _PARTS)
# The same errors once behind an exact prefill, on the context alone, to show what the place of the
# text costs. A bias is no error of the text, and is counted in the spread of a layer, which is
# known when the context has been read.
_RESIDENT = (
    "multiplicative_uniform",
    "multiplicative_normal",
    "bias(shift=0.25)",
    "bias(shift=0.5)",
)
_OF_EVERY_VALUE = at((*_UNIFORM[1:], *_NORMAL, *_ERRORS_OF_PARTS, *_RESIDENT), rate="1")
# Of the uniform error rate 0 too, which is the full cache.
_OF_ERRORS = at(_UNIFORM[:1], rate="0,1") | _OF_EVERY_VALUE | at(_SIGNS, rate="0.05")

ERRORS = Suite(
    name="errors",
    description="What small errors of every value break: fewer bits, noise, bias, wrong signs of equal size",
    tasks=(TASKS["instructions"], TASKS["base"], PROSE),
    policies=",".join((*BITS, "int4(tensor=K)", "int4(tensor=V)", *_OF_ERRORS)),
    own_levels=_OF_ERRORS,
    repeats=2,
    limit=24,
    # 5.5: IFEval without directives that count words, as answers end after 100 tokens; every
    # benchmark ran five times.
    paper_size=PaperSize(
        {IFEVAL.name: 128}, tokens=100, repeats=5, without=("length_constraints:number_words",)
    ),
    needs_right_answers=False,
)


# Of a full cache in 16 bits 50, 25, 12.5 and 6.25 % are aimed at. With scales, zero points and the
# latest tokens in full, int8 takes 58 % of what it is given, int4 35 % and int2 24 %, so that less
# is evicted before it. In 32 bits these shares are about half as large: the front is drawn over the
# bytes that are held, whatever was aimed at.
EVICTED = ("snapkv", "tova", "knorm")
STORED = ("int8", "fp8_e4m3", "int4", "int3", "int2")
_BOTH = (
    at((f"{plain}+int8" for plain in EVICTED), ratio="0.14,0.57,0.785,0.9")
    | at((f"{plain}+int4" for plain in EVICTED), ratio="0.285,0.64,0.82")
    | at((f"{plain}+int2" for plain in EVICTED), ratio="0.47,0.735")
)

# Of higher ratios one page is left of a short context, and it is the same whatever chooses it.
# Ends are kept whatever is in them: whoever keeps them is measured against chance that does so too.
_DEPLOYED = at(
    (
        *(f"{plain}+{way}" for plain in EVICTED for way in ("pages16", "shared", "ends")),
        "random+ends",
    ),
    ratio="0.5,0.75",
)

BYTES = Suite(
    name="bytes",
    description="What is kept at equal bytes by eviction, fewer bits, and both, and by what an engine can free",
    tasks=(TASKS["base"], TASKS["long_context"]),
    policies=",".join((*EVICTED, *STORED, *_BOTH, *_DEPLOYED)),
    levels={"ratio": "0.5,0.75,0.875,0.9375"},
    own_levels=_BOTH | _DEPLOYED,
    limit=12,
)


# The presses of the board that run without a question and without weights of their own.
PUBLISHED = (
    *(
        "kvzip",
        "adakv_expected_attention",
        "adakv_compactor",
        "keydiff",
        "lagkv",
        "cur",
        "tova",
        "snapkv",
    ),
    *("pyramidkv", "streaming_llm", "h2o", "knorm", "random"),
)

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            name="instructions",
            description="What of a system prompt is obeyed, what leaks, and what protects (arXiv 2510.00231)",
            tasks=(INSTRUCTIONS_IN_ARMS,),
            policies=",".join(
                plain.name + way for way in ("", "+whitelist", "+fair") for plain in PROTECTED
            ),
            scope="system",
            defence="both",
            needs_right_answers=False,
        ),
        FAULTS,
        ERRORS,
        BYTES,
        Suite(
            name="routing",
            description="Is the evidence still there, can it be reached, is it used (arXiv 2603.01426)",
            tasks=(TASKS["base"], TASKS["hops"]),
            policies="streaming_llm,snapkv,knorm,tova,h2o",
            tables=("attention", "states", "routes", "interventions"),
            levels={"ratio": "0.3,0.5,0.7,0.8,0.9,0.95"},
            limit=10,  # the fewest of which a page does not say that they may be chance
        ),
        Suite(
            name="published",
            description="Do presses keep needles in the order of kvpress's public board? (about 1,024 tokens)",
            tasks=niah.TASKS,
            policies=",".join(PUBLISHED),
            if_aware="chunkkv_snapkv,adakv_snapkv,finch,snapkv",
            levels={"ratio": "0.25,0.5,0.75"},
            limit=12,
        ),
        Suite(
            name="numerics",
            description="Is a cached answer the answer without the cache, by type of numbers (arXiv 2604.15409)",
            tasks=(TASKS["base"], TASKS["arithmetic"], PROSE),
            policies="full",
            tables=("numerics_pairs", "numerics_drift", "numerics_recovery", "numerics_rounding"),
            levels={"ratio": "0.5"},  # of the controls
            repeats=2,
            dtype=OF_CHECKPOINT,
            limit=6,  # 16 bits are slow on a processor: as many as take a few minutes
            paper_size=PaperSize({GSM8K.name: 700}, tokens=128, repeats=5),  # 5.1
            needs_right_answers=False,
            arguments=NumericsArguments,
        ),
    )
}


def coverage_of(
    suite: str | None,
    tasks: str | None,
    policies: str | None,
    compress: Scope | None,
    mode: Mode = "agnostic",
) -> Suite:
    """Combines a suite with ``--tasks``, ``--policies`` and ``compress``, which come before its
    own."""
    if suite is None:
        scope = compress or "context"
        by_default = {
            name: task
            for name, task in TASKS.items()
            if scope == "context" or task.role == "system"
        }
        return Suite("", "", _choose_tasks(tasks, by_default), policies=policies, scope=scope)
    if suite not in SUITES:
        raise KVBenchError(unknown_name("suite", suite, SUITES))
    named = SUITES[suite]
    chosen = _choose_tasks(tasks, by_name(named.tasks))
    by_mode = named.if_aware if mode == "aware" else None
    named = replace(
        named, tasks=chosen, scope=compress or named.scope, policies=by_mode or named.policies
    )
    return named if policies is None else replace(named, policies=policies, own_levels={})


def _choose_tasks(names: str | None, by_default: Mapping[str, Task]) -> list[Task]:
    """Finds the tasks of a comma-separated list of registered names, families, and files with the
    user's own questions. A task that is asked by default, which a suite may ask in its own way,
    comes before the registered one."""
    words = [word.strip() for word in (names or "").split(",")]
    files = {word: get_task(word) for word in words if is_file_of_questions(word)}
    others = {**KNOWN_TASKS, **files, **by_default}
    return list(by_name(choose("task", names, by_default, others, FAMILIES)).values())


def dtype_of(dtype: str, suite: str | None) -> str:
    """Returns the type of numbers that is asked for, or that of the suite where none is."""
    of_suite = SUITES[suite].dtype if suite is not None and suite in SUITES else None
    return of_suite if of_suite and dtype == "auto" else dtype


def task_of_version(name: str, version: str) -> Task | None:
    """Finds the task, also of a suite, that makes the examples of this very version; None if there
    is none."""
    tasks = (
        *TASKS.values(),
        *RULER.values(),
        *(task for suite in SUITES.values() for task in suite.tasks),
    )
    return next((task for task in tasks if (task.name, task.full_version) == (name, version)), None)
