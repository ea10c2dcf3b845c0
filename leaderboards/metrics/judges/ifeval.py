"""The official checkers of IFEval (arXiv 2311.07911), as lm-eval ships them: the extra ``kvbench[ifeval]``."""

import importlib
import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from datasets_gen import Directive
from leaderboards.errors import MetricError, first_line

CHECKERS = "lm_eval.tasks.ifeval"
SPLITTER = "tokenizers/punkt_tab/english/"  # of nltk's data
SAMPLE = "Two sentences are here.\n\nThis is the second one."

Judgement = Literal["strict", "loose"]


@dataclass(frozen=True)
class Official:
    """lm-eval's module of the task: how it names an example, and its two ways to judge one."""

    example: Any
    ways: Mapping[Judgement, Any]

    def obeys(self, directive: Directive, output: str, judgement: Judgement) -> bool:
        """Tells whether the output obeys the directive, alone: each is judged on its own. An empty output obeys none.

        Known gap: of a letter that is none, such as the "!" of one row, the official checker counts another one, which
        it draws anew each time. Here that is at least the same one whenever the directive is judged.
        """
        # No checker reads the prompt: what one needs of it is among its arguments.
        example = self.example(0, [directive.kind], "", [json.loads(directive.argument or "{}")])
        state = random.getstate()
        random.seed(str(directive))
        try:
            (followed,) = self.ways[judgement](example, output).follow_instruction_list
        finally:
            random.setstate(state)
        return bool(followed)


@cache
def official() -> Official:
    """Returns the checkers; raises :class:`MetricError` that says what to install if they, or what they need, are
    missing."""
    install = "install it with pip install 'kvbench[ifeval]'"
    try:
        nltk, detector = (importlib.import_module(name) for name in ("nltk", "langdetect"))
        importlib.import_module("lm_eval")
    except ImportError as error:
        raise MetricError(f"the task ifeval needs the package {error.name}, which is not there: {install}") from error
    try:
        nltk.data.find(SPLITTER)
    except LookupError as error:  # on import, lm-eval would go and download it, and print what comes of that
        raise MetricError(
            "the task ifeval needs nltk's sentence splitter punkt_tab, which is not there: install it with "
            "python -m nltk.downloader punkt_tab, or name the folder that holds it in NLTK_DATA"
        ) from error
    try:
        module = importlib.import_module(f"{CHECKERS}.utils")
    except Exception as error:  # of another version, or without what the checkers import
        raise MetricError(
            f"lm-eval's checkers of IFEval cannot be imported ({type(error).__name__}: {first_line(error)}): {install}"
        ) from error
    detector.DetectorFactory.seed = 0  # or one answer may be judged now this way and now that
    # They complain of every answer whose language cannot be told, and then take it for obedient.
    logging.getLogger(f"{CHECKERS}.instructions").setLevel(logging.CRITICAL)
    ways: dict[Judgement, Any] = {
        "strict": module.test_instruction_following_strict,
        "loose": module.test_instruction_following_loose,
    }
    return Official(module.InputExample, ways)


def is_obeyed(directive: Directive, output: str, judgement: Judgement) -> bool:
    """Tells whether the output obeys a directive of IFEval. One that makes its checker fail obeys nothing and counts:
    the arguments were tried before (:func:`check_directives`)."""
    checkers = official()
    try:
        return checkers.obeys(directive, output, judgement)
    except Exception:  # of foreign code, on an output that nobody foresaw
        return False


def check_directives(directives: Sequence[tuple[str, Directive]]) -> None:
    """Raises :class:`MetricError` for the first directive that the checkers cannot judge by; each comes with where it
    is."""
    checkers = official()
    for where, directive in directives:
        try:
            checkers.obeys(directive, SAMPLE, "strict")
        except Exception as error:  # of foreign code
            raise MetricError(
                f"{where}: {directive} cannot be judged by ({type(error).__name__}: {first_line(error)}): "
                "correct its kwargs"
            ) from error
