"""Turns ``run.json`` into text: every fact of it, whatever it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leaderboards.pages.results import distinct, spread

# What a run says of itself: its name on pages, the field, and how many letters of it are shown.
PROVENANCE = (("Began", "created", 16), ("Commit", "git_revision", 10), ("Machine", "device", 40))


@dataclass(frozen=True)
class Entry:
    """One fact about a run: a text, or more facts under a name."""

    name: str
    text: str = ""
    entries: tuple["Entry", ...] = ()


def provenance_of(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Tells when some runs began, by which commit and on which machine, as far as they know."""
    facts = [spread(run) for run in runs]
    return [
        (name, text)
        for name, key, longest in PROVENANCE
        if (text := ", ".join(distinct(str(of[key])[:longest].replace("T", " ") for of in facts if of.get(key))))
    ]


def entries_of(run: Mapping[str, Any]) -> tuple[Entry, ...]:
    return _entries(spread(run))


def _entries(value: Mapping[str, Any]) -> tuple[Entry, ...]:
    return tuple(_entry(str(name), content) for name, content in value.items())


def _entry(name: str, content: Any) -> Entry:
    if isinstance(content, Mapping) and content:
        return Entry(name, entries=_entries(content))
    if isinstance(content, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in content):
        return Entry(name, entries=tuple(_list_entry(number, item) for number, item in enumerate(content, start=1)))
    if isinstance(content, list | tuple):
        return Entry(name, ", ".join(_text(item) for item in content) or "none")
    return Entry(name, _text(content))


def _list_entry(number: int, item: Any) -> Entry:
    """Returns an item of a list, under its own name where it has one."""
    if isinstance(item, Mapping) and isinstance(item.get("name"), str):
        rest = {key: content for key, content in item.items() if key != "name"}
        return _entry(item["name"], rest)
    return _entry(str(number), item)


def _text(content: Any) -> str:
    if content is None or content == {}:
        return "–"
    if isinstance(content, bool):
        return "yes" if content else "no"
    return str(content)
