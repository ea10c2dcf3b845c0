"""Names what the study of numerics compares: types of numbers, ways to choose tokens, draws and steps."""

from dataclasses import dataclass

DTYPES = {"fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
SAMPLING = ("greedy", "top_k", "top_p")
MOST_STEPS = 128


@dataclass(frozen=True)
class NumericsOptions:
    """The options of a run that fills the tables of numerics."""

    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")  # as torch names them
    sampling: tuple[str, ...] = SAMPLING
    repeats: int = 1  # draws where tokens are chosen at random
    steps: int = 16  # tokens at most of an answer

    def as_texts(self) -> dict[str, str]:
        """Returns the options as a run's identity holds them."""
        dtypes, sampling = ",".join(self.dtypes), ",".join(self.sampling)
        return {"dtypes": dtypes, "sampling": sampling, "repeats": str(self.repeats), "steps": str(self.steps)}
