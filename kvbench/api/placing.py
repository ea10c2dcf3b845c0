"""Places a press on the board that kvbench ships: ``compare(press, against="board")``."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kvbench
from kvbench.api.calls import Call
from kvbench.api.comparison import ComparisonResult
from kvbench.board.asked import RATIOS, board_options, choose_length, choose_pieces
from kvbench.board.pieces import Piece, open_board
from kvbench.cli.result import Result
from kvbench.experiments.build_grid import check_job
from kvbench.experiments.catalogue import find_policy
from kvbench.experiments.opponents import job_like
from kvbench.experiments.options import check_name
from kvbench.prompts.context_length import tokens_of_run
from kvbench.store.dates import with_date
from kvbench.store.run_file import Job
from kvbench.system.console import console
from kvbench.system.errors import KVBenchError
from kvbench.system.files import file_name, write_text_atomically
from policies import FULL, LazyModule
from policies.declaration.names import split_outside_brackets

if TYPE_CHECKING:
    from kvbench.publish.board.placed import PlacedPress

anew = LazyModule("kvbench.board.anew")
forecasts = LazyModule("kvbench.estimate.plan")
local = LazyModule("kvbench.execution.local")
packing = LazyModule("kvbench.store.packing")
placed = LazyModule("kvbench.publish.board.placed")
reports = LazyModule("kvbench.execution.report")
runs = LazyModule("kvbench.execution.execute")
shown = LazyModule("leaderboards.terminal.placed")
site_list = LazyModule("kvbench.publish.site_list")

BOARD = "board"
ASKED = ("mode", "context_tokens", "ratios", "limit")  # what is asked, beside model and tasks
TAKEN = (
    *("press", "against", "model", "tasks", *ASKED),
    *("device", "max_kv_gb", "out", "name", "site"),
)


class BoardComparison(ComparisonResult):
    """A press among all methods of the board.

    Attributes:
        place: The place in the mean over tasks, with its interval, in a line.
        board_page: The page of all methods, with a row of the press.
    """

    def __init__(self, press: "PlacedPress", result: Result, call: Call) -> None:
        super().__init__(press.compared, result, call.handed)
        self.place = result.verdict
        self.board_page = press.page


def place_on_board(call: Call) -> BoardComparison:
    """Has a press answer what the methods of the board answered, and tells its place among them.
    Raises :class:`KVBenchError` for an option that the board decides, and where nothing can be
    compared."""
    check_options(call)
    site_list.make_site_folder("--site", call.path("site"))  # a fault shows before the run
    press = str(call["press"])
    pieces = choose_board(call)
    policy = find_policy(press)
    job = with_date(make_job(call, pieces, policy.name), Path(call["out"]), call["name"])
    grid = check_job(job)
    machine = local.on_this_machine(job, grid)
    name = call["name"] or f"board-{Path(job.model).name}-{machine.identity.short_hash()}"
    folder = Path(call["out"]) / name
    if not folder.exists() and (line := forecasts.forecast_line(machine.model, machine.grid)):
        console.print(line, soft_wrap=True)
    store = runs.complete(machine, folder)
    records = store.frame()
    warnings, fault = reports.collect_warnings(store, records, machine.grid.policies)
    stored = placed.StoredAnswers.of(pieces)
    again = placed.compare_full_cache(records, stored)
    differing = {answered.task: answered.contexts for answered in again if answered.contexts}
    answered_here = []
    if differing:
        ours, notes = anew.without_code_of_others(stored.pieces)
        if notes:
            warnings += notes
            stored = placed.StoredAnswers.of(ours)
        answered_here = anew.answer_anew(ours, differing, machine, folder / "anew")
    result = placed.place_press(
        store, policy.name, stored, again, answered_here, call.path("site"), warnings
    )
    return BoardComparison(result, describe(result, call, fault), call)


def check_options(call: Call) -> None:
    """Raises :class:`KVBenchError` for an option that the stored answers decide."""
    for name in call.values:
        if name in call.explicit and name not in TAKEN:
            option = name.replace("_", "-")
            raise KVBenchError(
                f"--{option}: the answers of the board are stored, and a press is asked as they "
                f"were: leave it out"
            )
    if call["name"] is not None:
        check_name(call["name"])


def choose_board(call: Call) -> list[Piece]:
    """Returns the pieces of the board that a press is placed among. Raises :class:`KVBenchError`
    where there are none."""
    model = str(call["model"]) if "model" in call.explicit else None
    tasks = call["tasks"]
    names = None if tasks is None else split_outside_brackets(tasks)
    pieces = open_board()
    if "context_tokens" in call.explicit:
        pieces = choose_length(pieces, tokens_of_run(call["context_tokens"], None, tasks))
    return choose_pieces(pieces, model, str(call["mode"]), names)


def make_job(call: Call, pieces: Sequence[Piece], name: str) -> Job:
    """Returns the job that asks a press, under the name that records give it, what the methods of
    the board were asked."""
    policy = find_policy(str(call["press"]))
    changes: dict[str, Any] = dict(board_options(pieces))
    changes["levels"] = {"ratio": call["ratios"] or RATIOS} if policy.takes_ratios else {}
    for option in ("limit", "device", "max_kv_gb"):
        if option in call.explicit:
            changes[option] = call[option]
    return job_like(pieces[0].store.run, str(call["press"]), name, changes)


def describe(result: "PlacedPress", call: Call, fault: str) -> Result:
    """Lays out the place of a press, for people and programs. It writes the block for a pull request
    beside its page, and the entry that the board takes: answers, settings and the source."""
    (comparison,) = result.compared.comparisons
    outcomes = comparison.published.outcomes
    again = [answered.sentence for answered in result.again]
    tasks = ",".join(answered.task for answered in result.again)
    words = ["python", "-m", "kvbench", "compare", str(call["press"]), "--against", BOARD]
    words += ["--model", result.model, "--tasks", tasks]
    for option in ASKED:
        if option in call.explicit:
            words += [f"--{option.replace('_', '-')}", str(call[option])]
    command = shlex.join(words)
    name = file_name(result.name)
    block, entry = result.page.with_name(f"board-{name}.md"), result.page.with_name(f"entry-{name}")
    store = result.compared.store
    # All of its answers can be given again, and not examples alone.
    packing.pack(store, entry, policies=[FULL, comparison.policy], examples_of=1)
    notes = [*again, f"kvbench {kvbench.__version__}"]
    text = shown.markdown_block(result.name, result.model, result.ranks, outcomes, notes, command)
    write_text_atomically(block, text)
    duels, unmastered = comparison.published.duels, result.compared.unmastered
    opponents = shown.opponents_tables(outcomes, duels, unmastered)
    pages = [result.page, comparison.published.page]
    return Result(
        tables=[shown.places_table(result.ranks), *opponents],
        verdict=shown.place_line(result.name, result.model, result.ranks),
        notes=again,
        warnings=list(comparison.warnings),
        files={"records": store.folder, "page": pages, "block": block, "entry": entry},
        fault=fault or result.compared.fault,
    )
