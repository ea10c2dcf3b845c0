"""The study of published orders: does the order of presses on kvpress's public board carry over to a model?

``board.csv`` is the board on RULER at 4,096 tokens as the repository lapidoty/kvpress-centrality keeps it (Apache-2.0):
Llama 3.1 8B and Qwen3 8B, 500 items a task.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import Markup

from datasets_gen.tasks.ruler import niah
from leaderboards.aggregate.evidence import Evidence, NoEvidenceError, TaskEvidence
from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.studies.declaration import Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import NONE, examples_at, examples_page, in_numbers, list_rows
from policies.declaration.lazy import LazyModule
from policies.declaration.levels import Level
from policies.declaration.names import FULL, RANDOM

stats = LazyModule("scipy.stats")  # its import takes half a second, and few sites need it

NEEDLES = tuple(task.name for task in niah.TASKS)
RATIOS = (0.25, 0.5, 0.75)
LLAMA, QWEN = MODELS = ("Llama-3.1-8B-Instruct", "Qwen3-8B")
# Our policies by the board's names, for each order of compression and question.
RENAMED = {
    "expected_attention": "adakv_expected_attention",
    "observed_attention": "h2o",
    "chunkkv": "chunkkv_snapkv",
}
ON_BOARD = {
    "agnostic": "kvzip fastkvzip expected_attention adakv_compactor keydiff lagkv cur tova snapkv pyramidkv "
    "streaming_llm observed_attention knorm random qfilter duo_attention",
    "aware": "chunkkv adakv_snapkv finch snapkv",
}
OURS = {
    mode: {name: RENAMED.get(name, name) for name in names.split()}
    for mode, names in ON_BOARD.items()
}
APART = 5.0  # points on both models, in the same direction, from which on a pair is in the key
FLOOR, CEILING = (
    5.0,
    95.0,
)  # a task tells nothing of two policies that are both below the one or above the other
CLEAN = 0.6  # of the golds, which the full cache must find


@dataclass(frozen=True)
class Pair:
    """Two policies that both models of the board put in the same order."""

    better: str
    worse: str
    ratio: float
    apart: Mapping[str, float]  # points, by model of the board


@dataclass(frozen=True)
class Judged:
    """A pair on another model. ``difference``: the better minus the worse in points, over ``tasks``; None where no task
    tells the two apart from the floor or the ceiling."""

    pair: Pair
    difference: Estimate | None
    tasks: tuple[str, ...]

    @property
    def verdict(self) -> str:
        if self.difference is None or self.difference.low is None or self.difference.high is None:
            return "not measured"
        if self.difference.low > 0:
            return "same order"
        return "reversed" if self.difference.high < 0 else "cannot tell"


@cache
def scores(mode: str) -> dict[tuple[str, float, str], float]:
    """Reads the mean over the needle tasks by model, ratio and our policy, in percent."""
    board = pd.read_csv(Path(__file__).parent / "board.csv")
    board = board[board["query_aware"] == (mode == "aware")].assign(
        model=board["model"].str.rpartition("/")[2],
        policy=board["press_name"].map(OURS[mode]),
        score=board[list(NEEDLES)].mean(axis=1),
    )
    board = board[board["model"].isin(MODELS) & board["policy"].notna()]
    cells = zip(
        *(board[name] for name in ("model", "configured_ratio", "policy", "score")), strict=True
    )
    return {(model, ratio, policy): score for model, ratio, policy, score in cells}


@cache
def separated(mode: str, ratio: float) -> tuple[Pair, ...]:
    """Lists the pairs that either model puts at least :data:`APART` points apart."""
    known = scores(mode)
    names = [
        name
        for name in OURS[mode].values()
        if all((model, ratio, name) in known for model in MODELS)
    ]
    pairs = []
    for first, second in combinations(names, 2):
        apart = {
            model: known[model, ratio, first] - known[model, ratio, second] for model in MODELS
        }
        if max(map(abs, apart.values())) >= APART:
            if max(apart.values()) < -min(apart.values()):
                first, second, apart = (
                    second,
                    first,
                    {model: -points for model, points in apart.items()},
                )
            pairs.append(Pair(first, second, ratio, apart))
    return tuple(pairs)


def key(mode: str, ratio: float) -> list[Pair]:
    """Lists the pairs that both models put at least :data:`APART` points apart in the same direction. They are the part
    of :func:`separated` that one 8B model has of the other's order."""
    return [pair for pair in separated(mode, ratio) if min(pair.apart.values()) >= APART]


def tau(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """Computes Kendall's tau-b over the policies that both have; None of fewer than three."""
    names = [name for name in first if name in second]
    if len(names) < 3:
        return None
    return float(
        stats.kendalltau(
            [first[name] for name in names], [second[name] for name in names]
        ).statistic
    )


class Order:
    """The order of policies on one model, from the records of its needles."""

    def __init__(self, evidence: Evidence, mode: str) -> None:
        self.mode = mode
        self.tasks: dict[str, TaskEvidence] = {}
        self.unknown: dict[
            str, float
        ] = {}  # the tasks that the full cache cannot do, with what it finds in percent
        # The golds found in percent, shape (1 + resamples,), by task, policy and ratio, of those that ran.
        self.found: dict[tuple[str, str, float], FloatArray] = {}
        for task in map(evidence.of, (name for name in evidence.tasks if name in NEEDLES)):
            found = float(task.mean(FULL, None, "golds_found")[0])
            if found < CLEAN:
                self.unknown[task.task] = 100 * found
                continue
            self.tasks[task.task] = task
            for policy, ratio in product(OURS[mode].values(), RATIOS):
                with suppress(NoEvidenceError):
                    self.found[task.task, policy, ratio] = 100 * task.mean(
                        policy, ratio, "golds_found"
                    )

    def means(self, ratio: float) -> dict[str, float]:
        """Averages each policy that ran on all tasks over them, in percent."""
        means: dict[str, float] = {}
        for name in OURS[self.mode].values():
            cells = [(task, name, ratio) for task in self.tasks]
            if cells and self.found.keys() >= {*cells}:
                means[name] = float(np.mean([self.found[cell][0] for cell in cells]))
        return means

    def judge(self, pair: Pair) -> Judged:
        """Sets two policies against one another on the tasks that can tell them apart."""
        differences = {}
        for task in self.tasks:
            better, worse = (
                self.found.get((task, name, pair.ratio)) for name in (pair.better, pair.worse)
            )
            if better is None or worse is None:
                continue
            if max(better[0], worse[0]) > FLOOR and min(better[0], worse[0]) < CEILING:
                differences[task] = better - worse
        if not differences:
            return Judged(pair, None, ())
        mean = np.mean(list(differences.values()), axis=0)
        contexts = min(self.tasks[task].contexts for task in differences)
        difference = Estimate.of(float(mean[0]), mean[1:] if contexts > 1 else None, contexts)
        return Judged(pair, difference, tuple(differences))

    def judged(self, ratios: Sequence[float] = RATIOS) -> Iterator[Judged]:
        for ratio in ratios:
            yield from map(self.judge, key(self.mode, ratio))


FEWEST_POLICIES = 3  # beside random
LINK = Markup('<a href="{}">{}</a>')
VERDICTS = ("same order", "reversed", "cannot tell", "not measured")
COUNTS = ("model", "ratio", "pairs", *VERDICTS, "tau, Llama", "tau, Qwen")


def _mode_of(study_input: StudyInput) -> str:
    return str(study_input.records["mode"].iloc[0])


def _takes(study_input: StudyInput) -> bool:
    """Takes runs of several needles with several policies of the board."""
    records = study_input.records
    needles = set(map(str, records["task"].unique())) & set(NEEDLES)
    policies = set(map(str, records["policy"].unique()))
    known = policies & set(OURS[_mode_of(study_input)].values()) - {RANDOM}
    return len(needles) > 1 and FULL in policies and len(known) >= FEWEST_POLICIES


REVERSED = (
    "The interval of the paired difference over contexts leaves out 0 on the other side. A task leads to the answers "
    "of the first press, with the tokens that it kept; the second can be chosen there."
)


def build_content(study_input: StudyInput) -> StudyContent:
    """Judges every pair of the key on the model, and counts them beside the other models of the site."""
    mode = _mode_of(study_input)
    order = Order(Evidence(study_input.records), mode)
    judged = list(order.judged())
    beside = [
        (one.model, Order(Evidence(one.records), mode))
        for one in study_input.beside
        if _mode_of(one) == mode
    ]
    counts = tuple(_counts([(study_input.model, order), *beside], mode))
    contexts = sorted({str(one.contexts) for one in order.tasks.values()})
    reversed_here = _reversed(judged, study_input.number)
    return StudyContent(
        parts=[
            StudySection(
                "carried",
                "How much of the order is here",
                f"The key: pairs of presses that both models of 8B parameters put at least {APART:g} points apart, in "
                "the same direction. The last line is the ceiling: what one of the two has of the order of the other.",
                listings=(Listing("Pairs of the key by ratio", COUNTS, counts),),
            ),
            StudySection(
                "reversed",
                "Reversed here",
                REVERSED if reversed_here.rows else "None of the pairs that were measured.",
                listings=(reversed_here,),
            ),
        ],
        facts=[
            *(
                (
                    f"Full cache, {task}",
                    f"{100 * float(of_task.mean(FULL, None, 'golds_found')[0]):.0f} % found",
                )
                for task, of_task in order.tasks.items()
            ),
            *(
                (f"Left out, {task}", f"the full cache finds {found:.0f} %")
                for task, found in order.unknown.items()
            ),
            ("Contexts", ", ".join(contexts) or "none"),
        ],
        sheets=[_sheet(judged)],
    )


def _counts(models: Sequence[tuple[str, Order]], mode: str) -> Iterator[tuple[str, ...]]:
    of_board: dict[tuple[str, float], dict[str, float]] = {}
    for (model, ratio, name), score in scores(mode).items():
        of_board.setdefault((model, ratio), {})[name] = score
    for ratio in RATIOS:
        for name, order in models:
            counts = Counter(one.verdict for one in order.judged([ratio]))
            taus = (tau(order.means(ratio), of_board[model, ratio]) for model in MODELS)
            texts = (NONE if value is None else f"{value:.2f}" for value in taus)
            numbers = (str(counts[verdict]) for verdict in VERDICTS)
            yield (name, f"{ratio:g}", str(len(key(mode, ratio))), *numbers, *texts)
        ceiling = tau(of_board[LLAMA, ratio], of_board[QWEN, ratio])
        same, apart = len(key(mode, ratio)), len(separated(mode, ratio))
        text = NONE if ceiling is None else f"{ceiling:.2f}"
        yield (
            f"{LLAMA} against {QWEN}",
            f"{ratio:g}",
            str(apart),
            str(same),
            *(NONE,) * 3,
            text,
            text,
        )


def _reversed(judged: Sequence[Judged], number: int) -> Listing:
    def examples(one: Judged) -> Markup:
        policy, level = one.pair.better, Level("ratio", one.pair.ratio)
        pages = (
            (examples_at(examples_page(task, number), policy, level), task) for task in one.tasks
        )
        return Markup(", ").join(LINK.format(*page) for page in pages)

    return list_rows(
        "Pairs that are reversed",
        [one for one in judged if one.verdict == "reversed"],
        {
            "better on the board": lambda one: one.pair.better,
            "worse on the board": lambda one: one.pair.worse,
            "ratio": lambda one: f"{one.pair.ratio:g}",
            "here, points": lambda one: in_numbers(one.difference, "+.0f"),
            LLAMA: lambda one: f"{one.pair.apart[LLAMA]:+.0f}",
            QWEN: lambda one: f"{one.pair.apart[QWEN]:+.0f}",
            "tasks": examples,
        },
    )


def _sheet(judged: Sequence[Judged]) -> Sheet:
    rows = [
        {
            "better": one.pair.better,
            "worse": one.pair.worse,
            "ratio": one.pair.ratio,
            "verdict": one.verdict,
            "here_points": one.difference or Estimate(float("nan"), None, None, 0),
            "llama_points": one.pair.apart[LLAMA],
            "qwen_points": one.pair.apart[QWEN],
            "needles": ", ".join(one.tasks),
        }
        for one in judged
    ]
    return Sheet.of("published-pairs", "Pairs of presses of kvpress’s board, on this model", rows)


CHAPTER = Chapter(
    "published",
    "Published orders",
    (
        Definition(
            "Pair of the key",
            f"Two presses that Llama 3.1 8B and Qwen3 8B both put at least {APART:g} points apart in the same "
            "direction on kvpress’s public board, on the mean of RULER’s eight needle tasks at 4,096 tokens. Here both "
            "read the same contexts: the mean over tasks of what they find, with an interval that resamples contexts. "
            f"A task counts where the full cache finds {100 * CLEAN:g} % or more, and where not both are above "
            f"{CEILING:g} or below {FLOOR:g} %. Same order: the interval is above 0. Reversed: it is below 0. tau: "
            "Kendall’s tau-b of our means and the board’s, over the presses that both have.",
            source="kvpress’s leaderboard, kept in lapidoty/kvpress-centrality",
        ),
    ),
)
STUDY = Study(
    name="published",
    title="Does the order carry over?",
    lead="kvpress publishes how its presses do on two models of 8B parameters. Do they keep needles in the same order "
    "on this one?",
    takes=_takes,
    find=build_content,
    chapter=CHAPTER,
)
