"""Writes the reference of the library from the docstrings of its public names."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import kvbench
import kvbench.testing
from docs.scripts.markdown import table

SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example):\n", re.MULTILINE)
ENTRY = re.compile(r"^ {4}(\*{0,2}\w+): ", re.MULTILINE)
ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")
PROMPT = re.compile(r"^(>>> |\.\.\. ?)")


def library() -> str:
    """Returns a section for each public name: the functions first, then what they return."""
    functions, classes = [], []
    for name in kvbench.__all__:
        value = getattr(kvbench, name)
        if isinstance(value, type):
            classes.append(_class_section(name, value))
        else:
            functions.append(_function_section(f"kvbench.{name}", value))
    for name in kvbench.testing.__all__:
        if name.startswith("check"):
            value = getattr(kvbench.testing, name)
            functions.append(_function_section(f"kvbench.testing.{name}", value))
    return "\n\n".join([*functions, *classes])


def _function_section(title: str, function: Callable[..., Any], depth: int = 2) -> str:
    summary, sections = _parts(function)
    lines = [f"{'#' * depth} `{title}`", summary]
    parameters = inspect.signature(function).parameters
    described = dict(_entries(sections.get("Args", "")))
    rows = []
    for name, parameter in parameters.items():
        if name in described or f"*{name}" in described:
            text = described.get(name) or described[f"*{name}"]
            rows.append((f"`{name}`", _default(parameter), text))
    if rows:
        lines.append(table(("argument", "default", "meaning"), rows))
    facts = []
    if "Returns" in sections:
        facts.append(("returns", _plain(sections["Returns"])))
    for error, text in _entries(sections.get("Raises", "")):
        facts.append((f"raises `{error}`", text))
    if facts:
        lines.append(table(("", ""), facts))
    if "Example" in sections:
        lines.append(f"```python\n{_code(sections['Example'])}\n```")
    return "\n\n".join(filter(None, lines))


def _class_section(name: str, kind: type) -> str:
    summary, _ = _parts(kind)
    lines = [f"## `kvbench.{name}`", summary]
    rows = []
    for owner in reversed(kind.__mro__[:-1]):
        _, inherited = _parts(owner)
        for attribute, text in _entries(inherited.get("Attributes", "")):
            rows.append((f"`{attribute}`", text))
        for method, value in vars(owner).items():
            if method.startswith("_") or not inspect.isfunction(value):
                continue
            about, of_method = _parts(value)
            returned = _plain(of_method.get("Returns", ""))
            arguments = ", ".join(list(inspect.signature(value).parameters)[1:])
            rows.append((f"`{method}({arguments})`", f"{about} {returned}".strip()))
    if rows:
        lines.append(table(("", "what it is"), dict(rows).items()))
    return "\n\n".join(lines)


def _parts(value: Any) -> tuple[str, dict[str, str]]:
    """Returns the text of a docstring before its sections, and the sections by name."""
    is_inherited = isinstance(value, type) and not vars(value).get("__doc__")
    docstring = "" if is_inherited else inspect.getdoc(value)
    text, *rest = SECTION.split(docstring or "")
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    return "\n\n".join(map(_plain, text.strip().split("\n\n"))), sections


def _entries(section: str) -> Iterator[tuple[str, str]]:
    _, *rest = ENTRY.split(section)
    for name, text in zip(rest[::2], rest[1::2], strict=True):
        yield name, _plain(text)


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


def _code(section: str) -> str:
    """Returns the code of an example, laid out as ruff does, without what it shows."""
    lines: list[str] = []
    imports = ""
    for line in section.strip().splitlines():
        if not PROMPT.match(line.strip()):
            continue
        code = PROMPT.sub("", line.strip())
        if imports and not code.startswith(("import", "from")):
            lines += [""] * (2 if code.startswith(("@", "def")) else 1)
        imports = code if code.startswith(("import", "from")) else ""
        lines.append(code)
    return "\n".join(lines)
