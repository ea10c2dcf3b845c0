"""Policies from outside: ``file.py:Press``, ``package.module:factory``, with arguments, or of an
installed package."""

import ast
import difflib
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from policies.declaration.foreign_code import FOREIGN_SECONDS, describe_error, time_bound
from policies.declaration.lazy import kvpress
from policies.declaration.names import BrokenPlugInError, PolicyError
from policies.declaration.origin import OF_FILES, Sources, files_read, find_sources
from policies.declaration.policy import PlugInCode, Policy, Press, Situation, replaced_hooks

GROUP = "kvbench.policies"
SPECIFICATION = re.compile(
    r"(?P<where>.+?):(?P<name>[A-Za-z_][\w.]*)(\((?P<arguments>.*)\))?", re.DOTALL
)
SOME_RATIO = 0.5
RATIO = "compression_ratio"


def is_plug_in(text: str) -> bool:
    """Tells whether a text is written as a plug-in, or names a file of them, and is not a policy's
    name."""
    return ":" in text or text.endswith(".py")


def load_plug_in(text: str) -> Policy:
    """Loads what ``file.py:Press(window_size=16)`` or ``package.module:factory`` names; raises
    :class:`PolicyError` in one line if there is no such policy.

    What is named is a class derived from kvpress's ``BasePress`` or a function that gives one,
    either with a parameter ``compression_ratio``, and an attribute ``random`` that is true if it
    draws at random; one with a parameter ``context_length`` too is given the tokens of each
    context; or a :class:`Policy`, or a function that gives one."""
    where, name, argument_text = _split(text)
    arguments = _arguments(text, argument_text)
    # The module of a file has a made-up name: one called ``torch.py`` is not torch.
    package = "" if where.endswith(".py") else where.partition(".")[0]
    with files_read(text, package) as read:
        module = _module(where)
    target = _find_in(module, where, name)
    # The name tells arguments too: one class with two windows is two policies.
    spelled = ", ".join(f"{key}={value!r}" for key, value in _in_order(target, arguments))
    # Into the same set as above: a factory may read a file only when it is first called.
    with files_read(text, package):
        policy = make_policy(f"{name}({spelled})" if arguments else name, target, arguments, text)
    return _with_sources(policy, find_sources(module, arguments.values(), read))


def load_target(text: str) -> Any:
    """Loads what ``file.py:name`` or ``package.module:name`` names, whatever it is. Raises
    :class:`PolicyError` where there is no such thing."""
    where, _, name = text.strip().rpartition(":")
    return _find_in(_module(where), where, name)


def _find_in(module: ModuleType, where: str, name: str) -> Any:
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            raise _no_such(where, name, module)
        target = getattr(target, part)
    return target


def _in_order(target: object, arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Sorts arguments as the target takes them: spaces, quotes and their order make no other
    policy."""
    try:
        if callable(target):
            order = list(inspect.signature(target).parameters)
        else:
            order = []
    except (TypeError, ValueError):
        order = []

    def place(argument: tuple[str, Any]) -> tuple[int, str]:
        name, _ = argument
        # What the target takes by ``**`` stands in no signature: it comes last, by name.
        return (order.index(name) if name in order else len(order), name)

    return sorted(arguments.items(), key=place)


def load_even_if_broken(text: str) -> Policy:
    """Loads a plug-in; of one that is there and cannot be used, it makes a policy that fails with
    the reason."""
    try:
        return load_plug_in(text)
    except BrokenPlugInError as error:
        return _broken_policy(text.strip().partition(":")[2], str(error))


def _split(text: str) -> tuple[str, str, str]:
    matched = SPECIFICATION.fullmatch(text.strip())
    if not matched and text.endswith(".py"):
        # Only a module that was run shows its presses.
        names = _presses_in(_module(text))
        lack = "" if names else " without a press"
        examples = ", ".join(f"{text}:{name}" for name in names or ["PressName"])
        raise PolicyError(f"'{text}' is a file{lack}: name a press in it, as {examples}")
    if not matched:
        raise PolicyError(
            f"'{text}' names no plug-in: write file.py:Press or package.module:factory(argument=1)"
        )
    return matched["where"], matched["name"], matched["arguments"] or ""


def _presses_in(module: ModuleType) -> list[str]:
    """Names what a module defines that can be a plug-in."""

    def is_press(value: Any) -> bool:
        if isinstance(value, Policy):
            return True
        # What it imports, such as SnapKVPress, is none of its presses.
        if getattr(value, "__module__", None) != module.__name__:
            return False
        if isinstance(value, type):
            return issubclass(value, kvpress.BasePress)
        return inspect.isfunction(value) and RATIO in inspect.signature(value).parameters

    return [name for name in _public_names(module) if is_press(vars(module)[name])]


def _public_names(module: ModuleType) -> list[str]:
    return [name for name in vars(module) if not name.startswith("_")]


def _no_such(where: str, name: str, module: ModuleType) -> PolicyError:
    """Says that a module has no such name, with the nearest of its names and all of its presses."""
    presses = _presses_in(module)
    names = [*presses, *_public_names(module)]
    close = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean '{close[0]}'? It" if close else "it"
    listed = ", ".join(presses) or "no press of its own"
    return PolicyError(f"{where} has no '{name}': {meant} has {listed}")


def _broken_policy(name: str, reason: str) -> Policy:
    def build(_: Situation) -> Press:
        raise PolicyError(reason)

    return Policy(
        name=name, family="plug-in", paper="-", description=f"broken: {reason}", build=build
    )


def plug_ins() -> Mapping[str, Policy]:
    """Lists what installed packages bring under the entry-point group ``kvbench.policies``, by
    entry-point name."""
    return {entry.name: _load_entry_point(entry) for entry in entry_points(group=GROUP)}


def module_of_plug_in(name: str) -> str:
    """Returns the module of the installed plug-in of this name, which is not imported; an empty
    text for no such."""
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return entry.module
    return ""


def _load_entry_point(entry: Any) -> Policy:
    text = f"entry point {entry.name}"
    try:
        package = entry.module.partition(".")[0]
        with foreign_code("it cannot be imported"), files_read(text, package) as read:
            target = entry.load()
            module = importlib.import_module(entry.module)
        policy = make_policy(entry.name, target, {}, text)
        return _with_sources(policy, find_sources(module, read=read))
    except PolicyError as error:
        reason = f"the plug-in {entry.name} ({entry.value}): {error}"
        return _broken_policy(entry.name, reason)


def _arguments(text: str, argument_text: str) -> dict[str, Any]:
    arguments = {}
    try:
        # Parsed and never run. A bracket too many may end the call, and then it is none.
        call = ast.parse(f"f({argument_text})", mode="eval").body
        assert isinstance(call, ast.Call)
        if call.args:
            raise ValueError("arguments have names")
        for keyword in call.keywords:
            if keyword.arg is None:
                raise ValueError("arguments have names")
            arguments[keyword.arg] = ast.literal_eval(keyword.value)
    except (SyntaxError, ValueError, AssertionError) as error:
        raise PolicyError(
            f"'{text}': write arguments as (window_size=16, kind='mean'), with plain values"
        ) from error
    return arguments


@contextmanager
def foreign_code(failure: str) -> Iterator[None]:
    """Raises :class:`BrokenPlugInError` for whatever goes wrong in the body, which may exit, or
    never end."""
    try:
        with time_bound(FOREIGN_SECONDS, f"it took longer than {FOREIGN_SECONDS:g} s"):
            yield
    # The first says what to do already, and Ctrl-C is meant for the command.
    except (PolicyError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise BrokenPlugInError(f"{failure}: {describe_error(error)}") from error


def _module(where: str) -> ModuleType:
    path = Path(where).absolute()
    if where.endswith(".py") and not path.is_file():
        raise PolicyError(f"there is no file {where}: check the path of the plug-in")
    # It takes a minute on a busy machine, which is no fault of the plug-in.
    importlib.import_module("kvpress")
    with foreign_code(f"{where} cannot be imported"):
        if where.endswith(".py"):
            return _module_of_file(path)
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as error:
            # The module itself is not there, or a package around it: a wrong name. If it is
            # something that it imports, the plug-in is there and is broken.
            if f"{where}.".startswith(f"{error.name}."):
                raise PolicyError(f"{where} cannot be imported: {describe_error(error)}") from error
            raise
        # A folder without ``__init__.py`` can be imported too, and has no code to be hashed.
        if not getattr(module, "__file__", None):
            raise PolicyError(
                f"{where} is no module of Python code: name the file or package of a press"
            )
        return module


def _module_of_file(path: Path) -> ModuleType:
    # By the path, as two files of the same name are two modules.
    name = f"{OF_FILES}{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # dataclasses look their module up
    specification.loader.exec_module(module)
    return module


def _with_sources(policy: Policy, sources: Sources) -> Policy:
    return replace(policy, code=PlugInCode(sources.origin, sources.files))


def make_policy(name: str, target: Any, arguments: dict[str, Any], text: str) -> Policy:
    """Makes a policy of what a plug-in names; raises :class:`PolicyError` where it can be none."""
    if isinstance(target, type) and not issubclass(target, kvpress.BasePress):
        raise BrokenPlugInError(
            f"{text}: {target.__name__} is no press: derive it from kvpress.BasePress"
        )
    if not isinstance(target, Policy) and not callable(target):
        raise BrokenPlugInError(
            f"{text}: it is neither a press class, nor a function, nor a Policy"
        )
    if isinstance(target, Policy):
        if arguments:
            raise PolicyError(f"{text}: a Policy is complete and takes no arguments")
        return target
    if RATIO not in _parameters(target, text):
        # A function without a ratio may give a whole policy, which shows when it is called.
        if isinstance(target, type):
            policy = None
        else:
            policy = _call(target, arguments, text)
        if isinstance(policy, Policy):
            return policy
        raise BrokenPlugInError(
            f"{text}: it has no parameter compression_ratio: name a function that has one, and "
            f"gives a press for it"
        )

    _check_arguments(target, arguments, text)
    takes_length = "context_length" in _parameters(target, text)

    def build(situation: Situation) -> Press:
        if takes_length:
            length = {"context_length": situation.context_length}
        else:
            length = {}
        # In this order: a length that the user gives goes before that of the context, and the ratio
        # is always that of the run.
        every = {**length, **arguments, RATIO: situation.ratio}
        return _call(target, every, text)

    # One is built to be looked at: its class shows whether it needs a prefill of its own.
    press = build(Situation(SOME_RATIO, 1024, 0, ""))
    if not isinstance(press, kvpress.BasePress):
        raise BrokenPlugInError(
            f"{text}: it gives a {type(press).__name__}, which is no kvpress.BasePress"
        )
    return describe_plug_in(name, press, build, target, text)


def describe_plug_in(
    name: str, press: Press, build: Callable[[Situation], Press], target: Any, text: str
) -> Policy:
    """Describes the policy of a press by the press itself. ``target``: what builds it, which says
    whether it draws at random. ``text``: what it is."""
    # FINCH turns keys by itself, unless it is told not to.
    rerotates_finch = isinstance(press, kvpress.FinchPress) and press.rerotate_keys
    return Policy(
        name=name,
        family="plug-in",
        paper="-",
        description=text,
        build=build,
        budget="as its compression_ratio says",
        random=bool(getattr(target, "random", False)),
        counted="cache",
        prefill="private" if replaced_hooks(press) else "shared",
        while_decoding=isinstance(press, kvpress.DecodingPress | kvpress.PrefillDecodingPress),
        renumbers=isinstance(press, kvpress.KeyRerotationPress) or bool(rerotates_finch),
    )


def _parameters(target: Callable[..., Any], text: str) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(target).parameters
    except (TypeError, ValueError) as error:  # a signature that is none, or of a builtin
        raise BrokenPlugInError(f"{text}: it does not say what parameters it has") from error


def _check_arguments(target: Callable[..., Any], arguments: Iterable[str], text: str) -> None:
    """Raises :class:`PolicyError` for an argument that the press does not have, with the nearest
    that it has."""
    parameters = _parameters(target, text)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return  # it takes any
    names = [name for name in parameters if name != RATIO]
    listed = ", ".join(names) or "none"
    for name in arguments:
        if name == RATIO:
            raise PolicyError(f"{text}: a run sets the {RATIO}: leave it out, and ask for --ratios")
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            meant = f"did you mean {close[0]}? " if close else ""
            raise PolicyError(f"{text}: there is no argument {name}: {meant}it takes {listed}")


def _call(target: Callable[..., Any], arguments: dict[str, Any], text: str) -> Any:
    with foreign_code(f"{text} cannot be built"):
        return target(**arguments)
