"""The registry of suites, and what a run covers by its options and by its suite."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from datasets_gen import (
    FAMILIES,
    FROM_DATA,
    RULER,
    TASKS,
    Task,
    by_name,
    get_task,
    is_file_of_questions,
    unknown_name,
)
from datasets_gen.tasks.ifeval import IFEVAL, Placement
from datasets_gen.tasks.instructions import INSTRUCTIONS_IN_ARMS
from datasets_gen.tasks.prose import PROSE
from kvbench.experiments.options import choose
from kvbench.experiments.suite import LevelTexts, Suite, at
from kvbench.experiments.treatment_suites import BYTES, ERRORS, FAULTS
from kvbench.prompts.mode import Scope
from kvbench.system.errors import KVBenchError
from policies import PROTECTED

# The presses of the board that run without a question and without weights of their own.
PUBLISHED = (
    *("kvzip", "adakv_expected_attention", "adakv_compactor", "keydiff", "lagkv", "cur", "tova", "snapkv"),
    *("pyramidkv", "streaming_llm", "h2o", "knorm", "random"),
)
# Of every value of the cache, from what rounding to 8 bits of a number does up to what changes every answer.
NOISE = tuple(f"multiplicative_normal(std={std})" for std in (0.01, 0.03, 0.1, 0.3))

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        Suite(
            name="instructions",
            description="What of a system prompt is obeyed, what leaks, and what protects (arXiv 2510.00231)",
            tasks=(INSTRUCTIONS_IN_ARMS,),
            if_named=(IFEVAL,),
            policies=tuple(plain.name + way for way in ("", "+whitelist", "+fair") for plain in PROTECTED),
            scope="system",
            defence="both",
        ),
        FAULTS,
        ERRORS,
        BYTES,
        Suite(
            name="routing",
            description="Is the evidence still there, can it be reached, is it used (arXiv 2603.01426)",
            tasks=(TASKS["base"], TASKS["hops"]),
            if_named=tuple(TASKS[name] for name in ("knowledge", "multi_entity", "coreference", "long_context")),
            policies=("streaming_llm", "snapkv", "knorm", "tova", "h2o"),
            scope="context",
            defence="none",
            tables=("attention", "states", "routes", "interventions"),
            levels={"ratio": "0.3,0.5,0.7,0.8,0.9,0.95"},
            limit=10,  # the fewest of which a page does not say that they may be chance
        ),
        Suite(
            name="published",
            description="Do presses keep needles in the order of kvpress's public board? (about 1,024 tokens)",
            tasks=tuple(task for name, task in RULER.items() if name.startswith("niah_")),
            if_named=(),
            policies=PUBLISHED,
            scope="context",
            defence="none",
            levels={"ratio": "0.25,0.5,0.75"},
            limit=12,
        ),
        Suite(
            name="numerics",
            description="Is a cached answer the answer without the cache, by type of numbers (arXiv 2604.15409)",
            tasks=(TASKS["base"], PROSE),
            if_named=tuple(TASKS[name] for name in ("hops", "knowledge", "multi_entity", "long_context")),
            policies=("snapkv", "knorm", "tova", "streaming_llm", *NOISE),
            scope="context",
            defence="none",
            tables=tuple(f"numerics_{name}" for name in ("pairs", "drift", "patches", "groups", "policies")),
            levels={"ratio": "0.5,0.75"},
            own_levels=at(NOISE, rate="1"),
            repeats=2,
            dtype="float32",
            limit=6,  # 16 bits are slow on a processor: as many as take six minutes
        ),
    )
}


@dataclass(frozen=True)
class Coverage:
    """The tasks and policies of a run. Options replace its ``levels``, ``own_levels``, ``repeats`` and ``limit``."""

    tasks: Sequence[Task]
    policies: str | None  # as ``--policies`` takes them
    scope: Scope
    defence: Placement = "none"  # unless another is given
    tables: tuple[str, ...] = ()
    levels: LevelTexts = field(default_factory=dict)
    own_levels: Mapping[str, LevelTexts] = field(default_factory=dict)  # by name of a policy
    repeats: int = 1
    limit: int | None = None

    @property
    def all_levels(self) -> dict[str, str]:
        """Joins the texts of its levels, by kind."""
        texts: dict[str, dict[str, None]] = {}
        for levels in (self.levels, *self.own_levels.values()):
            for kind, text in levels.items():
                texts.setdefault(kind, {})[text] = None
        return {kind: ",".join(of_kind) for kind, of_kind in texts.items()}


def coverage_of(suite: str | None, tasks: str | None, policies: str | None, compress: Scope | None) -> Coverage:
    """Combines ``--suite``, ``--tasks``, ``--policies`` and ``--compress``; a suite brings its tasks, and
    whatever else is not named."""
    if suite is None:
        scope = compress or "context"
        known = {name: task for name, task in TASKS.items() if scope == "context" or task.role == "system"}
        chosen = _choose_tasks(tasks, TASKS if tasks else known, {**RULER, **FROM_DATA})
        return Coverage(chosen, policies, scope)
    if suite not in SUITES:
        raise KVBenchError(unknown_name("suite", suite, SUITES))
    named = SUITES[suite]
    by_default, if_named = ({task.name: task for task in part} for part in (named.tasks, named.if_named))
    try:
        chosen = _choose_tasks(tasks, by_default, if_named)
    except KVBenchError as error:
        raise KVBenchError(f"--suite {suite}: {error}") from error
    names = policies or ",".join(named.policies)
    return Coverage(
        chosen,
        names,
        compress or named.scope,
        named.defence,
        named.tables,
        named.levels,
        named.own_levels if policies is None else {},
        named.repeats,
        named.limit,
    )


def _choose_tasks(names: str | None, known: Mapping[str, Task], if_named: Mapping[str, Task]) -> list[Task]:
    """Finds the tasks of a comma-separated list of names and of files with the user's own questions."""
    words = [word.strip() for word in (names or "").split(",")]
    files = {word: get_task(word) for word in words if is_file_of_questions(word)}
    return list(by_name(choose("task", names, known, {**if_named, **files}, FAMILIES)).values())


def dtype_of(dtype: str, suite: str | None) -> str:
    """Returns the type of numbers that is asked for, or that of the suite where none is."""
    own = SUITES[suite].dtype if suite is not None and suite in SUITES else None
    return own if own and dtype == "auto" else dtype


def task_of_version(name: str, version: str) -> Task | None:
    """Finds the task, also of a suite, that makes the examples of this very version; None if there is none."""
    tasks = (*TASKS.values(), *RULER.values(), *(task for suite in SUITES.values() for task in suite.tasks))
    return next((task for task in tasks if (task.name, task.full_version) == (name, version)), None)
