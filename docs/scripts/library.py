"""Writes the reference of the library from the docstrings of its public names, which griffe reads,
the part of mkdocstrings that knows docstrings."""

import inspect
import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import griffe

import kvbench
import kvbench.testing
from docs.scripts.markdown import table

KINDS = griffe.DocstringSectionKind
ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")
PROMPT = re.compile(r"^(>>> |\.\.\. ?)")


@cache
def _package() -> Any:
    # "Returns" is one thing, whose lines are not so many values.
    options = griffe.GoogleOptions(returns_multiple_items=False, returns_named_value=False)
    with warnings.catch_warnings():
        # It takes texts of options, such as "8cm", for annotations, and tries to compile them.
        warnings.simplefilter("ignore", SyntaxWarning)
        return griffe.load("kvbench", docstring_parser="google", docstring_options=options)


def library() -> str:
    """Returns a section for each public name: the functions first, then what they return."""
    functions, classes = [], []
    for name in kvbench.__all__:
        value = getattr(kvbench, name)
        described = _package()[f"{value.__module__.removeprefix('kvbench.')}.{name}"]
        if isinstance(value, type):
            classes.append(_class_section(name, described))
        else:
            # Its own signature: one that a decorator fills in, such as the call, is not among it.
            functions.append(_function_section(f"kvbench.{name}", described, value))
    for name in kvbench.testing.__all__:
        if name.startswith("check"):
            value = getattr(kvbench.testing, name)
            described = _package()[f"testing.{name}"]
            functions.append(_function_section(f"kvbench.testing.{name}", described, value))
    return "\n\n".join([*functions, *classes])


def _function_section(title: str, described: Any, function: Any) -> str:
    summary, sections = _parts(described)
    lines = [f"## `{title}`", summary]
    meanings = dict(_entries(sections.get(KINDS.parameters, ())))
    rows = []
    for name, parameter in inspect.signature(function).parameters.items():
        meaning = meanings.get(name) or meanings.get(f"*{name}")
        if meaning:
            rows.append((f"`{name}`", _default(parameter), meaning))
    if rows:
        lines.append(table(("argument", "default", "meaning"), rows))
    facts = []
    for returned in sections.get(KINDS.returns, ()):
        facts.append(("returns", _plain(returned.description)))
    for raised in sections.get(KINDS.raises, ()):
        facts.append((f"raises `{raised.annotation}`", _plain(raised.description)))
    if facts:
        lines.append(table(("", ""), facts))
    if KINDS.admonition in sections:  # "Example:"
        lines.append(f"```python\n{_code(sections[KINDS.admonition].description)}\n```")
    return "\n\n".join(filter(None, lines))


def _class_section(name: str, described: Any) -> str:
    summary, _ = _parts(described)
    lines = [f"## `kvbench.{name}`", summary]
    rows: dict[str, str] = {}
    for owner in [*reversed(described.mro()), described]:
        _, sections = _parts(owner)
        for attribute, meaning in _entries(sections.get(KINDS.attributes, ())):
            rows[f"`{attribute}`"] = meaning
        for method in owner.functions.values():
            # A property is an attribute, which the class describes.
            if method.is_private or method.is_special:
                continue
            about, of_method = _parts(method)
            returned = [_plain(value.description) for value in of_method.get(KINDS.returns, ())]
            arguments = ", ".join(parameter.name for parameter in list(method.parameters)[1:])
            rows[f"`{method.name}({arguments})`"] = " ".join([about, *returned])
    if rows:
        lines.append(table(("", "what it is"), rows.items()))
    return "\n\n".join(lines)


def _parts(described: Any) -> tuple[str, dict[Any, Any]]:
    """Returns the text of a docstring before its sections, and the sections by kind."""
    if described.docstring is None:
        return "", {}
    sections = {section.kind: section.value for section in described.docstring.parsed}
    text = sections.pop(KINDS.text, "")
    return "\n\n".join(map(_plain, text.split("\n\n"))), sections


def _entries(section: Any) -> Iterator[tuple[str, str]]:
    for entry in section:
        yield entry.name.lstrip("*"), _plain(entry.description)


def _plain(text: str) -> str:
    """Returns a text on one line, as Markdown."""
    joined = ROLE.sub(r"`\1`", " ".join(text.split()))
    return joined.replace("``", "`").replace("|", "\\|")


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return ""
    if str(parameter.default) == "runs":
        return "`'runs'`"
    return f"`{parameter.default!r}`"


def _code(example: str) -> str:
    """Returns the code of an example, laid out as ruff does, without what it shows."""
    lines: list[str] = []
    imports = ""
    for line in example.strip().splitlines():
        if not PROMPT.match(line.strip()):
            continue
        code = PROMPT.sub("", line.strip())
        if imports and not code.startswith(("import", "from")):
            lines += [""] * (2 if code.startswith(("@", "def")) else 1)
        imports = code if code.startswith(("import", "from")) else ""
        lines.append(code)
    return "\n".join(lines)
