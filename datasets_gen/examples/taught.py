"""More ways to say and to ask the same, for training alone: no context of a test has them.

A model that saw three phrasings knows three formulas. Those held out are no part of this file; most of their words are,
in other places of a sentence, or the model would have no idea what they mean.

The phrasings live in ``taught.json`` beside this file, by the first common one of the same meaning. A statement begins
or goes on with ``{subject}`` where a pronoun could stand, or has it in "the ... of {subject}", or last: that is what
``coreference`` turns into "he", "his" and "him".
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

Templates = tuple[str, ...]


@cache
def taught_phrasings() -> Mapping[str, Templates]:
    """Reads the phrasings, by the first common one of the same meaning."""
    content = json.loads(files("datasets_gen.examples").joinpath("taught.json").read_text(encoding="utf-8"))
    return {first: tuple(others) for first, others in content.items()}
