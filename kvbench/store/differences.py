"""Says in one line in which fields two identities differ, with both values."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

SHOWN = 3  # differences in one message
LONGEST = 60  # characters of a value
# Where these differ, prompts follow.
SETS_PROMPTS = (
    "model",
    "date",
    "seed",
    "mode",
    "source",
    "held_out",
)
PLURALS = {"tasks": "task", "policies": "policy"}
# Of fields whose names say little: what differs, and the option that sets it.
WORDS = {
    "contexts": "contexts (--limit)",
    "max_new_tokens": "max_new_tokens (--max-new-tokens)",
    "levels": "levels (--ratios and the like)",
    "repeats": "repeats (--repeats)",
    "origin": "code",
    "date": "date (--date)",
}


def describe(stored: Mapping[str, Any], fresh: Mapping[str, Any]) -> str:
    """Describes the first fields in which a run differs from the stored one. Both are plain data by
    field, tasks and policies by name."""
    lines = list(_lines(stored, fresh))
    if any(stored.get(name) != fresh.get(name) for name in SETS_PROMPTS):
        lines = list(_lines(_without_prompts(stored), _without_prompts(fresh)))
    text = "; ".join(lines[:SHOWN])
    if len(lines) > SHOWN:
        text += f"; and {len(lines) - SHOWN} more"
    return text


def _without_prompts(identity: Mapping[str, Any]) -> dict[str, Any]:
    tasks = {name: {**task, "prompt": ""} for name, task in identity["tasks"].items()}
    return {**identity, "tasks": tasks}


def _lines(stored: Mapping[str, Any], fresh: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line for each field that differs, or several for one that holds others."""
    for name in _differing(stored, fresh):
        before, now = stored.get(name), fresh.get(name)
        if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
            yield f"its {WORDS.get(name, name)} {_verb(name)} {_pair(before, now)}"
        elif name in PLURALS:
            entries = list(_entry_lines(PLURALS[name], before, now))
            line = f"its {name} differ: {', '.join(entries[:SHOWN])}"
            if len(entries) > SHOWN:
                line += f" and {len(entries) - SHOWN} more"
            yield line
        elif name == "contents":
            yield from _content_lines(before, now)
        else:
            for key in _differing(before, now):
                yield f"its {key} is {_pair(before.get(key), now.get(key))}"


def _differing(stored: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[str]:
    """Lists the names with different values; one that is not there is as one that has none."""
    names = dict.fromkeys((*stored, *fresh))
    return [name for name in names if stored.get(name) != fresh.get(name)]


def _content_lines(stored: Mapping[str, str], fresh: Mapping[str, str]) -> Iterator[str]:
    """Describes libraries whose files differ, and functions that other code replaced in one of the
    two runs."""
    if not stored:
        yield "it was made before runs stored what their libraries contain"
        return
    for name in _differing(stored, fresh):
        where = "it" if name in stored else "this one"
        if name in stored and name in fresh:
            yield f"the code of {name} was another one ({_pair(stored[name], fresh[name])})"
        elif "." in name or " " in name:
            yield f"{name} was replaced by other code in {where} alone"
        else:
            yield f"{name} was used in {where} alone"


def _entry_lines(kind: str, stored: Mapping[str, Any], fresh: Mapping[str, Any]) -> Iterator[str]:
    """Describes tasks or policies that one of the two runs alone has, and fields that differ."""
    for name in dict.fromkeys((*stored, *fresh)):
        if name not in fresh:
            yield f"it has {name}, this one has not"
        elif name not in stored:
            yield f"this one has {name}, it has not"
        else:
            for field, before in stored[name].items():
                now = fresh[name].get(field)
                if before != now:
                    what_differs = f"the {WORDS.get(field, field)} of the {kind} {name}"
                    yield f"{what_differs} {_verb(field)} {_pair(before, now)}"


def _verb(field: str) -> str:
    words = WORDS.get(field, field)
    return "are" if words.partition(" (")[0].endswith("s") else "is"


def _pair(stored: Any, fresh: Any) -> str:
    """Writes both values, of long ones the part around the first letter that differs."""
    before, now = _text(stored), _text(fresh)
    if max(len(before), len(now)) > LONGEST:
        start = max(0, _first_difference(before, now) - LONGEST // 3)
        before, now = _excerpt(before, start), _excerpt(now, start)
    return f"{before}, this one's {now}"


def _first_difference(text: str, other: str) -> int:
    """Returns the place of the first letter that differs; the end of the shorter text where it is
    the beginning of the longer one."""
    for place, (letter, other_letter) in enumerate(zip(text, other, strict=False)):
        if letter != other_letter:
            return place
    return min(len(text), len(other))


def _excerpt(text: str, start: int) -> str:
    part = text[start : start + LONGEST]
    return f"…{part}" if start else part


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return json.dumps(value, ensure_ascii=False)
