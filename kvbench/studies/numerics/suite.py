"""The suite of numerics: is a cached answer the answer without the cache?"""

from typing import Annotated

from pydantic import BeforeValidator

from datasets_gen import TASKS
from datasets_gen.tasks.gsm8k import GSM8K
from datasets_gen.tasks.prose import PROSE
from kvbench.models.names import OF_CHECKPOINT
from kvbench.studies.declaration import NoArguments, PaperSize, Suite


def _without_brackets(text: object) -> object:
    return text.strip("[]") if isinstance(text, str) else text


Several = Annotated[str, BeforeValidator(_without_brackets)]  # such as [fp32,bf16]


class NumericsArguments(NoArguments):
    """Declares what ``--suite numerics`` takes in brackets; the names are those of a job's
    fields."""

    dtypes: Several | None = None  # fp64, fp32, bf16, fp16; all but fp64
    sampling: Several | None = None  # greedy, top_k, top_p; all
    deterministic: bool | None = None  # only algorithms that give the same bits again; yes
    directions: Several | None = None  # of patches: into_on, into_off; both


SUITE = Suite(
    name="numerics",
    description="Is a cached answer the answer without the cache, by type of numbers (arXiv 2604.15409)",
    tasks=(TASKS["base"], TASKS["arithmetic"], PROSE),
    policies="full",
    tables=("numerics_pairs", "numerics_drift", "numerics_recovery", "numerics_rounding"),
    levels={"ratio": "0.5"},  # of the controls
    repeats=2,
    dtype=OF_CHECKPOINT,
    limit=6,  # 16 bits are slow on a processor: as many as take a few minutes
    paper_size=PaperSize({GSM8K.name: 700}, tokens=128, repeats=5),  # 5.1
    needs_right_answers=False,
    arguments=NumericsArguments,
)
