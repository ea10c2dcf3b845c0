"""``python docs/scripts/evaluate_reference.py`` measures a shipped model with the full cache, on
the test split, and writes what its README and a test compare with."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from datasets_gen import NATIVE, REFUSAL, TASKS, USUAL_TOKENS, Task
from kvbench.checks.mastery import collect_answers
from kvbench.checks.model import PARTS, measure_reads
from kvbench.models.load import LoadedModel, load_model
from kvbench.models.names import reference_folder
from kvbench.prompts.context_length import count_by, lengthen
from kvbench.system.files import write_text_atomically
from policies import FULL, POLICIES

UNSEEN = "all, in phrasings never seen"  # as the scores of held-out phrasings are called
# At most: each question is answered as often as there are layers, and three times more.
PROFILE_CONTEXTS = 24
FIRST_CONTEXTS = 4  # of each task, whose scores are kept apart: a test measures them anew
LENGTHS = {NATIVE: None, str(USUAL_TOKENS): USUAL_TOKENS}  # of a context in tokens; None: its own
SCORES = ("f1", "em", "directives_obeyed", "leakage")


def measure(
    loaded: LoadedModel, task: Task, contexts: int, seed: int, held_out: bool = False
) -> pd.DataFrame:
    """Answers so many contexts of a task with the full cache, and returns the records."""
    return collect_answers(loaded, task, [POLICIES[FULL]], contexts, seed, held_out=held_out)


def divide_by_question(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Lists all records of one task, and those of each kind of question where there are several."""
    parts = {"all": frame}
    plain = frame[frame.leakage.isna()]
    columns = {
        "direction": (plain, "{}"),
        "question_type": (plain, "{}"),
        "hops": (plain[plain.answerable], "{} facts"),
    }
    for column, (records, name) in columns.items():
        if records[column].nunique() > 1:
            for value, part in records.groupby(column):
                parts[name.format(value)] = part
    parts["unanswerable"] = frame[~frame.answerable]
    parts["under directives"] = frame[frame.directives_obeyed.notna()]
    attacks = frame[frame.leakage.notna()]
    refused = attacks.golds.map(lambda golds: golds[0] == REFUSAL).astype(bool)
    parts |= {"attack, with a defence": attacks[refused], "attack, without": attacks[~refused]}
    return {name: part for name, part in parts.items() if len(part)}


def scores(task: str, frame: pd.DataFrame) -> list[dict[str, object]]:
    """Averages every score over every part of a task; null where no question has it."""
    rows: list[dict[str, object]] = []
    for name, part in divide_by_question(frame).items():
        row: dict[str, object] = {"task": task, "questions": name, "n": len(part)}
        for score in SCORES:
            mean = part[score].astype(float).mean()
            row[score] = None if pd.isna(mean) else round(float(mean), 4)
        rows.append(row)
    return rows


def first_scores(task: str, frame: pd.DataFrame) -> list[dict[str, object]]:
    """Averages every score over the first contexts of a task."""
    first = frame.example_id.unique()[:FIRST_CONTEXTS]
    return scores(task, frame[frame.example_id.isin(first)])


def main(
    model: Annotated[str, typer.Option(help="The shipped model to measure.")] = "reference",
    contexts: Annotated[int, typer.Option(help="Contexts of each task.")] = 200,
    seed: Annotated[
        int, typer.Option(help="Seed of the examples; by default one that no choice was made on.")
    ] = 1,
    out: Annotated[
        Path | None, typer.Option(help="The file written; by default beside the weights.")
    ] = None,
) -> None:
    """Measures the model with the full cache and writes the scores that the README shows."""
    loaded = load_model(model)
    rows: dict[str, list[dict[str, object]]] = {}
    first: list[dict[str, object]] = []
    for length, tokens in LENGTHS.items():
        rows[length] = []
        for task in lengthen(list(TASKS.values()), tokens, None, count_by(model), model):
            records = measure(loaded, task, contexts, seed)
            if tokens is None:
                first += first_scores(task.name, records)
            mine = scores(task.name, records)
            unseen = measure(loaded, task, contexts // 2, seed, held_out=True)
            mine.append(scores(task.name, unseen)[0])
            mine[-1]["questions"] = UNSEEN
            for row in mine:
                words = [f"{score} {row[score]:.2f}" for score in SCORES if row[score] is not None]
                about = f"{length:<8}{task.name:<16}{row['questions']:<30}{row['n']:>6}"
                print(f"{about}  {'  '.join(words)}", flush=True)
            rows[length] += mine
    few = min(contexts, PROFILE_CONTEXTS)
    profiles = [measure_reads(loaded, TASKS[task], hops, few, seed) for task, hops in PARTS]
    print("\n".join(map(str, profiles)), flush=True)
    content = {
        "fingerprint": loaded.fingerprint,
        "contexts_per_task": contexts,
        "seed": seed,
        "scores": rows,
        "first_contexts": FIRST_CONTEXTS,
        "first_scores": first,
        "read_profile_contexts": few,
        "read_profiles": [asdict(profile) for profile in profiles],
    }
    path = out or reference_folder(model) / "full_cache.json"
    write_text_atomically(path, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
