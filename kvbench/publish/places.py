"""Shows names in place of places: what is published tells nobody where its maker keeps files, or
who that is.

Every writer of a site uses :func:`without_places` for a text, such as a reason or a command, and
:func:`name_of_place` for what is a path as a whole, such as a model. Texts of contexts, questions
and answers are left as they are.
"""

import re
from collections.abc import Iterable
from pathlib import Path, PurePath

from kvbench.system.files import home_folder

_HOME = "/~"  # stands for a home folder until its path has become a name
_PART = r"[^\s/'\"`,;:=<>()\[\]{}|]+"
# Quoted paths first: they may hold white space. A path of one part, such as /s of "tokens /s", says
# nothing of a place.
_QUOTED = re.compile(
    r"(?P<quote>['\"`])(?:file:/*(?=/))?(?P<path>(?:~|\.\.|/)[^'\"`\n]*/[^'\"`\n]*)(?P=quote)"
)
_FILE_ADDRESS = re.compile(r"\bfile:/+(?=[^/\s])")
_ANY_HOME = re.compile(rf"(?<![\w/.])/(?:(?:home|Users|var/home)/{_PART}|root)(?![\w.-])")
_PATH = re.compile(
    rf"(?<![\w/.~])(?:/(?!/){_PART}(?:/{_PART})+|~[\w.-]*(?:/{_PART})+|(?:\.\./)+{_PART}(?:/{_PART})*)/?(?![\w/])"
)
_HOME_ALONE = re.compile(r"(?<![\w/.])/~(?![\w/])")


def name_of_place(path: str | PurePath) -> str:
    """Returns the name of a file or folder, of an absolute path or one that leaves the current
    folder or starts at a home; other paths, names of models on the hub among them, as they are.

    >>> name_of_place("/srv/models/llama"), name_of_place("runs/first")
    ('llama', 'runs/first')
    >>> name_of_place("meta-llama/Llama-3.1-8B")
    'meta-llama/Llama-3.1-8B'
    """
    pure = PurePath(path)
    starts_at_home = str(pure).startswith("~")
    if not (pure.is_absolute() or starts_at_home or ".." in pure.parts):
        return str(path)
    if pure.name in ("", ".."):
        return Path(path).resolve().name or "/"
    if pure in (home_folder(), Path("~")):
        return "~"
    return pure.name


def without_places(text: str) -> str:
    """Returns a text with a name in place of each path that :func:`name_of_place` would shorten.

    >>> without_places("No such file: '/home/ada/my data/rows.jsonl' (/opt/kvbench/engine.py:12)")
    "No such file: 'rows.jsonl' (engine.py:12)"
    """
    if "/" not in text:  # most texts
        return text
    text = _QUOTED.sub(_name_in_quotes, text)
    text = _FILE_ADDRESS.sub("/", text)
    for folder in _folders_of_user():  # these may hold white space, without quotes too
        text = re.sub(rf"(?<![\w/.]){re.escape(folder)}(?![\w.-])", _HOME, text)
    text = _ANY_HOME.sub(_HOME, text)
    text = _PATH.sub(lambda match: PurePath(match[0]).name, text)
    return _HOME_ALONE.sub("~", text)


def _name_in_quotes(match: re.Match[str]) -> str:
    return match["quote"] + name_of_place(match["path"]) + match["quote"]


def _folders_of_user() -> list[str]:
    """Lists the home folder and the current one, the longer first: one often lies in the other."""
    folders = {str(Path.cwd())}
    home = home_folder()
    if home is not None:
        folders |= {str(home), str(home.resolve())}
    # The root alone would be found in every path.
    names = [folder for folder in folders if len(folder) > 1]
    return sorted(names, key=len, reverse=True)


def distinct_names(places: Iterable[str]) -> dict[str, str]:
    """Returns a name for each model or folder, by its place; two of one name are numbered."""
    names: dict[str, str] = {}
    for place in dict.fromkeys(places):
        name, number = name_of_place(place), 1
        while name in names.values():
            number += 1
            name = f"{name_of_place(place)} ({number})"
        names[place] = name
    return names
