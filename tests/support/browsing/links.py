"""Follows the links of pages, and what their drawings name, and finds those that lead nowhere."""

import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from urllib.parse import unquote

ADDRESS = re.compile(r'\bhref="([^"]+)"')
OUTSIDE = ("data:", "http")


def follow_links(pages: Sequence[Path]) -> int:
    """Follows every address of some pages, of links and of parts of drawings, and returns how many
    there are. Raises :class:`AssertionError` for one that leads to no file, or to no place in it."""
    texts = {page.resolve(): page.read_text(encoding="utf-8") for page in pages}
    followed = 0
    for page, text in texts.items():
        for written in ADDRESS.findall(text):
            address = unescape(written)
            if address.startswith(OUTSIDE):
                continue
            name, _, place = address.partition("#")
            target = (page.parent / unquote(name)).resolve() if name else page
            assert target.is_file(), f"{page.name} leads to {address}"
            # The address of a page of examples names a cell, which its script reads.
            if place and not target.name.startswith("examples-"):
                place_there = f'id="{unquote(place)}"'
                assert place_there in texts[target], f"{page.name} leads to {address}"
            followed += 1
    return followed
