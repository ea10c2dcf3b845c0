"""Measures how hard the product is to read, in numbers that no line break changes, and keeps the
limits that they may not exceed.

``make ratchet`` lowers the limits to what the tree reaches now; tests/test_readability.py forbids
worse. A node is what Python's parser makes of a name, a call or an operator. Annotations of types
are not counted. For comparison, nodes a statement and, per 1,000 statements, comprehensions, nested
ones and conditional expressions: kvpress 7.5, 6, 1, 8; lm-eval 6.8, 33, 2, 25; inspect_ai 6.2, 21,
1, 23.
"""

import ast
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMITS = ROOT / "tests" / "readability.json"
PACKAGES = ("kvbench", "datasets_gen", "policies", "leaderboards")
WIDEST = 100  # characters of a line
MOST_NUMBERS = 3  # of a sentence
SHORTEST = 6  # lines of a function whose density tells something
BANNED = frozenset(
    [
        "found",
        "own",
        "told",
        "asked",
        "lacking",
        "known",
        "made",
        "most",
        "lend",
        "one",
        "ones",
        "given",
        "what",
        "met",
    ]
)
TYPES_AND_MARKS = ("annotation", "returns", "ctx")
Function = ast.FunctionDef | ast.AsyncFunctionDef
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
NUMBER = re.compile(r"(?<![\w.])[-+±]?\d[\d,.]*")
FRAGMENT = re.compile(r"(Nor|Not|With|Of|To|At|In|So|Beside|Behind)\b")


@dataclass(frozen=True)
class Place:
    """A place that a measure counts, and how bad it is."""

    where: str
    weight: float = 1


@dataclass
class Tally:
    """Counts of some files. ``places`` has a list for each kind of place."""

    statements: int = 0
    nodes: int = 0
    code_lines: int = 0
    places: dict[str, list[Place]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, where: str, weight: float = 1) -> None:
        self.places[kind].append(Place(where, weight))

    def count(self, kind: str) -> int:
        return len(self.places[kind])


@dataclass(frozen=True)
class Measure:
    """A number that may not rise. It is rounded up to ``decimals`` places behind the point."""

    name: str
    kind: str  # of the places that a failure names
    remedy: str
    decimals: int
    compute: Callable[[Tally], float]

    def value(self, tally: Tally) -> float:
        scale: int = 10**self.decimals
        # The error of a division is no reason to round up.
        rounded = math.ceil(round(self.compute(tally) * scale, 9))
        return rounded / scale if self.decimals else rounded


def _per_thousand(kind: str) -> Callable[[Tally], float]:
    return lambda tally: 1000 * tally.count(kind) / max(1, tally.statements)


def _count(kind: str) -> Callable[[Tally], float]:
    return lambda tally: tally.count(kind)


MEASURES = (
    Measure(
        "nodes a statement",
        "density",
        "give an intermediate result a name, or write a loop",
        2,
        lambda tally: tally.nodes / max(1, tally.statements),
    ),
    Measure(
        "comprehensions per 1,000 statements",
        "comprehension",
        "write a loop where the comprehension needs a second look",
        1,
        _per_thousand("comprehension"),
    ),
    Measure(
        "nested comprehensions per 1,000 statements",
        "nested",
        "write a loop, or give the inner result a name",
        1,
        _per_thousand("nested"),
    ),
    Measure(
        "conditional expressions per 1,000 statements",
        "conditional",
        "write an if statement",
        1,
        _per_thousand("conditional"),
    ),
    Measure(
        f"percent of code lines over {WIDEST} characters",
        "wide",
        "break the line: ruff format does most of it",
        1,
        lambda tally: 100 * tally.count("wide") / max(1, tally.code_lines),
    ),
    Measure(
        "banned names",
        "banned",
        f"choose a noun for the thing instead of {', '.join(sorted(BANNED))}",
        0,
        _count("banned"),
    ),
    Measure(
        "functions called of_* or *_of",
        "of",
        "name the function by a verb or by what it returns",
        0,
        _count("of"),
    ),
    Measure(
        "public functions with an error that their docstring does not name",
        "raises",
        "say under Raises, or in a sentence with that word, when the function raises which error",
        0,
        _count("raises"),
    ),
    Measure(
        f"sentences with more than {MOST_NUMBERS} numbers",
        "numbers",
        "put the numbers into a table or a picture, and say in the sentence what they mean",
        0,
        _count("numbers"),
    ),
    Measure("fragments of sentences", "fragment", "write a whole sentence", 0, _count("fragment")),
)


def count_nodes(tree: ast.AST) -> int:
    """Counts the nodes of a tree without annotations of types and without the marks of loading and
    storing."""
    total = 0
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        total += 1
        for name, value in ast.iter_fields(node):
            if name in TYPES_AND_MARKS:
                continue
            children = value if isinstance(value, list) else [value]
            waiting.extend(child for child in children if isinstance(child, ast.AST))
    return total


def _docstring_lines(node: ast.AST) -> range:
    if not isinstance(node, DOCUMENTED) or ast.get_docstring(node, clean=False) is None:
        return range(0)
    docstring = node.body[0]
    return range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)


def _is_text(node: ast.AST) -> bool:
    """Tells whether a statement is a text alone, as a docstring is."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _raises_itself(function: Function) -> bool:
    """Tells whether a function raises an error itself, and not in a function inside it."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if not isinstance(node, SCOPES):
            waiting.extend(ast.iter_child_nodes(node))
    return False


def _public_functions(scope: ast.Module | ast.ClassDef) -> Iterator[Function]:
    """Yields the public functions of a module, and the public methods of its public classes."""
    for node in scope.body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        if node.name.startswith("_"):
            continue
        if isinstance(node, ast.ClassDef):
            yield from _public_functions(node)
        else:
            yield node


def _measure_function(function: Function, name: str, tally: Tally) -> None:
    where = f"{name}:{function.lineno} {function.name}"
    if function.name.startswith("of_") or function.name.endswith("_of"):
        tally.add("of", where)
    last = function.end_lineno or function.lineno
    length = last - function.lineno + 1 - len(_docstring_lines(function))
    if length >= SHORTEST:
        tally.add("density", where, count_nodes(function) / length)


def _measure_node(node: ast.AST, name: str, tally: Tally) -> None:
    if isinstance(node, ast.stmt) and not _is_text(node):
        tally.statements += 1
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in BANNED:
        tally.add("banned", f"{name}:{node.lineno} {node.id}")
    elif isinstance(node, ast.arg) and node.arg in BANNED:
        tally.add("banned", f"{name}:{node.lineno} {node.arg}")
    elif isinstance(node, ast.IfExp):
        tally.add("conditional", f"{name}:{node.lineno}")
    elif isinstance(node, COMPREHENSIONS):
        where = f"{name}:{node.lineno}"
        tally.add("comprehension", where)
        inside = sum(isinstance(inner, COMPREHENSIONS) for inner in ast.walk(node)) - 1
        if inside or len(node.generators) > 1:
            tally.add("nested", where, inside + len(node.generators))
    elif isinstance(node, Function):
        _measure_function(node, name, tally)


def measure_source(text: str, name: str, tally: Tally) -> None:
    """Adds a Python file to a tally.

    Raises:
        SyntaxError: The text is no Python.
    """
    tree = ast.parse(text)
    tally.nodes += count_nodes(tree)
    documentation: set[int] = set()
    for node in ast.walk(tree):
        documentation.update(_docstring_lines(node))
        _measure_node(node, name, tally)
    for number, line in enumerate(text.splitlines(), 1):
        code = line.strip()
        if not code or code.startswith("#") or number in documentation:
            continue
        tally.code_lines += 1
        if len(line) > WIDEST:
            tally.add("wide", f"{name}:{number}", len(line))
    for function in _public_functions(tree):
        docstring = ast.get_docstring(function) or ""
        if _raises_itself(function) and not re.search(r"\brais(e|es|ed|ing)\b", docstring, re.I):
            tally.add("raises", f"{name}:{function.lineno} {function.name}")


def measure_prose(text: str, name: str, tally: Tally) -> None:
    """Adds a page in Markdown to a tally, without its code, its tables, its headings and what a
    command writes into it."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    text = re.sub(r"<!-- begin.*?<!-- end.*?-->", "", text, flags=re.S)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "!"))]
    for sentence in re.split(r"(?<=[.!?:])\s+", " ".join(lines)):
        numbers = len(NUMBER.findall(sentence))
        words = sentence.split()
        if numbers > MOST_NUMBERS:
            tally.add("numbers", f"{name}: {' '.join(words[:12])} …", numbers)
        if 0 < len(words) <= 6 and FRAGMENT.match(sentence):
            tally.add("fragment", f"{name}: {sentence}")


def measure_tree(root: Path) -> Tally:
    """Measures the four packages, the README and the documents below a folder.

    Places of files that were written last come first.
    """
    tally = Tally()
    sources: list[Path] = []
    for package in PACKAGES:
        sources.extend((root / package).rglob("*.py"))
    for path in sorted(sources, key=_newest_first):
        measure_source(path.read_text("utf-8"), path.relative_to(root).as_posix(), tally)
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    for path in sorted(pages, key=_newest_first):
        measure_prose(path.read_text("utf-8"), path.relative_to(root).as_posix(), tally)
    return tally


def _newest_first(path: Path) -> tuple[float, Path]:
    return -path.stat().st_mtime, path


def read_limits() -> dict[str, float]:
    limits: dict[str, float] = json.loads(LIMITS.read_text("utf-8"))
    return limits


def complaints(tally: Tally, limits: Mapping[str, float], places: int = 10) -> list[str]:
    """Lists the measures that exceed their limits, each with its worst places and with what to do.

    Of places that are equally bad, those of the files that were written last are named.
    """
    said = []
    for measure in MEASURES:
        value, limit = measure.value(tally), limits[measure.name]
        if value <= limit:
            continue
        worst = sorted(tally.places[measure.kind], key=lambda place: -place.weight)
        lines = [f"{measure.name}: {value:g}, and the limit is {limit:g}: {measure.remedy}."]
        lines.append("The worst places, the files that were written last before others:")
        for place in worst[:places]:
            lines.append(f"  {place.where} ({place.weight:.3g})")
        said.append("\n".join(lines))
    return said


def lower_limits(tally: Tally, limits: Mapping[str, float]) -> dict[str, float]:
    """Lowers each limit to the measured value where that is better. A new measure begins at its
    value."""
    lowered: dict[str, float] = {}
    for measure in MEASURES:
        value = measure.value(tally)
        lowered[measure.name] = min(value, limits.get(measure.name, value))
    return lowered


def main() -> None:
    """Writes the lower limits, and says what is measured."""
    tally = measure_tree(ROOT)
    limits = read_limits() if LIMITS.exists() else {}
    lowered = lower_limits(tally, limits)
    LIMITS.write_text(json.dumps(lowered, indent=2) + "\n", "utf-8")
    for measure in MEASURES:
        limit = lowered[measure.name]
        before = limits.get(measure.name, limit)
        change = f", was {before:g}" if before > limit else ""
        print(f"{measure.value(tally):8g}  {measure.name} (limit {limit:g}{change})")


if __name__ == "__main__":
    main()
