"""The study of numerics: is a cached answer the answer that would be computed without the cache?"""

from leaderboards.metrics.declaration.definition import Chapter, Definition, estimates
from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.numerics.layers import DRIFT, PATCHES
from leaderboards.studies.numerics.page import content_of
from leaderboards.studies.numerics.pairs import CACHE, TABLE


def _takes(given: StudyInput) -> bool:
    """Takes runs whose table of numerics compares cache on with cache off."""
    table = given.tables.get(TABLE)
    return table is not None and CACHE in set(table["pair"])


DEFINITIONS = (
    Definition(
        "Pair of paths",
        "Two ways to compute the logits of the same next token. Cache on reads the prompt once and then one token at a "
        "time on its cache; cache off reads the whole sequence anew at every step. The null row compares cache off "
        "with itself, reading 32 tokens at once. What is not finite is left out of means, and the steps that are left "
        "are counted. A mean KL that is not above the null row’s says nothing of the cache.",
        names=(
            *("pair of paths", "paths", "pairs", "steps", "dtype", "sampling", "answers of paths"),
            *("above_null", "above null row"),
        ),
    ),
    Definition(
        "Difference of two paths",
        "Over the whole vocabulary, in float64: KL of the first path’s distribution from the second’s, its mean over "
        "steps with an interval over contexts, its largest value, the largest difference of a log-probability, and the "
        "share of steps with the same most likely token.",
        "KL = Σ p (log p − log q), computed as Σ p (d + exp(−d) − 1) with d = log p − log q",
        names=(
            *(*estimates("kl"), "kl_largest", "largest", "same_top", "same top"),
            *("mean KL", "largest KL", "largest |Δ log p|"),
        ),
    ),
    Definition(
        "Flip",
        "The first step at which free-running paths choose different tokens, counted from 0 (Div_Index). Up to it "
        "both stand behind the same prefix, and KL before is over these steps; KL after is over the steps behind it.",
        source="Div_Index: arXiv 2506.09501",
        names=(
            *estimates("differ"),
            *("first_flip", "kl_before", "kl_after", "Div_Index", "KL before", "KL after"),
        ),
    ),
    Definition(
        "Right with the cache and without it",
        "The share of judged answers that each path has right, those that one alone has right, and McNemar’s test of "
        "these, corrected over all rows of the page by the method of Benjamini and Hochberg.",
        names=(
            *("right_on", "right_off", "only_on", "only_off", "p_mcnemar", "p_bh"),
            *("right, on", "right, off", "only on / only off", "McNemar p", "BH"),
        ),
    ),
    Definition(
        "Drift of both paths",
        "How far what cache on computes is from what cache off does behind the same tokens: of rows of keys and "
        "values, those of the prompt and those that cache on wrote one by one, and of the residual stream of the last "
        "token. The p of Mann and Whitney compares contexts in a layer with contexts in the first, corrected over all "
        "layers, tasks and dtypes by the method of Benjamini and Hochberg.",
        "drift = ‖on − off‖ / ‖off‖",
        names=(
            *("keys, prompt", "keys, answer", "values, prompt", "values, answer", "stream", "Mann-Whitney p", "p, BH"),
            *("keys_prompt", "keys_answer", "values_prompt", "values_answer", "p_layer", "p_layer_bh"),
            *estimates("hidden"),
        ),
    ),
    Definition(
        "Boundary",
        "How near greedy answers stand to another token, over all tasks: the median margin at flips and at all steps "
        "behind the same tokens. Early and late flips are the first and the last third by their step, and Welch’s test "
        "compares their KL. Flips at which one answer has ended have no margin and are not counted.",
        names=(
            *("flips", "margin at flips", "median margin", "KL, early flips", "KL, late flips", "Welch p"),
            *("margin_at_flip", "margin", "kl_early", "kl_late", "p_welch"),
        ),
    ),
    Definition(
        "Recovery",
        "The share of the divergence of cache on from cache off that goes if a part of cache on’s pass over one token "
        "is cache off’s. At flip: at the first token that differs; else at the step with the largest divergence.",
        "recovery = 1 − KL patched / KL",
        names=(
            *("patched", "cases", "median recovery, percent", "mean recovery, percent", "at_flip", "median"),
            *estimates("recovered"),
        ),
    ),
)
STUDY = Study(
    name="numerics",
    title="Numerics",
    lead="Is a cached answer the answer that would be computed without the cache, and where does a difference lie?",
    takes=_takes,
    find=content_of,
    chapter=Chapter("numerics", "Cache on and cache off", DEFINITIONS),
    tables=(TABLE, DRIFT, PATCHES),
)
