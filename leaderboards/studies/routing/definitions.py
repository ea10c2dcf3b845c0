"""Defines what the study of routes shows, for the page on method."""

from leaderboards.aggregate.lost_answers import DEFINITION as LOST
from leaderboards.metrics.declaration import Chapter, Definition

DEFINITIONS = (
    LOST,
    Definition(
        "Class of an answer",
        "The first of these that holds, of questions whose answer stands in the context. Right. "
        "Wrong with the full cache too. Not observed: the press has a prefill of its own, merges "
        "or rewrites rows, or goes on cutting while it answers, or it failed. Erased: no row of "
        "the gold answer’s tokens is left in any layer and head, and no route leads from them. "
        "Unreachable: rows are left, and no route leads from them. With a route: silent, if the "
        "answer is empty or an abstention; confused, if it is a value that the context states for "
        "something else and a route leads from there too; else reached and unused. Routes have at "
        "least the attention there with which no more than a tenth of a context’s tokens reach "
        "the answer under the full cache. They end where the answer’s first token is written: of "
        "a gold of many tokens, such as a number of seven digits, one may be reached and the rest "
        "lost, which rows put back tell from a failure of use.",
        "right + wrong with the full cache too + not observed + erased + unreachable + silent + "
        "confused + reached and unused = all answers",
        "storage, accessibility and use after arXiv 2603.01426",
    ),
    Definition(
        "Reached, and by chance",
        "Nodes are tokens before and behind each layer. A layer leads from a token to one that "
        "gives it at least epsilon of some head’s attention, and from each token to itself. "
        "Context reads context as in the uncompressed prefill; the question and the first token "
        "of the answer read the context only where a row is left. An answer is reached if a path "
        "leads from a token of the gold to the last token of the question, or to the first token "
        "of the answer, behind the last layer. By chance: 1 − (1 − c)^n, where c is the share of "
        "the context’s tokens that reach the answer and n the tokens of the gold. Relayed: "
        "reached although no row of the gold is left. Width: the least attention in the widest "
        "path; mean over answers.",
        "reached(ε) ⇔ max over paths of min over edges ≥ ε",
        "after arXiv 2603.01426, which gives no algorithm",
    ),
    Definition(
        "Rigid",
        "An answer that the full cache has right and the policy wrong, whose GER is below a half, "
        "and whose consensus, mean over layers, is below that of nine tenths of the full cache’s "
        "right answers of the task. It is in another class too. The paper shows instances and "
        "gives no threshold.",
        (
            "rigid = wrong and GER < 0.5 and consensus < 10th percentile of right answers of the "
            "full cache"
        ),
        "representational rigidity after arXiv 2603.01426",
    ),
    Definition(
        "Consensus, agreement, and slope",
        "By layer, of the token that each head attends to most at the first token of the answer. "
        "Consensus, as the paper writes it, is low where heads agree; beside it that of heads "
        "which look at any of the n tokens that the layer keeps, at random. Agreement is the "
        "largest share of heads on one token. The slope is the mean consensus of the late half of "
        "the layers less that of the early half.",
        "consensus = distinct top tokens / heads; chance = n (1 − (1 − 1 / n)^heads) / heads",
        "arXiv 2603.01426",
    ),
    Definition(
        "Heads that read the answer",
        "The share of answers at whose first token a head attends to a token of the gold answer "
        "most, of questions whose answer stands in the context.",
    ),
    Definition(
        "Probes",
        "A regularised logistic regression predicts a label of the question from the hidden state "
        "of its last token; it is tested on contexts that it was not trained on. Control: the "
        "same on shuffled labels. Labels of fewer than three answers are left out. By level three "
        "depths are probed: behind a quarter of the layers, a half and all.",
        "macro-F1 = mean over labels of 2 · precision · recall / (precision + recall)",
        "J. Hewitt and P. Liang, arXiv 1909.03368",
    ),
    Definition(
        "Rows put back",
        "Rows that a policy evicted are put back into its branch, and the question is asked "
        "again: the rows of the answer’s tokens, of the subject’s, of the bridges’ between hops, "
        "or of all evidence, in all layers and heads. An answer is lost if the full cache has it "
        "right and the policy wrong.",
    ),
    Definition(
        "At its cliff",
        "The level behind the step of the realised ratio over which the share of lost answers "
        "rises fastest, among questions with evidence that the full cache has right.",
    ),
    Definition(
        "Explained by the evidence alone",
        "The share of the F1 that lost answers have lost which comes back with the evidence rows, "
        "less the share that comes back with as many random rows of tokens that are no evidence. "
        "100 %: the policy lost these answers because it evicted the evidence, and for no other "
        "reason; 0 %: evidence repairs no more than any rows do. Answers without as many other "
        "rows are left out.",
        "(Σ F1(evidence back) − Σ F1(random rows back)) / (Σ F1(full cache) − Σ F1(policy))",
    ),
    Definition(
        "Rows taken away",
        "Rows are taken away from the full cache: by how much the right answer becomes less "
        "likely, in nats, and by how many points F1 falls, beside as many random rows.",
    ),
)
CHAPTER = Chapter("routing", "Routes, heads, probes and causes", DEFINITIONS)
