"""The study of numerics: is a cached answer the answer that would be computed without the cache?

It adds up the pairs of cache on and cache off: teacher-forced, and free-running before and after
the first flip."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pandas import DataFrame, Series

from leaderboards.downloads.sheets import Sheet
from leaderboards.statistics.bootstrap import Estimate, FloatArray
from leaderboards.statistics.shares import estimate_share
from leaderboards.studies.declaration import StudyContent, StudyInput, StudySection
from leaderboards.studies.numerics import (
    accuracy,
    boundary,
    heads,
    layers,
    patches,
    repeats,
    rounding,
    steps,
)
from leaderboards.studies.numerics.walked import (
    CACHE,
    DRIFT,
    FORCED,
    NULL,
    TABLE,
    drop_overflows,
    find_flip,
    finite_mean,
    finite_sums,
    free_pairs,
    joined,
    numbers_by_step,
    sorted_groups,
    with_draws,
)
from leaderboards.studies.parts import estimate_mean, listing_of_fields


@dataclass(frozen=True)
class Forced:
    """Holds how far a pair of paths is apart, teacher-forced, over all steps of the answers of a
    task."""

    task: str
    dtype: str
    paths: str
    steps: int  # of all answers, where all logits are finite
    kl: Estimate | None  # mean; None where no logit is finite
    # Mean divergence of Jensen and Shannon; None of runs before it was measured too.
    js: Estimate | None
    kl_largest: float
    largest: float  # difference of log-probabilities
    # Share of the steps where all logits are finite; None where there is none.
    same_top: float | None
    overflow: int  # steps where a logit is not finite, which cannot be compared
    # The mean KL is above the null row's over the same questions; None of the null row.
    above_null: bool | None


@dataclass(frozen=True)
class Free:
    """Holds what free-running paths come to in one dtype and way to choose."""

    task: str
    dtype: str
    sampling: str
    pairs: int
    differ: Estimate  # share of pairs with other tokens
    first_flip: float | None  # median over pairs that differ, counted from 0
    kl_before: float | None  # mean over the steps up to the flip, where both have the same prefix
    kl_after: float | None  # over the steps behind it, where they have not
    js_before: float | None  # likewise of the divergence of Jensen and Shannon
    js_after: float | None
    right_on: float | None  # share, of cache on
    right_off: float | None  # of cache off


def measure_forced(table: DataFrame) -> list[Forced]:
    """Returns both pairs by task and dtype, where tokens are chosen greedily: other choices walk
    the same paths."""
    rows = table[(table["regime"] == FORCED) & (table["sampling"] == "greedy")]
    results = []
    for (task, dtype), group in sorted_groups(rows, "task", "dtype"):
        above_null = _above_null(group)
        for pair, of_pair in group.groupby("pair", sort=False):
            kl = joined(of_pair["kl"])
            finite = np.isfinite(kl)
            same_top = None
            if finite.any():
                same_top = float(joined(of_pair["same_top"])[finite].mean())
            forced = Forced(
                task,
                dtype,
                str(pair),
                steps=int(finite.sum()),
                kl=_mean_over_steps(of_pair, "kl"),
                js=_mean_over_steps(of_pair, "js"),
                kl_largest=float(kl[finite].max(initial=0.0)),
                largest=float(np.nanmax(joined(of_pair["largest"]), initial=0.0)),
                same_top=same_top,
                overflow=int((~finite).sum()),
                above_null=above_null if pair == CACHE else None,
            )
            results.append(forced)
    return results


def _mean_over_steps(rows: DataFrame, column: str) -> Estimate | None:
    """Averages the finite numbers of all steps, and resamples contexts; None where there is
    none."""
    sums, counts = finite_sums(numbers_by_step(rows, column))
    if not counts.any():
        return None
    return estimate_mean(sums, rows["draw_id"], counts, int(counts.sum()))


def _above_null(rows: DataFrame) -> bool:
    """Tells whether cache on and off are farther apart than the null row, over the questions that
    have one."""
    null = rows[rows["pair"] == NULL]
    if null.empty:
        # Without a null row any divergence is above it.
        return finite_mean(joined(rows["kl"])) > 0
    beside = rows[(rows["pair"] == CACHE) & rows["question_id"].isin(null["question_id"])]
    return finite_mean(joined(beside["kl"])) > finite_mean(joined(null["kl"]))


def measure_free(table: DataFrame) -> list[Free]:
    """Returns what free-running paths come to by task, dtype and way to choose."""
    rows = drop_overflows(free_pairs(table))
    results = []
    for (task, dtype, way), group in sorted_groups(rows, "task", "dtype", "sampling"):
        flips = list(map(find_flip, group["tokens"], group["other_tokens"]))
        differs = [flip is not None for flip in flips]
        steps = [flip for flip in flips if flip is not None]
        kl_before, kl_after = _around_flips(group, flips, "kl")
        js_before, js_after = _around_flips(group, flips, "js")
        free = Free(
            task,
            dtype,
            way,
            pairs=len(group),
            differ=estimate_share(differs, group["draw_id"]),
            first_flip=float(np.median(steps)) if steps else None,
            kl_before=kl_before,
            kl_after=kl_after,
            js_before=js_before,
            js_after=js_after,
            right_on=_share_right(group["right"]),
            right_off=_share_right(group["other_right"]),
        )
        results.append(free)
    return results


def _share_right(verdicts: Series) -> float | None:
    """Averages the answers that are judged; None where none is."""
    judged = verdicts.dropna().astype(float)
    return float(judged.mean()) if len(judged) else None


def _around_flips(
    rows: DataFrame, flips: Sequence[int | None], column: str
) -> tuple[float | None, float | None]:
    """Averages over the steps up to the flip of each answer, and over those behind it; None where
    there is none."""
    before: list[FloatArray] = []
    after: list[FloatArray] = []
    for values, flip in zip(numbers_by_step(rows, column), flips, strict=True):
        # With the step of the flip, at which both still stand behind the same prefix.
        end = len(values) if flip is None else flip + 1
        before.append(values[:end])
        after.append(values[end:])
    return _mean_if_any(joined(before)), _mean_if_any(joined(after))


def _mean_if_any(values: FloatArray) -> float | None:
    return finite_mean(values) if len(values) else None


@dataclass(frozen=True)
class Drift:
    """Says how far a layer of cache on is from that of cache off, relative to it, over the steps at
    which cache on read a token by itself."""

    task: str
    dtype: str
    layer: int
    keys_prompt: float  # mean over the rows of the prompt
    keys_answer: float  # over those that were written token by token
    values_prompt: float
    values_answer: float
    hidden: Estimate  # of the residual stream


def measure_drift(table: DataFrame) -> list[Drift]:
    """Returns every layer by task and dtype, of answers with a step at which cache on read a token
    by itself: at the first it reads the prompt at once, as cache off does."""
    rows = table[table["hidden"].map(len) > 1]
    alone = rows["hidden"].map(lambda steps: float(np.mean(steps[1:])))
    # Where no answer has a second step, the column is empty and of numbers all the same.
    rows = rows.assign(alone=alone.astype(float))
    rows = rows[np.isfinite(rows["alone"])]  # of an answer that overflows, nothing is known
    results = []
    for (task, dtype), group in sorted_groups(rows, "task", "dtype"):
        for layer, of_layer in group.groupby("layer"):
            keys = _means(of_layer["keys"], of_layer["hidden"])
            values = _means(of_layer["values"], of_layer["hidden"])
            hidden = estimate_mean(of_layer["alone"], of_layer["draw_id"])
            results.append(Drift(task, dtype, int(layer), *keys, *values, hidden))
    return results


def _means(
    rows: Iterable[Sequence[float]], steps: Iterable[Sequence[float]]
) -> tuple[float, float]:
    """Averages the rows of prompts, and those that were written token by token."""
    prompts, answers = [], []
    for of_answer, by_step in zip(rows, steps, strict=True):
        # All steps but the first wrote a row, and these are the last rows. An answer of one step
        # has none and was left out before: its split would call the prompt written.
        prompt, written = np.split(of_answer, [1 - len(by_step)])
        prompts.append(prompt)
        answers.append(written)
    return float(joined(prompts).mean()), float(joined(answers).mean())


def build_content(study_input: StudyInput) -> StudyContent:
    """Shows every experiment on numerics that the run has."""
    tables = {}
    for name, table in study_input.tables.items():
        if len(table):
            tables[name] = with_draws(table, study_input.records)
    free = measure_free(tables[TABLE])
    drift = measure_drift(tables[DRIFT]) if DRIFT in tables else []
    contents = [
        _listed("free", free),
        accuracy.build_content(tables),
        repeats.build_content(tables),
        steps.build_content(tables),
        boundary.build_content(tables),
        _listed("forced", measure_forced(tables[TABLE])),
        rounding.build_content(tables),
        layers.build_content(tables),
        heads.build_content(tables),
        _listed("drift", drift),
        patches.build_content(tables),
    ]
    parts: list[StudySection] = []
    sheets: list[Sheet] = []
    for content in contents:
        parts += content.parts
        sheets += content.sheets
    return StudyContent(parts, list(_facts(tables[TABLE], free)), sheets)


def _listed(name: str, rows: Sequence[Any]) -> StudyContent:
    """Makes a section and a sheet of an experiment whose numbers are one table."""
    if not rows:
        return StudyContent(())
    title, text, forms = EXPERIMENTS[name]
    listing = listing_of_fields(title, rows, forms)
    if name == "drift":
        section = StudySection(name, title, text, details=(listing,))
    else:
        section = StudySection(name, title, text, listings=(listing,))
    kinds = {"kl": Estimate, "js": Estimate}
    sheet = Sheet.of(f"numerics-{name}", title, [*map(vars, rows)], kinds=kinds)
    return StudyContent([section], sheets=[sheet])


# Of each experiment: the title, what it is, and how its numbers are written.
EXPERIMENTS: Mapping[str, tuple[str, str, Mapping[str, str | Callable[[Any], str]]]] = {
    "free": (
        "Each path goes on from its own tokens",
        "Both paths draw by the same random numbers. Up to the first token that differs they "
        "stand behind the same prefix; behind it they write two texts.",
        {"first_flip": "g", "right_on": ".0%", "right_off": ".0%"},
    ),
    "forced": (
        "Both paths behind the same tokens: does the difference go in float32?",
        "Next-token distributions over the whole vocabulary, in nats. Null rows, on one context "
        "in three: cache off in chunks (a difference no larger than that says nothing about the "
        "cache), and cache on once more (again), which differs by nothing but the chance of a "
        "device.",
        {"kl": ".2g", "js": ".2g", "same_top": ".1%"},
    ),
    "drift": (
        "How the error enters",
        "Behind the same tokens, layer by layer: rows of the cache that cache on wrote one by "
        "one, against those that cache off computes with the whole sequence, and the residual "
        "stream of the last token.",
        {"hidden": ".2g"},
    ),
}


def _facts(table: DataFrame, free: Sequence[Free]) -> Iterator[tuple[str, str]]:
    for dtype, rows in free_pairs(table).groupby("dtype"):
        overflow = len(rows) - len(drop_overflows(rows))
        if overflow:
            yield f"Answers in {dtype} that overflow", f"{overflow} of {len(rows)}, left out"
    pairs = sum(row.pairs for row in free)
    differ = sum(round(row.differ.mean * row.pairs) for row in free)
    if pairs:
        yield "Answers that the cache changes", f"{differ or 'none'} of {pairs}"
