"""Several workers do what one does."""

import time
from typing import Any

import pandas as pd
import pytest
import torch

from datasets_gen import TASKS
from kvbench.collect import collect
from kvbench.errors import KVBenchError
from kvbench.models import LoadedModel
from kvbench.setting import Setting
from kvbench.workers import Workers
from policies import POLICIES


def test_three_workers_write_the_records_of_one(llama: LoadedModel) -> None:
    """Presses leave attributes on modules, and the engine hooks: none may reach the context of another worker."""
    setting = Setting(list(POLICIES.values()), (0.0, 0.4, 0.8))
    examples = list(TASKS["hops"].generate(0, 6))

    def frame(workers: Workers) -> pd.DataFrame:
        work = workers.map(lambda model, one: collect(model, TASKS["hops"], [one], setting), examples)
        found = pd.DataFrame([r.model_dump() for records in work for of_policy in records.values() for r in of_policy])
        return found.drop(columns=[column for column in found.columns if column.endswith("_seconds")])

    alone = frame(Workers(llama, 1))
    assert set(alone.status) == {"ok"}
    assert alone.output_text.nunique() > 1
    pd.testing.assert_frame_equal(frame(Workers(llama, 3)), alone)


def network_after_a_while(model: LoadedModel, _: int) -> Any:
    time.sleep(0.05)
    return model.network


def test_replicas_share_their_weights(llama: LoadedModel) -> None:
    networks = list(Workers(llama, 2).map(network_after_a_while, range(2)))
    assert networks[0] is not networks[1]
    assert networks[0].model.layers[0] is not llama.network.model.layers[0]
    for one, other in zip(networks[0].parameters(), llama.network.parameters(), strict=True):
        assert one.data_ptr() == other.data_ptr()


@pytest.mark.parametrize("count", [1, 2])
def test_a_failure_reaches_the_caller_and_drops_what_was_not_begun(llama: LoadedModel, count: int) -> None:
    begun: list[int] = []
    results: list[int] = []

    def work(_: LoadedModel, item: int) -> int:
        begun.append(item)
        if item == 1:
            raise KVBenchError("item 1 is broken")
        time.sleep(0.02)
        return item

    with pytest.raises(KVBenchError, match="item 1 is broken"):
        results.extend(Workers(llama, count).map(work, range(200)))
    assert results == [0]
    assert len(begun) < 100


def test_a_large_model_keeps_all_threads_for_itself(llama: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert Workers(llama).count == 4
    monkeypatch.setattr("kvbench.workers.SMALL", 10)
    assert Workers(llama).count == 1
