"""The shape of the tree: folders that stay small, imports that go one way, and packages that know
their place."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("kvbench", "datasets_gen", "policies", "leaderboards")
MOST_MODULES = 15  # in a folder: there are as many commands
ENTRIES = ("__init__.py", "__main__.py")  # of packages and programs
HEAVY = {"torch", "transformers", "kvpress"}
Graph = dict[str, set[str]]


@cache
def sources() -> dict[str, Path]:
    """Finds the file of every module of the four packages, by dotted name."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def is_for_types(node: ast.AST) -> bool:
    """Tells whether what a statement holds is read by type checkers alone."""
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


@cache
def imports(module: str) -> frozenset[str]:
    """Lists what a module imports, within the four packages and outside."""
    known, names = sources(), set()
    tree = ast.parse(known[module].read_text())
    for_types = {inner for node in ast.walk(tree) if is_for_types(node) for inner in ast.walk(node)}
    for node in (node for node in ast.walk(tree) if node not in for_types):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= (parts & known.keys()) or {node.module}
    return frozenset(names)


def imports_of_any_kind(module: str) -> set[str]:
    """Lists what a module of the four packages imports of them, also for type checkers and through
    a ``LazyModule``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(sources()[module].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= (parts & sources().keys()) or {node.module}
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "LazyModule":
            names |= {str(name.value) for name in node.args if isinstance(name, ast.Constant)}
    return names & sources().keys() - {module}


def module_graph() -> Graph:
    """Maps each module to the modules of the four packages that it imports."""
    return {module: set(imports(module)) & sources().keys() - {module} for module in sources()}


def folder_of(module: str) -> str:
    """Names the folder of a module. A package's door counts as the package itself, and a program's
    entry as its own."""
    return module if sources()[module].name in ENTRIES else module.rpartition(".")[0]


def folder_graph(modules: Graph) -> Graph:
    """Maps each folder to the other folders that its modules import."""
    graph: Graph = defaultdict(set)
    for module, others in modules.items():
        graph[folder_of(module)] |= {folder_of(other) for other in others} - {folder_of(module)}
    return dict(graph)


def cycle_in(graph: Graph) -> list[str]:
    """Returns the names along one cycle, or nothing where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert cycle_in(module_graph()) == []


def test_between_folders_imports_go_one_way() -> None:
    assert cycle_in(folder_graph(module_graph())) == []


def test_between_folders_lazy_imports_and_those_for_types_go_one_way_too() -> None:
    graph = folder_graph({module: imports_of_any_kind(module) for module in sources()})
    assert "kvbench.store" in graph["kvbench.studies.numerics"]
    assert "kvbench.engine.studies" in graph["kvbench.studies.numerics"]  # which is lazy
    assert cycle_in(graph) == []


def rooms() -> dict[str, int]:
    """Reads the tables of docs/architecture.md: the place of each folder, from the top of its
    package's table on."""
    package = ""
    places: dict[str, int] = {}
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        if row := re.match(r"\| `([a-z_/]+)/` \|", line):
            folder = row[1].replace("/", ".")
            package = folder if folder in PACKAGES else package
            places[folder if folder == package else f"{package}.{folder}"] = len(places)
    return places


def test_a_folder_imports_from_folders_that_the_page_on_architecture_lists_above_it() -> None:
    graph, places = folder_graph(module_graph()), rooms()
    without_modules = {"kvbench.__main__"}
    below = {folder for folder in graph if folder.count(".")} - without_modules
    assert below == places.keys() - set(PACKAGES)
    upwards = {
        (folder, other)
        for folder in below
        for other in graph[folder] & below
        if other.split(".")[0] == folder.split(".")[0] and places[other] > places[folder]
    }
    assert upwards == set()


def test_a_cycle_would_be_found() -> None:
    graph = folder_graph(module_graph())
    importer, imported = next(
        (folder, others) for folder, others in sorted(graph.items()) if others
    )
    graph.setdefault(min(imported), set()).add(importer)
    assert set(cycle_in(graph)) >= {importer, min(imported)}


@pytest.mark.parametrize("package", [*PACKAGES, "tests"])
def test_folders_stay_small(package: str) -> None:
    sizes = Counter(
        path.parent for path in (ROOT / package).rglob("*.py") if path.name not in ENTRIES
    )
    assert {folder: size for folder, size in sizes.items() if size > MOST_MODULES} == {}


def reached(module: str, seen: set[str]) -> set[str]:
    """Adds all that is imported when a module is, doors of packages included, to ``seen``."""
    for other in imports(module):
        parents = [".".join(other.split(".")[:depth]) for depth in range(1, other.count(".") + 2)]
        for name in parents:
            if name not in seen:
                seen.add(name)
                if name in sources():
                    reached(name, seen)
    return seen


def reaching(package: str, forbidden: Iterable[str]) -> dict[str, set[str]]:
    """Maps modules of a package to the forbidden names that they import, directly or by way of
    others."""
    found = {
        module: reached(module, set()) & set(forbidden)
        for module in sources()
        if module.startswith(package)
    }
    return {module: names for module, names in found.items() if names}


def test_generators_and_boards_need_no_model() -> None:
    assert reaching("datasets_gen", {*HEAVY, "kvbench", "policies", "leaderboards"}) == {}
    assert reaching("leaderboards", {*HEAVY, "kvbench"}) == {}


def test_policies_know_no_runner() -> None:
    assert reaching("policies", {"kvbench", "leaderboards", "datasets_gen"}) == {}


def lazy_names() -> dict[str, set[str]]:
    """Lists by module what the four packages take of it through a ``LazyModule``, which type
    checkers cannot see."""
    names: dict[str, set[str]] = defaultdict(set)
    for path in sources().values():
        tree = ast.parse(path.read_text())
        modules = {
            node.targets[0].id: str(node.value.args[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if isinstance(node.value.func, ast.Name) and node.value.func.id == "LazyModule"
            if isinstance(node.targets[0], ast.Name)
            and isinstance(node.value.args[0], ast.Constant)
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in modules
            ):
                names[modules[node.value.id]].add(node.attr)
    return names


def test_what_is_taken_of_a_module_that_is_imported_later_is_there() -> None:
    ours = {module: names for module, names in lazy_names().items() if module in sources()}
    assert "unmastered_line" in ours["leaderboards.aggregate.leading_measures"]
    assert {
        module: missing
        for module, names in ours.items()
        if (missing := names - set(dir(import_module(module))))
    } == {}


# Where a module is imported by a name that no line at the top of the file can say.
IMPORTING_BY_NAME = {
    "policies.declaration.lazy": "the one way to import later",
    "policies.declaration.plug_in": "plug-ins",
    "kvbench": "the public names of the library",
    "kvbench.cli.program": "commands",
    "kvbench.studies.registry": "parts of studies",
    "leaderboards.studies.declaration": "pages of studies",
    "leaderboards.claims.registry": "claims of texts",
    "kvbench.execution.on_ray": "ray, which may not be installed",
    "leaderboards.metrics.judges.obedience": "lm-eval, which may not be installed",
    "kvbench.models.gguf.config": "gguf, in which functions are replaced",
}
IMPORTS_BY_NAME = re.compile(r"\b(import_module|__import__|LazyLoader|exec_module)\(")


def test_a_module_is_imported_later_in_one_way() -> None:
    by_name = set()
    for module, path in sources().items():
        if IMPORTS_BY_NAME.search(path.read_text()):
            by_name.add(module)
    assert by_name == IMPORTING_BY_NAME.keys()


def test_what_is_imported_later_is_not_there_already() -> None:
    idle = []
    for module, path in sources().items():
        there = reached(module, set())
        for name in re.findall(r'= LazyModule\("([\w.]+)"\)', path.read_text()):
            if name in there:
                idle.append(f"{module} imports {name} anyway: import it at the top")
    assert "kvbench.models.load" in reached("kvbench.checks.model", set())
    assert idle == []


def test_the_name_of_a_public_class_stands_for_one_thing() -> None:
    places = defaultdict(list)
    for module, path in sources().items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}
