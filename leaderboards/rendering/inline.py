"""Turns what matplotlib draws on axes of its own, such as a heat map, into SVG text to stand inside a page."""

import hashlib
import html
import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from leaderboards.rendering.frames import INK
from leaderboards.rendering.printed import figures, print_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SIZE = (4.5, 3.3)  # inches, those of the other drawings of a page
PLACE = (0.085, 0.125, 0.895, 0.845)  # of the axes in it: left, bottom, width, height
INCH = 72  # in the units of an SVG
NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


def svg_of(draw: Callable[["Axes"], None], title: str, salt: str) -> str:
    """Returns the drawing as a part of a page. ``salt``: different for each drawing of a page."""
    with print_settings(salt):
        figure = figures.Figure(figsize=SIZE)
        draw(figure.add_axes(PLACE))
        body = _body(figure, salt).replace(INK, f"var(--ink-curve, {INK})")
    box = f"0 0 {INCH * SIZE[0]:g} {INCH * SIZE[1]:g}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img">'
        f"<title>{html.escape(title)}</title>\n{body}\n</svg>\n"
    )


def _body(figure: "Figure", salt: str) -> str:
    """Returns the drawing alone: no prologue, no size, and ids that no other drawing has."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=NO_METADATA)
    svg = buffer.getvalue()
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")].strip()
    body = body.replace("xlink:href=", "href=")
    prefix = "d" + hashlib.sha256(salt.encode()).hexdigest()[:6]
    needed = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda match: f' id="{prefix}{match[1]}"' if match[1] in needed else "", body)
    body = re.sub(r'(href="|url\()#', rf"\g<1>#{prefix}", body)
    # The size of the text stays, its typeface is the page's. Matplotlib's style element would reach all of the page.
    body = re.sub(r" font-family: [^;\"]+;", "", body)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"\s+", " ", re.sub(r"<g/>", "", body))
    body = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", body)
    return re.sub(r"(\d\.\d\d)\d+", r"\1", body)  # hundredths of a pixel are enough
