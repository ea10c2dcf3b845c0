"""The tables on what a difference of both paths comes from are filled, and their rows add up."""

import numpy as np
import pandas as pd
import pytest

from kvbench.engine.numerics.options import NumericsOptions
from kvbench.models.load import LoadedModel
from kvbench.store.numerics import DRIFT, GROUPS, NUMERICS, PATCHES, POLICIES
from kvbench.store.scoring import rescore
from kvbench.store.store import Store
from tests.support.models.runs import ToyRuns

TABLES = tuple(table.name for table in (NUMERICS, DRIFT, PATCHES, GROUPS, POLICIES))


@pytest.fixture(scope="module")
def store(llama: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Store:
    few = NumericsOptions(("float32", "float16"), ("greedy",), steps=4)
    toy = ToyRuns(llama, tmp_path_factory.mktemp("numerics"))
    return toy("run", ("full", "knorm", "random"), contexts=1, tables=TABLES, numerics=few)


def table(store: Store, declared: object) -> pd.DataFrame:
    frame: pd.DataFrame = store.study_table(declared).to_pandas()  # type: ignore[arg-type]
    return frame


def test_every_layer_drifts_in_every_dtype(store: Store) -> None:
    rows = table(store, DRIFT)
    assert sorted(zip(rows["dtype"], rows["layer"], strict=True)) == [
        (dtype, layer) for dtype in ("float16", "float32") for layer in (0, 1)
    ]
    assert {len(one) for name in ("hidden", "added_l2", "keys_written") for one in rows[name]} == {4}
    in_half, in_single = (
        np.concatenate(rows[rows["dtype"] == one]["values"].tolist()) for one in ("float16", "float32")
    )
    assert 0 < in_single.max() < 1e-4 < in_half.max() < 0.1


def test_patches_are_of_one_step_and_patching_everything_leaves_nothing(store: Store) -> None:
    rows = table(store, PATCHES)
    assert set(rows["dtype"]) == {"float16"}
    assert rows["step"].nunique() == rows["kl"].nunique() == 1
    assert (rows["kl"] > 0).all()
    everything = rows[(rows["rows"] == "both") & (rows["layer"] == -1)]
    assert everything["kl_patched"].tolist() == [0.0]


def test_groups_are_of_the_model_and_of_random_weights(store: Store) -> None:
    rows = table(store, GROUPS)
    assert {whose: sorted(group["size"]) for whose, group in rows.groupby("whose")} == {
        "model": [1, 2],
        "random": [1, 2, 4, 8],
    }
    assert {len(one) for one in rows[rows["whose"] == "model"]["hidden"]} == {2}


def test_policies_that_evict_are_treated_again_in_16_bits(store: Store) -> None:
    rows = table(store, POLICIES)
    assert set(rows["policy"]) == {"knorm"}
    assert rows["question_id"].nunique() == 1
    assert rows["moved"].between(0, 0.2).all()
    records = store.frame()
    of_policy = records[(records["policy"] == "knorm")].set_index("question_id")["f1"]
    same = rows[rows["same_tokens"]]
    assert same["f1"].tolist() == of_policy[same["question_id"]].tolist()


def test_score_finds_again_what_is_right_by_the_stored_texts(store: Store) -> None:
    rows = table(store, NUMERICS)
    free = rows[rows["text"].notna()]
    assert set(free["regime"]) == {"free-running"}
    before = {declared.name: store.study_table(declared) for declared in (NUMERICS, POLICIES)}
    for declared in (NUMERICS, POLICIES):
        for path in store.files(declared):
            wrong = [
                one if one.text is None else one.model_copy(update={"right": not one.right})
                for one in store.read_rows(declared, path)
            ]
            store.write_rows(declared, path, wrong)
        assert store.study_table(declared)["right"] != before[declared.name]["right"]
    rescore(store)
    for declared in (NUMERICS, POLICIES):
        assert store.study_table(declared)["right"] == before[declared.name]["right"]
