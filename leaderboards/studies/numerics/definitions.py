"""Defines what the study of numerics shows, for the page on method."""

from leaderboards.metrics.declaration import Chapter, Definition

BOUNDARY = 5  # flips up to this step are left out of the second partial correlation
DEFINITIONS = (
    Definition(
        "Pair of paths",
        "Two ways to compute the logits of the same next token. Cache on reads the prompt once "
        "and then one token at a time on its cache; cache off reads the whole sequence anew at "
        "every step. The null row (chunks) compares cache off with itself, reading 32 tokens at "
        "once; the control (again) compares cache on with the very same. Steps where a logit is "
        "not finite (overflow) cannot be compared: they are left out of means and shares, and "
        "counted apart. A mean KL that is not above the null row’s says nothing of the cache.",
    ),
    Definition(
        "Difference of two paths",
        "Over the whole vocabulary, in float64: KL of the first path’s distribution from the "
        "second’s, its mean over steps with an interval over contexts, its largest value, the "
        "largest difference of a log-probability, and the share of the steps compared with the "
        "same most likely token.",
        "KL = Σ p (log p − log q), computed as Σ p (d + exp(−d) − 1) with d = log p − log q",
    ),
    Definition(
        "Flip",
        "The first step at which free-running paths choose different tokens, counted from 0 "
        "(Div_Index). Up to it both stand behind the same prefix, and KL before is over these "
        "steps; KL after is over the steps behind it. Right, on and off: the share of judged "
        "answers that each path has right.",
        source="Div_Index: arXiv 2506.09501",
    ),
    Definition(
        "McNemar’s exact test",
        "Of the answers that one path alone has right, each path would have as many if the cache "
        "changed nothing: p is the chance of a split at least as uneven. Draws of one context are "
        "not independent, and greedy ones are copies: each context counts once. Bonferroni’s p "
        "bounds the chance of any false finding of the table, that of Benjamini and Hochberg (BH) "
        "the share of false ones among the findings.",
        "p = 2 P(X ≤ min(only on, only off)), X binomial with one half; Bonferroni = p × tests",
    ),
    Definition(
        "Always, sometimes, never",
        "An example parts always where the answers with and without the cache differ at each of "
        "its draws, never where they are equal at each, and else sometimes. Both paths of a draw "
        "meet the same random numbers.",
    ),
    Definition(
        "Divergence of Jensen and Shannon",
        "The mean divergence of both paths’ distributions from their mean, in nats: the same in "
        "both directions, and at most ln 2 = 0.69, where KL has no bound.",
        "JS = (KL(p, m) + KL(q, m)) / 2 with m = (p + q) / 2",
    ),
    Definition(
        "Distance and cosine by layer",
        "Of the residual streams of cache on and cache off behind a layer, of the last token at "
        "step 1. The test of Mann and Whitney asks whether the distance behind a layer is another "
        "than behind the layer before, which is what amplifying means; behind a layer of float32 "
        "it is smaller by orders of magnitude everywhere, which would tell no layer from another. "
        "The same contexts are on both sides, so that the test finds rather too little. Corrected "
        "over all layers, types of numbers and tasks by Benjamini and Hochberg.",
        "distance = ‖on − off‖; times = mean distance / that of the layer before",
    ),
    Definition(
        "KL of attention by head",
        "At step 1, the first at which cache on reads a token by itself: the divergence of a "
        "head’s attention to the tokens so far with the cache from that without it, in float64 "
        "from the queries and keys of each path, mean over contexts. Both paths attend as they "
        "always do.",
        "KL = Σ a (log a − log b) over the tokens that are seen",
    ),
    Definition(
        "Drift of both paths",
        "How far what cache on computes is from what cache off does behind the same tokens: of "
        "rows of keys and values, those of the prompt and those that cache on wrote one by one, "
        "and of the residual stream of the last token.",
        "drift = ‖on − off‖ / ‖off‖",
    ),
    Definition(
        "Flip and divergence",
        "Of free-running answers that part, a number for each context (the mean of its draws): "
        "Pearson’s and Spearman’s correlation of the flip with the mean KL, over all contexts, "
        f"without those whose flip is 0, and without those up to {BOUNDARY}; the mean KL of the "
        "third that parts first and of the third that parts last, with Welch’s t. The text calls "
        "correlations without such contexts partial.",
    ),
    Definition(
        "Error of rounding",
        "How far a result is from what float64 gives from the same rounded numbers: of a product "
        "over its row of keys or of the head’s output, mean over heads, layers and contexts; of "
        "the residual stream behind a layer, mean over the tokens of the prompt. Norms are "
        "computed in float32 in either, as transformers does.",
        "error = ‖rounded − exact‖ / ‖exact‖",
    ),
    Definition(
        "Recovery",
        "The share of the divergence of cache on from cache off that goes if a part of one path’s "
        "pass over a token is the other’s: of one layer, of all up to a layer, or of all. Median "
        "and mean over contexts. Flip: the first token that differs; largest: the step of the "
        "largest divergence where none does; first: the first step at which both differ at all. "
        "The step at which both read the prompt at once is equal to the bit, which the text calls "
        "prefill; its step 0 is the next. After: the same of the mean KL over the step and up to "
        "31 behind it, each path going on from its own tokens.",
        "recovery = 1 − KL patched / KL",
    ),
)
CHAPTER = Chapter("numerics", "Cache on and cache off", DEFINITIONS)
