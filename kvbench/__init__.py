"""kvbench measures what a KV-cache treatment breaks, at which budget, and why."""

# Python puts the folder in which `python -m kvbench` is started before all others, so that a folder
# or a file there which is named as a package of ours, as torch or as random would be imported in
# its place. What follows is done before anything else is imported, and so with nothing but what
# Python has loaded when it starts.
import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder

__version__ = "0.2.0"

# The library: each name with its module, which is imported when the name is first used, as torch
# below some of them takes ten seconds. ``__init__.pyi`` says the same to type checkers.
_PUBLIC = {
    "ComparisonResult": "kvbench.api.comparison",
    "DoctorResult": "kvbench.api.examined",
    "KVBenchError": "kvbench.system.errors",
    "PlanResult": "kvbench.api.examined",
    "RunResult": "kvbench.api.results",
    "compare": "kvbench.api.compare",
    "doctor": "kvbench.api.doctor",
    "load": "kvbench.api.load",
    "plan": "kvbench.api.plan",
    "run": "kvbench.api.run",
    "scorer": "kvbench.api.own_tasks",
    "task": "kvbench.api.own_tasks",
}
__all__ = list(_PUBLIC)

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
_PACKAGES = ("datasets_gen", "leaderboards", "policies")
_RAY_WORKER = "default_worker.py"


class _OwnPackages:
    """Finds the packages that kvbench consists of where kvbench itself lies, and nowhere else."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name in _PACKAGES:
            return PathFinder.find_spec(name, [_ROOT])
        return None


def _check_packages() -> None:
    for name in _PACKAGES:
        file = getattr(sys.modules.get(name), "__file__", _ROOT) or "a folder of that name"
        if not file.startswith(_ROOT):
            raise ImportError(
                f"kvbench has a package {name}, and {file} was imported under that name: rename "
                f"that one"
            )


def _put_current_folder_last() -> None:
    """Has modules of the current folder, such as plug-ins, be found after those of Python and of
    installed packages."""
    try:
        is_first = bool(sys.path) and os.path.samefile(sys.path[0] or ".", ".")  # noqa: PTH121
    except OSError:  # the folder is gone, or an entry that never was one
        return
    if is_first:
        sys.path.append(sys.path.pop(0))


def __getattr__(name: str) -> object:
    """Imports a public name when it is first used."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kvbench' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_PUBLIC[name]), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *_PUBLIC]


_check_packages()
sys.meta_path.insert(0, _OwnPackages)
if sys.argv[:1] == ["-m"] or sys.argv[0].endswith(
    _RAY_WORKER
):  # "-m": Python is about to run kvbench/__main__.py
    _put_current_folder_last()
