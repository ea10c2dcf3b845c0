"""The constants of a plan, measured on a machine: the cost of each press, and the bytes of a store."""

from pathlib import Path
from statistics import median
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from kvbench.system.errors import KVBenchError
from policies import Policy

FILE = Path(__file__).parent / "constants.json"
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
QUADRATIC = 1.5  # a press looks at all pairs of tokens if its readings grow that much at four times the length


class PressCost(BaseModel):
    """The cost of a press. Its unit is a reading: the time in which the machine reads the context's cache once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    readings: tuple[NonNegative, NonNegative] = (0.0, 0.0)  # to score, at the two lengths
    level_readings: NonNegative = 0.0  # for each ratio
    prefills: NonNegative = 0.0  # for each ratio, of a press with a prefill of its own

    def readings_at(self, tokens: int, lengths: tuple[int, int]) -> float:
        """Counts the readings that score a context: as many at any length, or in proportion to it if the press looks at
        all pairs of tokens."""
        short, long = self.readings
        return long * tokens / lengths[1] if long > QUADRATIC * max(short, 1e-9) else max(short, long)


class TableBytes(BaseModel):
    """The bytes that a table of a store takes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: NonNegative  # bytes of a file: it describes its columns
    row: NonNegative  # bytes of a row
    token: NonNegative  # bytes more of a row for each token of its context

    def of(self, files: float, rows: float, tokens: float) -> float:
        return files * self.file + rows * (self.row + tokens * self.token)


class Constants(BaseModel):
    """The file of constants."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machine: str
    date: str
    packages: dict[str, str]
    model: str
    lengths: tuple[PositiveInt, PositiveInt]  # tokens of the two contexts
    presses: Annotated[dict[str, PressCost], Field(min_length=1)]
    store: dict[str, TableBytes]  # by table

    @classmethod
    def read(cls, path: Path = FILE) -> Self:
        """Reads a file of constants; by default the one that comes with kvbench."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            reason = error.strerror or error
            raise KVBenchError(f"{path} cannot be read ({reason}): plan --measure {path} writes it") from error
        except ValidationError as error:
            first = error.errors()[0]
            reason = f"{'.'.join(map(str, first['loc'])) or 'the whole file'}: {first['msg']}"
            raise KVBenchError(
                f"{path} holds no measured constants ({reason}): write it again with plan --measure {path}"
            ) from error

    def press(self, policy: Policy) -> PressCost:
        """Returns the cost of a policy's press. If it was not measured, that is the median of its kind: of the presses
        with a prefill of their own, or of the others."""
        if policy.name in self.presses:
            return self.presses[policy.name]
        kind = [press for press in self.presses.values() if (press.prefills > 0) == (policy.prefill == "private")]
        return PressCost(
            readings=(median(press.readings[0] for press in kind), median(press.readings[1] for press in kind)),
            level_readings=median(press.level_readings for press in kind),
            prefills=median(press.prefills for press in kind),
        )
