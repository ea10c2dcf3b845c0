"""What was measured on a machine: its speed, what the engine makes of it, and what each press costs."""

import json
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from kvbench.errors import KVBenchError

FILE = Path(__file__).parent / "constants.json"
QUADRATIC = 1.5  # a press is one if its readings of the cache grow that much at four times the length


class PressCost(BaseModel):
    """``readings``: what scoring costs at the two lengths, in the time in which the machine reads the context's cache
    once; ``level_readings``: the same for each ratio. ``prefills``: what a ratio of a press with a prefill of its own
    costs, in prefills."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    readings: tuple[float, float] = (0.0, 0.0)
    level_readings: float = 0.0
    prefills: float = 0.0

    def readings_at(self, tokens: int, lengths: tuple[int, int]) -> float:
        """Constant, or, of a press that looks at all pairs of tokens, in proportion to the length."""
        short, long = self.readings
        return long * tokens / lengths[1] if long > QUADRATIC * max(short, 1e-9) else max(short, long)


class Constants(BaseModel):
    """``flops``: of matrix products, and ``bandwidth``: of copies, bytes, both a second. ``prefill_share`` and
    ``decode_share``: of these, what prefill and decoding reach. ``record_bytes``: of a stored record, fixed and for
    each token of its context."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machine: str
    date: str
    packages: dict[str, str]
    model: str
    lengths: tuple[int, int]
    flops: float
    bandwidth: float
    prefill_share: float
    decode_share: float
    presses: dict[str, PressCost]
    record_bytes: tuple[float, float]

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValidationError, json.JSONDecodeError) as error:
            raise KVBenchError(f"{path} holds no measured constants: write it with plan --measure {path}") from error


def measured_constants() -> Constants:
    """Those that come with the package."""
    return Constants.read(FILE)
