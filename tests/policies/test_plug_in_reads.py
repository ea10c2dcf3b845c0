"""Which files a plug-in is told to rest on: those that its code asks for, the same in each process,
and none that what it imports opens for itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from policies import load_plug_in

PRESS = """
from kvpress import KnormPress
{top}

class Mine(KnormPress):
    pass
"""
ORIGIN = """
import sys
from policies import load_plug_in
code = load_plug_in(sys.argv[1]).code
print(code.origin, *sorted(code.files))
"""


def reading_state(home: Path) -> str:
    """Lines that read a file which no text names."""
    return f"from pathlib import Path\nSTATE = Path({str(home)!r}, 'state' + '.txt').read_text()\n"


def files_of_fresh_process(plug_in: Path) -> list[str]:
    """The hash of a plug-in and its files, where nothing of it was imported before."""
    command = [sys.executable, "-c", ORIGIN, f"{plug_in}:Mine"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return done.stdout.split()


def origin_here(plug_in: Path) -> str:
    return load_plug_in(f"{plug_in}:Mine").code.origin


def files_here(plug_in: Path) -> set[str]:
    return {*load_plug_in(f"{plug_in}:Mine").code.files}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "site-packages").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    return tmp_path


def write_plug_in(home: Path, name: str, top: str) -> Path:
    file = home / f"{name}.py"
    file.write_text(PRESS.format(top=top))
    return file


def test_a_press_is_the_same_in_each_process(home: Path) -> None:
    """kvpress imports torch, which reads the memory map of the process, and pandas, which reads a
    time zone: of a press that imports it first, these were once files, and each process had another
    press."""
    (home / "scales.csv").write_text("a\n1\n")
    top = "import pandas\nfrom pathlib import Path\n"
    top += "SCALES = pandas.read_csv(Path(__file__).parent / ('scales' + '.csv'))"
    plug_in = write_plug_in(home, "in_each_process", top)
    origin, *files = files_of_fresh_process(plug_in)
    assert files == ["in_each_process.py", "scales.csv"]
    assert origin_here(plug_in) == origin, "where kvpress is imported already"
    (home / "scales.csv").write_text("a\n2\n")
    assert origin_here(plug_in) != origin


def test_what_an_installed_package_opens_while_it_is_imported_is_not_read_by_the_plug_in(
    home: Path,
) -> None:
    (home / "state.txt").write_text("1")
    (home / "site-packages" / "a_nosy_one.py").write_text(
        reading_state(home) + "def read(place):\n    return Path(place).read_text()\n"
    )
    nosy = write_plug_in(home, "of_a_nosy_one", "import a_nosy_one")
    assert files_here(nosy) == {"of_a_nosy_one.py"}
    asking = write_plug_in(
        home, "asks", f"import a_nosy_one\na_nosy_one.read({str(home)!r} + '/state' + '.txt')"
    )
    assert files_here(asking) == {"asks.py", "state.txt"}


def test_a_file_that_is_called_like_an_installed_package_is_another_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "state.txt").write_text("1")
    (home / "site-packages" / "a_namesake.py").write_text(reading_state(home))
    write_plug_in(home, "a_namesake", "import a_namesake")
    monkeypatch.chdir(home)
    assert files_here(Path("a_namesake.py")) == {"a_namesake.py"}


def test_what_a_module_of_its_own_opens_is_read_by_the_plug_in(home: Path) -> None:
    (home / "state.txt").write_text("1")
    (home / "a_module_that_reads.py").write_text(reading_state(home))
    plug_in = write_plug_in(
        home,
        "with_a_module",
        "import sys; sys.path.insert(0, __file__.rpartition('/')[0]); import a_module_that_reads",
    )
    assert "state.txt" in files_here(plug_in)


def test_an_installed_plug_in_reads_its_own_files(home: Path) -> None:
    (home / "state.txt").write_text("1")
    (home / "site-packages" / "an_installed_press.py").write_text(
        PRESS.format(top=reading_state(home))
    )
    files = load_plug_in("an_installed_press:Mine").code.files
    assert (home / "state.txt").resolve() in set(files.values())


@pytest.mark.parametrize("name", ["/proc/stat", "/sys/kernel/uevent_seqnum", "/dev/null"])
def test_what_a_system_makes_up_is_no_file_of_a_plug_in(home: Path, name: str) -> None:
    """Neither named in its text nor opened: it would be another press each time."""
    plug_in = write_plug_in(home, "of_the_system", f"open({name!r}).close()")
    assert files_here(plug_in) == {"of_the_system.py"}
