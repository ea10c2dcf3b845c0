"""Fixtures that are dear to build, made once; and settings that every test shares."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import settings
from transformers import PreTrainedTokenizerFast

from datasets_gen import Task
from kvbench.cli.program import main
from kvbench.experiments import options
from kvbench.experiments.options import limit_answers
from kvbench.models import precision
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import Prompt
from kvbench.store.store import Store
from leaderboards.metrics.judges.obedience import official
from tests.support.browsing.chromium import Chromium, chromium
from tests.support.models.runs import SHORT, CommandLine, ToyRuns, small_command
from tests.support.models.toy import model_of, toy_prompt, toy_tokenizer
from tests.support.records.small_store import small_store

# Toy tensors are too small to share: where another job holds a core, two threads take fifteen times
# as long as one.
torch.set_num_threads(1)
# No test depends on time, and a red test is red again on the next run.
settings.register_profile(
    "kvbench", deadline=None, derandomize=True, max_examples=25, database=None
)
settings.load_profile("kvbench")


@pytest.fixture(scope="session", autouse=True)
def _float32_on_every_processor() -> Iterator[None]:
    """Toy models are loaded in float32 unless a test says otherwise, also where bfloat16 is
    faster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "faster_dtype", lambda: torch.float32)
        yield


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    return toy_tokenizer()


@pytest.fixture(scope="session")
def llama() -> LoadedModel:
    return model_of("llama")


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory, llama: LoadedModel) -> Path:
    """The toy model as a checkpoint on disk."""
    folder = tmp_path_factory.mktemp("model")
    llama.network.save_pretrained(folder)
    llama.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def toy_copy(toy_folder: Path, tmp_path: Path) -> Path:
    """A copy of the toy model on disk, to be spoilt."""
    return Path(shutil.copytree(toy_folder, tmp_path / "model"))


@pytest.fixture
def runs(llama: LoadedModel, tmp_path: Path) -> ToyRuns:
    return ToyRuns(llama, tmp_path)


def limit_answers_shortly(
    tasks: Sequence[Task], tokens: int | None, most_of_suite: int | None = None
) -> list[Task]:
    """Limits answers as kvbench does, and to a few tokens where nothing is said: the toy model
    never ends an answer by itself, and what a test asks shows after a few tokens."""
    return limit_answers(tasks, tokens, most_of_suite or SHORT)


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str],
    toy_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> CommandLine:
    """Commands of kvbench, whose runs are of the toy model and lie in the temporary folder."""
    monkeypatch.setattr(options, "limit_answers", limit_answers_shortly)
    return CommandLine(capsys, toy_folder, tmp_path)


@pytest.fixture(scope="session")
def toy_run(toy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of the toy model, ``runs/x``, and its ``site``. Tests read it
    and change nothing."""
    folder = tmp_path_factory.mktemp("toy")
    assert (
        main([str(word) for word in small_command(toy_folder, folder, "--policies", "knorm")]) == 0
    )
    return folder


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The committed run of the reference model. Tests read it and change nothing."""
    return small_store(tmp_path_factory.mktemp("runs") / "small")


@pytest.fixture(scope="session")
def small_records(small_run: Store) -> pd.DataFrame:
    """The records of the committed run. Tests read them and change nothing."""
    return small_run.frame()


@pytest.fixture(scope="session")
def small_site(small_run: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the committed run. Tests read it and change nothing."""
    folder = tmp_path_factory.mktemp("small-site")
    assert main(["site", str(small_run.folder), "--site", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def prompt() -> Prompt:
    """An agnostic prompt of task ``base``: one context and three of its questions: the first, whose
    row treats it, and two that get copies."""
    return toy_prompt(questions=3)


@pytest.fixture
def looked_for_again() -> Iterator[None]:
    official.cache_clear()
    yield
    official.cache_clear()


@pytest.fixture(scope="session")
def running_chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with chromium(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def browser(running_chromium: Chromium) -> Chromium:
    """One page of headless Chromium, which has not complained of anything before the tests of a
    module."""
    running_chromium.evaluate("0")  # what the module before asked for has arrived by then
    running_chromium.complaints.clear()
    running_chromium.requests.clear()
    return running_chromium
