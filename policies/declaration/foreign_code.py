"""Guards against the code of a user: how long it may take, where it failed, and what the usual
error means."""

import inspect
import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

OURS = ("kvbench", "policies", "datasets_gen", "leaderboards")
INSTALLED = {"site-packages", "dist-packages"}
PYTHON = sysconfig.get_path("stdlib")
LONGEST = 300  # characters of what foreign code says
FOREIGN_SECONDS = 60.0  # that an import, or the building of a press, may take
ACTING = ("score", "compress", "forward_hook")  # methods of a press by which it acts on the cache
NO_ATTENTIONS = (
    "; attentions is None: all presses share fused attention, which computes no weights; compute "
    "them from hidden_states and keys, as h2o does in policies/presses/h2o.py"
)


class TookTooLongError(BaseException):
    """Code of a user took too long. No :class:`Exception`, or code that tries again whatever fails
    would swallow it."""


@contextmanager
def time_bound(seconds: float, reason: str) -> Iterator[None]:
    """Raises :class:`TookTooLongError` in the body once its time, in seconds, is up. Inside another
    bound, that one holds.

    It works in the main thread of a process only, where signals arrive, and interrupts Python, but
    no operation of torch."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or any(signal.getitimer(signal.ITIMER_REAL)):
        yield
        return

    def interrupt(*_: object) -> None:
        raise TookTooLongError(reason)

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        # First the timer, then the former handler, which may be Python's default: to end the
        # process.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def describe_error(error: BaseException, press: object = None) -> str:
    """Describes an error of foreign code in one line: its type, what it says, and
    :func:`where_in_user_code`, or :func:`where_defined` where a library raised it before the press
    ran, as for a wrong signature."""
    # The place of a syntax error stands in its text already, without the folder.
    text = error.msg if isinstance(error, SyntaxError) else error_text(error)
    description = type(error).__name__
    lines = (text or "").strip().splitlines()
    if lines:
        first = lines[0].strip()
        if len(first) > LONGEST:
            first = f"{first[:LONGEST]} …"
        description += f": {first}"
    return description + (where_in_user_code(error) or where_defined(press))


def error_text(error: BaseException) -> str:
    """Returns what an error says, as text that can be stored and printed whatever its class
    does."""
    try:
        # A lone surrogate may stand in a text, but in no file.
        return str(error).encode("utf-8", "backslashreplace").decode()
    except Exception:
        return "it cannot say what is wrong: its own text raises"


def where_defined(press: object) -> str:
    """Returns the file and line of a user's press, such as `` (MyPress, mine.py:7)``: where it
    begins to act, or else its class; nothing of one that kvbench or an installed package
    defines."""
    kind = type(press)
    # Not getattr: what the class inherits stands in a library.
    methods = [vars(kind)[name] for name in ACTING if name in vars(kind)]
    acting = methods[0] if methods else kind
    try:
        file = Path(inspect.getsourcefile(kind) or "")
        _, line = inspect.getsourcelines(acting)
    except (OSError, TypeError):  # it was written in no file
        return ""
    if not _is_of_user_module(kind.__module__, file):
        return ""
    return f" ({kind.__name__}, {_place(file, line)})"


def _place(file: Path, line: int) -> str:
    """Names a line of a file, or of a cell of a notebook, whose file has a number for a name."""
    if file.is_file():
        return f"{file.name}:{line}"
    return f"line {line} of a cell"


def where_in_user_code(error: BaseException) -> str:
    """Returns the file and line of the user's code that raised an error, such as `` (mine.py:12)``,
    with an explanation if a press misses its attention weights; nothing if no code of a user is in
    the traceback."""
    frames = list(traceback.walk_tb(error.__traceback__))
    place = ""
    # From the outermost frame to the innermost: the last one of the user is where it failed.
    for frame, line in frames:
        file = Path(frame.f_code.co_filename)
        if _is_of_user_module(str(frame.f_globals.get("__name__", "")), file):
            place = f" ({_place(file, line)})"
    if isinstance(error, SyntaxError) and error.filename:
        place = f" ({Path(error.filename).name}:{error.lineno or 1})"
    if _misses_attentions(error, [frame for frame, _ in frames]):
        place += NO_ATTENTIONS
    return place


def is_library_file(file: Path) -> bool:
    """Tells whether a file is of Python or of an installed package."""
    return file.is_relative_to(PYTHON) or bool(INSTALLED & set(file.parts))


def _is_of_user_module(name: str, file: Path) -> bool:
    """Tells whether a module is of no library: not of kvbench, of Python, or of an installed
    package."""
    top = name.partition(".")[0]
    return not (top in OURS or top in sys.stdlib_module_names or INSTALLED & set(file.parts))


def _misses_attentions(error: BaseException, frames: Iterable[FrameType]) -> bool:
    """Tells whether an error is about the attention weights, which a frame of the traceback got as
    None."""
    text = error_text(error)
    # ``assert attentions is not None`` has no text.
    is_bare = isinstance(error, AssertionError) and not text
    is_about_them = any(word in text for word in ("NoneType", "attention", "attn"))
    if not is_bare and not is_about_them:
        return False
    # By default 0, or every frame without such a name would count.
    return any(frame.f_locals.get("attentions", 0) is None for frame in frames)
