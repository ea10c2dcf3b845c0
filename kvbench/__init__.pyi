from kvbench.api.compare import compare as compare
from kvbench.api.comparison import ComparisonResult as ComparisonResult
from kvbench.api.doctor import doctor as doctor
from kvbench.api.examined import DoctorResult as DoctorResult
from kvbench.api.examined import PlanResult as PlanResult
from kvbench.api.load import load as load
from kvbench.api.own_tasks import scorer as scorer
from kvbench.api.own_tasks import task as task
from kvbench.api.plan import plan as plan
from kvbench.api.results import RunResult as RunResult
from kvbench.api.run import run as run
from kvbench.system.errors import KVBenchError as KVBenchError

__version__: str
__all__ = [
    "ComparisonResult",
    "DoctorResult",
    "KVBenchError",
    "PlanResult",
    "RunResult",
    "compare",
    "doctor",
    "load",
    "plan",
    "run",
    "scorer",
    "task",
]
