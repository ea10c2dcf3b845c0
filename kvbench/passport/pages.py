"""Publishes the passport of a model's cache: its page, and the file that other tools read."""

import json
from pathlib import Path

from kvbench.passport.facts import LayerFacts
from kvbench.passport.forecast import MOST_MOVED, FormatForecast
from kvbench.passport.passport import Passport
from kvbench.passport.tables import layers_text
from kvbench.passport.trial import MOST_LOST
from kvbench.publish.places import name_of_place
from kvbench.publish.site_list import ROOT
from kvbench.system.files import write_text_atomically
from leaderboards.pages.passport import PASSPORT, FormatRow, LayerRow, build_passport

PASSPORT_FILE = "passport.json"
# By the title of a column, what it means.
FACT_COLUMNS = {
    "sees": "The tokens that a sliding layer sees; all where it does not slide.",
    "bias of keys": "The largest magnitude in the bias that is added to the keys, from the weights.",
    "largest key": "The largest magnitude of a key of the text, behind the rotation by position.",
    "spread of keys": "By channel: the largest key less the least, over tokens; the median channel.",
    "spread of values": "By token: the largest number of a value less the least; the median token.",
    "channels that stand out": "Their largest key is five times that of the median channel, or more.",
    "below a step": "Share of the channels that vary by less than a step of q4_0 in their block of 32.",
    "sinks": "Share of the attention that rests on the first four tokens.",
    "norm of the first key": "As a share of the median norm of keys.",
    "norm and attention": "Spearman's correlation of a key's norm, by which K-Norm evicts, with the attention that it gets.",
    "likeness and attention": "The same of a key's cosine to the mean key, by which KeyDiff evicts.",
}


def publish_passport(passport: Passport, site: Path | None) -> dict[str, Path]:
    """Writes page and file into a folder, by default one in that of all sites; returns both by what
    they are."""
    name = name_of_place(passport.model)
    folder = site or ROOT / f"passport-{name}"
    content = passport.as_rows() | {"model": name}
    page, file = folder / PASSPORT, folder / PASSPORT_FILE
    write_text_atomically(file, json.dumps(content, indent=1) + "\n")
    questions = ""
    if passport.outcomes:
        count = next(iter(passport.outcomes.values())).questions
        questions = f"{count} questions of {' and '.join(passport.tasks)} were asked"
    text = build_passport(
        model=name,
        verdict=passport.verdict,
        score=passport.score,
        questions=questions,
        formats=[_format_row(passport, foretold) for foretold in passport.forecasts],
        columns=FACT_COLUMNS,
        layers=[_layer_row(facts) for facts in passport.facts],
        most_moved=MOST_MOVED,
        most_lost=MOST_LOST,
    )
    write_text_atomically(page, text)
    return {"page": page, "passport": file}


def _format_row(passport: Passport, foretold: FormatForecast) -> FormatRow:
    row = FormatRow(
        name=foretold.format,
        percent=f"{passport.bytes[foretold.format]:.0f}",
        breaks=foretold.breaks,
        moved=f"{100 * foretold.moved:.0f}",
        layers=layers_text(foretold.layers),
        key_error=f"{100 * foretold.key_error:.0f}",
        mends=foretold.mends,
    )
    outcome = passport.outcomes.get(foretold.format)
    if outcome is None:
        return row
    lost = f"{outcome.lost.mean:.0f}"
    if outcome.lost.interval is not None:
        low, high = outcome.lost.interval
        lost += f" ({low:.0f} to {high:.0f})"
    return FormatRow(
        **{
            **vars(row),
            "right": f"{outcome.right:.0f}",
            "lost": lost,
            "perplexity": f"{outcome.perplexity:.2f}",
            "broke": outcome.broke,
        }
    )


def _layer_row(facts: LayerFacts) -> LayerRow:
    cells = (
        "all" if facts.slides is None else f"{facts.slides}",
        f"{facts.key_bias:.1f}",
        f"{facts.key_magnitude:.1f}",
        f"{facts.key_spread:.1f}",
        f"{facts.value_spread:.1f}",
        f"{facts.outlier_channels}",
        f"{facts.below_step:.2f}",
        f"{facts.sink_attention:.2f}",
        f"{facts.sink_norm:.2f}",
        f"{facts.norm_rank:.2f}",
        f"{facts.likeness_rank:.2f}",
    )
    return LayerRow(f"{facts.layer}", cells, facts.channel_steps)
