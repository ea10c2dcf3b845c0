"""The sections of the page, downloads and definitions on what heads attend to and keep."""

from markupsafe import Markup

from leaderboards.downloads.sheets import Sheet
from leaderboards.figures.panels import BandedLine, fitted, panel
from leaderboards.metrics.declaration.definition import Definition, estimates
from leaderboards.rendering.frames import Axis
from leaderboards.rendering.listing import Listing
from leaderboards.rendering.style import LineStyle, named_styles
from leaderboards.statistics.bootstrap import Estimate
from leaderboards.studies.declaration import Picture, StudyInput, StudySection
from leaderboards.studies.routing.heads import (
    AT_ANSWER,
    SPANS,
    TABLE,
    Agreement,
    FloatArray,
    agreements,
    attention_by_layer,
    depths,
    heads_under,
    retrieval_heads,
    with_questions,
)
from leaderboards.studies.routing.reaching_parts import columns_of, over_levels, styles_of
from leaderboards.studies.treatments.parts import in_percent
from policies.declaration.levels import UNTREATED
from policies.declaration.names import FULL

BEST = 4  # heads whose fate is told
BY_DEPTH = ("consensus", "agreement")
CONSENSUS = ("consensus", "consensus by chance", "agreement")


class Heads:
    """Holds what heads attend to and keep."""

    def __init__(self, given: StudyInput) -> None:
        attention = with_questions(given.tables[TABLE], given.records)
        self.agreements, self.depths = list(agreements(attention)), list(depths(given))
        self.retrieval = retrieval_heads(attention)
        self.best = self.retrieval.best(BEST)
        self.under = list(heads_under(attention, self.best))
        self.by_span = attention_by_layer(attention, FULL, UNTREATED)

    def parts(self) -> list[StudySection]:
        agreement = [self._depths(), self._agreement()] if self.agreements else []
        return [*agreement, self._retrieval(), self._spans()]

    def _depths(self) -> StudySection:
        styles = named_styles(BY_DEPTH)
        pictures = tuple(
            _by_layer({"consensus": one.consensus, "agreement": one.agreement}, styles, model, f"depth/{model}")
            for model, one in self.depths
        )
        rows = tuple((model, *_consensus(one), _slope(one)) for model, one in self.depths)
        return StudySection(
            "depth",
            "Do heads agree early or late?",
            "With the full cache, at the first token of the answer. Consensus is the distinct tokens that heads attend "
            "to most over the heads, low where they agree; agreement is the largest share of heads on one token. Other "
            "models of the same site stand beside this one.",
            tuple(styles.values()),
            pictures,
            (Listing("By model", ("model", *CONSENSUS, "slope"), rows),),
        )

    def _agreement(self) -> StudySection:
        levels = sorted({one.level for one in self.agreements} - {UNTREATED})
        shown = [levels[len(levels) // 2], levels[-1]] if len(levels) > 1 else levels
        styles = styles_of(one.policy for one in self.agreements)
        pictures = tuple(
            _by_layer(
                {one.policy: getattr(one, field) for one in self.agreements if one.level in (level, UNTREATED)},
                styles,
                f"{title}, at {level.where}",
                f"agreement/{field}/{level.where}",
            )
            for field, title in (("consensus", "Consensus"), ("jaccard", "Jaccard index"))
            for level in shown
        )
        listing = Listing(
            "Over all layers",
            ("policy", "level", *CONSENSUS, "slope", "Jaccard", "Jaccard by chance", "kappa"),
            tuple(_row(one) for one in self.agreements),
        )
        return StudySection(
            "agreement",
            "Do heads agree?",
            "By layer: consensus counts the distinct tokens that heads attend to most, at the first token of the "
            "answer, over the heads: 1 where no two heads look at one token. The Jaccard index tells how alike the "
            "tokens are that the heads of a layer keep.",
            tuple(styles.values()),
            pictures,
            details=(listing,),
        )

    def _retrieval(self) -> StudySection:
        styles = styles_of(one.policy for one in self.under)
        heads, scores = self.retrieval, self.retrieval.scores
        cells = {(one.policy, one.level): one.retrieves for one in self.under}
        pictures = (over_levels(cells, styles, f"What the best {len(self.best)} do", "share of answers", "heads/best"),)
        rows = tuple(
            (f"layer {layer}, head {head}", f"{100 * scores[layer, head]:.0f}", f"{100 * heads.chance:.1f}")
            for layer, head in self.best
        )
        of_policies = tuple(
            (one.policy, str(one.level), in_percent(one.retrieves), in_percent(one.attention)) for one in self.under
        )
        return StudySection(
            "heads",
            "Which heads read the answer?",
            "A head retrieves where the token that it attends to most, at the last token of the question, is one of "
            "the gold answer’s. The heads that do so most often with the full cache are followed under each policy.",
            tuple(style for name, style in styles.items() if name != FULL),
            pictures,
            (Listing("The best heads, percent", ("head", "retrieves", "retrieves by chance"), rows),),
            (Listing("The best heads, percent", ("policy", "level", "retrieves", "attention to it"), of_policies),),
        )

    def _spans(self) -> StudySection:
        styles = named_styles(SPANS)
        drawn = _by_layer(
            self.by_span, styles, "With the full cache", "heads/spans", "share of the attention, by layer"
        )
        text = (
            "The share of the attention of the question’s last token, mean over heads, that goes to the gold answer, "
            "the subject that the question starts from, the sentences on the way, the sentences that state the answer, "
            "and all other values that the context states."
        )
        return StudySection("spans", "What the question looks at", text, tuple(styles.values()), (drawn,))

    def sheets(self) -> list[Sheet]:
        by_layer = [
            {"policy": one.policy, "level": one.level, "layer": layer}
            | {name: _plain(getattr(one, name)[layer]) for name in (*AT_ANSWER, "jaccard", "kappa")}
            | {"jaccard_chance": _plain(one.jaccard_by_chance[layer])}
            for one in self.agreements
            for layer in range(len(one.consensus))
        ]
        scores = [
            {"layer": layer, "head": head, "retrieves": float(score)}
            for layer, of_layer in enumerate(self.retrieval.scores)
            for head, score in enumerate(of_layer)
        ]
        under = list(map(columns_of, self.under))
        return [
            Sheet.of("routing-agreement", "Agreement of heads by layer", by_layer, ("policy",)),
            Sheet.of("routing-heads", "Retrieval heads", scores, ("layer",)),
            Sheet.of("routing-heads-kept", "Retrieval heads under policies", under, ("policy",), {"kept": Estimate}),
        ]


def _plain(value: float) -> float | None:
    return None if value != value else float(value)  # NaN where nothing is measured


def _row(one: Agreement) -> tuple[str, ...]:
    of_kept = (_mean(values) for values in (one.jaccard, one.jaccard_by_chance, one.kappa))
    return (one.policy, str(one.level), *_consensus(one), _slope(one), *of_kept)


def _consensus(one: Agreement) -> tuple[str, ...]:
    return tuple(_mean(values) for values in (one.consensus, one.consensus_by_chance, one.agreement))


def _slope(one: Agreement) -> str:
    interval = "" if one.slope.interval is None else " [{:z.2f} to {:z.2f}]".format(*one.slope.interval)
    return f"{one.slope.mean:z.2f}{interval}" if one.slope.n else "–"


def _mean(values: FloatArray) -> str:
    known = values[values == values]
    return f"{known.mean():z.2f}" if len(known) else "–"


def _by_layer(
    lines: dict[str, FloatArray], styles: dict[str, LineStyle], title: str, salt: str, note: str = "by layer"
) -> Picture:
    paths = [
        BandedLine(
            style, tuple((float(layer), float(value)) for layer, value in enumerate(lines[name]) if value == value)
        )
        for name, style in styles.items()
        if name in lines
    ]
    layers = max(len(values) for values in lines.values())
    return Picture(title, note, Markup(panel(paths, Axis.of_layers(layers), fitted(paths), title, salt)))


DEFINITIONS = (
    Definition(
        "Consensus, agreement, and slope",
        "By layer, of the token that each head attends to most at the first token of the answer. Consensus, as the "
        "paper writes it, is low where heads agree; beside it that of heads which look at any of the n tokens that the "
        "layer keeps, at random. Agreement is the largest share of heads on one token. The slope is the mean consensus "
        "of the late half of the layers less that of the early half.",
        "consensus = distinct top tokens / heads; chance = n (1 − (1 − 1 / n)^heads) / heads",
        "arXiv 2603.01426",
        names=("consensus", "consensus by chance", "consensus_by_chance", "agreement", "slope"),
    ),
    Definition(
        "Jaccard index and kappa of heads",
        "How alike the sets of tokens are that the heads of a layer keep: the mean over pairs of heads of the tokens "
        "that both keep over those that either keeps, beside what heads that keep a share p at random have; and "
        "Fleiss’ kappa, 0 at chance and 1 where all keep the same.",
        "chance = p / (2 − p)",
        "J. L. Fleiss, Psychological Bulletin 76 (1971)",
        names=("Jaccard", "Jaccard by chance", "jaccard", "jaccard_chance", "kappa"),
    ),
    Definition(
        "Retrieval heads",
        "The share of answers in which the token that a head attends to most, at the last token of the question, is "
        "one of the gold answer’s; beside it the share that a head would have which looks at any token of the "
        "context. Attention to it: the share of the head’s attention on all tokens of the gold.",
        "",
        "after W. Wu et al., arXiv 2404.15574",
        names=("head", "retrieves by chance", "attention to it", *estimates("retrieves", "attention")),
    ),
)
