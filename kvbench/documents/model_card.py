"""The model card of a reference model, from the files beside its weights."""

import csv
import json
from collections.abc import Sequence

from kvbench.checks.read_profile import SLOTS, UPPER_HALF, ReadProfile
from kvbench.models.shipped import MADE_BY, REFERENCE_MODELS, folder_of
from kvbench.system.markdown import table

TEXT = """---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
language: en
tags:
- kvbench
- kv-cache
---

# kvbench reference model `{name}`

{description}: {layers} layers of width {width}, {heads} query and {key_heads} key heads, a vocabulary of {vocabulary}
words and bytes, float16 weights.

## Use

It is there to show what the compression of a KV cache breaks, on a laptop and without network, and ships with kvbench:
`python -m kvbench run --model {name}`. It answers the questions of kvbench's generated texts and knows nothing else.

## Training

On the train splits of all tasks, which share no full name and no (subject, value) pair with the test splits, for
{steps} steps, {tokens:,} tokens and {minutes} minutes on two CPU cores. Commit {made_by} holds the code that trained
it.

`learning_curve.csv` has exact match by task on contexts of the test split of a seed that no score is reported on.

## Scores with the full cache

On {contexts} contexts of each task's test split, seed {seed}, as `python -m kvbench.reference.evaluate --model {name}`
measured them; F1 and right in percent, directives obeyed and leakage from 0 to 1.

{scores}
"""
PROFILE = """
## Where it reads

Right answers in percent where keys and values of the context are replaced with noise of their own mean and spread,
after the context has read itself undisturbed, on {contexts} contexts of the same seed.

{profiles}
"""


def model_card(name: str) -> str:
    """Writes the card as it is to be committed."""
    folder = folder_of(name)
    config = json.loads((folder / "config.json").read_text())
    measured = json.loads((folder / "full_cache.json").read_text())
    *_, last = csv.DictReader((folder / "learning_curve.csv").read_text().splitlines())
    names = ("f1", "em", "directives_obeyed", "leakage")
    rows = [
        (length, row["task"], row["questions"], row["n"], *("" if row[n] is None else f"{row[n]:.2f}" for n in names))
        for length, of_length in measured["scores"].items()
        for row in of_length
    ]
    text = TEXT.format(
        name=name,
        description=REFERENCE_MODELS[name],
        layers=config["num_hidden_layers"],
        width=config["hidden_size"],
        heads=config["num_attention_heads"],
        key_heads=config["num_key_value_heads"],
        vocabulary=config["vocab_size"],
        steps=last["step"],
        tokens=int(last["tokens"]),
        minutes=round(float(last["minutes"])),
        made_by=MADE_BY[name],
        contexts=measured["contexts_per_task"],
        seed=measured["seed"],
        scores=table(("tokens", "task", "questions", "n", "F1", "right", "directives obeyed", "leakage"), rows),
    )
    profiles = [ReadProfile(**profile) for profile in measured["read_profiles"]]
    return text + profile_section(profiles, measured["read_profile_contexts"])


def profile_section(profiles: Sequence[ReadProfile], contexts: int) -> str:
    """Draws a bar for each layer, as long as what is still right without it."""
    columns = ("questions", "nothing", "each layer alone, from the first", UPPER_HALF, SLOTS)
    rows = [
        (
            profile.part,
            f"{profile.undisturbed:.0f}",
            " ".join(f"{percent:.0f}" for percent in profile.without_layer) + f" `{profile.bars}`",
            f"{profile.without_upper_half:.0f}",
            f"{profile.without_slots:.0f}",
        )
        for profile in profiles
    ]
    return PROFILE.format(contexts=contexts, profiles=table(columns, rows))
