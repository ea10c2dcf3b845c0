"""Measures a card in eight minutes and writes docs/gpu.json: ``make gpu``, as docs/gpu.md tells.

The file is written after each row, so that a run which is cut keeps what it has. A part that fails
is written down as failed, and the others go on. ``--take FILE`` puts what another machine measured
in its place here."""

import argparse
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers

# Run by its path, a script finds its own folder alone: the root holds the packages.
sys.path.insert(0, str(Path(__file__).parents[2]))

from docs.scripts.gpu_parts import PARTS, SMALL, WHOLE, Card, Part, Value
from kvbench.estimate.machines import MACHINES, find_card
from kvbench.experiments.grid import ROOT, git_state, source_hash
from kvbench.models.precision import choose_device
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError, first_line
from kvbench.system.files import write_text_atomically
from policies.declaration.foreign_code import TookTooLongError, time_bound

RESULT = ROOT / "docs" / "gpu.json"
MEASURED = ROOT / "kvbench" / "estimate" / "measured.json"
CONSTANTS = ("compute_share", "reading_share", "layer_seconds")  # that plan takes, all or none
MINUTES = 8.0
THREADS = 4  # on the host: more wait for each other over a small model
LEAST = 3.0  # seconds: with fewer left no part is begun
DRIVER = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")


class Report:
    """The content of docs/gpu.json: every row, whether or not it was measured."""

    def __init__(self, path: Path, parts: Sequence[Part], about: Mapping[str, Any]) -> None:
        self.path = path
        self.about = dict(about)
        self.seconds: dict[str, float] = {}  # by part
        self.constants: Mapping[str, float] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        not_measured = {"measured": None, "plan": None, "note": ""}
        for part in parts:
            for name, unit in part.rows.items():
                row = {"part": part.name, "row": name, "unit": unit}
                self.rows[name] = {**row, **not_measured}

    def write(self) -> None:
        content = {
            **self.about,
            "seconds": self.seconds,
            "constants": self.constants,
            "rows": [*self.rows.values()],
        }
        write_text_atomically(self.path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    def add(self, value: Value) -> None:
        numbers = {
            "measured": float(value.measured),
            "plan": None if value.plan is None else float(value.plan),
        }
        self.rows[value.row] |= {**numbers, "note": value.note}
        self.write()

    def fail(self, part: Part, reason: str) -> None:
        """Notes for each row of a part that is not measured yet why it is not."""
        for name in part.rows:
            if self.rows[name]["measured"] is None:
                self.rows[name]["note"] = reason
        self.write()


def driver_version() -> str:
    try:
        return subprocess.run(DRIVER, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def about(card: Card) -> dict[str, Any]:
    revision, changed = git_state(ROOT / "kvbench")
    return {
        "card": card.name,
        "device": card.device,
        "small": card.sizes is not WHOLE,
        "driver": driver_version() if card.device == "cuda" else "none",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": datetime.now(UTC).date().isoformat(),
        "revision": revision,
        "changed": changed,
        # Of the code that results depend on: the card's machine may lack git.
        "source": source_hash(),
        "dtype": "bfloat16",
    }


def measure(card: Card, report: Report, parts: Sequence[Part], minutes: float) -> None:
    """Measures one part after the other until the time is over."""
    end = time.monotonic() + 60 * minutes
    report.write()
    for part in parts:
        start = time.monotonic()
        if (left := end - start) < LEAST:
            report.fail(part, f"not begun: the {minutes:g} minutes were over")
            continue
        seconds = min(part.seconds, left)
        failed = ""
        try:
            with time_bound(seconds, f"it took longer than {seconds:.0f} s"):
                for value in part.measure(card):
                    report.add(value)
                    print(
                        f"  {value.row}: {value.measured:.4g} {part.rows[value.row]}  {value.note}",
                        flush=True,
                    )
        # Whatever a card does for the first time may fail in any way, and one part is not worth the
        # others.
        except (Exception, TookTooLongError) as error:
            failed = f"{type(error).__name__}: {first_line(error)}"
        report.seconds[part.name] = round(time.monotonic() - start, 1)
        report.constants = card.constants
        report.fail(part, f"failed: {failed}" if failed else "not measured on this device")
        print(f"{part.name}: {report.seconds[part.name]} s  {failed}", flush=True)


def chosen(names: str | None) -> list[Part]:
    """Returns the parts whose names hold one of some words, or all parts."""
    words = names.split(",") if names else [""]
    return [part for part in PARTS if any(word in part.name for word in words)]


def take(path: Path) -> None:
    """Puts the result of a card into docs/gpu.json, and its constants where plan finds them.
    Raises :class:`KVBenchError` for a trial, which measured no card."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["small"] or content["device"] != "cuda":
        raise KVBenchError(
            f"{path} holds no measurement of a card, but a trial: run make gpu there"
        )
    if content["revision"] is None and content["source"] == source_hash():
        content["revision"], content["changed"] = git_state(ROOT / "kvbench")
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_text_atomically(RESULT, text)
    constants, name = content["constants"], find_card(content["card"])
    if name in MACHINES and all(constant in constants for constant in CONSTANTS):
        measured = json.loads(MEASURED.read_text(encoding="utf-8"))
        of_card = {constant: constants[constant] for constant in CONSTANTS}
        measured[name] = {"card": content["card"], "date": content["date"], **of_card}
        write_text_atomically(MEASURED, json.dumps(measured, indent=1) + "\n")


def without_values() -> Report:
    """Returns the rows as they are before any card was measured."""
    return Report(RESULT, PARTS, {"card": None, "device": None, "small": False, "date": None})


def main(words: Iterable[str] | None = None) -> None:
    """Measures a card as the words of the command line say. Raises :class:`SystemExit` where a
    trial would be written over docs/gpu.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--minutes", type=float, default=MINUTES)
    parser.add_argument("--only", help="words in the names of parts, comma-separated")
    place = Path(os.environ["OUT"]) / RESULT.name if "OUT" in os.environ else RESULT
    parser.add_argument(
        "--json", type=Path, default=place, help="default: in the folder OUT, or docs/gpu.json"
    )
    parser.add_argument("--take", type=Path, help="a file that another machine wrote")
    options = parser.parse_args(None if words is None else [*words])
    if options.take is not None:
        take(options.take)
        return
    if options.json == RESULT and (options.small or options.device == "cpu"):
        raise SystemExit("a trial is no measurement: name another file with --json")
    choose_device(options.device)  # a machine without a card is told so before anything is made
    console.quiet = True
    logging.getLogger("kvpress").setLevel(logging.ERROR)
    torch.set_num_threads(min(THREADS, torch.get_num_threads()))
    card = Card(options.device, SMALL if options.small else WHOLE)
    parts = chosen(options.only)
    report = Report(options.json, PARTS, about(card))
    measure(card, report, parts, options.minutes)
    print(options.json.read_text(encoding="utf-8"))
    if options.json == RESULT:
        take(options.json)


if __name__ == "__main__":
    try:
        main()
    except KVBenchError as error:
        raise SystemExit(f"error: {error}") from None
