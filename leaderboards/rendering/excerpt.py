"""Cuts a long text to what is around the places that matter."""

from collections.abc import Iterable

Range = tuple[int, int]  # characters, from the first to behind the last


def excerpt(text: str, marked: Iterable[Range], around: int, longest: int) -> list[Range]:
    """Returns stretches of whole words, in order and without overlap, that hold the marked ranges with ``around``
    characters on either side. A text of up to ``longest`` characters is left whole, and of one without marked ranges
    the first ``longest`` are taken."""
    if len(text) <= longest:
        return [(0, len(text))]
    stretches: list[Range] = []
    for start, end in sorted(marked):
        first = text.rfind(" ", 0, max(0, start - around)) + 1
        last = text.find(" ", min(len(text), end + around))
        last = len(text) if last < 0 else last
        if stretches and first <= stretches[-1][1]:
            stretches[-1] = (stretches[-1][0], max(stretches[-1][1], last))
        else:
            stretches.append((first, last))
    return stretches or [(0, longest)]
