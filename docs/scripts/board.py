"""Measures what the board lacks: ``python -m docs.scripts.board [RUN…]`` asks the methods of
``docs/board/runs.toml`` that have no answers in ``leaderboards/records``, or stale ones, and packs
theirs there, some methods at a time. Whatever ends it, the same command goes on."""

import hashlib
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kvbench.board.pieces import RECORDS_FOLDER, Piece, open_pieces
from kvbench.board.unfit import read_unfit, write_unfit
from kvbench.experiments.catalogue import choose_policies, unfit_for, with_references
from kvbench.experiments.grid import source_hash
from kvbench.experiments.suites import find_tasks
from kvbench.models.pretrained import read_cache_shape
from kvbench.prompts.mode import Mode
from kvbench.store.packing import pack
from kvbench.store.store import Store
from kvbench.studies.board.suite import SUITE
from policies import CONTROLS, Policy
from policies.declaration.names import split_outside_brackets

PLAN = Path(__file__).parents[1] / "board" / "runs.toml"
ALL, AWARE = "all", "aware"  # methods of the suite
AT_ONCE = 15  # methods that are asked together: an interruption costs theirs
RUNS = Path("runs")
# Answers of one board are of one type of numbers, and which is faster differs by machine.
DTYPE = "float32"
# A press that looks at the model beforehand takes a minute on a machine that does other things too.
EXECUTOR = "local(cell_seconds=600)"


@dataclass(frozen=True)
class BoardRun:
    """One task, asked of one model with some methods."""

    name: str  # of its pieces, as ``smollm2-base``
    options: tuple[str, ...]
    methods: tuple[str, ...]  # as ``--policies`` names them

    @property
    def mode(self) -> Mode:
        return "aware" if "aware" in self.options else "agnostic"

    @property
    def task(self) -> str:
        word = self.options[self.options.index("--tasks") + 1]
        (task,) = find_tasks(SUITE.name, word.partition("(")[0])
        return task.name

    @property
    def model(self) -> str:
        return self.options[self.options.index("--model") + 1]

    @cached_property
    def chosen(self) -> list[Policy]:
        """Lists methods that mean something on the task, and controls."""
        tasks = find_tasks(SUITE.name, self.task)
        chosen = choose_policies(",".join(self.methods), tasks, self.mode, of_suite=True)
        return with_references(chosen)

    @cached_property
    def unfit(self) -> dict[str, str]:
        """Says of methods that cannot run on the model why. Raises :class:`KVBenchError` for a
        model that is not here."""
        shape = read_cache_shape(self.model, "cpu", "float32")
        reasons = {} if shape is None else unfit_for(self.chosen, shape)
        return {name: reason.removeprefix(f"{name}: ") for name, reason in reasons.items()}

    @property
    def policies(self) -> list[str]:
        """Names what is to be answered, as records name it."""
        return [policy.name for policy in self.chosen if policy.name not in self.unfit]


def read_plan(path: Path = PLAN) -> list[BoardRun]:
    """Reads the runs of the board, in the order in which they are asked."""
    plan = tomllib.loads(path.read_text(encoding="utf-8"))
    methods: dict[str, Sequence[str]] = {
        ALL: split_outside_brackets(SUITE.policies or ""),
        AWARE: split_outside_brackets(SUITE.if_aware or ""),
        **plan["methods"],
    }
    runs: list[BoardRun] = []
    for name, entry in plan["runs"].items():
        for task in entry["tasks"]:
            word, *of_task = shlex.split(task)
            options = (*shlex.split(entry["options"]), "--tasks", word, *of_task)
            piece = f"{name}-{word.partition('(')[0]}"
            runs.append(BoardRun(piece, options, tuple(methods[entry.get("methods", ALL)])))
    return runs


def pieces_of(run: BoardRun, folder: Path) -> list[Piece]:
    """Returns the pieces of a run that are there."""
    return [piece for piece in open_pieces(folder) if _run_name(piece) == run.name]


def _run_name(piece: Piece) -> str:
    return piece.store.folder.name.rpartition(".")[0]


def missing_policies(run: BoardRun, pieces: Sequence[Piece]) -> list[str]:
    """Lists what has no answers that are not stale, to what the run asks now."""
    answered: set[str] = set()
    for piece in pieces:
        if was_asked_so(run, piece):
            answered.update(piece.fresh_policies)
    return [name for name in run.policies if name not in answered]


def was_asked_so(run: BoardRun, piece: Piece) -> bool:
    """Tells whether a piece was asked with the options that its run has now, in the type of numbers
    of the board."""
    if piece.store.identity.dtype != DTYPE:
        return False
    return f" {shlex.join(run.options)} --policies " in piece.store.run.command


def batches(missing: Sequence[str]) -> Iterator[list[str]]:
    """Yields what is asked together. Controls come with whatever is asked, so that they stand in
    the first batch."""
    controls = [name for name in missing if name in CONTROLS]
    methods = [name for name in missing if name not in CONTROLS]
    for start in range(0, len(methods), AT_ONCE):
        yield [*controls, *methods[start : start + AT_ONCE]]
        controls = []
    if controls:
        yield controls


def keep(run: BoardRun, answered: Store, policies: Sequence[str], folder: Path) -> Path:
    """Packs the answers of some policies, and removes what is stale, or was asked otherwise, of the
    run. Returns the folder of the piece."""
    pieces = pieces_of(run, folder)
    place = folder / f"{run.name}.{answered.identity.short_hash()}"
    pack(answered, place, [run.task], policies)
    for piece in pieces:
        fresh = piece.fresh_policies if was_asked_so(run, piece) else []
        kept = [name for name in fresh if name not in policies]
        if len(kept) == len(piece.store.identity.policies):
            continue
        partial = folder / f".{piece.store.folder.name}"
        if kept:
            pack(piece.store, partial, None, kept, piece.store.run.examples_of or 1)
        shutil.rmtree(piece.store.folder)
        if kept:
            partial.rename(piece.store.folder)
    return place


def ask(run: BoardRun, policies: Sequence[str]) -> Store:
    """Has some policies answer, in a run of their own that is resumed where it was interrupted.
    Raises :class:`subprocess.CalledProcessError` where it ends with an error."""
    code = f"{source_hash()} {run.options} {policies}".encode()
    name = f"board-{run.name}-{hashlib.sha256(code).hexdigest()[:8]}"
    methods = [policy for policy in policies if policy not in CONTROLS]
    options = ["--suite", SUITE.name, "--dtype", DTYPE, "--executor", EXECUTOR, *run.options]
    options += ["--policies", ",".join(methods or CONTROLS)]
    command = [sys.executable, "-m", "kvbench", "run", *options, "--name", name, "--out", str(RUNS)]
    subprocess.run(command, check=True)
    return Store.open(RUNS / name)


def complete(run: BoardRun, folder: Path = RECORDS_FOLDER) -> None:
    """Asks all that a run lacks, some methods at a time."""
    unfit = read_unfit(folder)
    if run.unfit and unfit.get(run.model) != run.unfit:
        write_unfit(folder, {**unfit, run.model: run.unfit})
    for policies in batches(missing_policies(run, pieces_of(run, folder))):
        print(f"{run.name}: {', '.join(policies)}", flush=True)
        print(f"{keep(run, ask(run, policies), policies, folder)}", flush=True)


def main(names: Sequence[str]) -> None:
    runs = {run.name: run for run in read_plan()}
    if unknown := [name for name in names if name not in runs]:
        sys.exit(f"no run is named {', '.join(unknown)}; {PLAN.name} has {', '.join(runs)}")
    chosen = [runs[name] for name in names or runs]
    for number, run in enumerate(chosen, start=1):
        try:
            complete(run)
        except subprocess.CalledProcessError:
            # The run has said why.
            sys.exit(
                f"{run.name} ended with an error: the same command goes on behind what is packed"
            )
        print(f"{number} of {len(chosen)} runs are whole: {run.name}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
