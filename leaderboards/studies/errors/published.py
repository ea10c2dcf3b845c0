"""The treatments of text E, by their names here, with the figures that it reports."""

from dataclasses import dataclass

BITS = ("int8", "int4")
EVERYWHERE = 1.0  # the share of the values that is off
CENTRED = "multiplicative_uniform"  # by a factor from 0 to 2
BIASED = "multiplicative_uniform(low=0,high=2)"
WIDE = "multiplicative_uniform(low=-1.5,high=1.5)"
STDS = (0.1, 0.25, 0.5)
NORMALS = tuple("multiplicative_normal" if std == 0.5 else f"multiplicative_normal(std={std:g})" for std in STDS)
FLIPPED_SHARE = 0.05  # of the values
FLIPPED, SAME_SIGN = "sign_flip", "same_sign"


CONTROL = 51.3  # next tokens that are right without an error


@dataclass(frozen=True)
class NextToken:
    """A share of the control's next tokens."""

    printed: float
    count: float | None = None  # of right next tokens, which the share is said to be of CONTROL; None: not known

    @property
    def share(self) -> float | None:
        """Returns the share by the text's own counts."""
        return None if self.count is None else self.count / CONTROL

    @property
    def agrees(self) -> bool:
        """Tells whether what is printed is what the counts come to, to the two places that the text prints."""
        return self.share is None or abs(self.printed - self.share) < 0.01

    @property
    def arithmetic(self) -> str:
        """Writes the share by the counts.

        >>> NextToken(0.83, 27.4).arithmetic
        '27.4 / 51.3 = 0.53'
        """
        return "" if self.count is None else f"{self.count:g} / {CONTROL:g} = {self.count / CONTROL:.2f}"


@dataclass(frozen=True)
class ReportedFigures:
    """The figures that the text reports of one treatment; a field is empty where it has none."""

    policy: str  # the name of the same treatment here
    ifeval: float | None = None  # share of the control
    next_token: tuple[NextToken, ...] = ()  # the text has two rows of the centred uniform error
    words: str = ""  # which the text has instead of a figure


INT8, INT4 = (
    ReportedFigures(bits, 0.98, (NextToken(next_token),)) for bits, next_token in zip(BITS, (0.91, 1.15), strict=True)
)
UNIFORM = ReportedFigures(CENTRED, 0.83, (NextToken(0.83, 27.4), NextToken(0.85, 31.4)))
WIDE_UNIFORM = ReportedFigures(WIDE, None, (NextToken(0.61),))
NORMAL_QUARTER, NORMAL_HALF = (
    ReportedFigures(policy, None, (NextToken(share),)) for policy, share in zip(NORMALS[1:], (0.80, 0.61), strict=True)
)
ROWS = (
    INT8,
    INT4,
    UNIFORM,
    ReportedFigures(BIASED, words="“random tokens”"),
    WIDE_UNIFORM,
    NORMAL_QUARTER,
    NORMAL_HALF,
    ReportedFigures(FLIPPED, words="“catastrophic”"),
)
KEPT_BY_BITS = 0.98  # what the text says that 8 and 4 bits keep
KEPT_BY_UNIFORM = 0.8  # what it says that a centred uniform error keeps


def remark_on_bits() -> str:
    """Tells where the text's next tokens are below what it says of 8 and 4 bits."""
    kept = INT8.next_token[0].printed
    return f"Its own next tokens with 8 bits keep {kept:.2f}, which is below the {KEPT_BY_BITS:.2f} of the sentence."


def remark_on_uniform() -> str:
    """Sets what the text prints of uniform errors against what its counts come to."""
    printed = " and ".join(f"{one.printed:.2f}" for one in UNIFORM.next_token)
    counts = " and ".join(one.arithmetic for one in UNIFORM.next_token)
    return f"The text's table of next tokens prints {printed}, but its own counts give {counts}."


def remark_on_normal() -> str:
    """Sets the text's normal error against its wide uniform one, whose spread is larger."""
    normal, wide = NORMAL_HALF.next_token[0].printed, WIDE_UNIFORM.next_token[0].printed
    verdict = "no difference" if normal == wide else f"{normal - wide:+.2f}"
    return (
        f"By the text's own counts normal(0, 0.5) and uniform(-1.5, 1.5) both keep {normal:.2f}: {verdict}. "
        f"The spread of the uniform error is 3 / √12 = {3 / 12**0.5:.2f}."
    )
