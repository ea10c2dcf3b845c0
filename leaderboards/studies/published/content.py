"""The study of published orders: does the order of presses on kvpress's public board carry over to
a model?

``board.csv`` is the board on RULER at 4,096 tokens as the repository lapidoty/kvpress-centrality
keeps it (Apache-2.0): Llama 3.1 8B and Qwen3 8B, 500 items a task."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from leaderboards.rendering.templating import Listing
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.studies.declaration import StudyContent, StudyInput, StudySection
from leaderboards.studies.parts import NONE, examples_at, examples_page, in_numbers, list_rows
from leaderboards.studies.published.definitions import APART, CEILING, CLEAN, FLOOR
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
OURS: dict[str, dict[str, str]] = {}
for mode, names in ON_BOARD.items():
    OURS[mode] = {name: RENAMED.get(name, name) for name in names.split()}


@dataclass(frozen=True)
class Pair:
    """Two policies that both models of the board put in the same order."""

    better: str
    worse: str
    ratio: float
    apart: Mapping[str, float]  # points, by model of the board


@dataclass(frozen=True)
class Judged:
    """A pair on another model. ``difference``: the better minus the worse in points, over
    ``tasks``; None where no task tells the two apart from the floor or the ceiling."""

    pair: Pair
    difference: Estimate | None
    tasks: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Says whether the interval of the difference is above 0, below it, or around it."""
        if self.difference is None or self.difference.interval is None:
            return "not measured"
        low, high = self.difference.interval
        if low > 0:
            return "same order"
        if high < 0:
            return "reversed"
        return "cannot tell"


@cache
def scores(mode: str) -> dict[tuple[str, float, str], float]:
    """Reads the mean over the needle tasks by model, ratio and our policy, in percent."""
    board = pd.read_csv(Path(__file__).parent / "board.csv")
    board = board[board["query_aware"] == (mode == "aware")]
    board = board.assign(
        model=board["model"].str.rpartition("/")[2],
        policy=board["press_name"].map(OURS[mode]),
        score=board[list(NEEDLES)].mean(axis=1),
    )
    board = board[board["model"].isin(MODELS) & board["policy"].notna()]
    by_cell = board.set_index(["model", "configured_ratio", "policy"])
    return dict(by_cell["score"].items())


@cache
def separated(mode: str, ratio: float) -> tuple[Pair, ...]:
    """Lists the pairs that either model puts at least :data:`APART` points apart."""
    of_llama = scores_at(mode, LLAMA, ratio)
    of_qwen = scores_at(mode, QWEN, ratio)
    # In the order of the list above, so that the pairs come in the same order on each page.
    names = [name for name in OURS[mode].values() if name in of_llama and name in of_qwen]
    pairs = []
    for first, second in combinations(names, 2):
        for_llama = of_llama[first] - of_llama[second]
        for_qwen = of_qwen[first] - of_qwen[second]
        highest, lowest = max(for_llama, for_qwen), min(for_llama, for_qwen)
        if max(highest, -lowest) < APART:
            continue
        if highest < -lowest:  # the one that is farther apart says which is better
            first, second = second, first
            for_llama, for_qwen = -for_llama, -for_qwen
        pairs.append(Pair(first, second, ratio, {LLAMA: for_llama, QWEN: for_qwen}))
    return tuple(pairs)


def scores_at(mode: str, model: str, ratio: float) -> dict[str, float]:
    """Returns what the board has of a model at a ratio by our policy, in percent, in the order of
    the board."""
    by_policy = {}
    for (other, place, policy), score in scores(mode).items():
        if (other, place) == (model, ratio):
            by_policy[policy] = score
    return by_policy


def key(mode: str, ratio: float) -> list[Pair]:
    """Lists the pairs that both models put at least :data:`APART` points apart in the same
    direction. They are the part of :func:`separated` that one 8B model has of the other's order."""
    return [pair for pair in separated(mode, ratio) if min(pair.apart.values()) >= APART]


def tau(first: Mapping[str, float], second: Mapping[str, float]) -> float | None:
    """Computes Kendall's tau-b over the policies that both have; None of fewer than three."""
    values, others = [], []
    for name, value in first.items():
        if name in second:
            values.append(value)
            others.append(second[name])
    # Of two policies tau is 1 or -1, whatever they are.
    if len(values) < 3:
        return None
    return float(stats.kendalltau(values, others).statistic)


class Order:
    """The order of policies on one model, from the records of its needles."""

    def __init__(self, evidence: Evidence, mode: str) -> None:
        self.mode = mode
        self.tasks: dict[str, TaskEvidence] = {}
        # The tasks that the full cache cannot do, with what it finds in percent.
        self.unknown: dict[str, float] = {}
        # The golds found in percent, shape (1 + resamples,), by task, policy and ratio, of those
        # that ran.
        self.shares: dict[tuple[str, str, float], FloatArray] = {}
        for name in evidence.tasks:
            if name in NEEDLES:
                self._add(evidence.of(name))

    def _add(self, task: TaskEvidence) -> None:
        """Takes in a task, if the full cache can do it."""
        share = float(task.mean(FULL, None, "golds_found")[0])
        if share < CLEAN:
            self.unknown[task.task] = 100 * share
            return
        self.tasks[task.task] = task
        for policy, ratio in product(OURS[self.mode].values(), RATIOS):
            with suppress(NoEvidenceError):
                percent = 100 * task.mean(policy, ratio, "golds_found")
                self.shares[task.task, policy, ratio] = percent

    def means(self, ratio: float) -> dict[str, float]:
        """Averages each policy that ran on all tasks over them, in percent."""
        means: dict[str, float] = {}
        for name in OURS[self.mode].values():
            shares = []
            for task in self.tasks:
                if (task, name, ratio) in self.shares:
                    shares.append(self.shares[task, name, ratio][0])
            # A mean over fewer tasks would be one of easier or harder tasks than its neighbours'.
            if shares and len(shares) == len(self.tasks):
                means[name] = float(np.mean(shares))
        return means

    def judge(self, pair: Pair) -> Judged:
        """Sets two policies against one another on the tasks that can tell them apart."""
        differences = {}
        for task in self.tasks:
            better = self.shares.get((task, pair.better, pair.ratio))
            worse = self.shares.get((task, pair.worse, pair.ratio))
            if better is None or worse is None:
                continue
            if max(better[0], worse[0]) > FLOOR and min(better[0], worse[0]) < CEILING:
                differences[task] = better - worse
        if not differences:
            return Judged(pair, None, ())
        mean = np.mean(list(differences.values()), axis=0)
        contexts = min(self.tasks[task].contexts for task in differences)
        # Tasks are resampled by seeds of their own, and so averaged resample by resample.
        resampled = None
        if contexts > 1:
            resampled = mean[1:]
        difference = Estimate.of(float(mean[0]), resampled, contexts)
        return Judged(pair, difference, tuple(differences))

    def judged(self, ratios: Sequence[float] = RATIOS) -> Iterator[Judged]:
        for ratio in ratios:
            yield from map(self.judge, key(self.mode, ratio))

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Says what the full cache finds of each task, and which are left out."""
        facts = []
        for name, task in self.tasks.items():
            share = float(task.mean(FULL, None, "golds_found")[0])
            facts.append((f"Full cache, {name}", f"{100 * share:.0f} % found"))
        for name, percent in self.unknown.items():
            text = f"the full cache finds {percent:.0f} %"
            facts += [(f"Left out, {name}", text)]
        contexts = sorted({str(task.contexts) for task in self.tasks.values()})
        facts.append(("Contexts", ", ".join(contexts) or "none"))
        return facts


FEWEST_POLICIES = 3  # beside random
LINK = Markup('<a href="{}">{}</a>')
VERDICTS = ("same order", "reversed", "cannot tell", "not measured")
COUNTS = ("model", "ratio", "pairs", *VERDICTS, "tau, Llama", "tau, Qwen")


def has_policies_of_board(study_input: StudyInput) -> bool:
    """Tells whether results have the full cache and several policies of the board."""
    policies = set(map(str, study_input.records["policy"].unique()))
    on_board = policies & set(OURS[study_input.mode].values()) - {RANDOM}
    return FULL in policies and len(on_board) >= FEWEST_POLICIES


REVERSED = (
    "The interval of the paired difference over contexts leaves out 0 on the other side. A task "
    "leads to the answers of the first press, with the tokens that it kept; the second can be "
    "chosen there."
)


def build_content(study_input: StudyInput) -> StudyContent:
    """Judges every pair of the key on the model, and counts them beside the other models of the
    site."""
    mode = study_input.mode
    order = Order(Evidence(study_input.records), mode)
    models = [(study_input.model, order)]
    for other in study_input.beside:
        if other.mode == mode:
            order_there = Order(Evidence(other.records), mode)
            models.append((other.model, order_there))
    judged = list(order.judged())
    counts = Listing("Pairs of the key by ratio", COUNTS, tuple(_counts(models, mode)))
    reversed_here = _reversed(judged, study_input.number)
    carried_text = (
        f"The key: pairs of presses that both models of 8B parameters put at least {APART:g} "
        "points apart, in the same direction. The last line is the ceiling: what one of the two "
        "has of the order of the other."
    )
    if reversed_here.rows:
        reversed_text = REVERSED
    else:
        reversed_text = "None of the pairs that were measured."
    carried_title = "How much of the order is here"
    parts = [
        StudySection("carried", carried_title, carried_text, listings=(counts,)),
        StudySection("reversed", "Reversed here", reversed_text, listings=(reversed_here,)),
    ]
    return StudyContent(parts, order.facts, [_sheet(judged)])


def _counts(models: Sequence[tuple[str, Order]], mode: str) -> Iterator[tuple[str, ...]]:
    """Yields a line for each ratio and model, and one for the two models of the board against each
    other."""
    for ratio in RATIOS:
        of_llama = scores_at(mode, LLAMA, ratio)
        of_qwen = scores_at(mode, QWEN, ratio)
        same = str(len(key(mode, ratio)))
        for name, order in models:
            verdicts = Counter(judged.verdict for judged in order.judged([ratio]))
            numbers = [str(verdicts[verdict]) for verdict in VERDICTS]
            means = order.means(ratio)
            taus = (_tau_text(means, of_llama), _tau_text(means, of_qwen))
            yield (name, f"{ratio:g}", same, *numbers, *taus)
        # The ceiling: of the pairs that either model puts apart, those that the other one puts
        # apart in the same direction.
        apart = str(len(separated(mode, ratio)))
        ceiling = _tau_text(of_llama, of_qwen)
        name = f"{LLAMA} against {QWEN}"
        yield (name, f"{ratio:g}", apart, same, NONE, NONE, NONE, ceiling, ceiling)


def _tau_text(first: Mapping[str, float], second: Mapping[str, float]) -> str:
    correlation = tau(first, second)
    return NONE if correlation is None else f"{correlation:.2f}"


def _reversed(judged: Sequence[Judged], number: int) -> Listing:
    """Lists the pairs that are reversed on the model. ``number``: of its results on the site."""
    columns: dict[str, Callable[[Judged], object]] = {
        "better on the board": lambda result: result.pair.better,
        "worse on the board": lambda result: result.pair.worse,
        "ratio": lambda result: f"{result.pair.ratio:g}",
        "here, points": lambda result: in_numbers(result.difference, "+.0f"),
        LLAMA: lambda result: f"{result.pair.apart[LLAMA]:+.0f}",
        QWEN: lambda result: f"{result.pair.apart[QWEN]:+.0f}",
        "tasks": lambda result: _links(result, number),
    }
    rows = [result for result in judged if result.verdict == "reversed"]
    return list_rows("Pairs that are reversed", rows, columns)


def _links(result: Judged, number: int) -> Markup:
    """Links each task to its examples of the first press."""
    level = Level("ratio", result.pair.ratio)
    links = []
    for task in result.tasks:
        page = examples_page(task, number)
        links.append(LINK.format(examples_at(page, result.pair.better, level), task))
    return Markup(", ").join(links)


def _sheet(judged: Sequence[Judged]) -> Sheet:
    nothing = Estimate(float("nan"), None, None, 0)
    rows = []
    for result in judged:
        pair = result.pair
        row = {
            "better": pair.better,
            "worse": pair.worse,
            "ratio": pair.ratio,
            "verdict": result.verdict,
            "here_points": result.difference or nothing,
            "llama_points": pair.apart[LLAMA],
            "qwen_points": pair.apart[QWEN],
            "needles": ", ".join(result.tasks),
        }
        rows.append(row)
    title = "Pairs of presses of kvpress’s board, on this model"
    return Sheet.of("published-pairs", title, rows)
