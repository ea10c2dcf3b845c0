"""The study of numerics: is a cached answer the answer that would be computed without the cache?"""

from leaderboards.metrics.declaration.definition import Chapter, Definition, estimates
from leaderboards.studies.declaration import Study, StudyInput
from leaderboards.studies.numerics import boundary_parts, layers_parts
from leaderboards.studies.numerics.layers import DRIFT, GROUPS, PATCHES
from leaderboards.studies.numerics.page import content_of
from leaderboards.studies.numerics.pairs import CACHE, TABLE
from leaderboards.studies.numerics.precision import POLICIES


def _takes(given: StudyInput) -> bool:
    """Takes runs whose table of numerics compares cache on with cache off."""
    table = given.tables.get(TABLE)
    return table is not None and CACHE in set(table["pair"])


DEFINITIONS = (
    Definition(
        "Pair of paths",
        "Two ways to compute the logits of the same next token. Cache on reads the prompt once and then one token at a "
        "time on its cache; cache off reads the whole sequence anew at every step. Null rows compare a path with "
        "itself, or cache off with itself in another batch, in chunks, or on another number of threads. What is not "
        "finite is left out of means, and the steps that are left are counted.",
        names=("pair of paths", "paths", "pairs", "steps", "dtype", "sampling", "answers of paths", "task and dtype"),
    ),
    Definition(
        "Difference of two paths",
        "Over the whole vocabulary, in float64: KL of the first path’s distribution from the second’s, its mean over "
        "steps with an interval over contexts, its 99.9th percentile and largest value (the names are llama.cpp’s), "
        "the divergence of Jensen and Shannon, the largest difference of a log-probability, and the share of steps "
        "with the same most likely token.",
        "KL = Σ p (log p − log q), computed as Σ p (d + exp(−d) − 1) with d = log p − log q",
        names=(
            *estimates("kl"),
            *("kl_999", "kl_largest", "js", "largest", "same_top", "same top"),
            *("mean KL", "99.9 % KL", "largest KL", "mean JS", "largest |Δ log p|"),
        ),
    ),
    Definition(
        "Cause of a difference",
        "Identical: no difference at any step. Misaligned: one path is nearer to the other one step earlier or later "
        "than at the same step, which no rounding does. Rounding: at the same step it is at least ten times as near. "
        "Unexplained: anything between. Rows of the cache name a wrong token or position too, which may move "
        "distributions by less. A mean KL that is not above that of all null rows says nothing of the cache.",
        names=("cause", "above_null", "above null rows"),
    ),
    Definition(
        "Flip",
        "The first step at which free-running paths choose different tokens, counted from 0 (Div_Index). Up to it "
        "both stand behind the same prefix, and KL before is over these steps; KL after is over the steps behind it. "
        "Always, sometimes and never count questions by the draws in which they differ; unique completions are the "
        "different answers to a question over both paths and all draws.",
        source="Div_Index: arXiv 2506.09501",
        names=(
            *estimates("differ"),
            *("first_flip", "kl_before", "kl_after", "always", "sometimes", "never", "completions"),
            *("Div_Index", "KL before", "KL after", "always / sometimes / never", "unique completions"),
        ),
    ),
    Definition(
        "Scatter over configurations",
        "Configurations are both paths in every dtype, greedy. Std@Acc is the standard deviation of a sample of their "
        "shares of right answers; Std@length is that of the lengths of an answer, its mean over questions.",
        source="arXiv 2506.09501",
        names=(
            *("length_on", "length_off", "configurations", "std_accuracy", "std_length"),
            *("Std@Acc", "Std@length", "length, on / off"),
        ),
    ),
    Definition(
        "Right with the cache and without it",
        "The share of judged answers that each path has right, those that one alone has right, and McNemar’s test of "
        "these, corrected over all rows of the page by Bonferroni’s method and by that of Benjamini and Hochberg.",
        names=(
            *("right_on", "right_off", "only_on", "only_off", "p_mcnemar", "p_bonferroni", "p_bh"),
            *("right, on", "right, off", "only on / only off", "McNemar p", "Bonferroni", "BH"),
        ),
    ),
    Definition(
        "Mistakes",
        "The same logits, averaged wrongly: cache on against cache off one step earlier or later, teacher-forced, and "
        "free-running over all steps, also those behind the flip.",
        names=(
            *("aligned", "earlier", "later", "pooled"),
            *("off one step early", "off one step late", "pooled after the flip"),
        ),
    ),
    *layers_parts.DEFINITIONS,
    *boundary_parts.DEFINITIONS,
)
STUDY = Study(
    name="numerics",
    title="Numerics",
    lead="Is a cached answer the answer that would be computed without the cache, and what do rounding, batches and "
    "mistakes of measurement make of it?",
    takes=_takes,
    find=content_of,
    chapter=Chapter("numerics", "Cache on and cache off", DEFINITIONS),
    tables=(TABLE, DRIFT, PATCHES, GROUPS, POLICIES),
)
