"""The study of published orders: does the order of presses on kvpress's board carry over to a model?"""

from collections import Counter
from collections.abc import Iterator, Sequence

from leaderboards.aggregate.evidence import Evidence
from leaderboards.downloads.sheets import Sheet
from leaderboards.metrics.declaration.definition import Chapter, Definition, estimates
from leaderboards.rendering.listing import Listing
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Study, StudyContent, StudyInput, StudySection
from leaderboards.studies.published.board import (
    APART,
    CEILING,
    CLEAN,
    FLOOR,
    LLAMA,
    MODELS,
    NEEDLES,
    OURS,
    QWEN,
    RATIOS,
    Judged,
    Order,
    key,
    scores,
    separated,
    tau,
)
from policies.declaration.names import FULL

FEWEST_POLICIES = 4
VERDICTS = ("same order", "reversed", "cannot tell", "not measured")
COUNTS = ("model", "ratio", "pairs", *VERDICTS, "tau, Llama", "tau, Qwen")
PAIRS = ("better on the board", "worse on the board", "ratio", "verdict", "here, points", LLAMA, QWEN, "tasks")


def _takes(given: StudyInput) -> bool:
    """Takes runs of several needles with several policies of the board."""
    records = given.records
    needles = set(map(str, records["task"].unique())) & set(NEEDLES)
    policies = set(map(str, records["policy"].unique()))
    known = policies & set(OURS[str(records["mode"].iloc[0])].values())
    return len(needles) > 1 and FULL in policies and len(known) >= FEWEST_POLICIES


def content_of(given: StudyInput) -> StudyContent:
    """Judges every pair of the key on the model, and counts them beside the other models of the site."""
    mode = str(given.records["mode"].iloc[0])
    order = Order(Evidence(given.records), mode)
    judged = list(order.judged())
    beside = [(one.model, Order(Evidence(one.records), mode)) for one in given.beside if _takes(one)]
    models = [(given.model, order), *beside]
    measured = [one for one in judged if one.verdict != "not measured"]
    return StudyContent(
        parts=[
            StudySection(
                "carried",
                "How much of the order is here",
                f"The key: pairs of presses that both models of 8B parameters put at least {APART:g} points apart, in "
                "the same direction. The last line is the ceiling: what one of the two has of the order of the other.",
                listings=(Listing("Pairs of the key by ratio", COUNTS, tuple(_counts(models, mode))),),
            ),
            StudySection(
                "reversed",
                "Reversed here",
                "The interval of the paired difference over contexts leaves out 0 on the other side. The pages of "
                "examples show the answers of both with the tokens that they kept.",
                listings=(Listing("Pairs that are reversed", PAIRS, _pair_rows(measured, "reversed")),),
            ),
            StudySection(
                "means",
                "What each press keeps",
                "Percent of needles found, mean over the tasks that the full cache can do, beside the board’s mean "
                "over its eight.",
                listings=(Listing("Needles found by press", _mean_columns(given.model), tuple(_means(order))),),
            ),
            StudySection(
                "pairs",
                "Every pair",
                "The pairs of the key that have the same order here, and those that so few contexts cannot tell.",
                details=tuple(
                    Listing(f"Pairs: {verdict}", PAIRS, _pair_rows(judged, verdict))
                    for verdict in VERDICTS
                    if verdict != "reversed"
                ),
            ),
        ],
        facts=[
            *(
                (f"Full cache, {task}", f"{100 * float(of_task.mean(FULL, None, 'golds_found')[0]):.0f} % found")
                for task, of_task in order.tasks.items()
            ),
            *((f"Left out, {task}", f"the full cache finds {found:.0f} %") for task, found in order.unknown.items()),
            ("Contexts", ", ".join(sorted({str(one.contexts) for one in order.tasks.values()})) or "none"),
        ],
        sheets=[_sheet(judged)],
        quoted={verdict: sum(one.verdict == verdict for one in judged) for verdict in VERDICTS},
    )


def _counts(models: Sequence[tuple[str, Order]], mode: str) -> Iterator[tuple[str, ...]]:
    board = scores(mode)
    of_board: dict[tuple[str, float], dict[str, float]] = {}
    for (model, ratio, name), score in board.items():
        of_board.setdefault((model, ratio), {})[name] = score
    for ratio in RATIOS:
        for name, order in models:
            counts = Counter(one.verdict for one in order.judged([ratio]))
            taus = (tau(order.means(ratio), of_board[model, ratio]) for model in MODELS)
            texts = ("–" if value is None else f"{value:.2f}" for value in taus)
            numbers = (str(counts[verdict]) for verdict in VERDICTS)
            yield (name, f"{ratio:g}", str(len(key(mode, ratio))), *numbers, *texts)
        ceiling = tau(of_board[LLAMA, ratio], of_board[QWEN, ratio])
        same, apart = len(key(mode, ratio)), separated(mode, ratio)
        text = "–" if ceiling is None else f"{ceiling:.2f}"
        yield (f"{LLAMA} against {QWEN}", f"{ratio:g}", str(apart), str(same), *("–",) * 3, text, text)


def _pair_rows(judged: Sequence[Judged], verdict: str) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (
            one.pair.better,
            one.pair.worse,
            f"{one.pair.ratio:g}",
            one.verdict,
            _points(one.difference),
            *(f"{one.pair.apart[model]:+.0f}" for model in MODELS),
            ", ".join(one.tasks) or "no task between floor and ceiling",
        )
        for one in judged
        if one.verdict == verdict
    )


def _points(difference: Estimate | None) -> str:
    if difference is None:
        return "–"
    interval = "" if difference.low is None else f" ({difference.low:+.0f} to {difference.high:+.0f})"
    return f"{difference.mean:+.0f}{interval}"


def _mean_columns(model: str) -> tuple[str, ...]:
    return ("press", *(f"{name} at {ratio:g}" for ratio in RATIOS for name in (model, "Llama", "Qwen")))


def _means(order: Order) -> Iterator[tuple[str, ...]]:
    board, ours = scores(order.mode), {ratio: order.means(ratio) for ratio in RATIOS}
    ranked = sorted(OURS[order.mode].values(), key=lambda name: -ours[RATIOS[1]].get(name, -1.0))
    for name in ranked:
        values = [
            value
            for ratio in RATIOS
            for value in (ours[ratio].get(name), *(board.get((model, ratio, name)) for model in MODELS))
        ]
        yield (name, *("–" if value is None else f"{value:.0f}" for value in values))


def _sheet(judged: Sequence[Judged]) -> Sheet:
    columns = ("better", "worse", "ratio", "verdict", "here_points", "llama_points", "qwen_points", "needles")
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
    return Sheet.of("published-pairs", "Pairs of presses of kvpress’s board, on this model", rows, columns)


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
            names=(
                *("better on the board", "worse on the board", "better", "worse", *VERDICTS),
                *("here, points", *estimates("here_points"), "llama_points", "qwen_points", LLAMA, QWEN),
                *("tau, Llama", "tau, Qwen", "needles"),
            ),
        ),
    ),
)
STUDY = Study(
    name="published",
    title="Does the order carry over?",
    lead="kvpress publishes how its presses do on two models of 8B parameters. Do they keep needles in the same order "
    "on this one?",
    takes=_takes,
    find=content_of,
    chapter=CHAPTER,
)
