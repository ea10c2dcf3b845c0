"""Measures the rows of docs/performance.md and draws how the cost grows: ``make suite``, 25 minutes
on two quiet cores.

Whole commands are timed by the clock, with one thread a process; parts of one context in processor
seconds."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import torch

from datasets_gen import RULER, TASKS
from docs.scripts.gpu_parts import FIVE, GIGABYTE, default_policies
from kvbench.engine.decode.answers import decode
from kvbench.engine.treat.plan import plan, with_reference
from kvbench.engine.treat.prefill import prefill
from kvbench.models.load import LoadedModel, find_decoder, load_model
from kvbench.prompts.context_length import lengthen
from kvbench.prompts.mode import phrase_tasks
from kvbench.prompts.prompt import Prompt, build_prompts
from kvbench.system.process import processor_name
from policies import FULL, POLICIES, Policy, at_ratios

DOCS = Path(__file__).parents[1]
KVBENCH = (sys.executable, "-m", "kvbench")
ANSWER = 32  # tokens at most
LENGTHS = (1024, 4096, 16384)
BRANCHES = (1, 4, 16, 64, 256)


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    measured: float
    unit: str
    target: float
    at_least: bool  # whether the target is a least value, or a highest
    note: str = ""

    @property
    def is_met(self) -> bool:
        """Tells whether what was measured reaches the target."""
        if self.at_least:
            return self.measured >= self.target
        return self.measured <= self.target


def held(process: int) -> int:
    """Returns the bytes that a process and all below it hold, shared ones once."""
    try:
        below = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has just ended
        return 0
    total = sum(held(int(child)) for child in below)
    for line in lines:
        if line.startswith("Pss:"):
            total += 1024 * int(line.split()[1])
    return total


def timed(*words: str) -> tuple[float, float, str]:
    """Runs a command of kvbench; returns its seconds, the most memory of all its processes in GB,
    and its output. Raises :class:`SystemExit` where the command fails."""
    start, peak = time.monotonic(), 0
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        (*KVBENCH, *words), stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        while process.poll() is None and words[0] == "run":
            peak = max(peak, held(process.pid))
            time.sleep(1)
        output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    return time.monotonic() - start, peak / GIGABYTE, output


def against_pipeline() -> Iterator[Row]:
    """Compares the engine with kvpress's pipeline; one that gives other tokens ends with an
    error."""
    short = ("--tasks", "base", "--limit", "1")
    rows: dict[str, tuple[int, tuple[str, ...]]] = {
        "smollm2": (30, (*short, "--ratios", "0.5,0.9")),
        "gemma3": (25, (*short, "--ratios", "0.5")),
        "reference": (20, ()),
    }
    for model, (target, options) in rows.items():
        *_, output = timed("bench", "--model", model, *options, "--json")
        last = json.loads(output)["tables"]["bench"][-1]
        times = last["pipeline_seconds"] / last["engine_seconds"]
        name, note = f"`bench --model {model}`, float32", f"{last['equal']:,} answers equal"
        yield Row(name, times, "times", target, True, note)


def whole_commands(folder: Path) -> Iterator[Row]:
    """Times a run of twelve contexts, its page, and a list."""
    work = ("--model", "smollm2", "--tasks", "niah_single_2")
    sizes = ("--context-tokens", "1024", "--limit", "12")
    places = ("--name", "grid", "--out", str(folder), "--site", str(folder / "site"))
    seconds, gigabytes, _ = timed("run", *work, *sizes, *places)
    name = "12 contexts × default policies × 5 ratios, SmolLM2, 1,024 tokens"
    yield Row(name, seconds, "s", 90, False)
    yield Row("peak memory of that, all processes", gigabytes, "GB", 6, False)
    seconds, *_ = timed("site", str(folder / "grid"), "--site", str(folder / "again"))
    yield Row("`site` of that run", seconds, "s", 5, False)
    yield Row("`ls policies`", min(timed("ls", "policies")[0] for _ in range(3)), "s", 1, False)


def build_prompt(model: LoadedModel, name: str, tokens: int) -> Prompt:
    """Returns a context of a task with its questions."""
    tasks = [{**TASKS, **RULER}[name]]
    longer = lengthen(tasks, tokens, None, model.count_tokens, model.name)
    (task,) = phrase_tasks(longer, model.name)
    return build_prompts(model.tokenizer, task, task.example(0, 0), "agnostic")[0]


def costs(
    model: LoadedModel, prompt: Prompt, policies: Sequence[Policy], ratios: Sequence[float]
) -> tuple[float, float, int]:
    """Returns the processor seconds of reading a context for all policies and of decoding all
    answers, and how many tokens went through the model."""
    start = time.process_time()
    treatments = with_reference(plan(policies, at_ratios(ratios), prompt, 0), prompt)
    trace = prefill(model, prompt, treatments)
    read = time.process_time()
    answers = decode(model, trace, ANSWER, None)
    end = time.process_time()
    tokens = trace.length
    for answer in answers:
        tokens += len(prompt.questions[answer.question].token_ids) + len(answer.token_ids)
    return read - start, end - read, tokens


def seconds_a_token(model: LoadedModel, tokens: int = 512) -> float:
    """Returns the least processor seconds of a token: the products with all weights, at a size that
    is fast here."""
    parameters = find_decoder(model.network).layers.parameters()
    weights = [parameter for parameter in parameters if parameter.ndim == 2]
    rows = {width: torch.randn(tokens, width) for width in {weight.shape[1] for weight in weights}}
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        for weight in weights:
            rows[weight.shape[1]] @ weight.T
        best = min(best, time.process_time() - start)
    return best / tokens


def shares_of_the_roof() -> Iterator[Row]:
    """Compares the products that a context needs, alone, with the time that the engine takes."""
    for name, least in (("smollm2", 0.75), ("reference", 0.6)):
        model = load_model(name, "cpu", "float32")
        prompt = build_prompt(model, "base", 1000)
        read, decoded, tokens = costs(model, prompt, default_policies(), FIVE)
        share = tokens * seconds_a_token(model) / (read + decoded)
        yield Row(f"share of the roof, `{name}`, base at 1,000 tokens", share, "", least, True)


def growth() -> tuple[list[tuple[int, float, float]], list[tuple[int, float]]]:
    """Measures the seconds of the model's own prefill and of the engine by tokens, and of decoding
    by branches."""
    model = load_model("reference", "cpu", "float32")
    # Costs do not depend on what it answers there.
    model.network.config.max_position_embeddings = 2 * LENGTHS[-1]
    model.tokenizer.model_max_length = 2 * LENGTHS[-1]
    lengths: list[tuple[int, float, float]] = []
    branches: list[tuple[int, float]] = []
    for tokens in LENGTHS:
        prompt = build_prompt(model, "base", tokens)
        alone, *_ = costs(model, prompt, [POLICIES[FULL]], FIVE[:1])
        read, decoded, _ = costs(model, prompt, default_policies(), (0.5, 0.9))
        lengths.append((tokens, alone, read + decoded))
    prompt = build_prompt(model, "base", LENGTHS[0])
    for count in BRANCHES:
        ratios = [0.1 + 0.8 * number / count for number in range(count)]
        _, decoded, _ = costs(model, prompt, [POLICIES["streaming_llm"]], ratios)
        branches.append((count, decoded))
    return lengths, branches


def draw(
    lengths: Sequence[Sequence[float]], branches: Sequence[Sequence[float]], path: Path
) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    tokens, alone, engine = zip(*lengths, strict=True)
    left.loglog(tokens, alone, "o-", label="the model's prefill")
    left.loglog(tokens, engine, "s-", label="all default policies, answers too")
    right.loglog(*zip(*branches, strict=True), "o-", label="decoding of six questions")
    for axes, words in ((left, "tokens of a context"), (right, "branches")):
        axes.set(xlabel=words, ylabel="processor seconds")
        axes.legend(frameon=False, loc="upper left", fontsize="small")
        axes.set_ylim(top=8 * axes.get_ylim()[1])
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measures everything, and writes docs/performance.json and docs/costs.png."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for measured in (against_pipeline(), whole_commands(Path(folder)), shares_of_the_roof()):
            for row in measured:
                print(row, flush=True)
                rows.append(row)
    lengths, branches = growth()
    draw(lengths, branches, DOCS / "costs.png")
    first, last = lengths[0], lengths[-1]
    times = (last[2] / first[2]) / (last[1] / first[1])
    name = f"growth from {first[0]:,} to {last[0]:,} tokens, over the prefill's"
    rows.append(Row(name, times, "times", 1, False))
    times = branches[-1][1] / branches[0][1] / branches[-1][0]
    name = f"growth from 1 to {branches[-1][0]} branches, over their number"
    rows.append(Row(name, times, "times", 1, False))
    content = {
        "machine": f"{processor_name()}, {os.cpu_count()} cores",
        "rows": [{**asdict(row), "met": row.is_met} for row in rows],
    }
    (DOCS / "performance.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
