"""Defines every measure, every column and every test in one home, for the page on method."""

from leaderboards.aggregate.arguments import LEAST_SHARE
from leaderboards.aggregate.evidence import FEWEST_CONTEXTS, LEAST_CLEAN, UNMET
from leaderboards.aggregate.leading_measures import ABOVE_CHANCE
from leaderboards.aggregate.pooled import MORE
from leaderboards.aggregate.row import FEW_ANSWERS, FEW_CONTEXTS
from leaderboards.boards.board import derived_definitions
from leaderboards.metrics import chapter_definitions
from leaderboards.metrics.declaration import Chapter, Definition
from leaderboards.pages.gallery import TRADEOFF
from leaderboards.pages.uses import DEFINITION as USES
from leaderboards.statistics.bootstrap import COVERAGE, RESAMPLES, count_draws
from leaderboards.statistics.intervals import ALPHA
from leaderboards.statistics.paired_difference import ALL_UP_TO, POWER, SUBSETS, fewest_clusters
from leaderboards.statistics.safe_ratio import TOLERATED_LOSS, contexts_that_agree, excluded_by
from leaderboards.studies.declaration import studies

ANSWERS = Chapter(
    "answers",
    "Answers",
    (
        *chapter_definitions("answers"),
        Definition(
            "Chance",
            "Percent right of the best guesser who does not see the text: how often each answer is "
            "right for a question of that form. Measured for each task by a blind solver. Of "
            "running text: the next-token accuracy of a full stop at every place, the commonest "
            "token of generated text. Of directives: the share that an answer obeys which only "
            "abstains, by the same checkers; an empty one obeys none. A model has to do better by "
            f"{ABOVE_CHANCE:g} points.",
        ),
    ),
)

ROUTES = Chapter("routes", "Routes: what is still in the cache", (*chapter_definitions("routes"),))

COMPRESSION = Chapter(
    "compression",
    "Compression and its cost",
    (
        *chapter_definitions("compression"),
        Definition(
            "How a policy runs",
            "Each policy has its family and its ways. Shared: it is applied to one prefill that "
            "all policies share; private: it needs one of its own. Frees: the memory of what it "
            "evicts is free; masks: it is not. Rewrites: what it keeps is not what it read. "
            "Decoding: it acts while an answer is written. Default: it is run where no policies "
            "are named. Behind these stands what it needs.",
        ),
        Definition(
            "Bytes saved",
            "What an allocator holds less than for the full cache, as a share of that.",
            "1 − bytes held / bytes of the full cache",
        ),
    ),
)

BOARD = Chapter(
    "board",
    "Boards: what a policy comes to",
    (
        *derived_definitions("board"),
        USES,
        TRADEOFF,
        Definition(
            "Best and tied, in a table",
            "At each ratio or budget, among the policies that are not controls. The best value is "
            "best where Student’s t over the contexts tells the paired differences of all others "
            "from 0, after Holm’s correction over the policies of the column. Those that it "
            "cannot tell from the best are tied with it. The raw hallucination rate has no marks, "
            "since it is lowest where a model falls silent.",
        ),
        Definition(
            "Controls",
            "The full cache, an oracle that keeps the evidence of the question, random tokens, and "
            "the most recent ones: a method that does not beat random at the same realised budget "
            "should look like it.",
        ),
    ),
)

STATISTICS = Chapter(
    "statistics",
    "Statistics",
    (
        Definition(
            "Interval of a share, or of another bounded mean",
            "95 %, the exact interval of Clopper and Pearson with the effective number of answers, "
            "as Korn and Graubard have it: questions about one context are not independent, so "
            "contexts tell how many independent answers would say as much. Of contexts that all "
            "agree it is their number: of 12 of 12 right the interval goes down to 74 %. Contexts "
            "that happen to agree say nothing of others; hence, for each end, the effective number "
            "is counted as if there were one context more, all of whose answers speak against that "
            "end. In simulated runs of 12 to 96 contexts of 1 to 6 questions it holds the truth in "
            "95 % or more, also where the answers of a context are all alike. It is used for all "
            "that lies between two bounds: right, F1, rates, GER, coverage, obedience, leakage, "
            "next-token accuracy, and areas by context. Of a single context there is none.",
            "Beta quantiles of n* p and n* (1 − p), with n* = n (n + 1) q (1 − q) / Σ (v − q)² "
            "over the n contexts and the one more, q their mean",
            "E. L. Korn and B. I. Graubard, Survey Methodology 24 (1998); C. J. Clopper and E. S. "
            "Pearson, Biometrika 26 (1934)",
        ),
        Definition(
            "Interval of a paired loss",
            "What is lost and what is gained against the full cache on the same questions each "
            "have the interval above. The two are joined by the square root of the sum of their "
            "squared distances from the mean. Losses and gains are correlated as the counts of a "
            "multinomial distribution. Where nothing differs in any of n contexts, its ends are ± "
            f"(1 − 0.025^(1/n)): {100 * excluded_by(12):.1f} points of 12, and less than "
            f"{TOLERATED_LOSS:g} of {contexts_that_agree(TOLERATED_LOSS / 100)}. It decides what "
            "is safe and unsafe. A loss of 5 points or more is called safe in 2.5 % of simulated "
            "runs at most.",
            "d ± √(a² + b² − 2 r a b), with a and b the distances of the ends of losses and gains",
            "G. Y. Zou and A. Donner, Statistics in Medicine 27 (2008)",
        ),
        Definition(
            "Interval of a mean over tasks",
            "The distances of the ends of the tasks, whose contexts are independent, from their "
            "means, joined in the same way and divided by the number of tasks.",
            "mean − √(Σ (mean of a task − its lower end)²) / tasks, and likewise above",
            "G. Y. Zou and A. Donner, Statistics in Medicine 27 (2008)",
        ),
        Definition(
            "Interval of what nothing bounds",
            "Of nats, perplexity, and the ratios of studies and claims: 95 %, by a cluster "
            f"bootstrap, which resamples contexts, {RESAMPLES:,} times. A resample draws fewer "
            f"contexts than there are ({count_draws(12)} of 12), or an interval from few would be too "
            "narrow.",
            "from the 2.5th to the 97.5th percentile of the resamples",
            "A. C. Davison and D. V. Hinkley (1997), section 3.8; J. N. K. Rao and C. F. J. Wu "
            "(1988)",
        ),
        Definition(
            "Paired difference",
            "Two policies on the same questions: what makes a question hard for both cancels. "
            "Differences of measures are in points, whatever the unit of the measure; beside them "
            "stands what either policy has. The interval is that of the test; where that tells "
            "nothing, it is at least as wide as that of a paired loss.",
        ),
        Definition(
            "Mean of tasks at a level",
            "A comparison begins with it. At each level that both policies have, the unweighted "
            "mean over tasks of what one has more than the other, on the same questions, tested by "
            "Student’s t over the contexts of each task, as an area is. Better or worse where p is "
            f"below {ALPHA:g} after Holm’s correction over all levels and all opponents together; "
            "the two controls have a family of their own. Over the levels a policy is worse where "
            "it is worse at some level and better at none, better where it is better at some and "
            "worse at none, mixed where it is both, else not distinguished.",
        ),
        Definition(
            "Means of subsets",
            "The test and the interval of a cell of a comparison. If the differences of the "
            "contexts are symmetric about their mean, it lies between any two neighbours of the "
            f"ordered means of all subsets of the contexts equally often; of more than {ALL_UP_TO} "
            f"contexts {SUBSETS:,} subsets are drawn. This is exact for a handful of contexts too: "
            f"fewer than {fewest_clusters()} cannot be told from chance and have no interval.",
            "p = 2 · (means on the rarer side of 0 + 1) / (means + 1)",
            "J. A. Hartigan, JASA 64 (1969)",
        ),
        Definition(
            "Smallest difference seen",
            "The smallest true difference that a comparison with as many contexts as here tells "
            f"from 0, at the level of its test, {POWER:.0%} of the time: what is smaller is not "
            f"distinguished even where it is there. With {MORE} times as many contexts (--limit) "
            "about half of it is seen.",
            "(t(1 − α/2) + t(0.8)) · s / √n, with n contexts, s the standard deviation of their "
            "differences and α the level of Holm’s method; of the pooled difference with its "
            "standard error and degrees of freedom",
            "H. S. Bloom, Evaluation Review 19 (1995)",
        ),
        Definition(
            "Family, and correction",
            "p-values that are corrected together. Of a comparison: the means of tasks at all "
            "levels against both controls, the same against all other opponents, the areas in the "
            "same two groups, and of single cells the levels of a task. Of a column of a table: "
            "all policies against its best. Holm’s method bounds the chance of any false claim in "
            "a family.",
            "the i-th smallest of m values times (m − i + 1), made ascending, at most 1",
            "S. Holm, Scandinavian Journal of Statistics 6 (1979)",
        ),
        Definition(
            "Verdict, of a cell",
            f"Better or worse where the corrected p is below {ALPHA:g}; the interval that is shown "
            "is that of the corrected test, and leaves out 0 just there. Else not distinguished, "
            "which does not mean equal. Where a task has directives, its verdict is that on "
            "directives obeyed. A task that the model cannot do with the full cache has none. "
            "Leakage is that of attacks on a prompt with a defence. With fewer than "
            f"{FEW_CONTEXTS} contexts cells are hatched.",
        ),
        Definition(
            "Adapted",
            "A press that ran with other arguments than its paper’s, as kvpress has them, since "
            "contexts are short: a window of 64 tokens alone would fill the budget. Every record "
            "carries the arguments that were used. Where the largest window of a task is under "
            f"{LEAST_SHARE:.0%} of the paper’s, the press is another, and has no rank.",
        ),
        Definition(
            "Blank",
            "A cell in which any question failed or was not run is blank, and enters no mean and "
            "no rank; its reason stands beside it. The mean over tasks is unweighted, and blank "
            "unless every task has a value.",
        ),
        Definition(
            "Few contexts",
            f"Fewer than {FEW_CONTEXTS} contexts of a task, or of any task that a mean is made of. "
            "Of normally distributed contexts, bootstrapped intervals of 95 % hold the truth in so "
            "many percent of simulated runs: "
            f"{', '.join(f'of {n} {held}' for n, held in COVERAGE.items())}. Of few contexts that "
            "vary lopsidedly they are too narrow (of 8 exponentially distributed ones 89), and "
            "verdicts of a comparison too sure. Where a task has directives, counted are the "
            "contexts of the measure with the fewest: fewer have attacks on a prompt with a "
            f"defence than directives. Below {FEW_ANSWERS} answers given, a share of wrong ones is "
            "written as a count, has no interval, and nobody is best by it; of a random policy all "
            "draws are counted.",
        ),
    ),
)


CLAIMS = Chapter(
    "claims",
    "Claims of papers",
    (
        Definition(
            "Claim",
            "What a text says of KV caches, as an inequality: one statistic on one side of a "
            "threshold, which was written down before anything was run. Beside it what the text "
            "reported, on its own models and tasks.",
        ),
        Definition(
            "Statistic of a claim",
            "What was measured on this model, with its 95 % interval by the cluster bootstrap "
            "over contexts; what is set against one another is resampled together. Means of what "
            "lies between two bounds, such as right answers, meet one context more in each "
            "resample, all of it at one of the bounds. So contexts that happen to agree have the "
            "interval of Clopper and Pearson, and decide nothing by being few. Where a claim is a "
            f"share of the full cache's score, the full cache has to reach {LEAST_CLEAN:.0%} of a "
            "perfect one. An answer that failed counts as wrong.",
        ),
        Definition(
            "Verdict on a claim",
            "Holds: the whole interval is on the claim's side of the threshold. Does not hold: the "
            "whole interval is on the other side. Undecided: it holds the threshold, or what has "
            "to be there to tell is not; the row says which, and about how many contexts would "
            "decide four times in five if the statistic stayed where it is. Where the row says "
            f"“{UNMET}”, more contexts would not help: the full cache itself cannot do the task, "
            "or the claim takes a second model; such claims are not counted among those that could "
            "be decided. The claims of one text that are tested in one run are corrected together "
            f"by Holm's method; fewer than {FEWEST_CONTEXTS} contexts decide nothing. A verdict is "
            "about the model that was run.",
        ),
    ),
)


def chapters() -> tuple[Chapter, ...]:
    """Returns all chapters in the order of the page, with those of the studies."""
    of_studies = dict.fromkeys(study.chapter for study in studies().values())  # some share one
    return (ANSWERS, ROUTES, COMPRESSION, BOARD, STATISTICS, *of_studies, CLAIMS)
