"""Defines what the study of treatments shows, for the page on method."""

from leaderboards.metrics.declaration import Chapter, Definition

CHAPTER = Chapter(
    "treatments",
    "Faults, errors and bytes",
    (
        Definition(
            "Share kept",
            "What a treatment keeps of what the full cache has: right answers, next tokens, or "
            "directives obeyed where a task has directives, as a share of the full cache’s on the "
            "same questions, averaged over the draws of a random treatment. Its interval "
            "resamples contexts, for treatment and full cache together.",
            "kept = mean(lead | treated) / mean(lead | full cache)",
        ),
        Definition(
            "Rise of the right answer’s NLL, of a treatment",
            "By how many nats a token the right answer becomes less likely than with the full "
            "cache, mean over the answers that did not fail. It comes first where the model "
            "cannot do the task, where nothing is put in order, and no front is drawn.",
            "rise = mean(gold_nll | treated − gold_nll | full cache)",
        ),
        Definition(
            "Where a treatment acts",
            "A fault hits a share of the entries of a place alone. An entry is a row, which one "
            "head of one layer stores for one token, or with unit=value a single number of a row. "
            "Layers: Q1 to Q4 are quarters of the layers from the input on, H1 and H2 the halves. "
            "Tokens: evidence is the tokens of the sentences that the answer follows from, answer "
            "those of the answer itself, other all but the evidence, random as many tokens as "
            "carry evidence, of those that do not.",
        ),
        Definition(
            "When a treatment acts",
            "Replaced while answers are written (phase=every_step, persistence=transient): anew "
            "before every pass, by a draw of its own, and clean again behind it. Once as written "
            "(phase=write): every row of context, question and answer as it enters the cache, so "
            "that all reads see it. Damaged once (phase=resident): before the question is read, "
            "for good.",
        ),
        Definition(
            "KL from the full cache, of types of keys and values",
            "The divergence of the next token, behind the question and each token of its right "
            "answer, over rows as they are stored, from that over exact rows, in nats, mean over "
            "tokens. It is of the first question of each context.",
            "KL = mean over tokens of Σ p (log p − log q), p: full cache, q: treated",
        ),
        Definition(
            "The front, at equal bytes",
            "Bytes: what keys and values take once the context is read, codes with their scales "
            "and zero points, in percent of the full cache. On the front is what nothing else "
            "exceeds in as few bytes.",
        ),
    ),
)
