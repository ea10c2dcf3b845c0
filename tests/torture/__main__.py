"""``python -m tests.torture`` attacks the tool and writes docs/reliability.md. ``--share 0.1``: a
tenth of all cases; ``--only NAME --seed 17``: one case again, with what it says."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track

from docs.scripts.markdown import table
from kvbench.cli.program import main
from tests.support.models.runs import small_command
from tests.support.models.toy import model_of
from tests.torture.attacks import ATTACKS, Attacker
from tests.torture.outcomes import OUTCOMES, Board

PAGE = Path("docs/reliability.md")


def attack(attacker: Attacker, share: float) -> Board:
    """Makes a share of all cases, of each kind one at least."""
    board = Board()
    for kind, (make, count) in ATTACKS.items():
        for seed in track(range(max(1, round(share * count))), kind, console=Console(stderr=True)):
            board.add(kind, seed, *make(attacker, seed))
            if board.bad and board.bad[-1].split(": ")[1] == f"{kind}, seed {seed}":
                print(board.bad[-1], file=sys.stderr, flush=True)
    return board


def page_of(board: Board, seconds: float) -> str:
    rows = [
        (kind, *(counts[outcome] for outcome in OUTCOMES)) for kind, counts in board.counts.items()
    ]
    return f"""# Reliability

**In short.** `make torture` attacks the tool with random cases and counts how it answers: well, unclearly, with a hang,
with a traceback, with lost records, or by taking forged or damaged records for sound. It fails if any of the last four
happens, or if more than one case in a hundred is unclear. `python -m tests.torture --only KIND --seed N` repeats one.

{table(("attack", *OUTCOMES), rows)}

This took {seconds:,.0f} s of processor time. Calls are drawn from the options of all commands. Runs are killed, or
refused a file, at random moments; each is then resumed and compared with a whole run in every column but times
(likelihoods to 1e-4 nats). A forged record has one changed value and a summary that follows; all cells are answered
again ([reproduce](reproduce.md)).
"""


def run() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--only", choices=ATTACKS)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, llama = Path(name), model_of("llama")
        for part in (llama.network, llama.tokenizer):
            part.save_pretrained(folder / "model")
        if main([str(word) for word in small_command(folder / "model", folder / "whole")]):
            return 1
        attacker = Attacker(folder / "model", folder / "whole/runs/x", folder / "attacks")
        if given.only:
            print(*ATTACKS[given.only][0](attacker, given.seed or 0), sep=": ")
            return 0
        board = attack(attacker, given.share)
    PAGE.write_text(page_of(board, time.process_time()), encoding="utf-8")
    return 0 if board.is_sound else 1


if __name__ == "__main__":
    sys.exit(run())
