"""Names the kinds of arguments that functions of the library take."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from datasets_gen import Task
    from kvbench.api.results import RunResult
    from policies import Policy

Folder: TypeAlias = str | Path
Number: TypeAlias = int | float
Levels: TypeAlias = str | Number | Sequence[Number] | None
Names: TypeAlias = str | Sequence[str] | None
# A name or a place, or what is in memory, also as a pair with its tokenizer.
Model: TypeAlias = "str | Path | PreTrainedModel | tuple[PreTrainedModel, PreTrainedTokenizerBase]"
Tokenizer: TypeAlias = "PreTrainedTokenizerBase | None"
# A name, a kvpress press (Any, as kvpress has no types), its class, a function, or a Policy.
Press: TypeAlias = "str | Policy | Callable[..., Any] | Any"
Presses: TypeAlias = "Press | Sequence[Press] | None"
Opponents: TypeAlias = "Press | RunResult | Path | Sequence[Press | RunResult | Path]"
Row: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = "Sequence[Row] | Dataset"
Tasks: TypeAlias = "str | Path | Task | Rows | Sequence[str | Path | Task | Rows] | None"
