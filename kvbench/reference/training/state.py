"""The state of a training in a folder small enough to be committed: weights in float16, and where the training stands.

What the optimizers remember is left out: it is three times as large and made anew in some dozens of steps.
"""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from kvbench.reference.training.lessons import Curriculum, Lesson
from kvbench.system.files import write_text_atomically

TIED = "lm_head.weight"  # the embeddings once more


@dataclass
class Progress:
    """Says where the training stands; it is written with the weights. ``batches`` counts batches of tasks."""

    step: int = 0
    batches: int = 0
    tokens: int = 0
    seconds: float = 0.0
    copying: bool = True
    copying_loss: float = 10.0
    curriculum: Curriculum = field(default_factory=Curriculum)

    @classmethod
    def of(cls, saved: dict[str, Any]) -> "Progress":
        lessons = {name: Lesson(**lesson) for name, lesson in saved.pop("curriculum")["lessons"].items()}
        return cls(**saved, curriculum=Curriculum(lessons))


def write_state(
    folder: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, progress: dict[str, Any], curve: Path
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.half().contiguous() for name, weight in model.state_dict().items() if name != TIED}
    save_file(weights, folder / "weights.safetensors")
    tokenizer.save_pretrained(folder / "tokenizer")
    write_text_atomically(folder / "progress.json", json.dumps(progress, indent=1) + "\n")
    if curve.exists():
        shutil.copy(curve, folder / curve.name)


def begin_with_state(folder: Path, work: Path) -> None:
    """Makes a new working folder with the tokenizer and the learning curve of a state."""
    work.mkdir(parents=True)
    shutil.copytree(folder / "tokenizer", work / "tokenizer")
    if (folder / "learning_curve.csv").exists():
        shutil.copy(folder / "learning_curve.csv", work)


def read_state(folder: Path, model: PreTrainedModel) -> dict[str, Any]:
    """Gives the model the weights of a state; returns where its training stood."""
    weights = load_file(folder / "weights.safetensors")
    missing, unexpected = model.load_state_dict(
        {name: weight.float() for name, weight in weights.items()}, strict=False
    )
    assert set(missing) <= {TIED}
    assert not unexpected
    progress: dict[str, Any] = json.loads((folder / "progress.json").read_text())
    return progress
