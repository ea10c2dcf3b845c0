"""``python -m kvbench.documents.pages`` writes the tables of the README and of docs anew, and the model cards.

A table stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``; a test fails when one has drifted.
"""

import csv
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from datasets_gen import TASKS, unknown_name
from kvbench.benchmarks.measurement import Report, markdown
from kvbench.checks.read_profile import NOTHING, SLOTS, UPPER_HALF, ReadProfile
from kvbench.cli.program import COMMANDS
from kvbench.commands.ls import listing
from kvbench.documents import claims_tables, treatment_tables
from kvbench.estimate.plan import plan_of, rows_of
from kvbench.estimate.shape import DecoderShape
from kvbench.experiments.catalogue import EVERYTHING
from kvbench.models.shipped import ADAPTERS, MADE_BY, SHIPPED, folder_of
from kvbench.store.run_file import Job
from kvbench.system.errors import KVBenchError
from kvbench.system.markdown import items, table
from policies import CONTROLS

DOCS = Path(__file__).parents[2] / "docs"
PRESS = DOCS / "loud_values.py"
BENCH = DOCS / "bench.json"
# How the rows of a plan begin that decide whether a run is started.
IN_SHORT = ("answers", "memory", "devices", "time of all devices", "of it", "store")
LARGE = DecoderShape("70.6 B, 80 layers", 80, 64, 8, 128, 70_600_000_000, 2)
MIDDLE = DecoderShape("8.0 B, 32 layers", 32, 32, 8, 128, 8_030_000_000, 2)
PLANS: Mapping[str, tuple[Job, DecoderShape, int]] = {  # with the tokens of a context
    "full catalogue": (Job(tasks="long_context", limit=100, policies=EVERYTHING), LARGE, 131_072),
    "default policies": (Job(tasks="long_context", limit=100), LARGE, 131_072),
    "8 B at 32 k": (Job(tasks="long_context", limit=83), MIDDLE, 32_768),
}
OF_FAULTS_PAGE = ("quantisation", "fault")  # families with tables of their own
BUILT_ON_OTHERS = ("protection", "deployed")  # families whose policies are another one with a suffix
ALL_QUESTIONS = "all"  # as the scores of a task over its kinds of questions are called


def metrics() -> str:
    """Returns what each metric is."""
    return items((f"`{row['metric']}`", row["definition"]) for row in listing("metrics").plain())


def tasks() -> str:
    """Returns what each task stresses, and its chance level."""
    rows = [(row["task"], row["chance, percent"], row["what it stresses"]) for row in listing("tasks").plain()]
    return items((f"`{name}`" if chance is None else f"`{name}` ({chance:.1f})", text) for name, chance, text in rows)


def policies() -> str:
    """Lists the policies of each family that evicts, with their papers; those of a default run are bold."""
    by_family: dict[str, list[str]] = {}
    for row in listing("policies").plain():
        name = f"**`{row['policy']}`**" if "default" in row["how it runs"].split(", ") else f"`{row['policy']}`"
        has_paper = row["paper"] != "-" and row["family"] not in BUILT_ON_OTHERS
        by_family.setdefault(row["family"], []).append(
            f"{name} ({row['paper'].removeprefix('arXiv ')})" if has_paper else name
        )
    return "\n".join(
        f"- **{family}**: {', '.join(names)}" for family, names in by_family.items() if family not in OF_FAULTS_PAGE
    )


def commands() -> str:
    """Returns what each command does."""
    return items((f"`{name}`", text) for name, text in COMMANDS.items())


def read_measured() -> dict[str, dict[str, Any]]:
    """Reads what ``python -m kvbench.reference.evaluate`` wrote beside the weights, of each model that has it."""
    paths = {model: folder_of(model) / "full_cache.json" for model in SHIPPED}
    return {model: json.loads(path.read_text()) for model, path in paths.items() if path.is_file()}


def full_cache() -> str:
    """Returns the score of each shipped model in each task, at both lengths of contexts; the cards have each kind of
    question."""
    cells: dict[str, list[str]] = {}
    for measured in read_measured().values():
        for rows in zip(*measured["scores"].values(), strict=True):  # of a question, by length of contexts
            if rows[0]["questions"] == ALL_QUESTIONS:
                score = "em" if rows[0]["task"] == "arithmetic" else "f1"
                cells.setdefault(f"`{rows[0]['task']}`", []).append("/".join(f"{row[score]:.0f}" for row in rows))
    return table(
        ("task", *(f"`{model}`" for model in read_measured())), ((task, *scores) for task, scores in cells.items())
    )


def read_profiles() -> str:
    """Returns what is still right of the task base where rows of the context are destroyed, of each model."""
    rows = []
    for model, measured in read_measured().items():
        (profile,) = (ReadProfile(**one) for one in measured["read_profiles"] if one["part"] == "base")
        worst = f"{min(profile.without_layer):.0f} (layer {profile.most_needed_layer})"
        others = (profile.without_upper_half, profile.without_slots)
        rows.append((f"`{model}`", f"{profile.undisturbed:.0f}", worst, *(f"{percent:.0f}" for percent in others)))
    return table(("model", NOTHING, "the worst layer", UPPER_HALF, SLOTS), rows)


def press() -> str:
    """Returns the press of the tutorial, which is a file so that it can be run."""
    return f"```python\n{PRESS.read_text()}```"


def instructions() -> str:
    """Returns what protection gains and where plain policies are shown to leak on the reference model, from the run of
    the pictures."""
    results = json.loads((DOCS / "instructions.json").read_text())
    gains = items(
        (f"`{gain['policy']}`", f"{gain['gain']:+z.2f} ({gain['low']:+z.2f} to {gain['high']:+z.2f})")
        for gain in results["gains"]
    )
    leaks = (
        f"`{leak['policy']}`, {leak['order']}, at {leak['level']}: {100 * leak['leaked_more']:+z.0f} points "
        f"({100 * leak['low']:+z.0f} to {100 * leak['high']:+z.0f}), {100 * leak['obeyed']:.0f} % obeyed"
        for leak in results["while_obeying"]
        if leak["low"] > 0 and "+" not in leak["policy"] and leak["policy"] not in CONTROLS
    )
    return (
        f"{gains}\n\nLeakage above the full cache's while 70 % of the directives are obeyed, where it is shown:\n\n"
        + ("\n".join(f"- {leak}" for leak in leaks))
    )


def suite() -> str:
    """Returns the table that ``make suite`` measured."""
    return markdown(Report.model_validate_json(BENCH.read_text()))


def plan(name: str) -> str:
    """Returns what decides whether a run is started, in a sentence: its time, its store, and what memory it takes."""
    shown = (f"{what}: {value}" for what, value in rows_of(plan_of(*PLANS[name])) if what.startswith(IN_SHORT))
    return f"{'; '.join(shown)}."


BLOCKS: Mapping[str, Callable[[], str]] = {
    "tasks": tasks,
    "policies": policies,
    "metrics": metrics,
    "commands": commands,
    "full cache": full_cache,
    "read profiles": read_profiles,
    "press": press,
    "instructions": instructions,
    "suite": suite,
    "faults": treatment_tables.faults,
    "options of faults": treatment_tables.options_of_faults,
    "quantisations": treatment_tables.quantisations,
    "deployments": treatment_tables.deployments,
    "texts": claims_tables.texts,
    "verdicts": claims_tables.verdicts,
    "verdicts in short": claims_tables.verdicts_in_short,
    "reasons of verdicts": claims_tables.reasons,
    **{name: partial(plan, name) for name in PLANS},
}


HEADER = """---
license: apache-2.0
library_name: {library}
pipeline_tag: text-generation
language: en
tags:
- kvbench
- kv-cache
{more}---

"""
REFERENCE = """# kvbench reference model `{name}`

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
"""
ADAPTER = """# kvbench model `{name}`

This is {description}.
The LoRA adapter, in peft's form, has rank {rank} on the attention's and {rank_of_mlp} on the MLP's projections of all
30 layers: 3.7 M parameters, 7.5 MB in bfloat16.

## Use

It shows what the compression of a KV cache breaks in a natural model that can do the tasks:
`python -m kvbench run --model {name}`. The base is fetched once: `python -m kvbench fetch {base}`. The tasks that
it was taught are asked as of a reference model, without a begun answer; all others as of its base.

## Training

On the train splits of all tasks, which share no full name and no (subject, value) pair with the test splits, for
{steps:,} steps, {tokens:,} tokens of lessons and 530 seconds on one H200. Beside the lessons, each step has other texts
(docstrings, prose, RULER), on which the model is held to the next tokens of the untrained one.
`docs/smollm2_routing/train.py` trains it again.

At the end, percent of the answers that are exact, token for token under teacher forcing, on contexts of which none was
trained; `learning_curve.csv` has them over the steps:

{curve}
"""
SCORES = """
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
# The groups of questions that the training of an adapter watched, as its curve names them.
WATCHED = {
    "native": "own length",
    "begun": "answer begun",
    "768": "768 tokens",
    "unseen": "phrasings never seen",
}


def model_card(name: str) -> str:
    """Writes the card as it is to be committed. A model that was not measured yet has no scores in it."""
    measured = read_measured().get(name)
    text = _card_of_adapter(name) if name in ADAPTERS else _card_of_reference(name)
    return text if measured is None else text + _scores(name, measured) + _profiles(measured)


def _card_of_reference(name: str) -> str:
    config, last = _read_config(name, "config.json"), _end_of_training(name)
    return HEADER.format(library="transformers", more="") + REFERENCE.format(
        name=name,
        description=SHIPPED[name],
        layers=config["num_hidden_layers"],
        width=config["hidden_size"],
        heads=config["num_attention_heads"],
        key_heads=config["num_key_value_heads"],
        vocabulary=config["vocab_size"],
        steps=last["step"],
        tokens=int(last["tokens"]),
        minutes=round(float(last["minutes"])),
        made_by=MADE_BY[name],
    )


def _card_of_adapter(name: str) -> str:
    config, last = _read_config(name, "adapter_config.json"), _end_of_training(name)
    tasks = (task for task in TASKS if f"{task}_native" in last)
    header = HEADER.format(library="peft", more="- lora\nbase_model: HuggingFaceTB/SmolLM2-135M-Instruct\n")
    return header + ADAPTER.format(
        name=name,
        description=SHIPPED[name],
        base=config["base_model_name_or_path"],
        rank=config["r"],
        rank_of_mlp=config["rank_pattern"]["up_proj"],
        steps=int(last["step"]),
        tokens=int(last["tokens"]),
        curve=table(
            ("task", *WATCHED.values()), ((task, *(last[f"{task}_{group}"] for group in WATCHED)) for task in tasks)
        ),
    )


def _read_config(name: str, file: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder_of(name) / file).read_text())
    return config


def _end_of_training(name: str) -> dict[str, str]:
    *_, last = csv.DictReader((folder_of(name) / "learning_curve.csv").read_text().splitlines())
    return last


def _scores(name: str, measured: Mapping[str, Any]) -> str:
    names = ("f1", "em", "directives_obeyed", "leakage")
    rows = [
        (length, row["task"], row["questions"], row["n"], *("" if row[n] is None else f"{row[n]:.2f}" for n in names))
        for length, of_length in measured["scores"].items()
        for row in of_length
    ]
    return SCORES.format(
        name=name,
        contexts=measured["contexts_per_task"],
        seed=measured["seed"],
        scores=table(("tokens", "task", "questions", "n", "F1", "right", "directives obeyed", "leakage"), rows),
    )


def _profiles(measured: Mapping[str, Any]) -> str:
    """Draws a bar for each layer, as long as what is still right without it."""
    profiles = [ReadProfile(**profile) for profile in measured["read_profiles"]]
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
    return PROFILE.format(contexts=measured["read_profile_contexts"], profiles=table(columns, rows))


ROOT = DOCS.parent
BEGIN = re.compile(r"<!-- begin (.+?) -->\n")
BLOCK = re.compile(r"(<!-- begin (.+?) -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def pages() -> list[Path]:
    """Returns the documents that people read: the README, the index, and the others in the order of the index."""
    index = DOCS / "index.md"
    listed = [DOCS / name for name in re.findall(r"\]\((\w+\.md)\)", index.read_text())]
    return [ROOT / "README.md", index, *listed]


def blocks_of(text: str) -> list[str]:
    """Returns the names of the tables of a page, in order."""
    return BEGIN.findall(text)


def fill_tables(text: str, page: str) -> str:
    """Writes every table of a page anew; raises :class:`KVBenchError` for one that is unknown or has no end."""
    complete = {match[2] for match in BLOCK.finditer(text)}
    for name in blocks_of(text):
        if name not in BLOCKS:
            raise KVBenchError(f"{page}: {unknown_name('table', name, BLOCKS)}")
        if name not in complete:
            raise KVBenchError(f"{page}: the table '{name}' has no end: add <!-- end {name} --> behind it")
    return BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match[2]]()}\n{match[3]}", text)


if __name__ == "__main__":
    for page in pages():
        page.write_text(fill_tables(page.read_text(), page.name))
    for model in SHIPPED:
        (folder_of(model) / "README.md").write_text(model_card(model))
