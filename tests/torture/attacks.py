"""Attacks on the tool, each made by a seed: bad calls, damaged files, kills, full disks and forged
records."""

import errno
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from kvbench.checks.answered_again import NEVER_THE_SAME
from kvbench.checks.submission import examine
from kvbench.publish.site import publish_summary
from kvbench.store.store import Store
from kvbench.store.tables import RECORDS
from kvbench.system.errors import KVBenchError
from kvbench.system.process import ENDING
from tests.support.models.processes import Copy
from tests.support.models.runs import outcome as records_of
from tests.support.models.runs import small_command
from tests.torture.calls import CHEAP, LAST_STAYS, bad_calls, drawn
from tests.torture.outcomes import PATIENCE, HangError, Outcome, call, ended_after, shows_a_fault

TOUCHES = ("open", "os.mkdir", "os.remove", "os.rename", "tempfile.mkstemp")
WRITING = os.O_WRONLY | os.O_RDWR


def at_touch(number: float, folder: Path, act: Callable[[], object], again: bool = False) -> None:
    """Has this process do something before it touches files of a folder for a time of that number,
    and, if ``again``, before each later one. An error that is raised there is that of the touch. It
    lasts until the process ends."""
    touches = 0

    def hook(event: str, given: tuple[object, ...]) -> None:
        nonlocal touches
        if event not in TOUCHES or not str(given[0]).startswith(str(folder)):
            return
        if event == "open" and not (isinstance(given[2], int) and given[2] & WRITING):
            return
        touches += 1
        if touches == number or (again and touches > number):
            act()

    sys.addaudithook(hook)


FILES_TOUCHED = 200  # times that a small run touches a file


class Attacker:
    """Has a finished run and a model of its own, and breaks copies of them in a folder."""

    def __init__(self, model: Path, run: Path, folder: Path) -> None:
        self.model, self.run, self.folder = model, run, folder

    def _place(self, seed: int) -> Path:
        place = self.folder / str(seed)
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place

    def bad_call(self, seed: int) -> tuple[Outcome, str]:
        """Adds up to three hostile values, as options or words, to a cheap call of a command
        (:func:`bad_calls`)."""
        place = self._place(seed)
        (place / "loop").symlink_to(place / "loop")
        (place / "file").write_text("x")
        names = {
            "LOOP": place / "loop",
            "FILE": place / "file",
            "FOLDER": place,
            "OUT": place / "out",
            "RUN": shutil.copytree(self.run, place / "run"),
            "MODEL": self.model,
        }
        name, added = drawn(bad_calls(), seed)
        words = (
            CHEAP[name]
            if name != "run"
            else [str(word) for word in small_command(self.model, place)[1:]]
        )
        words = [*words[:-2], *added, *words[-2:]] if name in LAST_STAYS else [*words, *added]
        for short, path in names.items():
            words = [word.replace(short, str(path)) for word in words]
        here = Path.cwd()
        os.chdir(place)  # a relative place is one of the attack's own
        try:
            result, said = call([name, *words])
        finally:
            os.chdir(here)
        shutil.rmtree(place)
        return result, f"{name} {words!r:.600}: {said}"

    def damaged_store(self, seed: int) -> tuple[Outcome, str]:
        """Damages a file of a run: commands say so, or show the same records."""
        draw, place = random.Random(seed), self._place(seed)
        run = Path(shutil.copytree(self.run, place / "run"))
        what = damage(draw, draw.choice(sorted(path for path in run.rglob("*") if path.is_file())))
        name = draw.choice(["site", "score", "check-submission"])
        result, said = call(
            [
                name,
                *(
                    word.replace("RUN", str(run)).replace("OUT", str(place / "o"))
                    for word in CHEAP[name]
                ),
            ]
        )
        if result == "well" and not said and name == "check-submission":
            with suppress(KVBenchError):  # what cannot be read is shown as missing
                if not records_of(Store.open(run)).equals(records_of(Store.open(self.run))):
                    result = "falsified"
        shutil.rmtree(place)
        return result, f"{name} after {what}: {said}"

    def damaged_model(self, seed: int) -> tuple[Outcome, str]:
        """Damages a file of a model, and runs it."""
        draw, place = random.Random(seed), self._place(seed)
        model = Path(shutil.copytree(self.model, place / "model"))
        what = damage(
            draw, draw.choice(sorted(path for path in model.iterdir() if path.suffix != ".md"))
        )
        result, said = call([str(word) for word in small_command(model, place, "--tasks", "base")])
        shutil.rmtree(place)
        return result, f"run after {what}: {said}"

    def killed_run(self, seed: int) -> tuple[Outcome, str]:
        """Ends a run up to three times, at random moments or as it touches a file, and lets it go
        on to its end."""
        draw, place = random.Random(seed), self._place(seed)
        words = [str(word) for word in small_command(self.model, place)]
        moments: list[str] = []
        for _ in range(draw.randint(1, 3)):
            one, aimed = draw.choice([signal.SIGKILL, *ENDING]), draw.random() < 0.5
            moment = draw.randint(1, FILES_TOUCHED) if aimed else draw.uniform(0.0, 1.5)
            moments.append(
                f"{one.name} at touch {moment}" if aimed else f"{one.name} after {moment:.2f} s"
            )

            def end_itself(
                number: float = moment if aimed else inf, one: signal.Signals = one
            ) -> None:
                at_touch(number, place, lambda: os.killpg(0, one))

            with Copy.of_program(words, before=end_itself) as run:
                if not aimed:
                    time.sleep(moment)
                    with suppress(ProcessLookupError):  # it has come to its end
                        os.killpg(run.process.pid or 0, one)
                try:
                    with ended_after(PATIENCE, signal.ITIMER_REAL):
                        _, said = run.ended()
                except HangError:
                    return "hang", ", ".join(moments)
            if shows_a_fault(said):
                return "traceback", f"{', '.join(moments)}: {said[-300:]}"
        return self._goes_on(words, place, ", ".join(moments))

    def full_disk(self, seed: int) -> tuple[Outcome, str]:
        """Refuses a run a file once, or from then on; then lets it go on to its end."""
        draw, place = random.Random(seed), self._place(seed)
        words = [str(word) for word in small_command(self.model, place)]
        code, again = (
            draw.choice([errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT]),
            draw.random() < 0.5,
        )
        number = draw.randint(1, FILES_TOUCHED)

        def refuse() -> None:
            raise OSError(code, os.strerror(code))

        with Copy.of_program(words, before=lambda: at_touch(number, place, refuse, again)) as full:
            status, said = full.ended()
        what = f"{os.strerror(code)} at touch {number}, {again=}"
        if shows_a_fault(said):
            return "traceback", f"{what}, status {status}: {said[-300:]}"
        return self._goes_on(words, place, what)

    def _goes_on(self, words: list[str], place: Path, what: str) -> tuple[Outcome, str]:
        result, said = call(words)
        if result == "well" and (
            differing := difference(Store.open(self.run), Store.open(place / "runs/x"))
        ):
            result, said = "lost", differing
        elif result == "well" and list(place.rglob("*.partial")):
            result, said = "unclear", "a partial file is left"
        shutil.rmtree(place)
        return result, f"{what}: {said}"

    def forged_record(self, seed: int) -> tuple[Outcome, str]:
        """Changes one number or text of a record, and has the summary follow; all cells are
        answered again."""
        draw, place = random.Random(seed), self._place(seed)
        store = Store.open(Path(shutil.copytree(self.run, place / "run")))
        path = draw.choice([one for one in store.record_files() if "knorm" in one.name])
        rows = store.read_rows(RECORDS, path)
        number = draw.randrange(len(rows))
        values = rows[number].model_dump(exclude=NEVER_THE_SAME)
        column = draw.choice(
            [name for name, value in values.items() if isinstance(value, str | int | float)]
        )
        value = forged(draw, values[column])
        rows[number] = rows[number].model_copy(update={column: value})
        store.write_rows(RECORDS, path, rows)
        with suppress(Exception):  # a forger may sum up as he likes
            publish_summary(store, store.frame())
        found = [
            finding
            for finding in examine(store.folder, cells=sys.maxsize)
            if finding.outcome == "wrong"
        ]
        shutil.rmtree(place)
        return (
            "well" if found else "falsified"
        ), f"{column} of record {number} of {path.name} made {value!r:.60}"


LIKELIHOODS = ("gold_nll", "delta_nll")
ROUNDING = 1e-4  # nats: what is left of a unit is computed in batches of another size


def difference(whole: Store, other: Store) -> str:
    """Names the columns in which another store's records are not those of the whole one; nothing
    where there are none. Likelihoods may differ by rounding, and nothing else."""
    one, two = records_of(whole), records_of(other)
    if one.shape != two.shape:
        return f"records and columns are {two.shape}, not {one.shape}"
    differing = [name for name in one.columns if not one[name].equals(two[name])]
    differing = [
        name
        for name in differing
        if name not in LIKELIHOODS
        or not np.allclose(one[name], two[name], atol=ROUNDING, equal_nan=True)
    ]
    return f"other values: {differing}" if differing else ""


def forged(draw: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return type(value)(draw.choice([-1, 2 * value + 1, 10**6]))
    return f"{value}{draw.choice('xyz')}"


def damage(draw: random.Random, path: Path) -> str:
    """Damages a file in one of some ways; returns which."""
    content = path.read_bytes()

    def in_its_place(make: Callable[[], None]) -> None:
        path.unlink()
        make()

    ways: dict[str, Callable[[], object]] = {
        "cut": lambda: path.write_bytes(content[: draw.randrange(len(content) + 1)]),
        "emptied": lambda: path.write_bytes(b""),
        "removed": path.unlink,
        "a folder": lambda: in_its_place(path.mkdir),
        "a circle of links": lambda: in_its_place(lambda: path.symlink_to(path)),
        "bytes flipped": lambda: path.write_bytes(
            bytes(one ^ (255 * (draw.random() < 0.01)) for one in content)
        ),
        "noise": lambda: path.write_bytes(draw.randbytes(100)),
    }
    if path.suffix == ".json":
        values: tuple[object, ...] = (None, -1, 10**30, "x" * 10**5, [], {}, 0.5)
        ways |= {f"a field made {value!r:.20}": _edit(draw, path, value) for value in values}
    way = draw.choice(sorted(ways))
    ways[way]()
    return f"{path.name} {way}"


def _edit(draw: random.Random, path: Path, value: object) -> Callable[[], None]:
    def edit() -> None:
        content = json.loads(path.read_bytes())
        part = content
        while isinstance(part, dict | list) and part:
            key = draw.choice(sorted(part)) if isinstance(part, dict) else draw.randrange(len(part))
            if not isinstance(part[key], dict | list) or not part[key] or draw.random() < 0.3:
                part[key] = value
                break
            part = part[key]
        path.write_text(json.dumps(content))

    return edit


ATTACKS: Mapping[
    str, tuple[Callable[[Attacker, int], tuple[Outcome, str]], int]
] = {  # with how many of an hour
    "generated bad calls": (Attacker.bad_call, 1000),
    "damaged stores": (Attacker.damaged_store, 150),
    "damaged models": (Attacker.damaged_model, 150),
    "kills and signals": (Attacker.killed_run, 300),
    "full disks": (Attacker.full_disk, 50),
    "forged records": (Attacker.forged_record, 200),
}
