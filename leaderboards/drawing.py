"""Drawings as SVG text to stand inside a page: what all figures share.

Colours are style-sheet variables with a fallback, so that a page can set them for light and for dark. Text stays text
and takes the page's typeface. The same values give the same bytes.
"""

import hashlib
import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from leaderboards.style import INK_COLOUR, LineStyle

# Inches. A curve is about as wide as a phone, so that its text is of one size on a phone and in a row of three.
SIZE = (4.5, 3.3)
PRINTED = (6.0, 4.6)
DOTS = 300  # for an inch of print
INK = INK_COLOUR[0]
NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


@dataclass(frozen=True)
class Drawing:
    """What ``draw`` puts on axes. ``salt``: different for each drawing of a page. ``colours``: the variables that stand
    for them in a page."""

    draw: Callable[[Axes], None]
    title: str
    salt: str
    colours: Mapping[str, str]

    def svg(self) -> str:
        """As a part of a page, which has the legend."""
        with matplotlib.rc_context(_settings(self.salt)):
            figure = Figure(figsize=SIZE)
            self.draw(figure.add_axes((0.085, 0.125, 0.895, 0.845)))
            buffer = io.StringIO()
            figure.savefig(buffer, format="svg", transparent=True, metadata=NO_METADATA)
        return _as_part_of_a_page(buffer.getvalue(), self.title, self.salt, {**self.colours, INK: "--ink-curve"})

    def save(self, path: Path, heading: str) -> None:
        """For print, with a heading and a legend of what has a label; the format is that of the suffix: svg, png or
        pdf."""
        with matplotlib.rc_context(_settings(self.salt)):
            figure = Figure(figsize=PRINTED, layout="constrained")
            axes = figure.add_subplot()
            self.draw(axes)
            axes.set_title(heading, loc="left", color=INK)
            figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
            figure.savefig(path, dpi=DOTS)


def drawn(draw: Callable[[Axes], None], title: str, salt: str, colours: Mapping[str, str]) -> str:
    """A :class:`Drawing` as a part of a page."""
    return Drawing(draw, title, salt, colours).svg()


def draw_line(axes: Axes, style: LineStyle, x: Sequence[float], y: Sequence[float], label: str | None = None) -> None:
    """A line in the style of its policy, by which the page finds it."""
    # Not seaborn.lineplot: of one series it draws the same line, and takes twenty times as long to.
    axes.plot(
        x,
        y,
        color=style.colours[0],
        linestyle=(0, style.dashes) if style.dashes else "-",
        linewidth=style.width,
        marker=style.marker or None,
        markersize=4.2,
        markeredgewidth=0,
        clip_on=False,
        zorder=2 if style.control else 3,
        gid=f"policy:{style.index}",
        label=label,
    )


def draw_band(axes: Axes, style: LineStyle, x: Sequence[float], low: Sequence[float], high: Sequence[float]) -> None:
    """Around a line, from the low ends of its intervals to the high ones."""
    axes.fill_between(
        x,
        low,
        high,
        color=style.colours[0],
        alpha=0.08,
        linewidth=0,
        clip_on=False,
        zorder=1,
        gid=f"band:{style.index}",
    )


def dress(axes: Axes, title: str) -> None:
    """Axes with little ink: a base line, which has the title, and faint horizontal lines."""
    axes.set_xlabel(title, color=INK, labelpad=4)
    axes.tick_params(colors=INK, length=0, pad=5)
    axes.grid(axis="y", color=INK, alpha=0.22, linewidth=0.6)
    axes.set_axisbelow(True)
    seaborn.despine(ax=axes, left=True)
    axes.spines["bottom"].set_color(INK)


def _settings(salt: str) -> Any:
    """Matplotlib's settings for one drawing; the salt makes its ids the same in every process."""
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.size": 9.0,
        "axes.linewidth": 0.8,
        "path.simplify": False,
    }


def _as_part_of_a_page(svg: str, title: str, salt: str, colours: Mapping[str, str]) -> str:
    """The drawing alone: no prologue, no size, ids that are unique on a page, colours as variables."""
    drawing = svg[svg.index("<svg") :]
    opening = re.search(r'viewBox="([^"]+)"', drawing)
    if opening is None:  # pragma: no cover - matplotlib always writes one
        raise RuntimeError("matplotlib wrote an SVG without a viewBox")
    body = drawing[drawing.index(">") + 1 :].strip()
    body = body.replace("xlink:href=", "href=")
    body = re.sub(r'id="(policy|band):(\d+)"', r'class="\1" data-policy="\2"', body)
    prefix = "d" + hashlib.sha256(salt.encode()).hexdigest()[:6]  # short: it stands at every marker
    needed = set(re.findall(r'(?:href="|url\()#([^")]+)', body))
    body = re.sub(r' id="([^"]+)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in needed else "", body)
    body = re.sub(r'(href="|url\()#', rf"\g<1>#{prefix}", body)
    # The size of the text stays, its typeface is the page's. Matplotlib's style element would reach all of the page.
    body = re.sub(r" font-family: [^;\"]+;", "", body)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"\s+", " ", re.sub(r"<g/>", "", body))
    body = re.sub(r' transform="rotate\(-0 [^"]*\)"', "", body)
    body = re.sub(r"(\d\.\d\d)\d+", r"\1", body)  # hundredths of a pixel are enough
    for colour, variable in colours.items():
        body = body.replace(colour, f"var({variable}, {colour})")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{opening[1]}" role="img">'
        f"<title>{html.escape(title)}</title>\n{body}\n"
    )
