"""``python -m kvbench.reference.evaluate``: what the reference model reaches with the full cache, on the test split."""

import json
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from datasets_gen import TASKS
from kvbench.atomic import write_text_atomically
from kvbench.collect import collect
from kvbench.models import LoadedModel, load_model
from kvbench.record import Record
from kvbench.setting import Setting
from policies import POLICIES


def measure(loaded: LoadedModel, contexts: int, seed: int) -> pd.DataFrame:
    """Records of the full cache on ``contexts`` contexts of every task."""
    records: list[Record] = []
    for task in TASKS.values():
        examples = list(task.generate(seed, contexts))
        setting = Setting([POLICIES["full"]], (), seed)
        records += collect(loaded, task, examples, setting)["full"]
    return pd.DataFrame([record.model_dump() for record in records])


def scores(frame: pd.DataFrame) -> list[dict[str, object]]:
    """F1 and exact match of each task, and of its questions by direction, hops and answerability."""
    answerable = frame[frame.answerable]
    groups: dict[str, pd.DataFrame] = {}
    for task, rows in frame.groupby("task", sort=False):
        groups[f"{task}, all"] = rows
        mine = answerable[answerable.task == task]
        for direction, part in mine.groupby("direction"):
            groups[f"{task}, {direction}"] = part
        if mine.hops.nunique() > 1:
            groups |= {f"{task}, {hops} hops": part for hops, part in mine.groupby("hops")}
        groups[f"{task}, unanswerable"] = rows[~rows.answerable]
    return [
        {"questions": name, "n": len(rows), "f1": float(rows.f1.mean()), "em": float(rows.em.mean())}
        for name, rows in groups.items()
    ]


def main(
    model: Annotated[str, typer.Option(help="The model to measure.")] = "reference",
    contexts: Annotated[int, typer.Option(help="Contexts of each task.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the examples; by default one that no choice was made on.")] = 1,
    out: Annotated[Path, typer.Option(help="The file written.")] = Path("kvbench/reference/full_cache.json"),
) -> None:
    """Measures the model with the full cache and writes the scores that the README shows."""
    loaded = load_model(model)
    rows = scores(measure(loaded, contexts, seed))
    content = {"fingerprint": loaded.fingerprint, "contexts_per_task": contexts, "seed": seed, "scores": rows}
    write_text_atomically(out, json.dumps(content, indent=1) + "\n")
    for row in rows:
        print(f"{row['questions']:<24}{row['n']:>6}{row['f1']:>8.1f}{row['em']:>8.1f}")


if __name__ == "__main__":
    typer.run(main)
