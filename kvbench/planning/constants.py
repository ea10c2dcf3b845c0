"""What was measured on a machine: its speed, what the engine makes of it, and what each press costs."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from kvbench.errors import KVBenchError

FILE = Path(__file__).parent / "constants.json"
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
QUADRATIC = 1.5  # a press is one if its readings of the cache grow that much at four times the length


class PressCost(BaseModel):
    """``readings``: what scoring costs at the two lengths, in the time in which the machine reads the context's cache
    once; ``level_readings``: the same for each ratio. ``prefills``: what a ratio of a press with a prefill of its own
    costs, in prefills."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    readings: tuple[NonNegative, NonNegative] = (0.0, 0.0)
    level_readings: NonNegative = 0.0
    prefills: NonNegative = 0.0

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
    lengths: tuple[PositiveInt, PositiveInt]
    flops: Positive
    bandwidth: Positive
    prefill_share: Positive
    decode_share: Positive
    presses: Annotated[dict[str, PressCost], Field(min_length=1)]
    record_bytes: tuple[NonNegative, NonNegative]

    @classmethod
    def read(cls, path: Path) -> Self:
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise KVBenchError(
                f"{path} cannot be read ({error.strerror or error}): plan --measure {path} writes it"
            ) from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "all of it"
            raise KVBenchError(
                f"{path} holds no measured constants ({where}: {first['msg']}): "
                f"write it anew with plan --measure {path}"
            ) from error


def measured_constants() -> Constants:
    """Those that come with the package."""
    return Constants.read(FILE)
