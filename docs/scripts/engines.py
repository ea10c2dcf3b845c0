"""Asks llama.cpp and kvbench the same needles with types of keys and values, and writes
``docs/engines.json``: ``LLAMA_CPP_PYTHON=PYTHON python -m docs.scripts.engines smollm2 qwen --limit
12``, where PYTHON is a Python that has the package ``xllamacpp``."""

import json
import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from datasets_gen import Task, get_task
from docs.scripts.markdown import NOT_MEASURED, table
from kvbench.checks.mastery import MODE, collect_answers
from kvbench.experiments.catalogue import find_policy
from kvbench.models.load import load_model
from kvbench.models.natural import NATURAL_MODELS
from kvbench.passport.trial import MOST_LOST
from kvbench.prompts.context_length import count_by, lengthen
from kvbench.prompts.mode import phrase_tasks
from kvbench.prompts.prompt import build_prompts
from policies import FULL, POLICIES

RESULTS = Path(__file__).parents[1] / "engines.json"
CHILD = Path(__file__).with_name("llama_cpp_answers.py")
NEEDLES, TOKENS, SEED = "niah_single_2", 600, 0
STEPS = 24  # tokens of an answer at most
EXACT = "f16"
# Of keys, and of values.
PAIRS = (
    ("q8_0", "q8_0"),
    ("f16", "q4_0"),
    ("q4_0", "f16"),
    ("q4_0", "q4_0"),
    ("q4_1", "q4_1"),
    ("q5_1", "q5_1"),
)
# llama.cpp turns rows by a Hadamard matrix where keys or values are quantised, unless this is set.
NO_TURN = "LLAMA_ATTN_ROT_DISABLE"


@dataclass(frozen=True)
class EngineRow:
    """Holds how many needles are answered rightly with one pair of types: by llama.cpp as it is and
    without its rotation, and in process with the format behind an exact prefill, with rows that are
    quantised as they are written, and with such rows that are turned first. ``same``: in how many
    llama.cpp without its rotation writes the tokens of the last but one."""

    keys: str
    values: str
    llama_cpp: int
    llama_cpp_unturned: int
    stored: int
    written: int
    written_turned: int
    same: int


def make_task(model: str) -> Task:
    """Returns the task of needles in contexts of :data:`TOKENS`, as the model is asked it."""
    (task,) = lengthen([get_task(NEEDLES)], TOKENS, None, count_by(model), model)
    (phrased,) = phrase_tasks([task], model)
    return phrased


def ask_llama_cpp(
    model: str, prompts: Sequence[Sequence[int]], keys: str, values: str, turned: bool = True
) -> list[dict[str, Any]]:
    """Has llama.cpp answer prompts of tokens with a cache in two types. Raises
    :class:`subprocess.CalledProcessError` where it does not run."""
    python = os.environ.get("LLAMA_CPP_PYTHON", sys.executable)
    environment = dict(os.environ)
    if not turned:
        environment[NO_TURN] = "1"
    job = {"prompts": prompts, "steps": STEPS, "keys": keys, "values": values}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.json"
        file.write_text(json.dumps(job))
        command = [python, str(CHILD), str(NATURAL_MODELS[model].path), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["answers"]
    return answers


def name_policies(keys: str, values: str) -> dict[str, str]:
    """Names the policies that stand in process for a pair of types, by field of a row."""
    pair = keys if keys == values else f"{keys}/{values}"
    stored = find_policy(pair).name
    kind, _, options = stored.partition("(")
    rest = f",{options}" if options else ")"
    return {
        "stored": stored,
        "written": find_policy(f"{kind}(phase=write{rest}").name,
        "written_turned": find_policy(f"{kind}(phase=write,rotate=hadamard{rest}").name,
    }


def compare_engines(
    name: str, limit: int, pairs: Sequence[tuple[str, str]] = PAIRS
) -> dict[str, Any]:
    """Asks both engines ``limit`` needles with the full cache and each pair of types. Returns what
    ``docs/engines.json`` holds of a model."""
    model, task = load_model(name, "cpu", "float32"), make_task(name)
    by_pair = {pair: name_policies(*pair) for pair in pairs}
    policies = [POLICIES[FULL]]
    for names in by_pair.values():
        policies += [find_policy(policy) for policy in names.values()]
    answers = collect_answers(model, task, policies, limit, SEED)
    by_policy: dict[str, Any] = {}
    for policy, rows in answers.groupby("policy", sort=False):
        by_policy[str(policy)] = rows.set_index("question_id")
    prompts, golds = [], []
    for number in range(limit):
        example = task.example(SEED, number)
        (prompt,) = build_prompts(model.tokenizer, task, example, MODE)
        (question,) = prompt.questions
        prompts.append([*prompt.token_ids, *question.token_ids])
        golds.append(question.question.golds)
    ends = set(model.end_tokens())

    def count_right(replies: Sequence[Mapping[str, Any]]) -> int:
        hits = 0
        for reply, accepted in zip(replies, golds, strict=True):
            hits += any(gold in reply["text"] for gold in accepted)
        return hits

    full = count_right(ask_llama_cpp(name, prompts, EXACT, EXACT))
    rows_of_pairs: list[dict[str, Any]] = []
    for (keys, values), names in by_pair.items():
        turned = ask_llama_cpp(name, prompts, keys, values)
        unturned = ask_llama_cpp(name, prompts, keys, values, turned=False)
        same = 0
        for reply, ours in zip(
            unturned, by_policy[names["written"]]["output_token_ids"], strict=True
        ):
            theirs = [token for token in reply["answer"] if token not in ends]
            mine = [token for token in ours if token not in ends]
            length = min(len(theirs), len(mine))
            same += theirs[:length] == mine[:length]
        counts = {field: int(by_policy[policy]["right"].sum()) for field, policy in names.items()}
        row = EngineRow(
            keys, values, count_right(turned), count_right(unturned), same=same, **counts
        )
        rows_of_pairs.append(asdict(row))
        print(row, flush=True)
    return {
        "needles": limit,
        "tokens": TOKENS,
        "llama_cpp_full": full,
        "full": int(by_policy[FULL]["right"].sum()),
        "pairs": rows_of_pairs,
    }


def breaks(right: int, full: int, needles: int) -> bool:
    """Tells whether a pair of types loses more than a format may, of what the full cache has."""
    return 100 * (full - right) / needles > MOST_LOST


def engines() -> str:
    """Returns a table of what both engines answer rightly, from ``docs/engines.json``."""
    content = json.loads(RESULTS.read_text(encoding="utf-8"))
    parts: list[str] = []
    for model, measured in content.items():
        rows: list[Sequence[object]] = []
        exact = measured["llama_cpp_full"], NOT_MEASURED, measured["full"]
        rows.append(("f16", "f16", *exact, NOT_MEASURED, NOT_MEASURED, NOT_MEASURED))
        for pair in measured["pairs"]:
            rows.append(tuple(pair.values()))
        header = (
            "keys",
            "values",
            "llama.cpp",
            "llama.cpp, rows not turned",
            "kvbench",
            "kvbench, `phase=write`",
            "kvbench, turned, `phase=write`",
            "same tokens",
        )
        title = f"`{model}`, {measured['needles']} needles of {measured['tokens']:,} tokens:"
        parts.append(f"{title}\n\n{table(header, rows)}")
    return "\n\n".join(parts)


def main() -> None:
    """Measures the models that are named, and keeps what is known of others."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--limit", type=int, default=12)
    options = parser.parse_args()
    content: dict[str, Any] = {}
    if RESULTS.exists():
        content = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in options.models:
        content[name] = compare_engines(name, options.limit)
        RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
