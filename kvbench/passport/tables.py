"""The tables of a passport: layers, and formats with what is foretold and what came of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields

from kvbench.passport.facts import LayerFacts
from kvbench.passport.forecast import LAYER_MOVED, MOST_MOVED, FormatForecast
from kvbench.passport.trial import MOST_LOST, FormatOutcome
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.terminal.result_table import Column, ResultTable

LAYERS_TITLE = "Rows of the cache by layer"
FORMATS_TITLE = "Formats: foretold"
TRIED_TITLE = "Formats: what came of it"
# By fact, its title in a terminal, and how many digits it has behind the point.
SHOWN = {
    "layer": ("layer", 0),
    "slides": ("sees", 0),
    "key_bias": ("bias", 1),
    "key_magnitude": ("largest", 1),
    "outlier_channels": ("outliers", 0),
    "below_step": ("below step", 2),
    "sink_attention": ("sinks", 2),
    "norm_rank": ("norm", 2),
    "likeness_rank": ("likeness", 2),
}


def layers_table(facts: Sequence[LayerFacts]) -> ResultTable:
    """Returns a line for each layer; programs get all facts."""
    columns = []
    names = [field.name for field in fields(LayerFacts)]
    for name in names:
        if name in SHOWN:
            title, digits = SHOWN[name]
            columns.append(Column(name, title, _rounded(digits), right=True))
        else:
            columns.append(Column(name, shown=False))
    rows = [[getattr(layer, name) for name in names] for layer in facts]
    caption = (
        "largest: magnitude of a key; outliers: channels of keys that stand out; below step: share "
        "of channels that vary less than a step of q4_0; sinks: attention on the first tokens; "
        "norm, likeness: what K-Norm and KeyDiff rank by, against attention (Spearman)"
    )
    return ResultTable("layers", columns, rows, LAYERS_TITLE, caption)


def _rounded(digits: int) -> Callable[[float | None], str]:
    """Makes what writes a number with so many digits behind the point; a layer that sees all tokens
    has none."""

    def text(value: float | None) -> str:
        return "all" if value is None else f"{value:.{digits}f}"

    return text


def formats_table(
    forecasts: Sequence[FormatForecast], bytes_of_formats: Mapping[str, float]
) -> ResultTable:
    """Returns a line for each format, with what is foretold. ``bytes_of_formats``: percent of a
    cache in 16 bits."""
    columns = [
        Column("format"),
        Column("bytes", "bytes, %", "{:.0f}".format, right=True),
        Column("forecast"),
        Column("moved", "moved, %", lambda share: f"{100 * share:.0f}", right=True),
        Column("layers", "in layers", layers_text, of_sentences=True),
        Column("mends", "what would hold", ", ".join, of_sentences=True),
        Column("output_error", shown=False),
        Column("key_error", shown=False),
        Column("value_error", shown=False),
    ]
    caption = (
        f"moved: attention that goes to other tokens, mean over layers; a format breaks beyond "
        f"{100 * MOST_MOVED:.0f} %. Layers: those beyond {100 * LAYER_MOVED:.0f} %"
    )
    rows = []
    for foretold in forecasts:
        row: list[object] = [
            foretold.format,
            bytes_of_formats[foretold.format],
            foretold.word,
            foretold.moved,
            foretold.layers,
            foretold.mends,
            foretold.output_error,
            foretold.key_error,
            foretold.value_error,
        ]
        rows.append(row)
    return ResultTable("formats", columns, rows, FORMATS_TITLE, caption)


def outcomes_table(
    forecasts: Sequence[FormatForecast], outcomes: Mapping[str, FormatOutcome]
) -> ResultTable:
    """Returns a line for each format, with what became of the questions and of its forecast."""
    # Beside the forecasts there is no room in a terminal of 80 columns.
    columns = [
        Column("format"),
        Column("forecast"),
        Column("right", "right, %", "{:.0f}".format, right=True),
        Column("lost", "lost", _lost_text, right=True),
        Column("perplexity", "perplexity", "{:.2f}".format, right=True),
        Column("outcome"),
    ]
    rows: list[list[object]] = []
    for foretold in forecasts:
        outcome = outcomes[foretold.format]
        word = "broke" if outcome.broke else "held"
        if outcome.broke != foretold.breaks:
            word += ": wrong"
        numbers = [outcome.right, outcome.lost, outcome.perplexity]
        rows.append([foretold.format, foretold.word, *numbers, word])
    caption = (
        f"It broke where more than {MOST_LOST:.0f} points of right answers are lost. Perplexity: of "
        "the right answers, as a multiple of that with the full cache"
    )
    return ResultTable("outcomes", columns, rows, TRIED_TITLE, caption)


def _lost_text(lost: Estimate) -> str:
    return f"{lost.mean:.0f}"


def layers_text(layers: Sequence[int]) -> str:
    """Writes layers with runs of them joined.

    >>> layers_text([0, 1, 2, 5])
    '0-2, 5'
    """
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][1] + 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
