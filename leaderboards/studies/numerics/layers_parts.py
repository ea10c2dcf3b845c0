"""The sections of the page, downloads and definitions on where a difference of both paths comes from."""

from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup
from pandas import DataFrame

from leaderboards.downloads.sheets import Sheet
from leaderboards.figures.panels import BandedLine, panel
from leaderboards.metrics.declaration.definition import Definition, estimates
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.statistics.resampling import Estimate
from leaderboards.statistics.significance import p_text
from leaderboards.studies.declaration import Picture, StudySection
from leaderboards.studies.numerics.layers import (
    ALL,
    Drift,
    Misplaced,
    Recovery,
    drift_of,
    groups_of,
    products_of,
    recoveries_of,
)
from leaderboards.studies.numerics.pairs import DTYPES

MILLION = 1e6
PATCHED = ("residual", "keys and values", "both")  # that are drawn: "residual so far" gives what "residual" gives
NO_FLIP = (
    "No answer has another token with the cache than without it, so that there is no flip to localise. Patched is the "
    "step of each answer with the largest divergence instead: it tells where rounding lies, not where answers part."
)


def nats(value: float | None) -> str:
    return "–" if value is None or value != value else f"{value:.2g}"


def ranged(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    return nats(estimate.mean) + ("" if estimate.interval is None else " [{:.2g} to {:.2g}]".format(*estimate.interval))


def drift_parts(
    table: DataFrame, alarms: Mapping[tuple[str, str], Misplaced]
) -> tuple[list[StudySection], list[Sheet]]:
    rows = drift_of(table)
    if not rows:
        return [], []
    lines = tuple(
        (
            f"{one.task}, {one.dtype}, layer {one.layer}",
            *map(nats, (one.keys_prompt, one.keys_answer, one.values_prompt, one.values_answer)),
            ranged(one.hidden),
            *map(nats, (1 - one.hidden_cosine, one.hidden_l2, one.predicted_l2, one.attention_kl)),
            ranged(one.growth),
            *("–" if p is None else p_text(p) for p in (one.p_layer, one.p_layer_bh)),
        )
        for one in rows
    )
    columns = ("layer", "keys, prompt", "keys, answer", "values, prompt", "values, answer", "stream", "1 − cosine")
    more = ("distance", "predicted", "attention KL", "growth", "Mann-Whitney p", "p, BH")
    products = products_of(table)
    by_length = tuple((one.dtype, str(one.length), nats(one.product_error)) for one in products)
    named = "; ".join(f"{task}, {dtype}: {what}" for (dtype, task), what in alarms.items())
    section = StudySection(
        "drift",
        "How the error enters",
        (f"Misaligned: cache on was given {named}. " if named else "")
        + "Behind the same tokens, layer by layer: rows of the cache that cache on wrote one by one, against those "
        "that cache off computes with the whole sequence, and the residual stream of the last token. Where tokens and "
        "positions are equal, keys and values of the first layer differ by rounding alone; anything more is named at "
        "the top. Predicted is the distance if what each layer adds by itself were added up as independent errors are.",
        tuple(named_styles(_dtypes(rows)).values()),
        tuple(_drift_pictures(rows)),
        (Listing("Products of a state with output weights", ("dtype", "length", "error of a product"), by_length),),
        (Listing("Drift by layer", (*columns, *more), lines),),
    )
    sheets = [
        Sheet.of("numerics-drift", "Drift by layer", [vars(one) for one in rows], kinds={"growth": Estimate}),
        Sheet.of("numerics-products", "Errors of dot products", [vars(one) for one in products]),
    ]
    return [section], sheets


def _dtypes(rows: Sequence[Drift]) -> list[str]:
    return [dtype for dtype in DTYPES if dtype in {one.dtype for one in rows}]


def _drift_pictures(rows: Sequence[Drift]) -> Iterator[Picture]:
    """Draws each task and dtype: they are of other orders of magnitude."""
    styles = named_styles(_dtypes(rows))
    for task, dtype in dict.fromkeys((one.task, one.dtype) for one in rows):
        own = [one for one in rows if (one.task, one.dtype) == (task, dtype)]
        line = BandedLine(
            styles[dtype],
            tuple((one.layer, MILLION * one.hidden.mean) for one in own),
            tuple(MILLION * (one.hidden.low or 0.0) for one in own) if own[0].hidden.interval else (),
            tuple(MILLION * (one.hidden.high or 0.0) for one in own) if own[0].hidden.interval else (),
        )
        highest = [MILLION * max(one.hidden.high or 0.0, one.hidden.mean) for one in own]
        title = f"Drift of the residual stream, {task} in {dtype}"
        drawing = panel([line], _layers(len(own)), Axis.from_values("", highest), title, f"drift/{task}/{dtype}")
        yield Picture(f"{task}, {dtype}", "relative drift in millionths, by layer", Markup(drawing))


def _layers(count: int) -> Axis:
    step = max(1, -(-(count - 1) // 6))
    return Axis("layer", tuple(float(layer) for layer in range(0, count, step)), -0.3, count - 0.7)


def patch_parts(table: DataFrame) -> tuple[list[StudySection], list[Sheet]]:
    rows = recoveries_of(table)
    if not rows:
        return [], []
    flips = any(one.at_flip for one in rows)
    shown = [one for one in rows if one.at_flip == flips]
    styles = named_styles(PATCHED)
    layers = max(one.layer for one in rows) + 1
    listed = [one for one in shown if one.layer in (ALL, layers // 2)]
    lines = tuple(
        (
            f"{one.dtype}: {one.patched}, {'all layers' if one.layer == ALL else f'layer {one.layer}'}",
            str(one.cases),
            f"{100 * one.median:.0f} %",
            _percent(one.recovered),
        )
        for one in listed
    )
    section = StudySection(
        "patches",
        "Where the difference lies",
        ("" if flips else NO_FLIP + " ")
        + "The pass of cache on over one token is repeated with parts of cache off in it: the residual stream of that "
        "token behind a layer, the rows of keys and values before it in a layer, or both. Recovery is the share of the "
        "divergence that goes. Behind the last layer the stream is all that logits are computed from, so that it "
        "recovers everything there by definition; the stream of earlier layers adds nothing to that of a later one.",
        tuple(styles.values()),
        tuple(
            _recovery_picture(styles, [one for one in shown if one.dtype == dtype], dtype, layers)
            for dtype in dict.fromkeys(one.dtype for one in shown)
        ),
        (Listing("Recovery by what is patched", ("patched", "cases", "median recovery", "mean recovery"), lines),),
    )
    return [section], [Sheet.of("numerics-patches", "Recovery by patches", [vars(one) for one in rows])]


def _percent(estimate: Estimate) -> str:
    ends = "" if estimate.interval is None else " [{:z.0f} to {:z.0f}]".format(*(100 * x for x in estimate.interval))
    return f"{100 * estimate.mean:z.0f} %{ends}"


def _recovery_picture(styles: Mapping[str, LineStyle], rows: Sequence[Recovery], dtype: str, layers: int) -> Picture:
    lines = [
        BandedLine(
            style, tuple((float(one.layer), one.median) for one in rows if one.patched == name and one.layer != ALL)
        )
        for name, style in styles.items()
    ]
    values = [y for line in lines for _, y in line.places]
    title = f"Recovery by patching one layer, {dtype}"
    drawing = panel(lines, _layers(layers), Axis.from_values("", [*values, 1.0]), title, f"patches/{dtype}")
    return Picture(dtype, "median recovery, by the layer that is patched", Markup(drawing))


def group_parts(table: DataFrame) -> tuple[list[StudySection], list[Sheet]]:
    rows = groups_of(table)
    whose = {"model": "this model", "random": "random weights"}
    lines = tuple(
        (
            f"{one.dtype}, {whose[one.whose]}",
            str(one.size),
            *map(ranged, (one.after_first, one.last_layer, one.amplified)),
        )
        for one in rows
    )
    columns = ("dtype and weights", "query heads to a head", "drift after layer 0", "drift, last layer", "amplified")
    section = StudySection(
        "groups",
        "Does sharing amplify?",
        "Heads of keys and values are repeated, so that fewer query heads share one: the function is the same, and "
        "only the sharing differs. Random weights have 8 query heads over one head. Amplified is the ratio of the "
        "drift after the first layer to the drift with one query head to a head: above 1, sharing amplifies.",
        listings=(Listing("Drift by how many query heads share a head", columns, lines),),
    )
    return [section], [Sheet.of("numerics-groups", "Drift by groups of heads", [vars(one) for one in rows])]


DEFINITIONS = (
    Definition(
        "Drift of both paths",
        "How far what cache on computes is from what cache off does behind the same tokens, as the distance over the "
        "length of cache off’s: of rows of keys and values, those of the prompt and those that cache on wrote one by "
        "one, and of the residual stream of the last token. Distance and predicted are root mean squares of the stream "
        "itself: predicted adds up, as independent errors add up, what each layer puts out otherwise where it is given "
        "cache off’s stream and rows and reads one token instead of all. Attention KL is of the last token’s "
        "attention, mean over heads; growth is the rank correlation of step and drift of the row written then, mean "
        "over answers. "
        "The p of Mann and Whitney compares contexts in a layer with contexts in the first, corrected over all layers, "
        "tasks and dtypes by the method of Benjamini and Hochberg.",
        "relative = ‖on − off‖ / ‖off‖; predicted² = Σ over layers up to this one of mean added²",
        names=(
            *("keys, prompt", "keys, answer", "values, prompt", "values, answer", "stream", "1 − cosine"),
            *("distance", "predicted", "attention KL", "growth", "Mann-Whitney p", "p, BH"),
            *("keys_prompt", "keys_answer", "values_prompt", "values_answer", "hidden_cosine", "hidden_l2"),
            *("predicted_l2", "attention_kl", "p_layer", "p_layer_bh", *estimates("hidden", "growth")),
        ),
    ),
    Definition(
        "Error of a product",
        "The root mean square of a dot product’s error against float64, over the lengths of both vectors: the first "
        "numbers of the residual stream with as many of up to 256 rows of the output weights, over all layers.",
        names=("length", "product_error", "error of a product"),
    ),
    Definition(
        "Recovery",
        "The share of the divergence of cache on from cache off that goes if a part of cache on’s pass over one token "
        "is cache off’s, or if both are computed with a remedy. At "
        "flip: at the first token that differs; else at the step with the largest divergence.",
        "recovery = 1 − KL patched / KL",
        names=(
            *("patched", "cases", "median recovery", "mean recovery", "at_flip", "median"),
            *estimates("recovered"),
        ),
    ),
    Definition(
        "Groups of heads",
        "Query heads that share a head of keys and values. Repeating that head for each of them gives a model of equal "
        "function in which fewer share one. Drift is that of the residual stream over three tokens read one by one.",
        names=(
            *("dtype and weights", "query heads to a head", "drift after layer 0", "drift, last layer"),
            *("whose", "size", *estimates("after_first", "last_layer", "amplified")),
        ),
    ),
)
