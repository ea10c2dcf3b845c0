"""Predicts the memory of a run before it begins."""

from collections import Counter
from collections.abc import Iterator

from datasets_gen import Task
from kvbench.engine.decode.waves import Forecast, forecast
from kvbench.engine.treat.plan import plan, with_reference
from kvbench.experiments.grid import Grid
from kvbench.models.load import LoadedModel
from kvbench.prompts.prompt import build_prompts
from leaderboards.metrics.declaration.sizes import size_text


def memory_plan(model: LoadedModel, grid: Grid, max_kv_bytes: int, workers: int) -> str:
    """Describes the bound, and the waves (branches that are decoded together) of the task whose first context takes
    most, in one line."""
    expected = _first_forecasts(model, grid, max_kv_bytes)
    each = f" in each of {workers} processes" if workers > 1 else ""
    bound = f"at most {size_text(max_kv_bytes)} of keys and values at once{each}"
    lost = max((one.too_large for _, one in expected), default=0)
    failures = f"; {lost} branches need more and will fail: see --max-kv-gb" if lost else ""
    with_waves = [(task, one) for task, one in expected if one.waves]
    if not with_waves:
        return bound + failures
    task, most = max(with_waves, key=lambda pair: max(size for _, size in pair[1].waves))
    counts = Counter(rows for rows, _ in most.waves)
    waves = " and ".join(
        f"{times} wave{'s' * (times > 1)} of {rows} branch{'es' * (rows > 1)}"
        for rows, times in sorted(counts.items(), reverse=True)
    )
    size = size_text(max(size for _, size in most.waves))
    return f"{bound}; most in {task.name}: {waves}, the largest {size}{failures}"


def processes_within(model: LoadedModel, grid: Grid, max_kv_bytes: int, most: int) -> int:
    """Returns how many processes may share the bound. They are fewer than ``most`` where a branch fits into the bound
    but not into a share of it, because results must not depend on the cores of the machine."""

    def count_too_large(count: int) -> int:
        return sum(one.too_large for _, one in _first_forecasts(model, grid, max_kv_bytes // count))

    return next(count for count in range(most, 0, -1) if count == 1 or count_too_large(count) == count_too_large(1))


def _first_forecasts(model: LoadedModel, grid: Grid, max_kv_bytes: int) -> list[tuple[Task, Forecast]]:
    return [(task, one) for task, _ in grid.tasks for one in _first_context_forecast(model, grid, task, max_kv_bytes)]


def _first_context_forecast(model: LoadedModel, grid: Grid, task: Task, max_kv_bytes: int) -> Iterator[Forecast]:
    setting = grid.setting
    for prompt in build_prompts(model.tokenizer, task, grid.example(task, 0), setting.mode)[:1]:
        scorings = plan(grid.policies_on(task), setting.points, prompt, setting.seed)
        yield forecast(model, prompt, with_reference(scorings, prompt), task.max_new_tokens, max_kv_bytes)
