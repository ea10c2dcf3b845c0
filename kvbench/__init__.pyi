from kvbench.api.load import load as load
from kvbench.api.results import RunResult as RunResult
from kvbench.api.run import run as run
from kvbench.system.errors import KVBenchError as KVBenchError

__version__: str
__all__ = ["KVBenchError", "RunResult", "load", "run"]
