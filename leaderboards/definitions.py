"""What each measure means, in the words of the design, for the page."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Definition:
    """``formula`` in plain text, where one says it more exactly; ``source`` names the paper, if a paper's."""

    name: str
    text: str
    formula: str = ""
    source: str = ""


PAPER = "arXiv 2603.01426"

DEFINITIONS = (
    Definition(
        "F1, EM",
        "SQuAD token F1 and exact match after normalisation, the best over the gold answers, in percent.",
        source="SQuAD, arXiv 1606.05250",
    ),
    Definition(
        "Abstained",
        "The normalised output is one of the task’s abstention phrases (“I don’t know”).",
    ),
    Definition(
        "Hallucinated",
        "The output is neither empty nor an abstention, and its F1 is below 0.5; for an unanswerable question: "
        "anything but an abstention. Its kind is confused if it is a value that the context states for something else, "
        "and fabricated otherwise.",
    ),
    Definition(
        "GER, the Global Eviction Ratio",
        "The share of the answer’s tokens that survive in no layer and no head. It has no value for a question without "
        "an answer in the context. A union over slots can look perfect while each layer holds another fragment: "
        "hence it is shown beside slot coverage, and layer by layer.",
        "GlobalEvicted(t) = 1 if token t survives in no (layer, head) slot, else 0\n"
        "GER = mean of GlobalEvicted over the answer tokens",
        PAPER,
    ),
    Definition(
        "Eviction rate",
        "The same over all tokens of the context: how much of it is gone everywhere.",
        "mean of GlobalEvicted over the context tokens",
        PAPER,
    ),
    Definition(
        "Slot coverage",
        "How much of the evidence survives on average: the mean survival of the evidence tokens over all (layer, head) "
        "slots.",
    ),
    Definition(
        "Asked ratio or budget, realised ratio, bytes",
        "Compression is three numbers: the share of the cache that was asked to go, or the tokens that were asked to "
        "stay in each head; what went, counted from what is really kept in each layer and head; and the bytes that an "
        "allocator would still hold. A head-wise press masks, and frees nothing.",
    ),
    Definition(
        "Interval",
        "95 %, by a cluster bootstrap: questions about one context are not independent, so contexts are resampled, not "
        "questions. The interval of the mean over tasks resamples the contexts of each task.",
    ),
    Definition(
        "Best and tied",
        "At each ratio or budget, among the policies that are not controls. A policy is best when the interval of no "
        "other overlaps its own; those whose intervals overlap that of the best value are tied with it. This is "
        "cautious: two policies that a paired test would tell apart can be tied here.",
    ),
    Definition(
        "Blank",
        "A cell in which any question failed or was not run is blank, and enters no mean and no rank. "
        "The mean over tasks is unweighted, and blank unless every task has a value.",
    ),
)
