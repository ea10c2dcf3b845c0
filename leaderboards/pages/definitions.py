"""Defines every measure, every column and every test in one home, for the page on method."""

from leaderboards.boards.registry import derived_definitions
from leaderboards.figures.tradeoff import DEFINITION as TRADEOFF
from leaderboards.metrics import definitions_of
from leaderboards.metrics.declaration.definition import Chapter, Definition, with_interval
from leaderboards.pages.uses import DEFINITION as USES
from leaderboards.statistics.bootstrap import RESAMPLES
from leaderboards.statistics.significance import ALPHA, EXACT_BELOW
from leaderboards.studies.registry import studies

ANSWERS = Chapter(
    "answers",
    "Answers",
    (
        *definitions_of("answers"),
        Definition(
            "Chance",
            "F1 of the best guesser who does not see the text, in percent: how often each answer is right for a "
            "question of that form. Measured for each task by a blind solver.",
            names=("chance",),
        ),
    ),
)

ROUTES = Chapter(
    "routes",
    "Routes: what is still in the cache",
    (
        *definitions_of("routes"),
        *derived_definitions("routes"),
    ),
)

COMPRESSION = Chapter(
    "compression",
    "Compression and its cost",
    (
        *definitions_of("compression"),
        Definition(
            "How a policy runs",
            "Its family; shared or private: whether it is applied to one prefill that all policies share, or needs one "
            "of its own; frees or masks: whether the memory of what it evicts is free; rewrites: what it keeps is not "
            "what it was given; decoding: it acts while an answer is written; default: it is run where no policies are "
            "named; and what it needs.",
        ),
        Definition(
            "Bytes saved",
            "What an allocator holds less than for the full cache, as a share of that.",
            "1 − bytes held / bytes of the full cache",
            names=("bytes saved",),
        ),
        Definition(
            "Halvings of a wave",
            "How often the batch that an answer was decoded in had been halved, as memory ended.",
            names=("wave_halvings",),
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
            "At each ratio or budget, among the policies that are not controls. The best value is best where the "
            "intervals of the paired differences of all others from it leave out 0; others, and it with them, are "
            "tied. These intervals are not corrected for how many there are, as the verdicts of a comparison are.",
            names=("best_in", "tied_in"),
        ),
        Definition(
            "Controls",
            "The full cache, an oracle that keeps the evidence of the question, random tokens, and the most recent "
            "ones: a method that does not beat random at the same realised budget should look like it.",
        ),
    ),
)

STATISTICS = Chapter(
    "statistics",
    "Statistics",
    (
        Definition(
            "Interval",
            "95 %, by a cluster bootstrap: questions about one context are not independent, so contexts are resampled, "
            f"not questions, {RESAMPLES:,} times. The interval of the mean over tasks resamples the contexts of each "
            "task. With a handful of contexts it is too narrow, and of a single one there is none.",
            "from the 2.5th to the 97.5th percentile of the resamples",
            "A. C. Davison and D. V. Hinkley (1997), section 3.8",
        ),
        Definition(
            "Paired difference",
            "Two policies on the same questions in the same resamples: what makes a question hard for both cancels.",
            names=(
                *("difference", *with_interval("f1_difference", "hallucination_difference", "rate_difference")),
                *("rate", "other_rate", "part", "value", "other"),
            ),
        ),
        Definition(
            "Right against wrong, hallucinated or not",
            "McNemar’s test on the questions that just one of two policies answers rightly, or in which just one "
            f"hallucinates: exact where they are fewer than {EXACT_BELOW}, else by chi-square with continuity "
            "correction.",
            "χ² = (|only this − only the other| − 1)² / (only this + only the other)",
            "Q. McNemar, Psychometrika 12 (1947)",
            (
                *("only this one right", "only the other right", "only_one", "only_other", "p"),
                *("only this one hallucinates", "only the other hallucinates", "p of hallucinations"),
                *("only_one_hallucinates", "only_other_hallucinates", "hallucination_p"),
            ),
        ),
        Definition(
            "Signed ranks",
            "Wilcoxon’s test on the contexts’ mean differences of F1; blank where fewer than 6 contexts differ.",
            source="F. Wilcoxon, Biometrics Bulletin 1 (1945)",
            names=("f1_p",),
        ),
        Definition(
            "Family, and correction",
            "All p of a board against its controls are one family, and all cells of a comparison another. Holm’s "
            "method bounds the chance of any false claim in a family, Benjamini and Hochberg’s the share of false "
            "claims. What the pages show is corrected by Holm’s.",
            "Holm: the i-th smallest of m values times (m − i + 1), made ascending, at most 1",
            "S. Holm, Scandinavian Journal of Statistics 6 (1979); Y. Benjamini and Y. Hochberg, J. R. Statist. Soc. "
            "B 57 (1995)",
        ),
        Definition(
            "Verdict, of a comparison",
            "Better or worse where the interval of the difference in F1 leaves out 0, the corrected p is below "
            f"{ALPHA:g}, and more questions are answered rightly by the same one; else tied. Of hallucinations, of "
            "which fewer is better, by the interval of their difference and their own corrected p.",
            names=("verdict", "verdict on hallucinations", "hallucination_verdict"),
        ),
        Definition(
            "Blank",
            "A cell in which any question failed or was not run is blank, and enters no mean and no rank; its reason "
            "stands beside it. The mean over tasks is unweighted, and blank unless every task has a value.",
            names=("reason", "complete", "status"),
        ),
    ),
)

COLUMNS = Chapter(
    "columns",
    "Other columns of tables, downloads and records",
    (
        *definitions_of("columns"),
        Definition(
            "Whose number it is",
            "The model, and the setting where runs of another one stand beside; the task (“all”: the unweighted mean "
            "over tasks), the mode (agnostic: compressed before the question is seen; aware: with it), the policy, "
            "and the version of the task.",
            names=("model", "setting", "task", "mode", "policy", "task_version", "press_arguments"),
        ),
        Definition(
            "Which question it is",
            "A question of an example, its text, its gold answers and what a perfect output is; whether it can be "
            "answered, from how many facts, in which direction it is asked, and of what type question and answer are.",
            names=(
                *("example_id", "example_index", "question_id", "context", "question", "golds", "target"),
                *("answerable", "direction", "answer_type", "question_type", "hops"),
                *("stated_values", "other_values", "abstentions", "answer_marker", "protected"),
            ),
        ),
        Definition(
            "What was written",
            "The output, as text and as token ids, and whether it ended by itself.",
            names=("output_text", "output_token_ids", "ended"),
        ),
        Definition(
            "Columns of what is imported",
            "Results of kvpress’s own evaluation, as its files tell them: the scores under its names, their mean "
            "over the tasks of the data set, with how many predictions and evaluations they are of. F1 and EM are "
            "computed here from the predicted answers that have a gold.",
            names=(
                *("dataset", "press", "arguments", "scores", "tasks", "predictions", "runs"),
                *("source", "rank at its ratio", "score, by kvpress", "F1, by kvbench", "EM, by kvbench"),
                *("evaluations", "other scores, by kvpress"),
            ),
        ),
    ),
)


def chapters() -> tuple[Chapter, ...]:
    """Returns all chapters in the order of the page, with those of the studies."""
    return (ANSWERS, ROUTES, COMPRESSION, BOARD, STATISTICS, *(study.chapter for study in studies().values()), COLUMNS)
