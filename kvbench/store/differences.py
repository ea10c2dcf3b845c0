"""Says in one line in which fields two identities differ, with both values."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

SHOWN = 3  # differences in one message
LONGEST = 60  # characters of a value
SETS_PROMPTS = (
    "model",
    "date",
    "seed",
    "mode",
    "source",
    "held_out",
)  # where these differ, prompts follow
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
    """Describes the first fields in which a run differs from the stored one. Both are plain data by field, tasks and
    policies by name."""
    lines = list(_lines(stored, fresh))
    if any(stored.get(name) != fresh.get(name) for name in SETS_PROMPTS):
        lines = list(_lines(_without_prompts(stored), _without_prompts(fresh)))
    more = len(lines) - SHOWN
    return "; ".join(lines[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _without_prompts(identity: Mapping[str, Any]) -> dict[str, Any]:
    tasks = {name: {**task, "prompt": ""} for name, task in identity["tasks"].items()}
    return {**identity, "tasks": tasks}


def _lines(stored: Mapping[str, Any], fresh: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*stored, *fresh)):
        one, other = stored.get(name), fresh.get(name)
        if one == other:
            continue
        if name in PLURALS and isinstance(one, Mapping) and isinstance(other, Mapping):
            entries = list(_of_entries(PLURALS[name], one, other))
            more = f" and {len(entries) - SHOWN} more" if len(entries) > SHOWN else ""
            yield f"its {name} differ: {', '.join(entries[:SHOWN])}{more}"
        elif name == "contents" and isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _of_contents(one, other)
        elif isinstance(one, Mapping) and isinstance(other, Mapping):
            for key in dict.fromkeys((*one, *other)):
                if one.get(key) != other.get(key):
                    yield f"its {key} is {_pair(one.get(key), other.get(key))}"
        else:
            yield f"its {WORDS.get(name, name)} {_verb(name)} {_pair(one, other)}"


def _of_contents(stored: Mapping[str, str], fresh: Mapping[str, str]) -> Iterator[str]:
    """Describes libraries whose files differ, and functions that other code replaced in one of the two runs."""
    if not stored:
        yield "it was made before runs stored what their libraries contain"
        return
    for name in dict.fromkeys((*stored, *fresh)):
        if stored.get(name) == fresh.get(name):
            continue
        if name in stored and name in fresh:
            yield f"the code of {name} was another one ({_pair(stored[name], fresh[name])})"
        elif "." in name or " " in name:
            yield f"{name} was replaced by other code in {'it' if name in stored else 'this one'} alone"
        else:
            yield f"{name} was used in {'it' if name in stored else 'this one'} alone"


def _of_entries(kind: str, stored: Mapping[str, Any], fresh: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys((*stored, *fresh)):
        if name not in fresh:
            yield f"it has {name}, this one has not"
        elif name not in stored:
            yield f"this one has {name}, it has not"
        else:
            for field in stored[name]:
                one, other = stored[name][field], fresh[name].get(field)
                if one != other:
                    yield f"the {WORDS.get(field, field)} of the {kind} {name} {_verb(field)} {_pair(one, other)}"


def _verb(field: str) -> str:
    return "are" if WORDS.get(field, field).partition(" (")[0].endswith("s") else "is"


def _pair(stored: Any, fresh: Any) -> str:
    """Writes both values, of long ones the part around the first letter that differs."""
    one, other = (_text(value) for value in (stored, fresh))
    if max(len(one), len(other)) > LONGEST:
        same = next(
            (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
            None,
        )
        start = max(0, (min(len(one), len(other)) if same is None else same) - LONGEST // 3)
        one, other = (
            f"{'…' if start else ''}{text[start : start + LONGEST]}" for text in (one, other)
        )
    return f"{one}, this one's {other}"


def _text(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)
